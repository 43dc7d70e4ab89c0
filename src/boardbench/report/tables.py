"""Tables for the terminal. Figures that are not known are shown as a dash, never as 0."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from boardbench.errors import BenchError
from boardbench.report.campaign_report import CampaignReport, CellFigures
from boardbench.report.dead_time import dead_time_line
from boardbench.report.decision_text import curve_lines, decision_lines
from boardbench.report.stages import COLUMNS, NUMERIC, stage_notes, stages_table

# Wide enough for the widest table where nobody can resize the window: pipes, logs, CI.
WIDTH_WITHOUT_TERMINAL = 118


SERVICES = {"systemctl-replacement": "systemctl*"}


def plain_console() -> Console:
    """Stdout; wide enough for the widest table where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False)


def print_table(table: Table) -> None:
    """Print one table on stdout."""
    plain_console().print(table)


def plain_table(title: str, *columns: str, numeric: Sequence[str] = ()) -> Table:
    """An empty table with these columns; those in `numeric` are set to the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in numeric else "left", no_wrap=True)
    return table


def number(value: object, digits: int = 0) -> str:
    """A reading for people: `-` for a missing one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return f"{value:,.{digits}f}"


def recap_table(recap: Mapping[str, Mapping[str, int]]) -> Table:
    """Per board, how many steps ended in which state."""
    states = ("ok", "changed", "skipped", "failed", "unreachable")
    table = plain_table("recap", "board", *states, numeric=states)
    for board, counts in recap.items():
        row = [escape(board)]
        for state in states:
            style = {"changed": "yellow", "failed": "bold red", "unreachable": "bold red"}.get(state, "")
            text = str(counts[state])
            row.append(f"[{style}]{text}[/]" if style and counts[state] else text)
        table.add_row(*row)
    return table


def fleet_table(status: Any) -> Table:
    """The virtual boards: state, address, boot id."""
    kind = f"{status.kind}, sysfs by {status.sysfs}, physics {status.time_scale:g} x real time"
    table = plain_table(f"virtual fleet '{status.name}': {kind}", "board", "state", "address", "boot id", "up for")
    for name, board in status.boards.items():
        uptime = "-" if board.uptime_s is None else f"{board.uptime_s:,.0f} s"
        address = f"{board.address}:{board.port}" if board.address else "-"
        table.add_row(escape(name), board.state, address, board.boot_id or "-", uptime)
    if not status.boards:
        table.caption = "no virtual board is up"
    return table


def _hottest(facts: Mapping[str, Any]) -> float | None:
    values = [zone["celsius"] for zone in facts["thermal"] if isinstance(zone["celsius"], int | float)]
    return max(values, default=None)


def _clock_mhz(facts: Mapping[str, Any], key: str) -> str:
    policies = facts["cpu_policies"]
    return "/".join(f"{p[key] / 1000:.0f}" if isinstance(p[key], int | float) else "-" for p in policies) or "-"


def facts_table(boards: Sequence[Any], answers: Mapping[str, Any]) -> Table:
    """One line per board: what it is and how it stands now."""
    numeric = ("CPU MHz\nnow", "CPU MHz\nhighest", "hottest\ndegC", "input\nV", "free\nGiB")
    table = plain_table("boards", "board", "model", *numeric, "governor", "services", "virtual", numeric=numeric)
    for board in boards:
        answer = answers[board.name]
        if isinstance(answer, BenchError):
            table.add_row(escape(board.name), "[bold red]no answer[/]", *(["-"] * 8))
            continue
        governors = sorted({str(policy["governor"]) for policy in answer["cpu_policies"]})
        free = [disk["free_bytes"] for disk in answer["disks"] if disk["path"] == "/"]
        virtual = answer["virtual"]
        table.add_row(
            escape(board.name),
            escape(_shortened(str(answer["model"] or "-"), 26)),
            _clock_mhz(answer, "cur_khz"),
            _clock_mhz(answer, "hw_max_khz"),
            number(_hottest(answer), 1),
            number(answer["input_volts"], 2),
            number(free[0] / 2**30, 1) if free and isinstance(free[0], int | float) else "-",
            ",".join(governors) or "-",
            SERVICES.get(answer["service_manager"], answer["service_manager"]),
            f"{virtual['kind']} x{virtual['time_scale']:g}" if virtual else "no",
        )
    return table


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "\u2026"


