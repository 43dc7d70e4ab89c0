"""The driver of the expert cache, built with g++: plain or under a sanitizer, from our sources or changed ones."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[3]
CACHE = PROJECT / "payloads" / "llama-expert-cache" / "cache"
DRIVER = Path(__file__).parent / "cache_driver"
FLAGS = {
    "plain": ("-O2",),
    "thread": ("-O1", "-fsanitize=thread"),
    "address": ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}


def have_compiler() -> bool:
    """Whether the driver can be built here."""
    return shutil.which("g++") is not None


def _compile(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stderr[-4000:]}"


def build(kind: str, folder: Path, cache: Path = CACHE) -> Path:
    """The driver in `folder`, warnings being errors. `kind` is a key of FLAGS."""
    # hooks.cpp is the only file that needs ggml.
    sources = [DRIVER / "main.cpp", *(p for p in sorted(cache.glob("*.cpp")) if p.name != "hooks.cpp")]
    common = ["g++", "-std=c++17", "-g1", "-Wall", "-Wextra", "-Werror", *FLAGS[kind], "-pthread", "-I", str(cache)]
    objects = [folder / f"{kind}-{source.stem}.o" for source in sources]
    with ThreadPoolExecutor(2) as pool:
        jobs = [[*common, "-c", str(s), "-o", str(o)] for s, o in zip(sources, objects, strict=True)]
        list(pool.map(_compile, jobs))
    program = folder / f"cache-driver-{kind}"
    _compile([*common, *map(str, objects), "-o", str(program)])
    return program


def drive(program: Path, scenario: str, seed: int, last: object, timeout_s: float = 600) -> dict[str, Any]:
    """Run a scenario; its line of JSON. AssertionError with what broke."""
    argv = [str(program), scenario, str(seed), str(last)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}:\n{done.stderr[-4000:]}"
    return dict(json.loads(done.stdout))
