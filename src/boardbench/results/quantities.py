"""The rules over the quantities that a workload's output yields: evidence of gates, made from the raw files alone.

A workload declares (`workloads.base.Samples`), and never judges itself. The same function makes the evidence when a run
is collected, and again whenever it is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from boardbench.analysis import littles_law
from boardbench.errors import InputError
from boardbench.results import after, answers, crosscheck, golden
from boardbench.results.problems import Reason
from boardbench.workloads.base import Samples
from boardbench.workloads.registry import workload

Evidence = Mapping[str, Any]


def evidence_in(raw: Path, name: str, *, joined: bool = True) -> tuple[Evidence, ...]:
    """The evidence of the folder `workload/` of a run of the workload `name`.

    None of it for output that cannot be read: that is said as a fault of the file.
    """
    try:
        samples = workload(name).read(raw)
    except InputError:
        return ()
    return tuple(evidence_of(samples, joined=joined))


def evidence_of(samples: Samples, *, joined: bool = True) -> Iterator[Evidence]:
    """An entry a quantity that is there. `joined`: the load has no pauses between its intervals."""
    if samples.intervals:
        counted = sum(interval.amount for interval in samples.intervals)
        saw = {
            "intervals": len(samples.intervals),
            "counted": counted,
            "unit": samples.unit,
            "total": _or_missing(samples.total),
        }
        yield _entry("counts", saw, list(after.counts(samples, joined=joined)))
    if samples.pairs:
        saw = {
            "tolerance": crosscheck.TOLERANCE,
            "pairs": [
                {
                    "what": pair.what,
                    **{c.source: c.value for c in (pair.parsed, pair.independent)},
                    "unit": pair.parsed.unit,
                }
                for pair in samples.pairs
            ],
        }
        yield _entry("instruments", saw, list(crosscheck.disagreements(samples.pairs)))
    if samples.answers is not None:
        asked, counted_by = samples.answers.asked, dict(samples.answers.counted)
        yield _entry("answers", {"asked": list(asked), "answers": counted_by}, list(answers.reasons(asked, counted_by)))
    if samples.golden is not None:
        planned = samples.answers.asked if samples.answers is not None else ()
        outputs = {node: list(seen) for node, seen in samples.golden.outputs.items()}
        saw = {"outputs": outputs, "alike": [list(group) for group in samples.golden.alike]}
        yield _entry("golden", saw, list(golden.reasons(planned, samples.golden)))
    if samples.effects:
        saw = {effect.what: dict(effect.saw) for effect in samples.effects}
        why = "; ".join(f"{effect.what}: {effect.why}" for effect in samples.effects if effect.why)
        yield {"gate": "arm-effect", "ok": not why, "saw": saw, "why": why}
    if samples.closed_loop is not None:
        yield _closed_loop(samples)


def _closed_loop(samples: Samples) -> Evidence:
    loop = samples.closed_loop
    assert loop is not None
    saw = {"concurrency": loop.concurrency, "rate_per_s": loop.rate_per_s, "mean_latency_s": loop.mean_latency_s}
    try:
        off = littles_law.departure(loop.concurrency, loop.rate_per_s, loop.mean_latency_s)
    except ValueError as error:
        shown = {key: value if math.isfinite(value) else {"missing": str(value)} for key, value in saw.items()}
        return {"gate": "littles-law", "ok": False, "saw": shown, "why": str(error)}
    saw |= {"departure": round(off, 6), "tolerance": littles_law.TOLERANCE}
    why = f"rate x latency is {loop.rate_per_s * loop.mean_latency_s:.3g}, {loop.concurrency:g} requests were under way"
    holds = abs(off) <= littles_law.TOLERANCE
    return {"gate": "littles-law", "ok": holds, "saw": saw, "why": "" if holds else why}


def _entry(gate: str, saw: Mapping[str, object], against: Sequence[Reason]) -> Evidence:
    return {"gate": gate, "ok": not against, "saw": saw, "why": "; ".join(reason.detail for reason in against)}


def _or_missing(value: float | None) -> object:
    return {"missing": "the workload gives no total"} if value is None else value
