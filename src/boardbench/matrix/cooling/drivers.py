"""From the inventory to a driver a board; mistakes are found before anything is switched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from boardbench.errors import InputError
from boardbench.inventory import Board
from boardbench.matrix.cooling.base import Driver, Operator
from boardbench.matrix.cooling.from_outside import CommandFan, HttpFan, ManualFan
from boardbench.matrix.cooling.on_board import HwmonFan, VirtualFan
from boardbench.yamlfile import did_you_mean

SIMPLE: Mapping[str, Callable[[Board], Driver]] = {
    "virtual": VirtualFan,
    "hwmon": HwmonFan,
    "command": CommandFan,
    "http": HttpFan,
}
ONE_PHASE = "run one phase at a time, and confirm with --confirm-phase that the fans are so"


def driver_of(board: Board, operator: Operator | None) -> Driver:
    """The driver that the inventory names. Raises InputError when it is unknown, or needs a person and has none."""
    name = board.cooling.driver
    if name in SIMPLE:
        return SIMPLE[name](board)
    if name == "manual":
        if operator is None:
            raise _nobody([board])
        return ManualFan(board, operator)
    raise InputError(
        f"unknown cooling driver '{name}'",
        where=board.where,
        advice=did_you_mean(name, [*SIMPLE, "manual"], kind="drivers"),
    )


def drivers_of(boards: Sequence[Board], phases: Sequence[str], operator: Operator | None) -> dict[str, Driver]:
    """A driver a board, without switching anything: mistakes are found before the first run. Raises InputError."""
    if not phases:
        return {}
    by_hand = [board for board in boards if board.cooling.driver == "manual"]
    asked = operator is not None and operator.how == "terminal"
    unconfirmed = [phase for phase in phases if operator is None or phase not in operator.phases]
    if by_hand and unconfirmed and not asked:
        raise _nobody(by_hand, unconfirmed)
    return {board.name: driver_of(board, operator) for board in boards}


def _nobody(boards: Sequence[Board], phases: Sequence[str] = ()) -> InputError:
    names = ", ".join(board.name for board in boards)
    one = len(phases) == 1
    advice = f"confirm beforehand that the fans are so: --confirm-phase {phases[0]}" if one else ONE_PHASE
    return InputError(
        f"the fan of board {names} is switched by hand, and there is no terminal to ask on",
        where=boards[0].where,
        advice=f"run on a terminal, or {advice}",
    )
