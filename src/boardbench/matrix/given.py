"""What a run's workload is given on its board: its options, and the files that must be cold before it reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boardbench.inventory import Board
from boardbench.matrix import cluster
from boardbench.matrix.arms import Arm
from boardbench.matrix.plan import Plan
from boardbench.workloads.base import Durations, script


def options_on(plan: Plan, board: Board, arm: Arm) -> dict[str, Any]:
    """The workload's options in this arm on this board: what the matrix leaves open, the inventory may say."""
    names = plan.traits.board_options
    from_board = {option: board.vars[name] for option, name in names.items() if name in board.vars}
    return {**from_board, **plan.options(arm)}


def check_commands(plan: Plan, boards: Mapping[str, Board], *, virtual: bool) -> None:
    """Raises InputError where a board's part in a cluster cannot be said: before anything is touched."""
    for wave in plan.waves:
        for cell in wave:
            if cell.role:
                place = cluster.place_of(cell, wave, boards, virtual=virtual, seed=plan.matrix.seed)
                options = options_on(plan, boards[cell.boards[0]], plan.arm(cell.arm))
                cluster.argv(plan.matrix.workload, place, "run", options, Durations(plan.window_s, plan.interval_s))


def cold_files(plan: Plan, board: Board, arm: Arm, payloads: Mapping[str, Any]) -> list[str]:
    """Files on the board that must have left memory: the workload's own, which nothing uses before the start, and the
    model that it reads."""
    names = cluster.payload_names(plan.matrix.workload)
    own = [script(name, str(entry["name"])) for name in names for entry in payloads[name]]
    return [*own, *plan.traits.cold_files(options_on(plan, board, arm))]
