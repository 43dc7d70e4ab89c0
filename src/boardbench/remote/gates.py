"""What was seen during a run, as evidence: each gate says `ok`, what it saw, and why not."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from typing import Any

# A gap of two periods is one row that came late; more than that, and rows are missing.
MAX_GAP_PERIODS = 2.5
# Below this a gap is the scheduler's, not the logger's: it matters only with periods far below a second.
MIN_GAP_LIMIT_S = 0.25
# On a board whose time runs faster, wall seconds are the host's: a period cannot shrink as its time does, and how late
# the host's scheduler wakes a logger says nothing about the board.
SCALED_GAP_LIMIT_S = 0.5
MAX_LATE_GAP_S = 1.0
# The kernel rounds memory limits down to whole pages.
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Window:
    """A span of the board's monotonic clock, in seconds."""

    start_s: float
    end_s: float


@dataclass(frozen=True)
class Row:
    """One row of the thermal log: when, how many temperatures it holds, and how late it was woken for it."""

    monotonic_s: float
    temperatures: int
    lateness_s: float = 0.0


def evidence(gate: str, ok: bool, saw: dict[str, Any], why: str = "") -> dict[str, Any]:
    """One entry of a run's evidence."""
    return {"gate": gate, "ok": ok, "saw": saw, "why": "" if ok and not why else why}


