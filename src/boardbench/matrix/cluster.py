"""Waves whose boards work together: one loads, the others are under test; which is which, and who reaches whom how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boardbench.errors import InputError
from boardbench.inventory import Board
from boardbench.workloads.base import Durations, Workload
from boardbench.workloads.cluster import LOAD as LOAD
from boardbench.workloads.cluster import NODE, BoardFiles, ClusterWorkload, Place
from boardbench.workloads.registry import workload

if TYPE_CHECKING:
    from boardbench.matrix.load import Matrix
    from boardbench.matrix.plan import Cell

ADDRESS_VARIABLE = "cluster_address"
"""The variable of a board whose other boards reach it by another address than the controller does."""


@dataclass(frozen=True)
class LoadBoard:
    """Which board loads the others: the first of the boards given that fits; an empty tuple does not restrict."""

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def choose(self, boards: Sequence[Board], nodes: Sequence[Board], where: str) -> Board:
        """The first board that fits; kinds count in the order in which they are named.

        One that is named, itself or by a group, is the load's even if it could be a node; any other must be no node.
        """
        named = bool(self.names or self.groups)
        fit = [
            board
            for board in boards
            if (named or board not in nodes)
            and (not self.names or board.name in self.names)
            and (not self.groups or set(self.groups) & set(board.groups))
            and (not self.kinds or board.kind in self.kinds)
        ]
        if not fit:
            wanted = ", ".join((*self.names, *self.groups, *self.kinds))
            raise InputError(
                f"none of the boards given can be the load's ({wanted})",
                where=where,
                advice="see 'boards: load', and the inventory",
            )
        return min(fit, key=lambda board: self.kinds.index(board.kind)) if self.kinds else fit[0]


def address_of(board: Board) -> str:
    """How the other boards reach it: its variable `cluster_address`, else the controller's way to it."""
    return str(board.vars.get(ADDRESS_VARIABLE) or board.access.host)


def cluster_workload(name: str) -> ClusterWorkload | None:
    """The workload of this name if its boards work together, else None. Raises InputError for an unknown name."""
    found: Workload = workload(name)
    return found if isinstance(found, ClusterWorkload) else None


def payload_names(name: str) -> tuple[str, ...]:
    """The payloads that a workload needs on every board."""
    together = cluster_workload(name)
    return (name,) if together is None else together.payloads


def payload_files(name: str, payloads: Mapping[str, Any]) -> list[Mapping[str, object]]:
    """The files of a workload's payloads; of several ones with the payload's name before theirs."""
    names = payload_names(name)
    if len(names) == 1:
        return list(payloads.get(name, []))
    return [{**entry, "name": f"{one}/{entry['name']}"} for one in names for entry in payloads.get(one, [])]


def raw_files(name: str, role: str) -> tuple[str, ...]:
    """The raw files of a run of this workload in this role."""
    together = cluster_workload(name)
    return workload(name).raw_files if together is None else together.raw_of(role)


def argv(name: str, place: Place | None, run: str, options: Mapping[str, Any], durations: Durations) -> list[str]:
    """The command line of a run; `place`: of boards that work together, where this one stands."""
    together = cluster_workload(name)
    if together is None or place is None:
        return workload(name).argv(run, options, durations)
    return together.part(place, run, options, durations)


def members(name: str, options: Mapping[str, Any], boards: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(board, role) of every cell of a wave, of these boards: nodes in order, the load's board last."""
    together = cluster_workload(name)
    if together is None:
        return tuple((board, "") for board in boards)
    *nodes, load = boards
    wanted = together.nodes(options, len(nodes))
    return (*((node, NODE) for node in nodes[:wanted]), (load, LOAD))


def board_files(matrix: Matrix, boards: Sequence[Board]) -> dict[str, BoardFiles]:
    """What must lie on the boards of this matrix beside the payloads, by board; the last one is the load's."""
    together = cluster_workload(matrix.workload)
    if together is None:
        return {}
    roles = dict.fromkeys((board.name for board in boards), NODE) | {boards[-1].name: LOAD}
    found: dict[str, BoardFiles] = {}
    for arm in matrix.arms:
        options = {**matrix.workload_options, **arm.options}
        for name, role in roles.items():
            files = together.board_files(role, name, options)
            if files is not None:
                found.setdefault(name, files)
    return found


def whole(wave: Sequence[Cell], chosen: Sequence[Cell]) -> list[Cell]:
    """The chosen cells of a wave; of boards that work together all of them as soon as one is chosen."""
    return list(wave) if chosen and any(cell.role for cell in wave) else list(chosen)


def unfit_cells(cells: Sequence[Cell], boards: Mapping[str, str]) -> dict[str, str]:
    """Why cells cannot run, by name. `boards`: why boards are unfit. Without one of its boards no cluster runs."""
    found = {cell.name: boards[cell.boards[0]] for cell in cells if cell.boards[0] in boards}
    if found and any(cell.role for cell in cells):
        why = f"a board of its wave is unfit: {next(iter(found.values()))}"
        found = {cell.name: found.get(cell.name, why) for cell in cells}
    return found


def place_of(cell: Cell, wave: Sequence[Cell], boards: Mapping[str, Board], *, virtual: bool, seed: int = 0) -> Place:
    """Where a cell of a wave stands; `seed`: the matrix's."""
    nodes = tuple((c.boards[0], address_of(boards[c.boards[0]])) for c in wave if c.role == NODE)
    load = next(c.boards[0] for c in wave if c.role == LOAD)
    board = cell.boards[0]
    addresses = address_of(boards[board]), nodes, address_of(boards[load])
    return Place(cell.role, board, *addresses, virtual, seed + cell.repetition)
