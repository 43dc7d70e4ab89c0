"""Small models that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench.moe.expert_layout import MoeModel, read_model
from boardbench.moe.make_model import make_model


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 layers of 16 experts, 4 a token; slices of 6,912 bytes, no multiple of a page."""
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    return make_model(path, types="q4_0", n_embd=128, n_ff=96, n_layers=4, n_experts=16, n_used=4).path


@pytest.fixture(scope="session")
def model(model_path: Path) -> MoeModel:
    """The same, read."""
    return read_model(model_path)
