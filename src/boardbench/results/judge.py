"""Does a run count? A pure function of its files and of what the gates saw.

The same function judges a run when it was just fetched and when it is validated years later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.results import after, fanproof, quantities
from boardbench.results.gatewords import ALWAYS_ASKED, ALWAYS_COUNTS, CODE_OF_GATE
from boardbench.results.problems import Reason
from boardbench.results.raw import ThermalLog, read_thermal
from boardbench.workloads.registry import traits_of

CLOCK_STEP_S = 0.5
"""Between two rows, wall or boot time may differ from monotonic time by this much; more is a jump (or a suspend)."""
FLOAT_NOISE_S = 1e-3
MAX_LATE_GAP_S = 1.0
"""Where a board's time is scaled, a hole up to this is the host's if the logger says that it was woken late."""


@dataclass(frozen=True)
class Rules:
    """What a run must satisfy; times in seconds of the board's clock (wall seconds, not board time)."""

    gates: frozenset[str]
    duration_s: float
    interval_s: float
    max_gap_s: float
    zone_types: tuple[str, ...]
    phase: str | None
    raw_files: tuple[str, ...]
    workload: str
    time_scale: float = 1.0
    chained: bool = False
    pause_s: float = 0.0
    guarded: bool = False

    @property
    def fan(self) -> fanproof.Planned | None:
        """What the log must show of the fan; None for a run without a phase."""
        if self.phase is None:
            return None
        return fanproof.Planned(self.phase, self.zone_types, self.time_scale, steady=not self.chained)

    @staticmethod
    def of_plan(plan: Mapping[str, Any], board: str, phase: str | None, raw_files: Sequence[str]) -> Rules:
        """The rules that `plan.json` locks for a run on `board`."""
        wall = plan["wall_time"]
        cool, chain = plan["cool"], plan["workload"]["options"].get("chain")
        return Rules(
            # A look into one of a chain's own pauses sees no load: that says nothing against the run.
            gates=frozenset(plan["gates"]) - (frozenset() if chain is None else {"load-runs"}),
            # A load that ends by its work may be as short as it can; whether all of it was done, its counts say.
            duration_s=0.0 if traits_of(plan["workload"]["name"]).ends_by_work else wall["duration_s"],
            interval_s=wall["interval_s"],
            max_gap_s=wall["logger_max_gap_s"],
            zone_types=tuple(cool["zone_types"]) if cool else (),
            phase=phase,
            raw_files=tuple(raw_files),
            workload=plan["workload"]["name"],
            time_scale=plan["time_scale"],
            chained=chain is not None,
            pause_s=chain["gap_s"] / plan["time_scale"] if chain is not None else 0.0,
            # Plans of before the guard have none.
            guarded=board in plan.get("guard", {}),
        )


@dataclass(frozen=True)
class Facts:
    """What the controller knows about a run beside its files."""

    evidence: tuple[Mapping[str, Any], ...]
    boot_before: str | None
    boot_after: str | None
    exit_code: int | None
    exit_signal: int | None
    window_monotonic_s: tuple[float, float] | None


def judge(folder: Path, facts: Facts, rules: Rules) -> tuple[Reason, ...]:
    """Every reason why the run in `folder` does not count, sorted, each once; none: it is valid."""
    reasons = [*_gates(facts, rules), *_boots(facts, rules), *_workload(folder, facts, rules)]
    if "clock" in rules.gates:
        one_boot = facts.boot_before is not None and facts.boot_before == facts.boot_after
        reasons += after.clock_moved(facts.evidence, one_boot=one_boot)
    if "load-runs" in rules.gates:
        reasons += after.load_paused(facts.evidence, facts.window_monotonic_s)
    declared = quantities.evidence_in(folder / "workload", rules.workload, joined=not rules.chained)
    reasons += _shut(declared, rules)
    for name in ("thermal.csv", "thermal.meta.json"):
        if not (folder / name).is_file():
            reasons.append(Reason("missing-file", name))
    if (folder / "thermal.csv").is_file():
        log, problems = read_thermal(folder / "thermal.csv")
        reasons += [Reason("malformed-file", str(problem)) for problem in problems[:5]]
        if log is not None and log.rows:
            reasons += _log(log, facts, rules)
        else:
            reasons.append(Reason("no-temperature", "the thermal log has no rows"))
    return tuple(sorted(set(reasons)))


def _shut(evidence: Sequence[Mapping[str, Any]], rules: Rules) -> Iterator[Reason]:
    for entry in evidence:
        gate = str(entry.get("gate"))
        if entry.get("ok") is not True and gate in rules.gates | ALWAYS_COUNTS:
            yield Reason(_code(gate, entry), f"{gate}: {entry.get('why') or 'no reason given'}")


def _gates(facts: Facts, rules: Rules) -> Iterator[Reason]:
    yield from _shut(facts.evidence, rules)
    asked = {str(entry.get("gate")) for entry in facts.evidence}
    for gate in sorted((rules.gates & ALWAYS_ASKED | ({"guard"} if rules.guarded else set())) - asked):
        yield Reason("gate-not-run", f"{gate}: the run has no evidence of it")


