"""Waits until the board is cool, and says what it saw: a start temperature that was not reached is never silent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable

from . import reading, sensors
from .failures import BAD_INPUT, Failure
from .places import Places

POLL_S = 1.0
TELL_EVERY_S = 5.0
# One reading can be an outlier.
READINGS_BELOW = 2


@dataclass(frozen=True)
class Cool:
    """The wanted start: the first of `zone_types` that the board has is below `below_celsius` within `timeout_s`."""

    zone_types: tuple[str, ...]
    below_celsius: float
    timeout_s: float


def parse(value: Any) -> Cool:
    """The `cool` argument of `prepare`. Failure `bad-input` for what is missing or no number."""
    if not isinstance(value, dict):
        raise Failure(BAD_INPUT, f"cool is {value!r:.80}", "prepare")
    types = value.get("zone_types")
    if not isinstance(types, list) or not types:
        raise Failure(BAD_INPUT, f"cool.zone_types is {types!r:.80}", "prepare", "a list of thermal zone types")
    numbers = []
    for name in ("below_celsius", "timeout_s"):
        number = value.get(name)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise Failure(BAD_INPUT, f"cool.{name} is {number!r:.80}", "prepare", "a number")
        numbers.append(float(number))
    return Cool(tuple(str(kind) for kind in types), numbers[0], numbers[1])


@dataclass
class _Seen:
    first: float | None = None
    last: float | None = None
    highest: float | None = None
    reads: int = 0
    why_missing: str = ""

    def add(self, celsius: float) -> None:
        self.first = celsius if self.first is None else self.first
        self.highest = celsius if self.highest is None else max(self.highest, celsius)
        self.last = celsius
        self.reads += 1


def wait(places: Places, cool: Cool, tell: Callable[[str], None], poll_s: float = POLL_S) -> dict[str, Any]:
    """The evidence of gate `cool`. Several zones of the type: the hottest counts."""
    present = [str(zone["type"]) for zone in sensors.thermal(places)]
    kind = next((wanted for wanted in cool.zone_types if wanted in present), None)
    if kind is None:
        saw: dict[str, Any] = {"zone_types": sorted(set(present))}
        return _evidence(False, saw, f"the board has no thermal zone of type {' or '.join(cool.zone_types)}")
    seen = _Seen()
    started = time.monotonic()
    told_at = started - TELL_EVERY_S
    below = 0
    while True:
        now = time.monotonic()
        celsius = _hottest(places, kind, seen)
        if celsius is None:
            below = 0
        else:
            seen.add(celsius)
            below = below + 1 if celsius < cool.below_celsius else 0
            if below < READINGS_BELOW and now - told_at >= TELL_EVERY_S:
                tell(f"{seen.first or celsius:.1f} -> {celsius:.1f} degC, below {cool.below_celsius:g} wanted")
                told_at = now
        waited = now - started
        if below >= READINGS_BELOW or waited >= cool.timeout_s:
            return _evidence(below >= READINGS_BELOW, _saw(cool, kind, seen, waited), _why(cool, kind, seen, below))
        time.sleep(min(poll_s, max(0.01, cool.timeout_s / 20)))


def _hottest(places: Places, kind: str, seen: _Seen) -> float | None:
    values = []
    for zone in sensors.thermal(places):
        if zone["type"] != kind:
            continue
        if reading.is_missing(zone["celsius"]):
            seen.why_missing = str(zone["celsius"]["missing"])
        else:
            values.append(float(zone["celsius"]))
    return max(values) if values else None


def _saw(cool: Cool, kind: str, seen: _Seen, waited: float) -> dict[str, Any]:
    def value(number: float | None) -> Any:
        return {"missing": seen.why_missing or "never read"} if number is None else number

    return {
        "zone_type": kind,
        "below_celsius": cool.below_celsius,
        "first_celsius": value(seen.first),
        "last_celsius": value(seen.last),
        "highest_celsius": value(seen.highest),
        "reads": seen.reads,
        "waited_s": round(waited, 3),
    }


def _why(cool: Cool, kind: str, seen: _Seen, below: int) -> str:
    if below >= READINGS_BELOW:
        return ""
    if seen.last is None:
        return f"{kind} could not be read within {cool.timeout_s:g} s: {seen.why_missing or 'no reading'}"
    return f"{kind} is at {seen.last:.1f} degC after {cool.timeout_s:g} s, below {cool.below_celsius:g} degC was wanted"


def _evidence(ok: bool, saw: dict[str, Any], why: str) -> dict[str, Any]:
    return {"gate": "cool", "ok": ok, "saw": saw, "why": why}
