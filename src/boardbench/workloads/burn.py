"""The `burn` workload: fixed integer work on all cores, counted per interval."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from boardbench.errors import InputError
from boardbench.workloads.base import PYTHON, Durations, Harness, Interval, Samples, Traits, run_folder, script

_SCRIPT = script("burn", "burn.py")
_RAW = "burn.jsonl"


class Burn:
    """Loads the CPU; its raw output is `burn.jsonl`."""

    name: str = "burn"
    harness: Harness = Harness(scripts=(_SCRIPT,))
    raw_files: tuple[str, ...] = (_RAW,)
    concurrency_option: str | None = None
    traits: Traits = Traits()

    def argv(self, run: str, options: Mapping[str, object], durations: Durations) -> list[str]:
        """See `Workload.argv`. Option `threads`: `all` or a count."""
        argv = [
            PYTHON,
            _SCRIPT,
            "--out",
            f"{run_folder(run)}/workload",
            "--threads",
            str(options.get("threads", "all")),
            "--interval-s",
            _seconds(durations.interval_s),
            "--duration-s",
            _seconds(durations.duration_s),
        ]
        if durations.lead_s:
            argv += ["--lead-s", _seconds(durations.lead_s)]
        if durations.chain is not None:
            argv += ["--run-s", _seconds(durations.chain.run_s), "--gap-s", _seconds(durations.chain.gap_s)]
        return argv

    def read(self, raw: Path) -> Samples:
        """See `Workload.read`."""
        path = raw / _RAW
        intervals: list[Interval] = []
        end_reason = ""
        end_stamp: dict[str, float] | None = None
        virtual: bool | None = None
        total: float | None = None
        for number, event in enumerate(_events(path), start=1):
            kind = event.get("event")
            where = f"{path}:{number}"
            if end_reason:
                raise InputError("there is a line after the end event", where=where)
            if kind == "start":
                virtual = event.get("virtual") is True
            elif kind == "interval":
                intervals.append(_interval(event, where, intervals))
            elif kind == "end":
                end_reason = str(event.get("why") or "no reason given")
                end_stamp = _stamp(event, where)
                total = _number(event, "operations", where) if "operations" in event else None
            else:
                raise InputError(f"unknown event {kind!r}", where=where)
        if virtual is None:
            raise InputError("there is no start event", where=str(path))
        return Samples("operations", tuple(intervals), bool(end_reason), end_reason, end_stamp, virtual, total=total)


def _seconds(value: float) -> str:
    """Plain decimal without an exponent and without float noise (microseconds are enough for a duration)."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _events(path: Path) -> list[dict[str, object]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("is missing", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8", where=str(path)) from error
    lines = text.split("\n")
    # What stands after the last newline is a line that a dying writer did not finish: it is no event.
    events: list[dict[str, object]] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            event = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"is not JSON: {error.msg}", where=f"{path}:{number}") from error
        if not isinstance(event, dict):
            raise InputError("is not an object", where=f"{path}:{number}")
        events.append(event)
    return events


def _number(event: Mapping[str, object], key: str, where: str) -> float:
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{key} is not a number", where=where)
    return float(value)


def _stamp(event: Mapping[str, object], where: str) -> dict[str, float]:
    stamp = event.get("stamp")
    if not isinstance(stamp, dict):
        raise InputError("the event has no stamp", where=where)
    return {key: _number(stamp, key, where) for key in ("wall_unix_s", "monotonic_s", "boottime_s")}


def _interval(event: Mapping[str, object], where: str, before: list[Interval]) -> Interval:
    interval = Interval(
        int(_number(event, "index", where)),
        _number(event, "start_monotonic_s", where),
        _number(event, "end_monotonic_s", where),
        _number(event, "operations", where),
        _number(event, "operations_per_s", where),
    )
    if interval.end_monotonic_s <= interval.start_monotonic_s:
        raise InputError("the interval ends before it starts", where=where)
    if before and interval.start_monotonic_s < before[-1].end_monotonic_s - 1e-6:
        raise InputError("the interval starts before the last one ended", where=where)
    return interval
