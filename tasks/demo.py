"""demo: the main job from nothing to a judged campaign, on virtual boards.

It stays quick on a fresh machine: llama.cpp comes along when it has been built here before. `--full` builds it first,
and runs the Jetson's own matrix with it.
"""

from __future__ import annotations

from typing import Any

from invoke import Context

from boardbench.errors import ExitCode
from tasks._verb import emit, note, verb

MATRIX = "thermal"
FULL_MATRIX = "moe-stages"
FLEET = "demo"
LLAMA = "llama"
PLAYBOOK = "playbooks/provision.yml"


def _heading(number: int, text: str) -> None:
    note(f"\n[{number}/7] {text}")


def _skipped(rig: Any, full: bool) -> list[str]:
    """Tags of the playbook that this demo leaves out, said in one line."""
    from boardbench.playbook import load
    from boardbench.playbook.apply import all_built
    from tasks._builds import completer
    from tasks._files import project_file

    playbook = load.load(project_file(PLAYBOOK), rig.inventory)
    if full or all_built(playbook, rig.boards, completer(rig)):
        return []
    note("llama.cpp has not been built on this machine yet: ./inv demo --full adds it (about ten minutes, once)")
    return [LLAMA]


def _moe_stages(rig: Any, json: bool) -> tuple[dict[str, Any], int]:
    """The Jetson's matrix with the small model: campaign, validation, report."""
    from tasks._files import project_file

    if not project_file(f"playbooks/matrices/{FULL_MATRIX}.yml").is_file():
        note(f"there is no matrix {FULL_MATRIX}")
        return {}, ExitCode.OK
    note(f"\nbench --matrix {FULL_MATRIX}: the expert cache, stage by stage, on the virtual Jetson")
    return _campaign(rig, FULL_MATRIX, json)


def _campaign(rig: Any, matrix: str, json: bool) -> tuple[dict[str, Any], int]:
    """Bench, validate, report of a further matrix."""
    from boardbench.report.campaign_report import load_report
    from boardbench.report.tables import print_report
    from boardbench.results.validate import validate
    from tasks.bench import run_matrix, summary

    outcome = run_matrix(rig, matrix, json=json)
    note(summary(outcome))
    problems = validate(outcome.path)
    for problem in problems:
        note(str(problem))
    report = load_report(outcome.path)
    if not json:
        print_report(report)
    good = outcome.good and not problems
    document = {**outcome.as_dict(), "problems": len(problems), "report": report.as_json()}
    return document, ExitCode.OK if good else ExitCode.OUTCOME


def _measure(rig: Any, json: bool, full: bool) -> tuple[dict[str, Any], int]:
    """Provision, bench, collect, validate, report on boards that are up; returns the document and the exit code."""
    from boardbench.report.campaign_report import load_report
    from boardbench.report.tables import print_report
    from boardbench.results.validate import validate
    from tasks._files import project_file
    from tasks._playbooks import Options, apply_to
    from tasks.bench import run_matrix, summary
    from tasks.collect import collect_runs

    _heading(2, f"provision: make the boards match {PLAYBOOK}")
    options = Options(skip_tags=",".join(_skipped(rig, full)), json=json, quiet=True)
    code = apply_to(rig, project_file(PLAYBOOK), options)
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
        "time_scale": "how many times faster than real time the boards' physics run (default: the inventory's)",
        "full": "also llama.cpp (built first, when it is not there) and the matrix moe-stages on the virtual Jetson",
    }
)
def demo(c: Context, kind: str = "", time_scale: float = 0.0, full: bool = False, json: bool = False) -> int:
    """Run the main job on four virtual boards: provision, thermal matrix, collect, validate, report, teardown."""
    from boardbench.virtual.fleet import Fleet
    from tasks._boards import open_rig
    from tasks._files import project_file
    from tasks._playbooks import Options, apply_to

    _heading(1, "virtual boards: jetson, king, queen, jack (a fleet of the demo's own)")
    try:
        rig = open_rig("", "", fleet_name=FLEET, kind=kind, time_scale=time_scale)
        document, code = _measure(rig, json, full)
        if full and code == ExitCode.OK:
            document[FULL_MATRIX], code = _moe_stages(rig, json)
        _heading(7, "teardown: leave the boards as they were found, then stop them")
        torn = apply_to(rig, project_file("playbooks/teardown.yml"), Options(json=json, quiet=True))
    finally:
        Fleet.open(FLEET).down()
    note("the virtual boards are stopped; nothing of them is left")
    if json:
        emit(document)
    return code or torn


VERBS = (demo,)
