"""The payloads' folders on the path, and a cluster that tests which change nothing share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PAYLOADS = Path(__file__).resolve().parents[3] / "payloads"
sys.path[:0] = [str(PAYLOADS / name) for name in ("npu-common", "npu-node", "npu-scheduler", "npu-load", "npu-run")]

from .cluster import Cluster  # noqa: E402


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and three nodes in plaintext whose inferences take no time. Tests leave it as it is."""
    with Cluster(tmp_path_factory.mktemp("npu")) as cluster:
        cluster.start()
        yield cluster
