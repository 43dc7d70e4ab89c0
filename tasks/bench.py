"""bench: run a matrix on the boards."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from invoke import Context

from boardbench.errors import ExitCode, InputError
from tasks._verb import emit, note, verb


def run_matrix(rig: Any, matrix: str, *, json: bool) -> Any:
    """Run one matrix with live progress on stderr; returns the campaign's outcome."""
    from boardbench.board import Door
    from boardbench.matrix import campaign
    from boardbench.report.progress import progress_display
    from tasks._files import matrix_file, results_dir

    with progress_display(plain=json) as display:
        return campaign.run(
            matrix_file(matrix),
            rig.inventory,
            rig.boards,
            results_dir=results_dir(),
            open_door=lambda board: Door.open(board, rig.inventory.known_hosts),
            on_progress=display,
            operator=_operator(),
            argv=["inv", *sys.argv[1:]],
        )


def _operator() -> Any:
    """The person at this terminal, who can be asked to switch fans; nobody where there is no terminal."""
    from boardbench.matrix.cooling import Operator

    if not sys.stdin.isatty():
        return None

    def ask(question: str) -> bool:
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return Operator(getpass.getuser(), "terminal", ask)


def summary(outcome: Any) -> str:
    """What a campaign came to, in one or more lines."""
    counts = f"{outcome.valid} valid, {outcome.invalid} invalid, {outcome.missing} missing of {outcome.cells} cells"
    lines = [f"{counts}: {outcome.path}"]
    lines += [f"{board}: not proved to be as it was: {why}" for board, why in sorted(outcome.not_restored.items())]
    return "\n".join(lines)


@verb(help={"matrix": "name of a file in playbooks/matrices, or a path"})
def bench(c: Context, matrix: str = "", inventory: str = "", limit: str = "", json: bool = False) -> int:
    """Run a benchmark matrix: cool, drop caches, log, load, collect, validate, restore."""
    from tasks._boards import open_rig
    from tasks._files import matrix_file

    if not matrix:
        raise InputError("no matrix named", advice="for example: ./inv bench --matrix thermal")
    matrix_file(matrix)
    outcome = run_matrix(open_rig(inventory, limit), matrix, json=json)
    if json:
        emit(outcome.as_dict())
    else:
        note(summary(outcome))
    return ExitCode.OK if outcome.good else ExitCode.OUTCOME


VERBS = (bench,)
