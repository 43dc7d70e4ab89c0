"""The real source, built here for the other machine: every file is for that, and what was built whole runs there.

The other machine is an emulator of its processor, which says nothing about speed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from boardbench import locations
from boardbench.builds import builder, programs, toolchain
from boardbench.builds.store import Store
from boardbench.builds.voice import Voice
from boardbench.moe.make_model import make_model
from boardbench.payload import load_payload
from tests.payloads.llama.cache_server import server

PROJECT = Path(__file__).resolve().parents[3]
# Sources and objects are kept between runs, like the whole builds.
CACHE = locations.cache_dir()
HERE = toolchain.controller_arch()
LACKING = toolchain.missing("aarch64")
AARCH64 = b"\xb7\x00"
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
LOADER_ROOT = "/usr/aarch64-linux-gnu"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HERE == "aarch64", reason="this machine is the other machine"),
    pytest.mark.skipif(bool(LACKING), reason=f"not installed: {' '.join(LACKING)}"),
]


@pytest.mark.parametrize("kind", ["jetson-orin-nano", "nanopi-r76s"])
def test_ggml_is_cross_built_for_each_kind_of_board(kind: str) -> None:
    payload = load_payload(PROJECT / "payloads" / "llama-expert-cache")
    # A virtual board of another machine than its controller: the way of a real one that does not build for itself.
    wanted = programs.wanted(payload, "stock", kind=kind, arch="aarch64", virtual=True, cache=CACHE)
    built = builder.ensure(wanted.with_targets("ggml-base"), Store(CACHE), Voice(print))
    assert {"libggml-base.so", "libstdc++.so.6"} <= {file.name for file in built.files}
    for file in built.files:
        content = file.path.read_bytes()
        assert (content[:4], content[18:20]) == (b"\x7fELF", AARCH64), file.name
    march = {"jetson-orin-nano": "armv8.2-a+dotprod+fp16", "nanopi-r76s": "armv8-a"}[kind]
    assert built.facts["inputs"]["cmake"]["GGML_CPU_ARM_ARCH"] == march


@pytest.mark.skipif(EMULATOR is None, reason="needs an emulator of aarch64 (qemu-user-static)")
def test_the_whole_cross_build_gives_the_text_of_stock_with_the_cache_on_and_off(tmp_path: Path) -> None:
    """Two whole builds: a quarter of an hour where they are not in the cache of builds yet."""
    payload = load_payload(PROJECT / "payloads" / "llama-expert-cache")

    def built(variant: str) -> Path:
        wanted = programs.wanted(payload, variant, kind="nanopi-r76s", arch="aarch64", virtual=True, cache=CACHE)
        return builder.ensure(wanted, Store(CACHE), Voice(print)).folder

    model = make_model(tmp_path / "m.gguf", types="q8_0", n_embd=256, n_ff=256, n_layers=4, n_experts=8, n_used=2).path
    before = (str(EMULATOR), "-L", LOADER_ROOT)
    texts = []
    for variant, cache_mib in (("stock", None), ("patched", None), ("patched", 2)):
        with server(built(variant), model, tmp_path, cache_mib=cache_mib, before=before) as running:
            texts.append(running.complete("the quick brown fox", 16).tokens)
            evictions = running.counters()["models"][0]["evictions"] if cache_mib else None
    assert texts[1:] == texts[:1] * 2
    assert evictions
