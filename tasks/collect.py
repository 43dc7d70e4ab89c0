"""collect: fetch what is still on the boards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invoke import Context

from boardbench.errors import ExitCode
from tasks._verb import emit, note, verb


def collect_runs(rig: Any, folder: Path | None) -> tuple[dict[str, Any], list[str]]:
    """Fetch what is left on the rig's boards; returns the document and the lines for people."""
    from boardbench.board import Door
    from boardbench.matrix.run_cell import read_raw
    from boardbench.results.collect import collect as fetch_left
    from tasks._files import results_dir

    done = fetch_left(
        results_dir(),
        rig.boards,
        open_door=lambda board: Door.open(board, rig.inventory.known_hosts),
        read_raw=read_raw,
        campaign=folder,
    )
    document = {
        "fetched": [{"campaign": late.campaign.name, "run": late.attempt.run} for late in done.fetched],
        "failed": [
            {"campaign": late.campaign.name, "run": late.attempt.run, "error": error.as_dict()}
            for late, error in done.failed
        ],
    }
    lines = [f"fetched {late.attempt.run} of {late.campaign.name}" for late in done.fetched]
    lines += [f"not fetched: {late.attempt.run} of {late.campaign.name}: {error}" for late, error in done.failed]
    return document, lines or ["nothing is left on the boards: every started run is here"]


@verb(help={"campaign": "campaign folder or part of its name (default: all campaigns)"})
def collect(c: Context, campaign: str = "", inventory: str = "", limit: str = "", json: bool = False) -> int:
    """Fetch runs that a lost link or a killed controller left on the boards (bench collects by itself)."""
    from tasks._boards import open_rig
    from tasks._files import campaign_dir

    folder = campaign_dir(campaign) if campaign else None
    document, lines = collect_runs(open_rig(inventory, limit), folder)
    if json:
        emit(document)
    for line in lines:
        note(line)
    return ExitCode.OUTCOME if document["failed"] else ExitCode.OK


VERBS = (collect,)
