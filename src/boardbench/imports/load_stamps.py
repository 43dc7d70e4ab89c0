"""Is a run's stamp its start or its end? Asked of the temperature log, at both ends of a series of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from boardbench.imports.model import Samples

END, START, UNDECIDED = "end", "start", "undecided"
STEP_CELSIUS = 3.0
"""Less than this is no load going on or off: the boards' sensors step by 0.9 degC and drift by a few under load."""
EDGE_S = 10.0


@dataclass(frozen=True)
class Meaning:
    """What the stamps are, and what the log showed."""

    word: str
    why: str


def _mean(times: Sequence[float], values: Sequence[float | None], start: float, end: float) -> float | None:
    inside = [value for at, value in zip(times, values, strict=True) if start <= at <= end and value is not None]
    return fmean(inside) if inside else None


def _least(times: Sequence[float], values: Sequence[float | None], start: float, end: float) -> float | None:
    inside = [value for at, value in zip(times, values, strict=True) if start <= at <= end and value is not None]
    return min(inside, default=None)


def meaning(logs: Sequence[Samples], column: str, stamps: Sequence[float], seconds: float) -> Meaning:
    """Whether loads of `seconds` end or start at `stamps` (Unix s, in order), as the logs' temperature shows it.

    First stamp: did the board heat up in the time before it, or in the time after it? Last stamp: did it cool down or
    heat up behind it? All votes of all logs must agree.
    """
    votes: list[tuple[str, str]] = []
    for log in logs:
        if column not in log.values or not stamps:
            continue
        times, values = list(log.time_s), log.column(column)
        votes += _first(log, times, values, stamps[0], seconds)
        votes += _last(log, times, values, stamps[-1])
    words = {word for word, _ in votes}
    said = "; ".join(dict.fromkeys(why for _, why in votes))
    if len(words) != 1:
        return Meaning(UNDECIDED, f"the log does not tell: {said}" if said else "no log covers the stamps")
    return Meaning(words.pop(), said)


def _first(
    log: Samples, times: Sequence[float], values: Sequence[float | None], stamp: float, seconds: float
) -> list[tuple[str, str]]:
    # A log that begins shortly before the stamp still tells whether it was warm already.
    begin, at = (
        _least(times, values, stamp - seconds - 3.0, stamp - 3.0),
        _least(times, values, stamp - 3.0, stamp + 3.0),
    )
    before, later = (_mean(times, values, s - EDGE_S, s) for s in (stamp, stamp + seconds))
    if begin is None or before is None:
        return []
    up_before = before - begin
    up_after = later - at if later is not None and at is not None else 0.0
    if abs(up_before - up_after) < STEP_CELSIUS or max(up_before, up_after) < STEP_CELSIUS:
        return []
    where = f"{log.board}: {up_before:+.1f} degC in the {seconds:.0f} s before the first stamp, {up_after:+.1f} after"
    return [(END if up_before > up_after else START, where)]


def _last(log: Samples, times: Sequence[float], values: Sequence[float | None], stamp: float) -> list[tuple[str, str]]:
    before = _mean(times, values, stamp - EDGE_S, stamp)
    after = _mean(times, values, stamp + 1.0, stamp + EDGE_S)
    if before is None or after is None or abs(after - before) < STEP_CELSIUS:
        return []
    return [(END if after < before else START, f"{log.board}: {after - before:+.1f} degC behind the last stamp")]
