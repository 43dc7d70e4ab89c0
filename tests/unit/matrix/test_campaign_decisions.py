"""From a campaign on fake boards to decisions in verdict.json, in the report, and made again by validate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fake_boards import MATRIX, Fleet, write_project

from boardbench.matrix import campaign
from boardbench.matrix.campaign import CampaignOutcome
from boardbench.report.campaign_report import load_report
from boardbench.report.decision_text import curve_lines, decision_lines
from boardbench.results import manifest, store
from boardbench.results.validate import validate

PROMISES = """\
baseline: {arm: active, is: its fan runs}
domain: a desk
rules:
  - {name: cost, metric: steady, arms: [fanless, active], compare: ratio, op: "<", threshold: 0.9,
     minimum_effect: {percent: 1}, assumed_noise: {percent: 2, because: made up for this test}}
prediction: {says: it costs a tenth, rule: cost, refuted_if: {op: ">=", threshold: 0.95}}
"""


def run(folder: Path, fleet: Fleet, text: str, cells: Sequence[str] = ()) -> CampaignOutcome:
    matrix, payloads = write_project(folder)
    matrix.write_text(text)
    return campaign.run(
        matrix, fleet.inventory, fleet.boards, results_dir=folder / "results", open_door=fleet.open,
        payloads_dir=payloads, cells=cells,
    )  # fmt: skip


def decisions(outcome: CampaignOutcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((outcome.path / "verdict.json").read_text())["decisions"]
    return found


def test_a_campaign_ends_with_its_decisions(tmp_path: Path, fleet: Fleet) -> None:
    outcome = run(tmp_path, fleet, MATRIX + PROMISES)
    found = decisions(outcome)
    rule = found["rules"][0]
    assert (rule["verdict"], found["prediction"]["verdict"], found["virtual"]) == ("supported", "hit", True)
    assert [round(board["effect"], 3) for board in rule["boards"]] == [0.8, 0.8]
    assert rule["baseline"] == {"arm": "active", "is": "its fan runs"}
    assert "a desk" in found["domain"]
    assert "not hardware" in found["domain"]
    assert validate(outcome.path) == []
    report = load_report(outcome.path)
    assert report.as_json()["decisions"] == found
    lines = list(decision_lines(report.decisions))
    assert "hit" in lines[0]
    assert any("baseline active: its fan runs" in line for line in lines)


def test_a_prediction_that_missed_is_said_to_have_missed(tmp_path: Path, fleet: Fleet) -> None:
    wrong = PROMISES.replace('op: "<", threshold: 0.9,', 'op: "<", threshold: 0.5,').replace("0.95", "0.6")
    outcome = run(tmp_path, fleet, MATRIX + wrong)
    found = decisions(outcome)
    assert (found["rules"][0]["verdict"], found["prediction"]["verdict"]) == ("refuted", "missed")
    assert "was missed" in next(decision_lines(found))


def test_a_control_runs_as_an_arm_of_its_own_and_gives_the_noise(tmp_path: Path, fleet: Fleet) -> None:
    outcome = run(tmp_path, fleet, MATRIX + PROMISES + "controls: [{name: active-aa, of: active}]\n")
    assert outcome.cells == 6
    assert outcome.good
    noise = decisions(outcome)["rules"][0]["boards"][0]["noise"]
    assert (noise["source"], noise["n"]) == ("controls", 1)
    assert validate(outcome.path) == []


def test_cells_that_were_not_selected_are_not_missing(tmp_path: Path, fleet: Fleet) -> None:
    outcome = run(tmp_path, fleet, MATRIX + PROMISES, ["*-king"])
    assert (outcome.cells, outcome.valid, outcome.missing, outcome.not_selected) == (4, 2, 0, 2)
    assert outcome.good
    assert len(store.read_object(outcome.path / "plan.json")["cells"]) == 4  # type: ignore[arg-type]
    assert store.read_object(outcome.path / "campaign.json")["selected_cells"] == [
        "001-active-king",
        "003-fanless-king",
    ]
    rule = decisions(outcome)["rules"][0]
    assert [board["verdict"] for board in rule["boards"]] == ["supported", "undecided"]
    assert fleet["queen"].runs == {}
    assert "prepare" not in fleet["queen"].verbs()
    assert validate(outcome.path) == []


def test_a_verdict_that_was_written_by_hand_is_found(tmp_path: Path, fleet: Fleet) -> None:
    outcome = run(tmp_path, fleet, MATRIX + PROMISES)
    verdict = store.read_object(outcome.path / "verdict.json")
    verdict["decisions"]["rules"][0]["verdict"] = "refuted"  # type: ignore[index, call-overload]
    store.write_json(outcome.path / "verdict.json", verdict, replace=True)
    manifest.write(outcome.path)
    assert [problem.what for problem in validate(outcome.path)] == ["decisions is not what the files say"]


def test_a_run_that_does_not_count_takes_its_rule_with_it(tmp_path: Path, fleet: Fleet) -> None:
    fleet["queen"].exit = {"code": 1}
    outcome = run(tmp_path, fleet, MATRIX + PROMISES)
    found = decisions(outcome)
    assert (found["rules"][0]["verdict"], found["prediction"]["verdict"]) == ("invalid", "invalid")


def same_counters(files: dict[str, bytes]) -> None:
    """Whatever the arm, the workload counts the same."""
    lines = [json.loads(line) for line in files["workload/burn.jsonl"].splitlines()]
    for line in lines:
        if line["event"] == "interval":
            line["operations"] = 19.0 + line["index"]
            line["operations_per_s"] = line["operations"] / (line["end_monotonic_s"] - line["start_monotonic_s"])
    lines[-1]["operations"] = sum(line["operations"] for line in lines if line["event"] == "interval")
    files["workload/burn.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_an_arm_without_effect_makes_the_rules_that_use_it_invalid(tmp_path: Path, fleet: Fleet) -> None:
    fleet["king"].change_files = same_counters
    outcome = run(tmp_path, fleet, MATRIX + PROMISES)
    assert outcome.valid == 4
    found = decisions(outcome)
    rule = found["rules"][0]
    assert (rule["verdict"], found["prediction"]["verdict"]) == ("invalid", "invalid")
    assert "king: arm-did-not-take-effect: all 31 counters of arm active" in rule["why"]
    assert [board["verdict"] for board in rule["boards"]] == ["invalid", "supported"]
    assert rule["boards"][0]["effect"] is not None
    assert any("arm-did-not-take-effect" in line for line in decision_lines(found))


def test_a_control_that_is_nothing_like_its_arm_makes_the_rules_of_this_arm_invalid(
    tmp_path: Path, fleet: Fleet
) -> None:
    starts: list[str] = []
    start = fleet["king"].verb_start

    def verb_start(args: Any) -> Any:
        starts.append(args["run"])
        return start(args)

    def slow_first(files: dict[str, bytes]) -> None:
        if len(starts) != 1:
            return
        lines = [json.loads(line) for line in files["workload/burn.jsonl"].splitlines()]
        for line in lines:
            for key in {"operations", "operations_per_s"} & set(line):
                line[key] *= 0.18
        files["workload/burn.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines).encode()

    fleet["king"].verb_start = verb_start  # type: ignore[method-assign]
    fleet["king"].change_files = slow_first
    outcome = run(tmp_path, fleet, MATRIX + PROMISES + "controls: [{name: active-aa, of: active}]\n")
    rule = decisions(outcome)["rules"][0]
    assert rule["verdict"] == "invalid"
    assert "control active-aa has" in rule["why"]
    assert "5.56 x the rate of active" in rule["why"]


def test_the_points_of_a_load_curve_are_shown_and_those_of_overload_marked() -> None:
    point = {"board": "king", "configuration": "c", "concurrency": 12, "rate_per_s": 386.9}
    curve = [{**point, "arm": "l12", "regime": "operating-point"}, {**point, "arm": "l32", "regime": "overload"}]
    first, second = curve_lines({"load_curve": curve})
    assert first == "load king, l12: 386.9 per s with 12 under way: operating-point"
    assert "[bold yellow]overload[/]" in second
    assert list(curve_lines({"rules": []})) == []
