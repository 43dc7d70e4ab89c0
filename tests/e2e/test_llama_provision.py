"""llama.cpp on a virtual Jetson: built or taken from the store, pushed by hash, served, found well, and gone again."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.virtual.fleet import Fleet

from .conftest import Bench, own_bench

pytestmark = [pytest.mark.boards, pytest.mark.slow]
ROOT = "/opt/boardbench/payloads/llama-expert-cache"
LLAMA = ("provision", "--tags", "llama", "--limit", "jetson", "--json")
KINDS = ["bwrap", pytest.param("nspawn", marks=[
    pytest.mark.nspawn, pytest.mark.skipif(os.geteuid() != 0, reason="only root can boot nspawn boards"),
])]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def up(request: pytest.FixtureRequest, llama_build: Callable[[str], Path]) -> Iterator[Bench]:
    """A fleet of one kind; both builds are in the store."""
    for variant in ("stock", "patched"):
        llama_build(variant)
    with own_bench() as bench:
        made = bench.inv("virtual.up", "--kind", request.param)
        assert made.code == 0, made.err
        yield bench


def ask(bench: Bench, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """An answer of the board's server, asked as the board itself would."""
    host = Fleet.open("default", bench.state / "boardbench" / "fleets").access()["jetson"].host
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{host}:8090{path}", data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_provision_pushes_starts_and_finds_it_well(up: Bench) -> None:
    done = up.inv(*LLAMA)
    assert done.code == 0, done.err + done.out
    counts = done.document["recap"]["jetson"]
    assert (counts["changed"], counts["failed"]) == (4, 0)
    assert ask(up, "/health") == {"status": "ok"}
    asked = {"prompt": "the lazy dog", "n_predict": 8, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    first, second = (ask(up, "/completion", asked) for _ in range(2))
    assert first["content"] == second["content"] != ""
    assert first["timings"]["predicted_n"] == 8


def test_a_second_provision_changes_nothing_and_sends_nothing(up: Bench) -> None:
    done = up.inv(*LLAMA)
    assert done.code == 0, done.err + done.out
    counts = done.document["recap"]["jetson"]
    assert (counts["ok"], counts["changed"], counts["failed"]) == (4, 0, 0)
    assert "building" not in done.err
    assert '"sent"' not in done.out


def test_teardown_leaves_neither_files_nor_the_server(up: Bench) -> None:
    torn = up.inv("teardown", "--limit", "jetson", "--json")
    assert torn.code == 0, torn.err + torn.out
    with pytest.raises(OSError, match="refused"):
        ask(up, "/health")
    again = up.inv(*LLAMA, "--check")
    assert again.document["recap"]["jetson"]["changed"] == 4