def fit_table(figures: Mapping[str, Any]) -> Table:
    """How far the thermal model is from a log."""
    pairs = {
        "max degC": ("max_celsius", 1),
        "throttles at s": ("first_throttle_s", 0),
        "median MHz": ("median_big_core_mhz", 0),
        "min MHz": ("min_big_core_mhz", 0),
    }
    numeric = ("RMS\ndegC", *(f"{title}\n{side}" for title in pairs for side in ("model", "log")))
    title = f"thermal model against the log of {figures['logdir']} ({figures['cooling']})"
    table = plain_table(escape(title), "board", *numeric, numeric=numeric)
    for board, values in figures["boards"].items():
        cells = [number(values[key][side], digits) for key, digits in pairs.values() for side in ("model", "log")]
        table.add_row(escape(board), number(values["rms_celsius"], 2), *cells)
    return table


def _validity(cell: CellFigures) -> str:
    if cell.missing_why is not None:
        return "[bold red]missing[/]"
    return "[green]yes[/]" if cell.valid else "[bold red]no[/]"


def report_table(report: CampaignReport) -> Table:
    """Per board and phase: throughput over time, heat and clocks inside the load window, throttling, validity."""
    numeric = (
        "first\n/s", "peak\n/s", "steady\n/s", "loss\n%", "SoC max\ndegC",
        "CPU MHz\nmedian", "CPU MHz\nmin", "NPU\nMHz", "throttled\nat s",
    )  # fmt: skip
    table = plain_table("", "board", "arm", *numeric, "valid", numeric=numeric)
    for cell in report.cells:
        rate, heat = cell.throughput, cell.heat
        onset = "-"
        if heat is not None and heat.throttled is not None:
            onset = number(heat.throttle_onset_s) if heat.throttled else "never"
        table.add_row(
            escape(cell.board),
            escape(cell.arm),
            *((number(rate.first_per_s), number(rate.peak_per_s), number(rate.steady_per_s),
               number(rate.degradation_percent, 1)) if rate is not None else ("-", "-", "-", "-")),
            number(heat.soc_max_celsius if heat else None, 1),
            number(heat.cpu_median_mhz if heat else None),
            number(heat.cpu_min_mhz if heat else None),
            number(heat.npu_median_mhz if heat else None),
            onset,
            _validity(cell),
        )  # fmt: skip
    return table


def print_report(report: CampaignReport) -> None:
    """The whole report: question, tables, spread between boards, what is not valid and why, and what it holds for."""
    console = plain_console()
    console.print(f"[bold]{escape(report.matrix)}[/] {escape(report.name)}")
    if report.question:
        console.print(escape(report.question))
    if report.virtual:
        console.print(
            f"[yellow]virtual boards[/]: a thermal model, not hardware; physics {report.time_scale:g} x real time, "
            + ("the load's times below are real seconds" if report.stages else "times below are board seconds")
        )
    if report.load_label:
        console.print(f"[yellow]{escape(report.load_label)}[/]")
    for line in decision_lines(report.decisions):
        console.print(line)
    _print_figures(console, report)
    for cell in report.cells:
        label = f"{escape(cell.board)}, {escape(cell.arm)}"
        if cell.missing_why is not None:
            console.print(f"[bold red]missing[/] {label}: {escape(cell.missing_why)}")
        for reason in cell.invalid_reasons:
            console.print(f"[bold red]invalid[/] {label}: {escape(reason)}")
    for remark, labels in report.remarks().items():
        console.print(f"note {escape(remark)} ({escape(', '.join(labels))})")
    console.print(dead_time_line(report.dead_time))
    counts = report.counts
    console.print(
        f"{counts['valid']} valid, {counts['invalid']} invalid, {counts['missing']} missing of {counts['cells']} cells"
        + (f" ({counts['not_selected']} not selected)" if counts["not_selected"] else "")
    )


def print_stages(report: CampaignReport) -> None:
    """The table of stages and what it needs to be read; nothing for a campaign without stages."""
    if not report.stages:
        return
    console = plain_console()
    console.print(stages_table(report.stages, plain_table("", *COLUMNS, numeric=NUMERIC)))
    for line in stage_notes(report.stages, report.virtual):
        console.print(escape(line))


def _print_figures(console: Console, report: CampaignReport) -> None:
    if report.stages:
        print_stages(report)
        return
    console.print(report_table(report))
    console.print(
        f"rates: {escape(report.rate_unit)} per second of the controller's clock; steady = mean of the last third; "
        "loss = from the best median of three neighbouring intervals to it"
    )
    for cell in report.cells:
        watts = cell.heat.power_max_watts if cell.heat else None
        if watts is not None:
            console.print(f"highest input power under load, {escape(cell.board)} {escape(cell.arm)}: {watts:.1f} W")
    for line in curve_lines(report.decisions):
        console.print(line)
    for arm, ratio in report.spreads.items():
        shown = "-" if ratio is None else f"{ratio:.2f} x"
        console.print(f"spread of steady rates over boards, {escape(arm)}: {shown}")
