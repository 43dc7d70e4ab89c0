"""Workloads of several boards at once: every board of a wave has a role, and the run of one is nothing without all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from boardbench.workloads.base import Durations, Workload

LOAD, NODE = "load", "node"
"""The roles: the board that loads the others (exactly one of a wave), and the boards under test."""


@dataclass(frozen=True)
class Place:
    """Where one cell of a wave stands: its role and board, and the addresses of all, as the boards reach each other.

    `nodes`: (board, address) of each board under test, in order. `virtual`: the boards are virtual ones.
    `turn`: a number that the plan's seed fixes, one more in each repetition: what takes turns over the nodes, and what
    chance decides in a run, is the same for all arms of a repetition and another in the next.
    """

    role: str
    board: str
    address: str
    nodes: tuple[tuple[str, str], ...]
    load_address: str
    virtual: bool
    turn: int = 0


@dataclass(frozen=True)
class BoardFiles:
    """Files that must lie in `folder` on a board beside the payloads: `what` they are, and what to do without them."""

    what: str
    folder: str
    names: tuple[str, ...]
    advice: str


@runtime_checkable
class ClusterWorkload(Workload, Protocol):
    """A workload with roles. `payloads`: what must lie on every board."""

    payloads: tuple[str, ...]

    def lead_s(self, options: Mapping[str, Any], scale: float) -> float:
        """Wall seconds from a run's start to its load: all boards are surely ready then. `scale`: by what the load's
        own durations are divided."""
        ...

    def nodes(self, options: Mapping[str, Any], available: int) -> int:
        """How many of the available nodes an arm with these options wants. Raises InputError."""
        ...

    def board_files(self, role: str, board: str, options: Mapping[str, Any]) -> BoardFiles | None:
        """What else must lie on a board in this role; None: nothing. Raises InputError for an option that is wrong."""
        ...

    def part(self, place: Place, run: str, options: Mapping[str, Any], durations: Durations) -> list[str]:
        """The command line of the board at this place."""
        ...

    def raw_of(self, role: str) -> tuple[str, ...]:
        """The raw files of a role."""
        ...
