"""Perplexity of a text of ours, by llama-perplexity of the same build: whether the model still says what it said."""

from __future__ import annotations

import hashlib
import re
import subprocess
from typing import Any, Sequence

from .raw import missing

_FINAL = re.compile(r"Final estimate: PPL = ([0-9]+(?:\.[0-9]+)?) \+/- ([0-9]+(?:\.[0-9]+)?)")

# A thread of the program writes what it says, and at its end nobody waits for that thread: on a busy board the last
# lines are lost now and then. The estimate is the same in each try.
_TRIES = 4


def parse(output: str) -> tuple[float, float] | None:
    """(perplexity, its standard error) from what the program prints; None when it gives no final estimate."""
    found = _FINAL.findall(output)
    return (float(found[-1][0]), float(found[-1][1])) if found else None


def measure(
    argv: Sequence[str], env: dict[str, str], text_path: str, chunks: int, context: int, log_path: str, limit_s: float
) -> dict[str, Any]:
    """The values of the `perplexity` event; `value` is `{"missing": why}` when there is no estimate."""
    with open(text_path, "rb") as file:
        sha256 = hashlib.sha256(file.read()).hexdigest()
    found: dict[str, Any] = {"chunks": chunks, "context_tokens": context, "text_sha256": sha256}
    command = [*argv, "-f", text_path, "--chunks", str(chunks), "-c", str(context)]
    try:
        for _ in range(_TRIES):
            with open(log_path, "ab") as log:
                done = subprocess.run(
                    command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/",
                    timeout=limit_s, check=False,
                )  # fmt: skip
            with open(log_path, encoding="utf-8", errors="replace") as file:
                estimate = parse(file.read())
            if done.returncode != 0 or estimate is not None:
                break
    except (OSError, subprocess.TimeoutExpired) as error:
        return {**found, "value": missing(f"llama-perplexity: {error}")}
    if done.returncode != 0 or estimate is None:
        return {**found, "value": missing(f"llama-perplexity ended with code {done.returncode}, without an estimate")}
    return {**found, "value": estimate[0], "standard_error": estimate[1]}
