"""A workload declares quantities; the rules over them decide whether its run counts and its arm may be quoted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boardbench.results import loadcurve, quantities
from boardbench.results.sampled import Sampled
from boardbench.workloads.base import Answers, ClosedLoop, Count, Golden, Interval, Pair, Samples
from boardbench.workloads.burn import Burn
from boardbench.workloads.registry import KNOWN

PLAIN = Samples("requests", tuple(Interval(i, float(i), i + 1.0, 100.0, 100.0) for i in range(4)), True, "", None, True)
NODES = ("king", "queen", "jack")


def shut(samples: Samples, **options: Any) -> dict[str, str]:
    """Gate -> why, of those that are not open."""
    return {str(e["gate"]): str(e["why"]) for e in quantities.evidence_of(samples, **options) if not e["ok"]}


def asked(samples: Samples) -> list[str]:
    return [str(entry["gate"]) for entry in quantities.evidence_of(samples)]


def pair(one: float, other: float) -> tuple[Pair, ...]:
    return (Pair("syscalls", Count("strace -c", one, "calls"), Count("the clients", other, "calls")),)


def made(*alike: tuple[str, ...], **outputs: str) -> Golden:
    """Each node's output, twice."""
    return Golden({name: (output, output) for name, output in outputs.items()}, alike)


def test_what_is_not_declared_is_not_asked() -> None:
    assert asked(PLAIN) == ["counts"]
    assert asked(replace(PLAIN, intervals=())) == []
    whole = replace(
        PLAIN, total=400.0, pairs=pair(100.0, 101.0), answers=Answers(NODES, dict.fromkeys(NODES, 3)),
        closed_loop=ClosedLoop(12, 100.0, 0.12), golden=made(king="a", queen="a", jack="a"),
    )  # fmt: skip
    assert asked(whole) == ["counts", "instruments", "answers", "golden", "littles-law"]
    assert shut(whole) == {}


@pytest.mark.parametrize(
    ("change", "gate", "why"),
    [
        ({"total": 500.0}, "counts", "the intervals hold 400 requests, the workload counted 500"),
        ({"pairs": pair(11.0, 170_000.0)}, "instruments", "syscalls: strace -c says 11 calls"),
        ({"answers": Answers(NODES, {"king": 9})}, "answers", "1 of 3 nodes answered, none from jack, queen"),
        ({"answers": Answers(("king",), {"king": 9, "eve": 1})}, "answers", "answers from eve"),
        (
            {"golden": made(king="a", queen="b", jack="a")},
            "golden",
            "queen: its output is not that of jack, king for the same image",
        ),
        ({"golden": made(king="a", queen="b")}, "golden", "king, queen: their outputs for one image differ"),
        ({"golden": Golden({"king": ("a", "b")})}, "golden", "king: one image gave 2 outputs"),
        ({"golden": Golden({"king": ("a",)}, why="it hung")}, "golden", "king: 1 of 2 outputs of the image came (it"),
        (
            {"golden": made(king="a"), "answers": Answers(NODES, dict.fromkeys(NODES, 1))},
            "golden",
            "jack: 0 of 2 outputs of the image came; queen: 0 of 2",
        ),
        ({"golden": Golden({})}, "golden", "were not compared before the load"),
        ({"closed_loop": ClosedLoop(12, 100.0, 0.2)}, "littles-law", "rate x latency is 20"),
        ({"closed_loop": ClosedLoop(0, 100.0, float("nan"))}, "littles-law", "no closed loop"),
    ],
)
def test_each_rule_runs_where_its_quantity_is_declared(change: dict[str, Any], gate: str, why: str) -> None:
    found = shut(replace(PLAIN, **change))
    assert list(found) == [gate]
    assert why in found[gate]


def test_outputs_of_different_models_need_not_be_alike() -> None:
    assert shut(replace(PLAIN, golden=made(("king",), ("queen", "jack"), king="a", queen="b", jack="b"))) == {}


def test_a_pause_between_intervals_is_a_fault_only_of_a_load_without_pauses() -> None:
    later = [replace(i, start_monotonic_s=i.start_monotonic_s + i.index, end_monotonic_s=i.end_monotonic_s + i.index)
             for i in PLAIN.intervals]  # fmt: skip
    assert set(shut(replace(PLAIN, intervals=tuple(later)))) == {"counts"}
    assert shut(replace(PLAIN, intervals=tuple(later)), joined=False) == {}


class Loop(Burn):
    concurrency_option = "clients"


PLAN = {
    "workload": {"name": "burn", "options": {}},
    "factors": [{"name": "load", "option": "clients"}, {"name": "connections", "option": "connections"}],
    "arms": [{"name": f"c{conn}-l{load}", "levels": {"connections": str(conn), "load": str(load)}}
             for conn in (1, 4) for load in (8, 12, 32)],
    "rules": [{"name": "r", "metric": "steady", "arms": ["c4-l32", "c1-l32"]},
              {"name": "s", "metric": "steady", "arms": ["c4-l12", "c1-l8"]}],
}  # fmt: skip
CURVE = {(1, 8): 331.0, (1, 12): 341.8, (1, 32): 343.1, (4, 8): 352.0, (4, 12): 386.9, (4, 32): 379.0}


def runs(**closed: Any) -> list[Sampled]:
    return [
        Sampled("king", f"c{conn}-l{load}", f"r-{conn}-{load}",
                replace(PLAIN, closed_loop=ClosedLoop(load, rate, load / rate), **closed))
        for (conn, load), rate in CURVE.items()
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def _loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN, "burn", Loop())


def test_only_quoted_arms_past_the_operating_point_of_their_own_curve_are_doubted() -> None:
    found = loadcurve.doubts(PLAN, runs())
    assert [(doubt.board, doubt.arms, doubt.code) for doubt in found] == [
        ("king", ("c1-l32",), "overload-quoted"), ("king", ("c4-l32",), "overload-quoted")
    ]  # fmt: skip
    assert "its operating point is 12" in found[0].what
    assert "connections=1" in found[0].what


def test_every_point_of_a_curve_is_labelled_and_a_load_without_clients_has_none() -> None:
    labels = loadcurve.labels(PLAN, runs())
    assert [(entry["arm"], entry["regime"]) for entry in labels] == [
        ("c1-l8", "below"), ("c1-l12", "operating-point"), ("c1-l32", "overload"),
        ("c4-l8", "below"), ("c4-l12", "operating-point"), ("c4-l32", "overload"),
    ]  # fmt: skip
    assert loadcurve.labels(PLAN, [Sampled("king", "c1-l8", "r", PLAIN)]) == []


def test_one_point_is_no_curve_and_bars_nothing() -> None:
    assert loadcurve.doubts(PLAN, [run for run in runs() if run.arm == "c4-l32"]) == []