def _code(gate: str, entry: Mapping[str, Any]) -> str:
    saw = entry.get("saw")
    gap_s, limit_s = (saw.get("biggest_gap_s"), saw.get("gap_limit_s")) if isinstance(saw, Mapping) else (None, None)
    if gate == "logger" and isinstance(gap_s, int | float) and isinstance(limit_s, int | float) and gap_s > limit_s:
        return "logger-gap"
    return CODE_OF_GATE.get(gate, "gate-failed")


def _boots(facts: Facts, rules: Rules) -> Iterator[Reason]:
    if "boot-id" not in rules.gates:
        return
    if facts.boot_before is None or facts.boot_after is None:
        # Not knowing is not a reboot, and not a proof against one either.
        yield Reason("boot-id-unknown", "the board's boot id was not read before and after the run")
    elif facts.boot_before != facts.boot_after:
        yield Reason("rebooted", f"boot id {facts.boot_before} before, {facts.boot_after} after")


def _workload(folder: Path, facts: Facts, rules: Rules) -> Iterator[Reason]:
    for name in rules.raw_files:
        if not (folder / "workload" / name).is_file():
            yield Reason("missing-file", f"workload/{name}")
    if facts.exit_signal is not None:
        yield Reason("workload-failed", f"ended by signal {facts.exit_signal}")
    elif facts.exit_code is None:
        yield Reason("workload-failed", "how the workload ended is not known")
    elif facts.exit_code != 0:
        yield Reason("workload-failed", f"exit code {facts.exit_code}")
    if facts.window_monotonic_s is None:
        yield Reason("workload-short", "there is no interval of load")
        return
    start, end = facts.window_monotonic_s
    if end - start < rules.duration_s - rules.interval_s - rules.pause_s - FLOAT_NOISE_S:
        yield Reason("workload-short", f"load for {end - start:.3f} s, planned {rules.duration_s:.3f} s")


def _log(log: ThermalLog, facts: Facts, rules: Rules) -> Iterator[Reason]:
    if facts.window_monotonic_s is None:
        return
    start, end = facts.window_monotonic_s
    clock = log.clock("monotonic_s")
    if "logger" in rules.gates:
        lateness = log.clock("lateness_s") if rules.time_scale > 1 else []
        yield from coverage(clock, start, end, rules.max_gap_s, lateness if len(lateness) == len(clock) else None)
    inside = [index for index, at_s in enumerate(clock) if start <= at_s <= end]
    if "clock" in rules.gates:
        yield from _jumps(log, inside)
    yield from _temperature(log, inside, rules)
    if "instruments" in rules.gates:
        yield from after.instruments(log, facts.evidence, rules.zone_types)
    if "cooling" in rules.gates:
        planned = rules.fan
        if planned is not None:
            yield from fanproof.reasons(log, facts.window_monotonic_s, planned, facts.evidence)


def coverage(
    clock: Sequence[float], start: float, end: float, max_gap_s: float, lateness: Sequence[float] | None = None
) -> Iterator[Reason]:
    """`lateness`: given where the board's time is scaled; there a row that was only woken late makes no hole."""
    if clock[0] > start + max_gap_s:
        yield Reason("logger-short", f"the log starts {clock[0] - start:.3f} s after the load")
    if clock[-1] < end - max_gap_s:
        yield Reason("logger-short", f"the log ends {end - clock[-1]:.3f} s before the load does")
    gaps = []
    for index, (before, after_) in enumerate(itertools.pairwise(clock)):
        hole_s = after_ - before
        late_s = lateness[index + 1] - lateness[index] if lateness is not None else 0.0
        only_late = late_s > 0 and hole_s - late_s <= max_gap_s and hole_s <= MAX_LATE_GAP_S
        if hole_s > max_gap_s and after_ > start and before < end and not only_late:
            gaps.append((hole_s, before))
    if gaps:
        worst, at_s = max(gaps)
        yield Reason(
            "logger-gap", f"{len(gaps)} holes over {max_gap_s:.3f} s; the longest is {worst:.3f} s at {at_s:.3f}"
        )


def _jumps(log: ThermalLog, inside: Sequence[int]) -> Iterator[Reason]:
    monotonic = log.clock("monotonic_s")
    for name, meaning in (("wall_unix_s", "wall clock was set"), ("boottime_s", "board was suspended")):
        other = log.clock(name)
        steps = [(other[b] - other[a]) - (monotonic[b] - monotonic[a]) for a, b in itertools.pairwise(inside)]
        worst = max(steps, key=lambda step: abs(step), default=0.0)
        if abs(worst) > CLOCK_STEP_S:
            yield Reason("clock-jump", f"the {meaning}: {worst:+.3f} s in one step")


def _temperature(log: ThermalLog, inside: Sequence[int], rules: Rules) -> Iterator[Reason]:
    wanted = [name for name in log.temperatures() if _zone(name) in rules.zone_types] or list(log.temperatures())
    for name in wanted:
        column = log.column(name)
        if any(column[index] is not None for index in inside):
            return
    yield Reason("no-temperature", f"no reading of {', '.join(wanted) or 'any zone'} while the load ran")


def _zone(column: str) -> str:
    return column.split("_celsius")[0]
