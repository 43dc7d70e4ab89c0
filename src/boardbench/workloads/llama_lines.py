"""`llama.jsonl`, read strictly: which events there are, in which order, and that numbers are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.workloads.event_lines import number, read_events, stamp

_ONCE = ("start", "ready", "floor", "cache", "perplexity", "end")


@dataclass(frozen=True)
class Request:
    """One answered prompt. Times in seconds of the board's monotonic clock, the server's own in milliseconds.

    Bytes read are None where they were not measured; `missing` says why, by key.
    """

    prompt: str
    start_s: float
    end_s: float
    prompt_tokens: float
    prompt_ms: float
    predicted_tokens: float
    predicted_ms: float
    tokens: int
    text_sha256: str
    device_read_bytes: float | None
    process_read_bytes: float | None
    missing: Mapping[str, str]
    gpu: Mapping[str, Any]


@dataclass(frozen=True)
class Lines:
    """The whole file. An event that a load which was cut off never wrote is an empty mapping."""

    start: Mapping[str, Any]
    ready: Mapping[str, Any]
    requests: tuple[Request, ...]
    floor: Mapping[str, Any]
    cache: Mapping[str, Any]
    perplexity: Mapping[str, Any]
    end: Mapping[str, Any]


def read_lines(path: Path) -> Lines:
    """The events of the file. Raises InputError (missing or malformed file)."""
    once: dict[str, Mapping[str, Any]] = {}
    requests: list[Request] = []
    for where, event in read_events(path):
        kind = event.get("event")
        if "end" in once:
            raise InputError("there is a line after the end event", where=where)
        if ("start" in once) == (kind == "start"):
            raise InputError("the start event is not the first, or there twice", where=where)
        if kind == "request":
            requests.append(_request(event, where, requests))
        elif kind in _ONCE and kind not in once:
            once[str(kind)] = event
            if kind == "end":
                stamp(event, where)
        else:
            raise InputError(f"unknown event {kind!r}, or one that is there twice", where=where)
    if "start" not in once:
        raise InputError("there is no start event", where=str(path))
    rest = {name: once.get(name, {}) for name in _ONCE}
    return Lines(requests=tuple(requests), **rest)


def _request(event: Mapping[str, Any], where: str, before: list[Request]) -> Request:
    if number(event, "index", where) != len(before):
        raise InputError(f"request {len(before)} is missing", where=where)
    read: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for key in ("device_read_bytes", "process_read_bytes"):
        value = event.get(key)
        if isinstance(value, dict) and isinstance(value.get("missing"), str):
            read[key], missing[key] = None, value["missing"]
        else:
            read[key] = number(event, key, where)
    tokens, text_sha256, gpu = event.get("tokens"), event.get("text_sha256"), event.get("gpu")
    if not isinstance(tokens, list) or not isinstance(text_sha256, str) or not isinstance(gpu, dict):
        raise InputError("the request has no tokens, no hash of its text, or no word on the GPU", where=where)
    times = {key: number(event, key, where) for key in ("prompt_ms", "predicted_ms", "prompt_tokens")}
    start_s, end_s = number(event, "start_monotonic_s", where), number(event, "end_monotonic_s", where)
    if end_s <= start_s or (before and start_s < before[-1].end_s):
        raise InputError("the request ends before it starts, or starts before the last one ended", where=where)
    predicted = number(event, "predicted_tokens", where)
    if times["predicted_ms"] <= 0 or predicted <= 0:
        raise InputError("the server gives no time or no tokens for its answer", where=where)
    return Request(
        prompt=str(event.get("prompt")), start_s=start_s, end_s=end_s, predicted_tokens=predicted, tokens=len(tokens),
        text_sha256=text_sha256, missing=missing, gpu=gpu, device_read_bytes=read["device_read_bytes"],
        process_read_bytes=read["process_read_bytes"], **times,
    )  # fmt: skip
