"""lease: who holds the boards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from invoke import Context

from boardbench.errors import BenchError, ExitCode
from tasks._verb import emit, note, verb


@verb(help={"history": "also the last holds that ended, and how"})
def lease(c: Context, inventory: str = "", limit: str = "", history: bool = False, json: bool = False) -> int:
    """Say who holds each board, for which campaign and for how long; what still is to be put back there."""
    from boardbench.board import Door
    from boardbench.crew import each
    from boardbench.matrix.leftovers import look
    from tasks._boards import open_rig

    rig = open_rig(inventory, limit)
    answers = each(rig.boards, lambda board: look(board, lambda board: Door.open(board, rig.inventory.known_hosts)))
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, BenchError)}
    good = {name: answer for name, answer in answers.items() if not isinstance(answer, BenchError)}
    if json:
        emit(
            {
                "boards": {name: found.as_dict() for name, found in good.items()},
                "failed": {name: error.as_dict() for name, error in failed.items()},
            }
        )
    else:
        _table({name: found.lease for name, found in good.items()}, history)
        for name, found in good.items():
            if found.scopes:
                note(f"{name}: {found.says()}")
    for error in failed.values():
        note(f"inv: {error}")
    return ExitCode.RIG if failed else ExitCode.OK


def _table(leases: Mapping[str, Mapping[str, Any]], history: bool) -> None:
    from rich.table import Table

    from boardbench.report.tables import print_table

    table = Table(box=None, pad_edge=False)
    for column in ("board", "held by", "campaign", "since", "left", "beats", "note"):
        table.add_column(column, no_wrap=column != "note")
    for name, answer in leases.items():
        held = answer.get("lease")
        if isinstance(held, Mapping):
            left = f"{float(answer.get('left_s') or 0.0):.0f} s"
            table.add_row(name, f"{held['owner']}@{held['host']}", str(held["campaign"]), _clock(held["taken_unix_s"]),
                          left, str(held["heartbeats"]), str(held.get("why", "")))  # fmt: skip
        else:
            table.add_row(name, "nobody", "", "", "", "", str(answer.get("note", "")))
        past = answer.get("history")
        for entry in past if history and isinstance(past, list) else []:
            who, since = f"{entry['owner']}@{entry['host']}", _clock(entry["taken_unix_s"])
            table.add_row("", who, str(entry["campaign"]), since, "ended", str(entry["heartbeats"]), str(entry["how"]))
    print_table(table)


def _clock(unix_s: object) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(float(str(unix_s))))


VERBS = (lease,)
