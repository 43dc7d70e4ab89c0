"""A part of the real source, through the same way as the whole, for the other machine: every file of it is for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench import locations
from boardbench.builds import builder, programs, toolchain
from boardbench.builds.store import Store
from boardbench.builds.voice import Voice
from boardbench.payload import load_payload

PROJECT = Path(__file__).resolve().parents[3]
# Sources and objects are kept between runs, like the whole builds.
CACHE = locations.cache_dir()
HERE = toolchain.controller_arch()
LACKING = toolchain.missing("aarch64")
AARCH64 = b"\xb7\x00"

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
