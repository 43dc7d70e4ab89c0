"""demo: the main job from nothing to a judged campaign, on virtual boards."""

from __future__ import annotations

from typing import Any

from invoke import Context

from boardbench.errors import ExitCode
from tasks._verb import emit, note, verb

MATRIX = "thermal"
FLEET = "demo"


def _heading(number: int, text: str) -> None:
    note(f"\n[{number}/7] {text}")


def _measure(rig: Any, json: bool) -> tuple[dict[str, Any], int]:
    """Provision, bench, collect, validate, report on boards that are up; returns the document and the exit code."""
    from boardbench.report.campaign_report import load_report
    from boardbench.report.tables import print_report
    from boardbench.results.validate import validate
    from tasks._files import project_file
    from tasks._playbooks import Options, apply_to
    from tasks.bench import run_matrix, summary
    from tasks.collect import collect_runs

    _heading(2, "provision: make the boards match playbooks/provision.yml")
    code = apply_to(rig, project_file("playbooks/provision.yml"), Options(json=json, quiet=True))
    if code != ExitCode.OK:
        return {"failed": "provision"}, code
    _heading(3, f"bench --matrix {MATRIX}: actively cooled, then fanless")
    outcome = run_matrix(rig, MATRIX, json=json)
    note(summary(outcome))
    _heading(4, "collect: what is still on the boards")
    collected, lines = collect_runs(rig, outcome.path)
    for line in lines:
        note(line)
    _heading(5, "validate: every file against its schema and hash")
    problems = validate(outcome.path)
    for problem in problems:
        note(str(problem))
    note("valid" if not problems else f"{len(problems)} problems")
    _heading(6, "report")
    report = load_report(outcome.path)
    if not json:
        print_report(report)
    good = outcome.good and not problems and not collected["failed"]
    return {**outcome.as_dict(), "problems": len(problems), "report": report.as_json()}, (
        ExitCode.OK if good else ExitCode.OUTCOME
    )


@verb(
    help={
        "kind": "kind of virtual boards: nspawn (root, real systemd), bwrap, or auto",
        "time-scale": "how many times faster than real time the boards' physics run (default: the inventory's)",
    }
)
def demo(c: Context, kind: str = "", time_scale: float = 0.0, json: bool = False) -> int:
    """Run the main job on four virtual boards: provision, thermal matrix, collect, validate, report, teardown."""
    from boardbench.virtual.fleet import Fleet
    from tasks._boards import open_rig
    from tasks._files import project_file
    from tasks._playbooks import Options, apply_to

    _heading(1, "virtual boards: jetson, king, queen, jack (a fleet of the demo's own)")
    try:
        rig = open_rig("", "", fleet_name=FLEET, kind=kind, time_scale=time_scale)
        document, code = _measure(rig, json)
        _heading(7, "teardown: leave the boards as they were found, then stop them")
        torn = apply_to(rig, project_file("playbooks/teardown.yml"), Options(json=json, quiet=True))
    finally:
        Fleet.open(FLEET).down()
    note("the virtual boards are stopped; nothing of them is left")
    if json:
        emit(document)
    return code or torn


VERBS = (demo,)
