"""Responses of llama-server: rates from counts and times, a prompt that came from the cache kept apart.

A prefill rate comes from `prompt_n` and `prompt_ms` only. Where part of the prompt was in the cache it is a `warm` one
and has another name, so that nobody can mix the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import isclose
from typing import Any

from boardbench.imports.model import Missing, Parsed, Reading, Run
from boardbench.imports.text import Faults, Line, json_number, plain, strict_json

RATE_NOISE = 0.02
_DEEPEST = 3


def timings_in(value: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Objects with a `timings` object, wherever a wrapper put them (three levels)."""
    if isinstance(value, dict):
        if isinstance(value.get("timings"), dict):
            yield value
            return
        inner: Iterable[object] = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return
    if depth < _DEEPEST:
        for entry in inner:
            yield from timings_in(entry, depth + 1)


def parse_json(text: str, name: str) -> Parsed:
    """One JSON document: a response, or a list of them. Raises ValueError when it is no JSON."""
    faults = Faults(name)
    value = strict_json(text, faults)
    runs = [run_of(entry, name) for entry in timings_in(value)]
    if not runs:
        faults.add("malformed-file", "holds no timings")
    return _done(runs, faults)


def parse_jsonl(lines: Iterable[Line], name: str) -> Parsed:
    """A response a line (also as server-sent events, `data: {...}`)."""
    faults = Faults(name)
    runs: list[Run] = []
    for line in faults.records(lines, torn_ok="}"):
        text = line.text.strip().removeprefix("data:").strip()
        if not text or text == "[DONE]":
            continue
        try:
            value = strict_json(text, faults, line.number)
        except ValueError as error:
            faults.add("malformed-file", f"is not JSON: {error}", line.number)
            continue
        found = [run_of(entry, f"{name}:{line.number}") for entry in timings_in(value)]
        if not found and "data:" not in line.text:
            faults.add("malformed-file", "holds no timings", line.number)
        runs += found
    return _done(runs, faults)


def _done(runs: list[Run], faults: Faults) -> Parsed:
    for run in runs:
        if run.arm["prompt_cache"] == "warm":
            faults.add(
                "cache-warm", f"{run.source}: part of the prompt came from the cache: its prefill is no cold one"
            )
    counted = tuple(replace(run, repetition=index) for index, run in enumerate(runs, start=1))
    return Parsed(
        runs=counted,
        faults=faults.done(),
        not_known=("the board, its clocks and temperature", "when the requests were made", "the server's version"),
    )


def run_of(value: Mapping[str, Any], source: str) -> Run:
    """The run in one response."""
    timings: Mapping[str, Any] = value["timings"]
    prompt, prompt_ms = json_number(timings.get("prompt_n")), json_number(timings.get("prompt_ms"))
    made, made_ms = json_number(timings.get("predicted_n")), json_number(timings.get("predicted_ms"))
    cached, cache, reasons = _cache(value, timings, prompt)
    prefill = rate(prompt, prompt_ms, "prompt")
    decode = rate(made, made_ms, "predicted")
    metrics: dict[str, Reading] = {
        "decode_tokens_per_s": decode,
        "generated_tokens": made,
        "decode_ms": made_ms,
        "prompt_tokens": prompt,
        "prefill_ms": prompt_ms,
        "cached_tokens": cached,
        ("warm_prefill" if cache == "warm" else "prefill") + "_tokens_per_s": prefill,
    }
    for name, mine, told in (
        ("predicted_per_second", decode, json_number(timings.get("predicted_per_second"))),
        ("prompt_per_second", prefill, json_number(timings.get("prompt_per_second"))),
    ):
        if isinstance(mine, float) and isinstance(told, float) and not isclose(mine, told, rel_tol=RATE_NOISE):
            reasons.append(("counts-do-not-add-up", f"{name} is {told:g}, tokens and time give {mine:g}"))
    if isinstance(decode, Missing):
        reasons.append(("workload-failed", f"no decode rate: {decode.why}"))
    notes = ("the text was cut off at the context's end",) if value.get("truncated") is True else ()
    known = {"prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n"}
    extra = {f"timings.{key}": plain(entry) for key, entry in timings.items() if key not in known}
    extra |= {key: plain(entry)[:2000] for key, entry in value.items() if key != "timings"}
    return Run(
        source=source, arm={"prompt_cache": cache}, metrics=metrics, extra=extra, notes=notes, reasons=tuple(reasons)
    )


def rate(count: Reading, milliseconds: Reading, what: str) -> Reading:
    """Tokens a second from a count and a time; missing (never inf) when either is missing or 0."""
    if isinstance(count, Missing):
        return Missing(f"{what}: count: {count.why}")
    if isinstance(milliseconds, Missing):
        return Missing(f"{what}: time: {milliseconds.why}")
    if count < 0 or milliseconds < 0:
        return Missing(f"{what}: {count:g} tokens in {milliseconds:g} ms cannot be")
    if count == 0 or milliseconds == 0:
        return Missing(f"{what}: {count:g} tokens in {milliseconds:g} ms give no rate")
    result = count / milliseconds * 1000.0
    return result if result < 1e12 else Missing(f"{what}: {count:g} tokens in {milliseconds:g} ms cannot be")


def _cache(
    value: Mapping[str, Any], timings: Mapping[str, Any], prompt: Reading
) -> tuple[Reading, str, list[tuple[str, str]]]:
    """Tokens that came from the cache, the word for the arm, and what does not add up."""
    told = json_number(timings.get("cache_n"))
    if isinstance(told, float):
        return told, "warm" if told > 0 else "cold", []
    whole = json_number(value.get("tokens_evaluated"))
    if isinstance(whole, Missing) or isinstance(prompt, Missing):
        return Missing("the server does not tell it"), "unknown", []
    if prompt > whole:
        what = f"prompt_n is {prompt:.0f}, but the whole prompt had {whole:.0f} tokens"
        return Missing(what), "unknown", [("counts-do-not-add-up", what)]
    return whole - prompt, "warm" if whole > prompt else "cold", []
