"""An imported campaign for the terminal: figures first, then what is wrong with the source, then what it cannot say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.markup import escape

from boardbench.imports.stored import StoredImport
from boardbench.report.import_figures import (
    Board,
    boards,
    by_arm,
    import_figures,
    is_series,
    label,
    operating_points,
    over_time,
    steps_text,
)
from boardbench.report.tables import number, plain_console, plain_table, print_table

__all__ = ["import_figures", "print_import"]

MOST_ARMS = 40
MOST_FAULTS = 20
MOST_FACTS = 30


def print_import(stored: StoredImport) -> None:
    """Print everything that matters of an imported campaign."""
    console = plain_console()
    said = stored.provenance

    def line(text: str) -> None:
        console.print(escape(text), soft_wrap=True)

    line(f"imported {said['format']}: {said['source']} ({said['chosen']})")
    line(f"{stored.folder.name}: {stored.campaign['question']}")
    line("imported: not run by this bench, no gate was asked; the figures are as good as the source")
    for named in [*over_time(stored), *operating_points(stored)]:
        line(f"{named.name}: {named.text}")
    _arms(stored)
    _boards(boards(stored))
    if not stored.measured and not stored.logs:
        _facts(stored)
    _invalid(stored, line)
    _list("wrong with the source", [f"{one['code']}: {one['where']}: {one['detail']}" for one in stored.faults], line)
    _list("not known", list(said["not_known"]), line)


def _arms(stored: StoredImport) -> None:
    found = by_arm(stored)
    if not found or is_series(stored):  # the mean of a load that falls says nothing
        return
    table = plain_table("mean +- sample deviation over runs", "arm", "metric", "value", "valid", "remark")
    for arm in found[:MOST_ARMS]:
        table.add_row(escape(arm.arm), arm.metric, escape(arm.text), f"{arm.valid}/{arm.runs}", escape(arm.remark))
    print_table(table)
    if len(found) > MOST_ARMS:
        plain_console().print(f"... and {len(found) - MOST_ARMS} more arms")


def _boards(found: Sequence[Board]) -> None:
    if not found:
        return
    head = ("board", "readings", "SoC max degC", "CPU median MHz", "CPU min", "NPU/GPU", "below top s", "W", "least V")
    table = plain_table("from the logs, inside the load", *head, numeric=head[1:])
    for board in found:
        table.add_row(
            escape(board.name),
            number(board.readings),
            number(board.soc_max_celsius, 1),
            number(board.cpu_median_mhz),
            number(board.cpu_min_mhz),
            number(board.npu_median_mhz),
            number(board.throttled_at_s),
            number(board.mean_input_watts, 2),
            number(board.lowest_volts, 3),
        )
    print_table(table)
    for board in found:
        if board.clock_steps:
            plain_console().print(escape(f"{board.name} CPU MHz first seen: {steps_text(board)}"), soft_wrap=True)


def _facts(stored: StoredImport) -> None:
    table = plain_table("facts", "name", "value")
    for fact in stored.facts[:MOST_FACTS]:
        value = fact["value"]
        text = f"missing: {value['missing']}" if isinstance(value, dict) else str(value)
        table.add_row(escape(str(fact["name"])[:70]), escape(text[:80]))
    print_table(table)
    if len(stored.facts) > MOST_FACTS:
        plain_console().print(f"... and {len(stored.facts) - MOST_FACTS} more facts in facts.json")


def _invalid(stored: StoredImport, line: Callable[[str], None]) -> None:
    bad = [run for run in stored.measured if not run.valid]
    good = len(stored.measured) - len(bad)
    if stored.measured:
        line(f"{good} valid, {len(bad)} invalid of {len(stored.measured)} runs")
    why: dict[str, list[str]] = {}
    for run in bad:
        for code, detail in run.reasons:
            why.setdefault(f"{code}: {detail}", []).append(label(list(run.arm.items())))
    for text, arms in list(why.items())[:MOST_FAULTS]:
        line(f"  invalid, {len(arms)} of {len(stored.measured)}: {text}")


def _list(title: str, texts: Sequence[str], line: Callable[[str], None]) -> None:
    if texts:
        line(f"{title}:")
    for text in texts[:MOST_FAULTS]:
        line(f"  {text}")
    if len(texts) > MOST_FAULTS:
        line(f"  ... and {len(texts) - MOST_FAULTS} more")
