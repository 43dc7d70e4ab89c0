"""All gates before a run on every board, read-only: what `./inv doctor` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from boardbench import crew
from boardbench.errors import BenchError
from boardbench.inventory import Board, Inventory
from boardbench.matrix.gates import before
from boardbench.matrix.gates.evidence import Evidence, passed
from boardbench.matrix.gates.keeper import fresh, idle_of, look, standing
from boardbench.matrix.gates.limits import Limits
from boardbench.matrix.leftovers import Left, look_through
from boardbench.results.fetch import DoorLike
from boardbench.results.gatewords import BY_NAME, DEFAULT_GATES

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Finding:
    """One gate of one board. `state`: `fail` would take a run out, `warn` is a difference or something not known."""

    board: str
    gate: str
    state: str
    evidence: Evidence
    advice: str

    def as_dict(self) -> dict[str, object]:
        """The finding as `doctor --json` prints it."""
        return {"board": self.board, "state": self.state, "advice": self.advice, **self.evidence}


@dataclass(frozen=True)
class Diagnosis:
    """All findings, in the order of boards and gates, and the boards that gave none."""

    findings: tuple[Finding, ...]
    lost: Mapping[str, BenchError]

    def worst(self) -> str:
        """The worst state of all findings."""
        states = {finding.state for finding in self.findings}
        return FAIL if FAIL in states else WARN if WARN in states else OK


def examine(
    inventory: Inventory, boards: Sequence[Board], open_door: Callable[[Board], DoorLike],
    required: Sequence[str] = DEFAULT_GATES,
) -> Diagnosis:  # fmt: skip
    """Ask all boards at once and judge what they say. Changes nothing on them."""

    def ask(board: Board) -> tuple[before.Look, Left]:
        with open_door(board) as door:
            return look(door, board.name, hashes=True), look_through(door)

    outcomes = crew.each(boards, ask)
    looks = {name: found[0] for name, found in outcomes.items() if not isinstance(found, BenchError)}
    left = {name: found[1] for name, found in outcomes.items() if not isinstance(found, BenchError)}
    lost = {name: found for name, found in outcomes.items() if isinstance(found, BenchError)}
    by_name = {board.name: board for board in boards}
    held = standing(inventory, by_name, looks)
    findings: list[Finding] = []
    for name, found in looks.items():
        board = by_name[name]
        limits = Limits.of(board)
        # At rest now is all that is known here: only a declared idle temperature can be compared with.
        idle = idle_of(limits, None) if limits.idle_celsius is None else idle_of(limits, found)
        gates = [entry for entry in fresh(found, board, limits, idle) if entry["gate"] != "strays"]
        evidence = [*gates, before.strays_at_rest(found), before.cache(found), *held[name], _leftovers(left[name])]
        findings += [_finding(name, entry, frozenset(required)) for entry in sorted(evidence, key=_place)]
    return Diagnosis(tuple(findings), lost)


def _leftovers(left: Left) -> Evidence:
    """What a dead campaign left changed, and who holds the board now. It stops nobody: the next one puts it back."""
    holder = left.holder
    held = [] if holder is None else [f"held by {holder.get('owner')}@{holder.get('host')}"]
    return passed("leftovers", left.as_dict(), "; ".join([*held, *filter(None, [left.says()])]))


def _place(entry: Evidence) -> int:
    return list(BY_NAME).index(entry["gate"])


def _finding(board: str, entry: Evidence, required: frozenset[str]) -> Finding:
    gate = str(entry["gate"])
    if entry["ok"]:
        state = WARN if entry["why"] else OK
    else:
        state = FAIL if gate in required else WARN
    return Finding(board, gate, state, entry, "" if entry["ok"] else BY_NAME[gate].advice)
