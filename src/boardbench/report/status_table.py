"""The table of `status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from boardbench.matrix.progress import Phase
from boardbench.report.progress import STYLES, clock
from boardbench.report.status import BoardStatus

UNKNOWN = "-"


def _number(value: object, digits: int = 0) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNKNOWN
    return f"{value:,.{digits}f}"


def _clocks(line: BoardStatus) -> str:
    cpu = "/".join(_number(value) for value in line.cpu_mhz) if isinstance(line.cpu_mhz, list) else UNKNOWN
    npu = _number(line.npu_mhz)
    return cpu if npu == UNKNOWN else f"{cpu} + {npu}"


def _lease(line: BoardStatus) -> str:
    if "free" in line.lease:
        return "free"
    if "missing" in line.lease:
        return UNKNOWN
    left_s = line.lease["left_s"]
    left = f", {clock(left_s)} left" if isinstance(left_s, int | float) else ""
    return f"{line.lease['owner']}@{line.lease['host']}{left}"


def _cell(line: BoardStatus) -> str:
    if line.cell_number is None:
        return UNKNOWN
    return f"{line.cell_number} of {line.cells}"


def _campaign(line: BoardStatus) -> str:
    if line.campaign is None:
        return UNKNOWN
    wave = f" {line.wave}/{line.waves}" if line.wave is not None else ""
    return f"{line.campaign.rsplit('-', 1)[-1]}{wave}"


def _phase(line: BoardStatus) -> str:
    if line.error is not None:
        return "[bold red]no answer[/]"
    if line.phase is None:
        return UNKNOWN
    style = STYLES.get(Phase(line.phase), "") if line.phase in {phase.value for phase in Phase} else ""
    return f"[{style}]{line.phase}[/]" if style else escape(line.phase)


def status_table(lines: Sequence[BoardStatus], notes: Sequence[str] = ()) -> Group:
    """One line a board, and below what is to be said about it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (
        "board",
        "campaign\nand wave",
        "cell",
        "phase",
        "waits for",
        "degC",
        "MHz CPU\n+ NPU",
        "held by",
        "ETA",
    ):
        right = name in ("degC", "MHz CPU\n+ NPU", "ETA")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "waits for")
    for line in lines:
        eta = UNKNOWN if line.eta_s is None else clock(line.eta_s)
        table.add_row(
            escape(line.board),
            escape(_campaign(line)),
            _cell(line),
            _phase(line),
            escape(line.waits_for) or UNKNOWN,
            _number(line.celsius, 1),
            _clocks(line),
            escape(_lease(line)),
            eta,
        )
    return Group(table, *(Text(text) for text in [*_remarks(lines), *notes]))


def _remarks(lines: Sequence[BoardStatus]) -> list[str]:
    """Errors, why boards were not asked, and what is not known: each once, with its boards."""
    said: dict[str, list[str]] = {}
    for line in lines:
        texts = [*line.notes, *([line.error] if line.error else []), *_why_unknown(line)]
        if line.asked.startswith("not asked"):
            texts.append(line.asked)
        for text in texts:
            said.setdefault(text, []).append(line.board)
    return [f"{', '.join(boards)}: {text}" for text, boards in said.items()]


def _why_unknown(line: BoardStatus) -> list[str]:
    if line.asked.startswith("not asked") or line.error is not None:
        return []
    readings = {"temperature": line.celsius, "CPU clock": line.cpu_mhz, "NPU clock": line.npu_mhz}
    found = [f"{name}: {why['missing']}" for name, why in readings.items() if isinstance(why, Mapping)]
    if isinstance(line.cpu_mhz, list):
        found += [f"CPU clock: {why['missing']}" for why in line.cpu_mhz if isinstance(why, Mapping)]
    return found
