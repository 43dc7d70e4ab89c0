"""The `burn` workload: fixed integer work on all cores, counted per interval."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from boardbench.errors import InputError
from boardbench.workloads.base import (
    PYTHON,
    Durations,
    Harness,
    Interval,
    Samples,
    Traits,
    run_folder,
    script,
    seconds_text,
)
from boardbench.workloads.event_lines import number, read_events, stamp

_SCRIPT = script("burn", "burn.py")
_RAW = "burn.jsonl"


class Burn:
    """Loads the CPU; its raw output is `burn.jsonl`."""

    name: str = "burn"
    harness: Harness = Harness(scripts=(_SCRIPT,))
    raw_files: tuple[str, ...] = (_RAW,)
    concurrency_option: str | None = None
    traits: Traits = Traits(options=("threads", "mode", "chain"))

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
            seconds_text(durations.interval_s),
            "--duration-s",
            seconds_text(durations.duration_s),
        ]
        if durations.lead_s:
            argv += ["--lead-s", seconds_text(durations.lead_s)]
        if durations.chain is not None:
            argv += ["--run-s", seconds_text(durations.chain.run_s), "--gap-s", seconds_text(durations.chain.gap_s)]
        return argv

    def read(self, raw: Path) -> Samples:
        """See `Workload.read`."""
        path = raw / _RAW
        intervals: list[Interval] = []
        end_reason = ""
        end_stamp: dict[str, float] | None = None
        virtual: bool | None = None
        total: float | None = None
        for where, event in read_events(path):
            kind = event.get("event")
            if end_reason:
                raise InputError("there is a line after the end event", where=where)
            if kind == "start":
                virtual = event.get("virtual") is True
            elif kind == "interval":
                intervals.append(_interval(event, where, intervals))
            elif kind == "end":
                end_reason = str(event.get("why") or "no reason given")
                end_stamp = stamp(event, where)
                total = number(event, "operations", where) if "operations" in event else None
            else:
                raise InputError(f"unknown event {kind!r}", where=where)
        if virtual is None:
            raise InputError("there is no start event", where=str(path))
        return Samples("operations", tuple(intervals), bool(end_reason), end_reason, end_stamp, virtual, total=total)


def _interval(event: Mapping[str, object], where: str, before: list[Interval]) -> Interval:
    interval = Interval(
        int(number(event, "index", where)),
        number(event, "start_monotonic_s", where),
        number(event, "end_monotonic_s", where),
        number(event, "operations", where),
        number(event, "operations_per_s", where),
    )
    if interval.end_monotonic_s <= interval.start_monotonic_s:
        raise InputError("the interval ends before it starts", where=where)
    if before and interval.start_monotonic_s < before[-1].end_monotonic_s - 1e-6:
        raise InputError("the interval starts before the last one ended", where=where)
    return interval
