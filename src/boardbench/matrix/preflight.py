"""Before the first run: who answers, is it who it should be, how far off is its clock, hardware or virtual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boardbench import crew
from boardbench.builds import wheels
from boardbench.errors import BenchError, InputError, RigError
from boardbench.inventory import Board, Inventory
from boardbench.matrix.gates.before import Look
from boardbench.matrix.gates.keeper import SAMPLE_S, Keeper, keep, look
from boardbench.matrix.gates.limits import MIN_FREE_BYTES
from boardbench.matrix.plan import Plan
from boardbench.payload import Payload
from boardbench.results.fetch import DoorLike
from boardbench.workloads.cluster import BoardFiles

FACTS_S = 60.0
STAGING = "/var/lib/boardbench"
LOG_ROW_BYTES = 600
"""What a period of the logger leaves at most, in bytes: a row of a board with many sensors, and the workload's own."""
CHECK_SCOPE = "campaign-check"
"""A scope is asked for even when nothing is changed."""
Bringing = Callable[[str, Board], str]
"""Says what to do so that a board gets a payload, by its name."""


def by_provision(*_: object) -> str:
    """`Bringing` where nobody knows the playbook."""
    return "run ./inv provision first"


class WrongBoardError(RigError):
    """A board is not what was to be measured (another machine, other programs than here): nothing starts."""


@dataclass(frozen=True)
class Met:
    """A board's facts, what its gates look at, and how far its wall clock is ahead of ours, with the bound of that."""

    facts: Mapping[str, Any]
    look: Look
    offset_s: float
    error_s: float


def meet(
    boards: Sequence[Board], open_door: Callable[[Board], DoorLike]
) -> tuple[dict[str, Met], dict[str, BenchError]]:
    """As `ask_all`, and raises when no board is fit."""
    met, lost = ask_all(boards, open_door)
    if not met:
        raise next(iter(lost.values()))
    return met, lost


@dataclass(frozen=True)
class Wanted:
    """What must lie on the boards: payloads, just as they are here, on all; and what each needs beside them.

    `bringing` says how a board gets a payload.
    """

    payloads: Sequence[Payload] = ()
    files: Mapping[str, BoardFiles] = field(default_factory=dict)
    bringing: Bringing = by_provision


NOTHING = Wanted()


def ask_all(
    boards: Sequence[Board], open_door: Callable[[Board], DoorLike], wanted: Wanted = NOTHING
) -> tuple[dict[str, Met], dict[str, BenchError]]:
    """Facts of all boards at once: those that answered, and the errors of those that did not.

    The boards must have what is `wanted`, payloads just as they are here with the Python libraries that these pin. A
    board that is not fit (no answer, another host key, sudo that asks) costs only its own cells.
    Raises WrongBoardError, and errors that are not the rig's.
    """

    def ask(board: Board) -> Met:
        with open_door(board) as door:
            facts = door.call("facts", {"paths": [STAGING]}, deadline_s=FACTS_S).get("facts")
            if not isinstance(facts, Mapping):
                raise RigError("the board gave no facts", where=board.name)
            check_identity({board.name: board}, {board.name: facts})
            _check_payloads(door, board, wanted.payloads, wanted.bringing)
            if board.name in wanted.files:
                _check_files(door, board, wanted.files[board.name])
            # Without payloads nobody is about to begin: then only identity and clock are wanted.
            begins = bool(wanted.payloads)
            found = look(door, board.name, hashes=begins, sample_s=SAMPLE_S if begins else 0.0)
            for payload in wanted.payloads:
                if payload.python and (why := _libraries_differ(payload, board, facts, found)):
                    raise WrongBoardError(why, where=board.name, advice=wanted.bringing(payload.name, board))
        clock = found["clock"]
        return Met(facts, found, float(clock["offset_s"]), float(clock["error_s"]))

    met: dict[str, Met] = {}
    lost: dict[str, BenchError] = {}
    for name, outcome in crew.each(boards, ask).items():
        if isinstance(outcome, RigError) and not isinstance(outcome, WrongBoardError):
            lost[name] = outcome
        elif isinstance(outcome, BenchError):
            raise outcome
        else:
            met[name] = outcome
    return met, lost


