"""The router tracer of a llama.cpp payload: a library to preload into its stock server, built for this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from boardbench.errors import RigError
from boardbench.locations import cache_dir
from boardbench.payload import Payload, hash_file

from . import toolchain
from .builder import Waiting, Wanted
from .programs import PINNED, wanted
from .store import FILES, Store, key_of
from .voice import Voice

LIBRARY = "librouter_trace.so"
VARIABLE = "LLAMA_ROUTER_TRACE"
"""Names the trace file for the preloaded library."""
_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Wno-deprecated-declarations", "-fPIC", "-shared", "-Wl,-z,lazy")
_NEEDS_BYTES = 400_000_000
_COMPILE_S = 300.0


def tracer_here(
    payload: Payload, *, given: str = PINNED, cache: Path | None = None, voice: Voice | None = None
) -> Path:
    """The library, built first when it is not in the store. It fits the source that it was built against only.

    Errors: RigError for a missing compiler, a failed download or compile.
    """
    cache, voice = cache or cache_dir(), voice or Voice()
    arch = toolchain.controller_arch()
    build = wanted(payload, "stock", kind="host", arch=arch, virtual=False, given=given, cache=cache, voice=voice)
    tools = toolchain.find(arch, voice)
    sources = sorted((payload.folder / "trace").glob("*.cpp"))
    hashes = {path.name: hash_file(path)[1] for path in sorted((payload.folder / "trace").glob("*.[ch]*"))}
    inputs = {"tracer": hashes, "source": build.source.id, "flags": _FLAGS, "compiler": tools.version}
    store = Store(cache)
    key = key_of(inputs)

    def produce(work: Path) -> Mapping[str, object]:
        voice.say(f"building the router tracer of {build.recipe.payload}")
        _compile(build, tools.cxx, sources, work)
        return {}

    facts = {"inputs": inputs, "title": f"{build.recipe.payload} tracer for {arch}"}
    found = store.find(key) or store.make(key, facts, _NEEDS_BYTES, Waiting("the router tracer", voice), produce)
    return found.folder / LIBRARY


def _compile(build: Wanted, compiler: str, sources: list[Path], work: Path) -> None:
    (work / FILES).mkdir()
    headers = work / "source"
    headers.mkdir()
    build.source.unpack(headers)
    include = ["-I", str(headers / "include"), "-I", str(headers / "ggml" / "include")]
    argv = [compiler, *_FLAGS, *include, *map(str, sources), "-o", str(work / FILES / LIBRARY), "-ldl"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=_COMPILE_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise RigError(f"the router tracer did not compile within {_COMPILE_S:g} s", transient=True) from None
    if done.returncode != 0:
        faults = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise RigError(
            f"the router tracer does not compile: {faults[0][:300]}",
            advice="it is made for the pinned llama.cpp; another version may have another interface",
        )
