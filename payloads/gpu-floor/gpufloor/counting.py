"""Which processes count: those that were told to keep experts of a mixture-of-experts model on the CPU.

The words are llama.cpp's. A flag of the settings counts when it is one whole argument; `--n-cpu-moe 0` keeps no layer
on the CPU and does not. `-ot`/`--override-tensor PATTERN=CPU,...` counts when its pattern finds a tensor of experts.
"""

from __future__ import annotations

import re
from typing import Iterator, Mapping, Sequence

OVERRIDE_FLAGS = ("-ot", "--override-tensor")
_WITH_NUMBER = ("--n-cpu-moe", "-ncmoe")
# Tensors of experts as GGUF files name them, for some layers: a pattern may name one layer only.
_KINDS = ("gate", "up", "down", "gate_up", "gate_ch", "up_ch", "down_ch")
_LAYERS = 128
_TENSORS = tuple(f"blk.{layer}.ffn_{kind}_exps.weight" for layer in range(_LAYERS) for kind in _KINDS)
# Patterns that mean something else in llama.cpp's dialect, a repeated group (which can take for ever, and any user's
# command line is read here), and more repeats than a pattern of tensor names needs.
_UNLIKE = re.compile(r"\[[:.=]|\)[*+{]|([*+{].*){5}", re.DOTALL)
_LONGEST = 300
_TRUE = ("on", "enabled", "true", "1")


def _values(argv: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for index, word in enumerate(argv):
        head, sign, tail = word.partition("=")
        if word in names:
            yield argv[index + 1] if index + 1 < len(argv) else ""
        elif sign and head in names and head.startswith("--"):
            yield tail


def _is_zero(text: str) -> bool:
    try:
        return int(text) == 0
    except ValueError:
        return False


def override_to_cpu(value: str) -> str | None:
    """The part of an `-ot` value that puts experts on the CPU; None when none does."""
    for part in value.split(","):
        pattern, sign, buffer = part.partition("=")
        if not sign or not buffer.strip().startswith("CPU"):
            continue
        if _finds_experts(pattern):
            return part
    return None


def _finds_experts(pattern: str) -> bool:
    try:
        if len(pattern) > _LONGEST or _UNLIKE.search(pattern):
            raise re.error("not taken")
        found = re.compile(pattern)
    except re.error:
        # Judged by the word that all names of expert tensors have.
        return "exp" in pattern
    return any(found.search(name) for name in _TENSORS)


def why_it_counts(
    argv: Sequence[str], environment: Mapping[str, str], flags: Sequence[str], override_tensor: bool
) -> str | None:
    """What in the command line or environment makes the process count; None when nothing does."""
    for flag in flags:
        if flag in _WITH_NUMBER:
            values: list[str] = list(_values(argv[1:], (flag,)))
            if values and not _is_zero(values[-1]):
                return f"{flag} {values[-1]}".strip()
        elif flag in argv[1:]:
            return flag
    if override_tensor:
        for value in _values(argv[1:], OVERRIDE_FLAGS):
            part = override_to_cpu(value)
            if part is not None:
                return f"--override-tensor {part}"
    return _by_environment(environment, flags, override_tensor)


def _by_environment(environment: Mapping[str, str], flags: Sequence[str], override_tensor: bool) -> str | None:
    if "--cpu-moe" in flags and environment.get("LLAMA_ARG_CPU_MOE", "").lower() in _TRUE:
        return "LLAMA_ARG_CPU_MOE"
    number = environment.get("LLAMA_ARG_N_CPU_MOE", "")
    if "--n-cpu-moe" in flags and number and not _is_zero(number):
        return f"LLAMA_ARG_N_CPU_MOE={number}"
    if override_tensor and override_to_cpu(environment.get("LLAMA_ARG_OVERRIDE_TENSOR", "")) is not None:
        return "LLAMA_ARG_OVERRIDE_TENSOR"
    return None