def thermal_rows(path: str) -> list[Row]:
    """The whole rows of a thermal log so far; none when there is no file. A torn or odd row does not count."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    # The logger may be in the middle of a row, or power may have failed there.
    lines = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    if not lines or "monotonic_s" not in lines[0]:
        return []
    header = lines[0]
    when = header.index("monotonic_s")
    late = header.index("lateness_s") if "lateness_s" in header else None
    temperatures = [index for index, name in enumerate(header) if name.endswith("_celsius")]
    rows = []
    for fields in lines[1:]:
        if len(fields) != len(header):
            continue
        try:
            monotonic_s = float(fields[when])
            lateness_s = float(fields[late]) if late is not None else 0.0
        except ValueError:
            continue
        rows.append(Row(monotonic_s, sum(1 for index in temperatures if fields[index].strip()), lateness_s))
    return rows


def boot(before: str, after: str) -> dict[str, Any]:
    """Gate `boot-id`: one boot from prepare to finish."""
    same = before == after
    return evidence("boot-id", same, {"before": before, "after": after}, "" if same else "the board rebooted")


def load(started: dict[str, Any] | None, ended: dict[str, Any] | None, exit_: dict[str, Any]) -> dict[str, Any]:
    """Gate `load`: the workload ran from..to, and ended by itself with code 0."""
    saw: dict[str, Any] = {
        "started": started["started"] if started else {"missing": "it was never started"},
        "ended": ended["ended"] if ended else {"missing": "its end was not recorded"},
        "exit": exit_,
    }
    for name in ("ended_by", "left_running", "out_of_memory_kills"):
        if ended and ended.get(name) is not None:
            saw[name] = ended[name]
    why = _load_why(started, ended, exit_)
    return evidence("load", not why, saw, why)


def _load_why(started: dict[str, Any] | None, ended: dict[str, Any] | None, exit_: dict[str, Any]) -> str:
    if ended and ended.get("failed"):
        return str(ended["failed"])
    if started is None:
        return "the workload was never started"
    if ended and ended.get("out_of_memory_kills"):
        return f"out of memory: the kernel killed {ended['out_of_memory_kills']} of its processes"
    if ended and ended.get("ended_by") == "deadline":
        return "the workload was not done at its deadline"
    if ended and ended.get("ended_by") == "guard":
        return "the board's guard ended the load"
    if ended and ended.get("ended_by") == "stopped":
        return "the workload was stopped before it ended"
    if exit_.get("code") == 0:
        return ""
    if "code" in exit_:
        return f"the workload ended with exit code {exit_['code']}"
    if "signal" in exit_:
        return f"the workload was ended by signal {exit_['signal']}"
    return str(exit_.get("missing", "its exit is not known"))


def limits(asked: dict[str, Any], started: dict[str, Any] | None) -> dict[str, Any]:
    """Gate `limits`: the memory limit that was asked for was really in force."""
    wanted = asked.get("memory_max_bytes")
    found = started.get("memory_limit_bytes") if started else None
    saw = {"asked": asked, "memory_limit_bytes": {"missing": "no limit is in force"} if found is None else found}
    # A board's own limit may be lower still; that is another condition, and not the one that was asked for.
    if wanted is None or found == wanted - wanted % PAGE_BYTES:
        return evidence("limits", True, saw)
    return evidence("limits", False, saw, "this board's service manager does not put memory limits in force")


def logger(rows: list[Row], period_s: float, window: Window | None, *, scaled: bool = False) -> dict[str, Any]:
    """Gate `logger`: rows without a gap from before the load began until after it ended, with temperatures in it.

    `scaled`: the board's time runs faster than the wall clock. Only then a row that the logger itself says it was
    woken late for makes no gap, up to `MAX_LATE_GAP_S`; a row that took long, or that is not there, always does.
    """
    limit_s = max(MAX_GAP_PERIODS * period_s, SCALED_GAP_LIMIT_S if scaled else MIN_GAP_LIMIT_S)
    saw: dict[str, Any] = {"rows": len(rows), "period_s": period_s, "gap_limit_s": limit_s}
    if not rows:
        return evidence("logger", False, saw, "the thermal log has no rows")
    times = [row.monotonic_s for row in rows]
    saw.update(first_monotonic_s=times[0], last_monotonic_s=times[-1])
    if window is None:
        return evidence("logger", False, saw, "there is no load window to cover")
    inside = [row for row in rows if window.start_s <= row.monotonic_s <= window.end_s]
    pairs = [(a, b) for a, b in zip(rows, rows[1:]) if _touches(a.monotonic_s, b.monotonic_s, window)]
    late = [pair for pair in pairs if _gap_s(*pair) > limit_s and scaled and _only_late(*pair, limit_s)]
    gap_s = max((_gap_s(*pair) for pair in pairs), default=0.0)
    worst_s = max((_gap_s(*pair) for pair in pairs if pair not in late), default=0.0)
    saw.update(
        load_window={"start_monotonic_s": window.start_s, "end_monotonic_s": window.end_s},
        rows_in_window=len(inside),
        biggest_gap_s=round(gap_s, 6),
        biggest_gap_periods=round(gap_s / period_s, 3),
        late_gaps=len(late),
        temperatures_in_window=sum(row.temperatures for row in inside),
    )
    why = _logger_why(times, window, worst_s, limit_s, sum(row.temperatures for row in rows))
    return evidence("logger", not why, saw, why)


def _gap_s(early: Row, late: Row) -> float:
    return late.monotonic_s - early.monotonic_s


def _only_late(early: Row, late: Row, limit_s: float) -> bool:
    """Whether the two rows were due next to each other, and the second one was only woken late."""
    gap_s = _gap_s(early, late)
    return gap_s - (late.lateness_s - early.lateness_s) <= limit_s and gap_s <= MAX_LATE_GAP_S


def _touches(early: float, late: float, window: Window) -> bool:
    return late >= window.start_s and early <= window.end_s


def _logger_why(times: list[float], window: Window, gap_s: float, limit_s: float, temperatures: int) -> str:
    if any(late <= early for early, late in zip(times, times[1:])):
        return "the thermal log's clock goes backwards"
    if times[0] > window.start_s:
        return f"the thermal log begins {times[0] - window.start_s:.1f} s after the load"
    if times[-1] < window.end_s:
        return f"the thermal log ends {window.end_s - times[-1]:.1f} s before the load"
    if gap_s > limit_s:
        return f"the thermal log has a gap of {gap_s:.1f} s, {limit_s:.1f} s are allowed"
    if not temperatures:
        return "the thermal log has not one temperature"
    return ""


# A program that waits for something uses less than this of one core.
MIN_CPU_SHARE_OF_CORE = 0.02
# A load that is shorter may fall between two looks.
SHORT_LOAD_S = 2.0
# Below this nothing can be written any more, and the log and the results stop without a word.
MIN_FREE_BYTES = 8_000_000


def load_runs(started: dict[str, Any] | None, ended: dict[str, Any] | None) -> dict[str, Any]:
    """Gate `load-runs`: between its start and its end the workload really worked.

    On a virtual board its registered load tells, since it paces itself; else the CPU time that it has used.
    """
    watch = (ended or {}).get("watch")
    if not started or not ended or not isinstance(watch, dict):
        return evidence(
            "load-runs", False, {"watch": {"missing": "its end was not recorded"}}, "nothing watched the load"
        )
    lasted_s = ended["ended"]["monotonic_s"] - started["started"]["monotonic_s"]
    saw = dict(watch, lasted_s=round(lasted_s, 3))
    if watch["registered_looks"]:
        # Which of the looks fell into the load the controller knows: it judges those that saw none.
        if watch["registered_held"]:
            return evidence("load-runs", True, saw)
        if lasted_s < SHORT_LOAD_S:
            return evidence("load-runs", True, saw, "the load was too short to be looked at")
        return evidence("load-runs", False, saw, f"no load was registered in {watch['registered_looks']} looks")
    wanted_s = MIN_CPU_SHARE_OF_CORE * lasted_s
    if watch["cpu_used_s"] < wanted_s:
        return evidence(
            "load-runs",
            False,
            saw,
            f"it used {watch['cpu_used_s']:.2f} s of CPU time in {lasted_s:.1f} s: it does not work",
        )
    return evidence("load-runs", True, saw)


def disk(ended: dict[str, Any] | None) -> dict[str, Any]:
    """Gate `disk`: there was room at every look during the run."""
    free = ((ended or {}).get("watch") or {}).get("free_bytes_min")
    saw = {"free_bytes_min": {"missing": "not looked at"} if free is None else free, "wanted_bytes": MIN_FREE_BYTES}
    if free is None:
        return evidence("disk", True, saw, "the free space during the run is not known")
    if free < MIN_FREE_BYTES:
        return evidence("disk", False, saw, f"only {free / 1e6:.1f} MB were free during the run")
    return evidence("disk", True, saw)


def instruments(ended: dict[str, Any] | None) -> dict[str, Any]:
    """Gate `instruments`: the temperatures at the end of the load, by another hand than the logger's.

    The controller compares them with the log.
    """
    reading = (ended or {}).get("end_reading")
    if not isinstance(reading, dict) or not reading.get("celsius"):
        return evidence(
            "instruments", True, {"celsius": {"missing": "not read"}}, "no zone was read at the end of the load"
        )
    return evidence("instruments", True, dict(reading))


def guard(ended: dict[str, Any] | None) -> dict[str, Any]:
    """Gate `guard`: the board's own guard was there, and did not have to end the load."""
    seen = (ended or {}).get("guard")
    if not isinstance(seen, dict):
        return evidence("guard", False, {"guard": {"missing": "its end was not recorded"}}, "nothing guarded the load")
    tripped = seen.get("tripped")
    if not isinstance(tripped, dict):
        return evidence("guard", True, dict(seen))
    if tripped.get("zone") is None:
        return evidence("guard", False, dict(seen), "it ended the load: no zone could be read any more")
    why = f"it ended the load: {tripped['zone']} was at {tripped['celsius']:.1f} degC, above {seen['above_celsius']:g}"
    stuck = [action for action in tripped.get("fan", []) if not action.get("ok")]
    if stuck:
        why += f"; and the fan could not be put back: {stuck[0].get('why')}"
    return evidence("guard", False, dict(seen), why)
