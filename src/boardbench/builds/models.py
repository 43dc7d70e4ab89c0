"""Small models of random weights that payloads bring to boards: made once, the same bytes everywhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from boardbench.errors import BugError
from boardbench.payload import Payload, hash_file

from .builder import Waiting
from .store import FILES, Built, Store, key_of
from .voice import Voice

NAME = "model.gguf"
MAKER = ("make_model.py", "random_blocks.py", "vocabulary.py")
"""The modules that decide a model's bytes."""


def inputs(payload: Payload) -> dict[str, object]:
    """Everything that decides the bytes of a payload's model: its parameters and the program that writes it."""
    import boardbench.moe

    maker = Path(boardbench.moe.__file__).parent
    return {
        "model": _parameters(payload),
        "maker": {name: hash_file(maker / name)[1] for name in MAKER},
        # Both round and lay out what the maker gives them.
        "libraries": {name: metadata.version(name) for name in ("gguf", "numpy")},
    }


def ensure(payload: Payload, store: Store, voice: Voice) -> Built:
    """The payload's model, made first when the store does not have it. Errors: InputError for sizes that do not fit."""
    made_from = inputs(payload)
    key = key_of(made_from)
    if (found := store.find(key)) is not None:
        return found
    parameters = _parameters(payload)

    def produce(work: Path) -> Mapping[str, object]:
        from boardbench.moe.make_model import make_model

        voice.say(f"making the model of payload {payload.name}, once")
        began = time.monotonic()
        (work / FILES).mkdir()
        made = make_model(work / FILES / NAME, **parameters)
        return {"unit_bytes": list(made.unit_bytes), "seconds": round(time.monotonic() - began, 1)}

    facts = {"inputs": made_from, "title": f"model of {payload.name}"}
    room = 2 * _expected_bytes(parameters)
    return store.make(key, facts, room, Waiting(f"the model of {payload.name}", voice), produce)


def _parameters(payload: Payload) -> dict[str, Any]:
    model = (payload.build or {}).get("model")
    if not isinstance(model, Mapping):
        raise BugError(f"payload '{payload.name}' makes no model")
    return dict(model)


def _expected_bytes(parameters: Mapping[str, Any]) -> int:
    # Four bytes a weight are more than any type needs.
    sizes = [max(1, int(parameters.get(name, 1))) for name in ("n_embd", "n_ff", "n_layers", "n_experts")]
    return 100_000_000 + 2 * sizes[0] * sizes[1] * sizes[2] * sizes[3] * 3
