"""Asks boards how they are and has it judged: once before a campaign, and before each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boardbench import known_hosts
from boardbench.errors import RigError
from boardbench.inventory import Board, Inventory
from boardbench.matrix.gates import alike, before, clock
from boardbench.matrix.gates.before import Look
from boardbench.matrix.gates.evidence import Evidence
from boardbench.matrix.gates.limits import Limits
from boardbench.results.fetch import DoorLike
from boardbench.results.gatewords import BY_NAME

STAGING = "/var/lib/boardbench"
LOOK_S = 30.0
SAMPLE_S = 0.5
ROUND_TRIPS = 5
TRIES = 3
"""A job of a moment (a timer, a login) is no load: others are watched again before they count."""
AT_START = ("identity", "clock-sync", "disk", "writable", "volts", "link")
"""What waiting does not mend, so that a campaign does not begin; and all of `alike-`."""


def look(
    door: DoorLike, where: str, *, hashes: bool = False, probe: bool = True, sample_s: float = SAMPLE_S,
    except_runs: Sequence[str] = (),
) -> Look:  # fmt: skip
    """LOOK of a board. Raises the door's errors, and RigError for an answer that is none."""
    args: dict[str, object] = {
        "path": STAGING,
        "harness": None,  # what the installed payloads say of themselves
        "except_runs": list(except_runs),
        "hashes": hashes,
        "probe": probe,
        "sample_s": sample_s,
        "round_trips": ROUND_TRIPS,
    }
    found = door.call("look", args, deadline_s=LOOK_S).get("look")
    if not isinstance(found, Mapping):
        raise RigError("the board did not say how it is", where=where)
    return found


def fresh(found: Look, board: Board, limits: Limits, idle: tuple[float | None, str]) -> list[Evidence]:
    """All gates that one board's `look` can answer by itself."""
    return [
        before.identity(found, board.identity),
        before.clock_sync(found, limits, clock.built_unix_s()),
        before.disk(found, limits),
        before.writable(found),
        before.volts(found, limits),
        before.link(found, limits),
        before.throttled(found),
        before.idle(found, limits, *idle),
        before.strays(found),
        before.quiet(found, limits),
    ]


def standing(inventory: Inventory, boards: Mapping[str, Board], looks: Mapping[str, Look]) -> dict[str, list[Evidence]]:
    """By board, what holds as long as nobody touches the boards: keys, and what boards of a kind have in common."""
    shared = known_hosts.duplicates(inventory)
    made: dict[str, list[Evidence]] = {}
    for name in looks:
        same_kind = {other: found for other, found in looks.items() if boards[other].kind == boards[name].kind}
        pins = tuple(pin.fingerprint for pin in known_hosts.pins(inventory.known_hosts, boards[name].access))
        sharing = tuple(sorted({other for group in shared if name in group for other in group} - {name}))
        made[name] = [before.host_key(name, pins, sharing)]
        made[name] += [alike.judge(name, same_kind, aspect) for aspect in alike.ASPECTS]
    return made


def idle_of(limits: Limits, found: Look | None) -> tuple[float | None, str]:
    """(degrees Celsius at rest, from where). A board that somebody loads now is not at rest."""
    if limits.idle_celsius is not None:
        return limits.idle_celsius, "inventory"
    if found is None or not before.quiet(found, limits)["ok"] or not before.strays(found)["ok"]:
        return None, "it was not at rest when it was asked"
    return before.zone_celsius(found, limits.zone_types)[1], "at rest before the campaign (it may have been cooler)"


def failures(evidence: Sequence[Evidence], required: frozenset[str]) -> list[str]:
    """What of the required gates is shut, each with its reason and what to do."""
    return [
        f"{entry['gate']}: {entry['why']} ({BY_NAME[entry['gate']].advice})"
        for entry in evidence
        if not entry["ok"] and entry["gate"] in required
    ]


@dataclass(frozen=True)
class Keeper:
    """The gates of one campaign, and what was seen of each board at its start."""

    limits: Mapping[str, Limits] = field(default_factory=dict)
    idle: Mapping[str, tuple[float | None, str]] = field(default_factory=dict)
    held: Mapping[str, Sequence[Evidence]] = field(default_factory=dict)

    def start_below(self, board: Board, below_celsius: float) -> float:
        """The start temperature to wait for: the matrix's limit, or this board's own idle with its margin if lower.

        Boards differ: one limit for all lets the coolest of them start far above its rest.
        """
        limits = self.limits.get(board.name) or Limits.of(board)
        idle_celsius = self.idle.get(board.name, (None, ""))[0]
        return (
            below_celsius if idle_celsius is None else min(below_celsius, idle_celsius + limits.max_above_idle_celsius)
        )

    def warnings(self) -> list[tuple[str, str]]:
        """(board, what) of differences and shared keys that no gate of this campaign forbids."""
        shut = [(board, entry) for board, entries in self.held.items() for entry in entries if not entry["ok"]]
        return [(board, f"{entry['gate']}: {entry['why']}") for board, entry in shut]

    def before_run(self, door: DoorLike, board: Board, run: str, load: object = None) -> tuple[Evidence, ...]:
        """Evidence of all gates before a run that is prepared (its logger runs). Raises the door's errors.

        `load`: what `prepare` saw of other people's load while it started the logger, so that it need not be watched
        for again.
        """
        limits = self.limits.get(board.name) or Limits.of(board)
        for left in range(TRIES - 1, -1, -1):
            seen = isinstance(load, Mapping)
            found = look(door, board.name, except_runs=[run], sample_s=0.0 if seen else SAMPLE_S)
            if seen:
                found, load = {**found, "load": load}, None
            if not left or before.quiet(found, limits)["ok"]:
                break
        idle = self.idle.get(board.name, (None, "it was not there when the campaign began"))
        evidence = fresh(found, board, limits, idle)
        return (
            *self.held.get(board.name, ()),
            *evidence,
            {"gate": "clock", "ok": True, "saw": dict(found["clock"]), "why": ""},
        )


def keep(
    inventory: Inventory, boards: Mapping[str, Board], looks: Mapping[str, Look], *, required: Sequence[str],
    estimate_bytes: int, zone_types: Sequence[str], sets_governor: bool,
) -> Keeper:  # fmt: skip
    """The keeper of a campaign. Raises RigError when a required gate is shut that no waiting opens."""
    limits = {name: Limits.of(boards[name], estimate_bytes=estimate_bytes, zone_types=zone_types) for name in boards}
    idle = {name: idle_of(limits[name], looks.get(name)) for name in boards}
    held = standing(inventory, boards, looks)
    if sets_governor:
        # The matrix sets it on every board, and `settings` proves it.
        held = {
            name: [entry for entry in entries if entry["gate"] != "alike-governor"] for name, entries in held.items()
        }
    at_start = frozenset(name for name in required if name in AT_START or name.startswith("alike-"))
    wrong: list[str] = []
    for name, found in looks.items():
        evidence = [*held[name], *fresh(found, boards[name], limits[name], idle[name])]
        wrong += [f"{name}: {why}" for why in failures(evidence, at_start)]
    if wrong:
        raise RigError(
            "the boards are not as they must be: " + "; ".join(wrong), advice="./inv doctor shows every gate"
        )
    return Keeper(limits, idle, held)
