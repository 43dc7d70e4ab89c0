"""The page of a campaign that was run here: question and verdict first, then how it came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boardbench.analysis.estimates import Unknown
from boardbench.analysis.sketch import Sketch
from boardbench.report.campaign_report import CampaignReport, load_report
from boardbench.report.cluster import cluster_of
from boardbench.report.dead_time import dead_time_line
from boardbench.report.decision_text import numbers_text
from boardbench.report.page import validity
from boardbench.report.page.cluster_section import cluster_section
from boardbench.report.page.conditions import conditions_table, runs_table
from boardbench.report.page.heat_chart import heat_chart
from boardbench.report.page.model import Chart, Page, Section, Verdict
from boardbench.report.page.other_charts import decode_chart, latency_chart, residency_chart
from boardbench.report.page.plan import plan_section
from boardbench.report.page.rate_chart import rate_chart
from boardbench.report.page.run_view import RunView, view
from boardbench.results import manifest, store
from boardbench.results.figures import Figures

BUCKETS_PER_BOARD = 900
"""How finely the logs of a board are kept for its chart: about one stretch a pixel on a wide screen."""
MOST_BOARDS = 24
"""Charts of temperature and clocks are drawn for so many boards; all of them are in the tables."""
MOST_LINES = 150
"""A chart of throughput has so many lines at most, a board's chart of heat a sixth: more cannot be told apart."""