def check(boards: Mapping[str, Board], met: Mapping[str, Met]) -> tuple[bool, float]:
    """All checks of what the boards said; (virtual, time scale). Raises RigError and InputError."""
    check_identity(boards, {name: found.facts for name, found in met.items()})
    check_room(met)
    return label(met)


def keeper(plan: Plan, inventory: Inventory, boards: Mapping[str, Board], met: Mapping[str, Met]) -> Keeper:
    """The gates of a campaign. Raises RigError when one is shut that no waiting opens."""
    matrix = plan.matrix
    return keep(
        inventory,
        boards,
        {name: found.look for name, found in met.items()},
        required=matrix.gates,
        estimate_bytes=round(matrix.duration_s / matrix.logger.period_s * LOG_ROW_BYTES),
        zone_types=matrix.cool.zone_types if matrix.cool else (),
        sets_governor=any(setting.resource == "governor" for setting in matrix.settings),
    )


def check_identity(boards: Mapping[str, Board], facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Each board is the one that the inventory means, and no two names are one machine. Raises WrongBoardError."""
    seen: dict[str, str] = {}
    for name, found in facts.items():
        wanted = boards[name].identity
        for what, want in (
            ("hostname", wanted.hostname),
            ("machine_id", wanted.machine_id),
            ("serial", wanted.serial),
        ):
            have = found.get(what)
            if want is not None and have != want:
                raise WrongBoardError(
                    f"the machine that answers has {what} {have!r}, the inventory says {want!r}",
                    where=f"{name} ({boards[name].where})",
                    advice="its address may belong to another board now",
                )
        boot_id = found.get("boot_id")
        if isinstance(boot_id, str) and boot_id in seen:
            raise WrongBoardError(
                f"boards {seen[boot_id]} and {name} are the same machine (same boot id)",
                where=boards[name].where,
                advice="give each its own address in the inventory",
            )
        if isinstance(boot_id, str):
            seen[boot_id] = name


def label(met: Mapping[str, Met]) -> tuple[bool, float]:
    """(virtual, time scale) that all boards share. Raises InputError when they do not: such runs cannot be compared."""
    kinds: dict[tuple[bool, float], str] = {}
    for name, found in met.items():
        virtual = found.facts.get("virtual")
        if isinstance(virtual, Mapping) and "missing" in virtual:
            raise RigError(f"whether the board is virtual is not known: {virtual['missing']}", where=name)
        kind = (True, float(virtual["time_scale"])) if isinstance(virtual, Mapping) else (False, 1.0)
        kinds.setdefault(kind, name)
    if len(kinds) > 1:
        said = ", ".join(
            f"{name} is {f'virtual with time scale {scale:g}' if virtual else 'hardware'}"
            for (virtual, scale), name in sorted(kinds.items())
        )
        raise InputError(f"the boards do not run on one time: {said}", advice="choose boards of one kind (--limit)")
    virtual, scale = next(iter(kinds))
    if not scale > 0:
        raise RigError(f"time scale {scale:g} is not above 0", where=next(iter(kinds.values())))
    return virtual, scale


def payload_files(payload: Payload) -> list[dict[str, object]]:
    """Name, size in bytes and hash of each file that the payload puts on a board."""
    return [{"name": file.path, "size": file.size, "sha256": file.sha256} for file in payload.files]


def check_room(met: Mapping[str, Met]) -> None:
    """Each board can keep a run's files. Raises RigError for a full or read-only disk; not knowing is no error."""
    for name, found in met.items():
        for disk in found.facts.get("disks", []):
            free = disk.get("free_bytes")
            if disk.get("path") != STAGING or not isinstance(free, int | float):
                continue
            if disk.get("read_only") is True:
                raise RigError(f"the disk of {STAGING} is mounted read-only", where=name, advice="look at its log")
            if free < MIN_FREE_BYTES:
                raise RigError(
                    f"only {free / 1e6:.0f} MB free for {STAGING}, {MIN_FREE_BYTES / 1e6:.0f} MB are needed",
                    where=name,
                    advice="make room",
                )


def _check_payloads(door: DoorLike, board: Board, payloads: Sequence[Payload], bringing: Bringing) -> None:
    """What is on the board is byte for byte what is in the checkout. Raises WrongBoardError."""
    for payload in payloads:
        steps = [
            {
                "id": f"file {payload.root}/{file.path}",
                "resource": "file",
                "args": {"path": f"{payload.root}/{file.path}", "blob": file.sha256, "size": file.size},
                "line": str(payload.folder / "payload.yml"),
            }
            for file in payload.files
        ]
        args = {"scope": CHECK_SCOPE, "steps": steps, "check": True, "diff": False, "stop_on_failure": False}
        recap = door.call("apply", args, deadline_s=FACTS_S).get("recap")
        if not isinstance(recap, Mapping) or recap.get("changed") != 0 or recap.get("failed") != 0:
            raise WrongBoardError(
                f"payload {payload.name} is not on the board as it is in {payload.folder}",
                where=board.name,
                advice=bringing(payload.name, board),
            )


def _libraries_differ(payload: Payload, board: Board, facts: Mapping[str, Any], found: Look) -> str:
    """How the Python libraries on the board are not those that the payload pins for its Python; else nothing.

    The controller need not have these libraries: the board has recorded which ones it was given.
    """
    recorded = found.get("libraries")
    have = recorded.get(payload.name) if isinstance(recorded, Mapping) else None
    if not isinstance(have, Mapping):
        return f"the board has no record of the Python libraries of payload {payload.name}"
    want = wheels.libraries(payload.python, wheels.interpreter_of(facts, board.name))
    if want["wheels"] != have.get("wheels"):
        return (
            f"the Python libraries of payload {payload.name} are not those that {payload.folder / 'payload.yml'} pins: "
            f"{_only(have.get('wheels'), want['wheels'])} there, {_only(want['wheels'], have.get('wheels'))} here"
        )
    if (want["python"], want["arch"]) != (have.get("python"), have.get("arch")):
        return (
            f"the Python libraries of payload {payload.name} on the board are for Python {have.get('python')} on "
            f"{have.get('arch')}, the board has Python {want['python']} on {want['arch']}"
        )
    changed = have.get("changed")
    if changed:
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        return f"file {changed[0]} of payload {payload.name} is not as it was put there{more}"
    return ""


def _only(these: object, those: object) -> str:
    """What only `these` pins name."""
    mine, others = ({str(name) for name in pins} if isinstance(pins, list) else set() for pins in (these, those))
    return ", ".join(sorted(mine - others)) or "nothing more"


def _check_files(door: DoorLike, board: Board, wanted: BoardFiles) -> None:
    """The files are there, for root alone to read. Raises WrongBoardError."""
    steps = [
        {
            "id": f"file {wanted.folder}/{name}",
            "resource": "file",
            "args": {"path": f"{wanted.folder}/{name}", "mode": "0600"},
            "line": wanted.what,
        }
        for name in wanted.names
    ]
    args = {"scope": CHECK_SCOPE, "steps": steps, "check": True, "diff": False, "stop_on_failure": False}
    recap = door.call("apply", args, deadline_s=FACTS_S).get("recap")
    if not isinstance(recap, Mapping) or recap.get("changed") != 0 or recap.get("failed") != 0:
        raise WrongBoardError(
            f"the {wanted.what} are not on the board, or not all of them ({wanted.folder})",
            where=board.name,
            advice=wanted.advice,
        )
