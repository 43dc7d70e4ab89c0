"""The `llama-load` workload: a fresh llama-server that is asked a fixed set of prompts, one after another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from boardbench.errors import InputError
from boardbench.workloads.base import PYTHON, Durations, Harness, Samples, Traits, run_folder, script
from boardbench.workloads.llama_lines import read_lines
from boardbench.workloads.llama_samples import FIGURES, samples_of

_SCRIPT = script("llama-load", "llama-load")
RAW = "llama.jsonl"
BUILDS = "llama-expert-cache"
VARIANTS = ("stock", "patched")
SMALL_MODEL = script("llama-small-moe", "small-moe.gguf")
_PROGRAMS = ("llama-server", "llama-perplexity", "llama-bench")
_NUMBERS = {
    "threads": (2, 1), "predict": (256, 1), "prompts": (0, 0), "context": (4096, 1), "cache_mib": (0, 0),
    "readers": (4, 1), "perplexity_chunks": (0, 0), "perplexity_context": (128, 1),
}  # fmt: skip
"""Option -> (default, least)."""
_TEXTS = {"build": "stock", "model": SMALL_MODEL, "host": "127.0.0.1", "arguments": "", "floor": "", "cache": ""}
_SHARD = re.compile(r"(.+)-00001-of-(\d{5})\.gguf")


def model_files(options: Mapping[str, object]) -> tuple[str, ...]:
    """Every file of the model, of which the options name the first shard."""
    model = str(options.get("model", SMALL_MODEL))
    shards = _SHARD.fullmatch(model)
    if shards is None:
        return (model,)
    return tuple(f"{shards[1]}-{number:05d}-of-{shards[2]}.gguf" for number in range(1, int(shards[2]) + 1))


class LlamaLoad:
    """Loads the CPU (and the GPU, where the build has one) with inference; its raw output is `llama.jsonl`."""

    name: str = "llama-load"
    harness: Harness = Harness(
        executables=tuple(script(BUILDS, f"{variant}/{name}") for variant in VARIANTS for name in _PROGRAMS),
        scripts=(_SCRIPT,),
    )
    raw_files: tuple[str, ...] = (RAW,)
    concurrency_option: str | None = None
    traits: Traits = Traits(
        ends_by_work=True,
        cold_files=model_files,
        board_options={"model": "llama_model", "host": "loopback"},
        figures=FIGURES,
        options=(*_NUMBERS, *_TEXTS, "mode"),
    )

    def argv(self, run: str, options: Mapping[str, object], durations: Durations) -> list[str]:
        """See `Workload.argv`. Raises InputError for an option that is none, or has no sense."""
        numbers, texts = _checked(options)
        argv = [PYTHON, _SCRIPT, "--out", f"{run_folder(run)}/workload"]
        argv += ["--build", script(BUILDS, texts["build"]), "--model", texts["model"], "--host", texts["host"]]
        for name in _NUMBERS:
            argv += [f"--{name.replace('_', '-')}", str(numbers[name])]
        if texts["arguments"]:
            argv.append(f"--arguments={texts['arguments']}")
        if texts["floor"]:
            argv += ["--expect-floor", texts["floor"]]
        if texts["cache"]:
            argv += ["--expect-cache", texts["cache"]]
        if durations.lead_s:
            argv += ["--lead-s", f"{durations.lead_s:.6f}"]
        return [*argv, "--limit-s", f"{durations.duration_s:.3f}"]

    def read(self, raw: Path) -> Samples:
        """See `Workload.read`."""
        return samples_of(read_lines(raw / RAW))


def _checked(options: Mapping[str, object]) -> tuple[dict[str, int], dict[str, str]]:
    unknown = sorted(set(options) - set(_NUMBERS) - set(_TEXTS) - {"mode"})
    if unknown:
        raise InputError(
            f"workload llama-load has no option '{unknown[0]}'", advice=f"there are: {', '.join([*_NUMBERS, *_TEXTS])}"
        )
    numbers: dict[str, int] = {}
    for name, (default, least) in _NUMBERS.items():
        value = options.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"option '{name}' of llama-load is {value!r}", advice=f"a whole number from {least} on")
        numbers[name] = value
    texts = {name: str(options.get(name, default)) for name, default in _TEXTS.items()}
    _one_of("build", texts["build"], VARIANTS)
    _one_of("floor", texts["floor"], ("", "up", "down"))
    _one_of("cache", texts["cache"], ("", "used", "idle"))
    if not texts["model"].startswith("/"):
        raise InputError(f"option 'model' of llama-load is {texts['model']!r}", advice="an absolute path on the board")
    if numbers["cache_mib"] and texts["build"] == "stock":
        raise InputError("the stock build of llama.cpp has no expert cache", advice="build: patched, or cache_mib: 0")
    if texts["cache"] and not numbers["cache_mib"]:
        raise InputError(
            f"option 'cache' of llama-load is {texts['cache']!r}, and the cache is off", advice="give cache_mib"
        )
    return numbers, texts


def _one_of(name: str, value: str, words: Sequence[str]) -> None:
    if value not in words:
        raise InputError(
            f"option '{name}' of llama-load is {value!r}", advice=f"one of {', '.join(word for word in words if word)}"
        )