def native_page(folder: Path) -> Page:
    """The page of a campaign folder. Raises InputError when it is no finished campaign."""
    plan = store.read_object(folder / "plan.json")
    runs: list[RunView] = []
    per_board = max(1, len(_list(plan["cells"])) // max(1, len(_list(plan["boards"]))))
    buckets = max(20, BUCKETS_PER_BOARD // per_board)

    def look(cell: Mapping[str, Any], attempt: Path, run: Mapping[str, Any], found: Figures) -> None:
        runs.append(view(cell, attempt, run, found, float(run["time_scale"]), buckets))

    report = load_report(folder, look)
    campaign: dict[str, Any] = store.read_object(folder / "campaign.json")
    verdict: dict[str, Any] = store.read_object(folder / "verdict.json")
    arms = [str(arm["name"]) for arm in _list(plan["arms"])]
    decisions: Mapping[str, Any] = report.decisions
    return Page(
        title=report.matrix,
        name=report.name,
        question=report.question,
        banner=banner(report.virtual, report.time_scale),
        answer=_answer(report),
        prediction=_prediction(decisions),
        verdicts=tuple(rule_verdict(rule) for rule in decisions["rules"]),
        domain=str(decisions["domain"]),
        marks=_marks(report, campaign, plan),
        sections=tuple(_sections(folder, report, campaign, plan, verdict, runs, arms)),
    )


def banner(virtual: bool, time_scale: float) -> str:
    """What must be said before anything else of a virtual result; nothing for hardware."""
    if not virtual:
        return ""
    return (
        f"Virtual boards: a thermal model, not hardware. Physics {time_scale:g} x real time; times are board seconds. "
        "No figure here says anything about a real board."
    )


def rule_verdict(rule: Mapping[str, Any]) -> Verdict:
    """One rule of verdict.json for people."""
    lines = [rule["why"]] if rule["why"] else []
    lines += [numbers_text(rule, board) for board in rule["boards"]]
    if rule["baseline"] is not None:
        lines.append(f"baseline {rule['baseline']['arm']}: {rule['baseline']['is']}")
    return Verdict(str(rule["verdict"]), str(rule["rule"]), str(rule["text"]), tuple(lines))


def _prediction(decisions: Mapping[str, Any]) -> Verdict | None:
    told = decisions["prediction"]
    if told is None:
        return None
    limit = told["refuted_if"]
    lines = [f"rule {told['rule']}; refuted if {limit['op']} {limit['threshold']:g}"]
    if told["why"]:
        lines.append(str(told["why"]))
    return Verdict(f"prediction {told['verdict']}", "written before the first run", str(told["says"]), tuple(lines))


def _answer(report: CampaignReport) -> str:
    """One sentence: what came of the rules, and of how many cells."""
    words = [str(rule["verdict"]) for rule in report.decisions["rules"]]
    told = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    counts = report.counts
    cells = f"{counts['valid']} of {counts['cells']} cells valid"
    bad = [
        f"{counts[key]} {name}"
        for key, name in (("invalid", "invalid"), ("missing", "missing"), ("not_selected", "not selected"))
        if counts[key]
    ]
    rules = f"Rules: {told}. " if words else "No rule was set beforehand: figures, no verdict. "
    left = f" ({', '.join(bad)})" if bad else ""
    return f"{rules}{cells}{left}."


def _marks(report: CampaignReport, campaign: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    import time

    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(float(campaign["created_wall_unix_s"])))
    who = campaign["controller"]
    return (
        ("started", made),
        ("boards", ", ".join(str(board) for board in plan["boards"])),
        ("workload", f"{plan['workload']['name']}{f' ({report.load_label})' if report.load_label else ''}"),
        ("controller", f"{who['owner']}@{who['host']}"),
    )


def _sections(
    folder: Path,
    report: CampaignReport,
    campaign: Mapping[str, Any],
    plan: Mapping[str, Any],
    verdict: Mapping[str, Any],
    runs: Sequence[RunView],
    arms: Sequence[str],
) -> list[Section]:
    order = {arm: at for at, arm in enumerate(arms)}
    places = {str(board): at for at, board in enumerate(plan["boards"])}
    runs = sorted(runs, key=lambda run: (places.get(run.board, len(places)), run.board,
                                         order.get(run.arm, len(order)), run.repetition))  # fmt: skip
    boards = list(dict.fromkeys(run.board for run in runs))
    found = [plan_section(plan, report)]
    found.append(
        Section(
            "conditions", "Figures by condition",
            tables=(conditions_table(runs, report), runs_table(runs)) if runs else (),
            lines=() if runs else ("No run left a file that can be used.",),
        )
    )  # fmt: skip
    if (cluster := cluster_section(cluster_of(folder))) is not None:
        found.append(cluster)
    found += _charted(runs, boards, arms)
    found.append(validity.section(report, verdict, runs))
    found.append(_domain(report, verdict, campaign))
    found.append(_again(folder, campaign, plan, report))
    return found


def _charted(runs: Sequence[RunView], boards: Sequence[str], arms: Sequence[str]) -> list[Section]:
    """A section per kind of chart that there is something to draw for."""
    lines, told = drawn_runs(runs, MOST_LINES)
    heat: list[Chart | None] = []
    heat_told: tuple[str, ...] = ()
    for at, board in enumerate(boards[:MOST_BOARDS]):
        few, left = drawn_runs([run for run in runs if run.board == board], MOST_LINES // 6)
        heat_told = heat_told or left
        heat.append(heat_chart(few, f"heat-{at + 1}"))
    if len(boards) > MOST_BOARDS:
        heat_told = (*heat_told, f"{len(boards) - MOST_BOARDS} more boards are in the tables only.")
    parts: list[tuple[str, str, list[Chart | None], tuple[str, ...]]] = [
        ("throughput-over-time", "Throughput over time", [rate_chart(lines, arms)], told),
        ("heat", "Temperature, clocks and power", heat, heat_told),
        ("residency-bars", "Clock residency", [residency_chart(_shares(runs))], ()),
        ("latencies", "Latency", [latency_chart(*_latencies(runs))], ()),
        ("tokens", "Cost of a token", [decode_chart(_decode(runs))], ()),
    ]
    found = []
    for key, title, charts, words in parts:
        drawn = tuple(chart for chart in charts if chart is not None)
        if drawn:
            found.append(Section(key, title, words, charts=drawn))
    return found


def drawn_runs(runs: Sequence[RunView], most: int) -> tuple[list[RunView], tuple[str, ...]]:
    """The runs that a chart has room for: whole repetitions from the first on, and what to say of those left out."""
    if len(runs) <= most:
        return list(runs), ()
    repetitions = sorted({run.repetition for run in runs})
    kept = next(
        (few for at in range(len(repetitions), 0, -1)
         if len(few := [run for run in runs if run.repetition <= repetitions[at - 1]]) <= most),
        [run for run in runs if run.repetition == repetitions[0]][:most],
    )  # fmt: skip
    return kept, (
        f"Drawn: {len(kept)} of {len(runs)} runs, the first repetitions. All are in the figures and in --csv.",
    )


def _shares(runs: Sequence[RunView]) -> dict[tuple[str, str], dict[float, float]]:
    """MHz -> mean share of time over the valid repetitions of a board and arm."""
    groups: dict[tuple[str, str], list[Mapping[float, float]]] = {}
    for run in runs:
        if run.valid and not isinstance(run.residency, Unknown):
            groups.setdefault((run.board, run.arm), []).append(run.residency.by_time)
    return {
        key: {clock / 1000: sum(one.get(clock, 0.0) for one in many) / len(many)
              for clock in {clock for one in many for clock in one}}
        for key, many in groups.items()
    }  # fmt: skip


def _latencies(runs: Sequence[RunView]) -> tuple[dict[str, Sketch], dict[str, dict[str, Sketch]]]:
    by_arm: dict[str, Sketch] = {}
    by_board: dict[str, dict[str, Sketch]] = {}
    for run in runs:
        if run.valid and run.requests is not None:
            by_arm.setdefault(run.arm, Sketch()).merge(run.requests)
            by_board.setdefault(run.board, {}).setdefault(run.arm, Sketch()).merge(run.requests)
    return by_arm, by_board


def _decode(runs: Sequence[RunView]) -> dict[str, list[tuple[float, float]]]:
    points: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        if run.valid and run.decode:
            points.setdefault(run.arm, []).extend(run.decode)
    return points


def _domain(report: CampaignReport, verdict: Mapping[str, Any], campaign: Mapping[str, Any]) -> Section:
    lines = [f"These figures hold for: {report.decisions['domain']}."]
    for board in campaign["boards"]:
        who = board["identity"]
        serial = who.get("serial") or who.get("machine_id") or "no serial number"
        told = f"identity {who['missing']}" if "missing" in who else f"hostname {who['hostname']}, {serial}"
        lines.append(f"{board['name']} ({board['kind']}, cooling driver {board['cooling_driver']}): {told}.")
    lines += [f"{text} ({', '.join(cells)})." for text, cells in report.remarks().items()]
    lines += [f"Warning, {entry['board']}: {entry['what']}" for entry in verdict["warnings"]]
    lines += [f"Not put back on {entry['board']}: {entry['why']}" for entry in verdict["not_restored"]]
    lines.append(dead_time_line(report.dead_time))
    return Section("domain", "Domain of the claim", tuple(lines))


def _again(folder: Path, campaign: Mapping[str, Any], plan: Mapping[str, Any], report: CampaignReport) -> Section:
    who = campaign["controller"]
    lines = [
        f"Plan {plan['sha256']}, locked before the first run; matrix file {campaign['matrix_file']} "
        f"(sha256 {campaign['matrix_file_sha256']}), order {plan['order']['kind']}, seed {plan['order']['seed']}.",
        f"boardbench {who['boardbench']}, Python {who['python']}, {who['system']}; call: {' '.join(campaign['argv'])}",
    ]
    for name, files in campaign["payloads"].items():
        lines.append(f"Payload {name}: " + ", ".join(f"{file['name']} sha256 {file['sha256'][:16]}…" for file in files))
    path = folder / manifest.NAME
    if path.is_file():
        lines.append(f"The campaign's list of hashes, {manifest.NAME}, has sha256 {store.sha256_file(path)}.")
    commands = (
        f"./inv bench --matrix {plan['matrix']}   # the same matrix again",
        f"./inv validate results/{plan['matrix']}/{report.name}   # every hash, schema and judgement made again",
        f"./inv compare {report.name} OTHER   # cell by cell against another campaign",
        f"./inv report {report.name} --html",
    )
    return Section("again", "How to reproduce", tuple(lines), commands=commands)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
