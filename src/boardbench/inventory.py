"""Who the boards are: the inventory file as frozen values.

The format is described in `inventory/README.md` and held by `schemas/inventory.schema.json`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from boardbench.errors import InputError
from boardbench.locations import certificates_dir
from boardbench.secretwords import REGISTRY
from boardbench.yamlfile import Document, did_you_mean, load

Value = str | int | float | bool

# Variables that every board has by itself; an inventory must not give them another meaning.
BUILT_IN_VARIABLES = ("board", "kind")
EVERY_BOARD = "all"


@dataclass(frozen=True)
class Access:
    """How the door reaches a board. `alias` is a Host of the user's ssh_config; `gateway` a host to jump through."""

    host: str
    port: int = 22
    user: str | None = None
    key_file: Path | None = None
    alias: str | None = None
    gateway: str | None = None


@dataclass(frozen=True)
class Cooling:
    """How the fan of a board is switched: driver `virtual`, `manual`, `hwmon`, `command` or `http`, and its options."""

    driver: str = "manual"
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Power:
    """How the board is switched off and on: driver `virtual`, `command` or `http`, and its options."""

    driver: str
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Identity:
    """What the board must say about itself; None where the inventory does not claim it."""

    hostname: str | None = None
    machine_id: str | None = None
    serial: str | None = None


@dataclass(frozen=True)
class Board:
    """A machine under test. `vars` are already merged (inventory < group < board); `where` is file:line.

    `power` is None where nobody but a hand can switch it.
    """

    name: str
    kind: str
    access: Access
    groups: tuple[str, ...]
    capabilities: frozenset[str]
    cooling: Cooling
    identity: Identity
    vars: Mapping[str, Value]
    where: str
    power: Power | None = None


@dataclass(frozen=True)
class VirtualFleet:
    """The boards are virtual: fleet name, kind of sandbox, and how much faster than real their physics runs."""

    name: str
    kind: Literal["auto", "bwrap", "nspawn"]
    time_scale: float


@dataclass(frozen=True)
class Inventory:
    """The boards by name, the groups, where their host keys are pinned, and the virtual fleet if they are one."""

    path: Path
    boards: Mapping[str, Board]
    groups: Mapping[str, tuple[str, ...]]
    known_hosts: Path
    virtual: VirtualFleet | None

    def select(self, limit: str | None) -> tuple[Board, ...]:
        """The boards that a limit names, in the order of the file; every board for None.

        A limit is a comma list of boards, groups, `all` and globs; `!name` takes away. `InputError` for a name that
        is not known and for a limit that leaves no board.
        """
        if limit is None:
            return tuple(self.boards.values())
        terms = [term.strip() for term in limit.split(",") if term.strip()]
        if not terms:
            raise InputError("the limit names no board", where="--limit", advice=f"known: {self._names_shown()}")
        chosen: set[str] = set()
        if all(term.startswith("!") for term in terms):
            chosen = set(self.boards)
        for term in terms:
            chosen |= set() if term.startswith("!") else self.named(term, "--limit")
        for term in terms:
            chosen -= self.named(term[1:].strip(), "--limit") if term.startswith("!") else set()
        if not chosen:
            raise InputError(f"'{limit}' leaves no board", where="--limit", advice=f"known: {self._names_shown()}")
        return tuple(board for board in self.boards.values() if board.name in chosen)

    def named(self, term: str, where: str) -> set[str]:
        """Names of the boards that one word means: a board, a group, `all`, or a glob over boards and groups."""
        if term in self.boards:
            return {term}
        if term in self.groups:
            return set(self.groups[term])
        if term == EVERY_BOARD:
            return set(self.boards)
        found: set[str] = set()
        if any(character in term for character in "*?["):
            found = {name for name in self.boards if fnmatch.fnmatchcase(name, term)}
            for group, members in self.groups.items():
                if fnmatch.fnmatchcase(group, term):
                    found |= set(members)
        if not found:
            known = [*self.boards, *self.groups, EVERY_BOARD]
            raise InputError(
                f"no board or group '{term}' in {self.path}",
                where=where,
                advice=did_you_mean(term, known, kind="boards and groups"),
            )
        return found

    def with_access(self, access: Mapping[str, Access], known_hosts: Path) -> Inventory:
        """The same boards, reached otherwise: for a virtual fleet, whose addresses are known once it runs."""
        unknown = sorted(set(access) - set(self.boards))
        if unknown:
            raise InputError(f"no board '{unknown[0]}'", where=str(self.path))
        boards = {
            name: replace(board, access=access[name]) if name in access else board
            for name, board in self.boards.items()
        }
        return replace(self, boards=boards, known_hosts=known_hosts)

    def _names_shown(self) -> str:
        return ", ".join([*self.boards, *self.groups, EVERY_BOARD])


def load_inventory(path: Path) -> Inventory:
    """Read an inventory file; `InputError` with file:line for everything that is wrong in it."""
    document = load(path, "inventory")
    data = document.data
    _learn_secrets(data, path)
    virtual = _virtual(data)
    names = list(data["boards"])
    groups = _groups(document, names)
    boards = {name: _board(document, name, groups, virtual is not None) for name in names}
    _refuse_same_door(document, boards.values())
    return Inventory(
        path=path,
        boards=boards,
        groups=groups,
        known_hosts=_beside(path, data.get("known_hosts", "known_hosts")),
        virtual=virtual,
    )


def _learn_secrets(data: Mapping[str, Any], path: Path) -> None:
    """What must not be written anywhere: by its name (`wifi_psk`), by its place (in a URL), or named in `secrets`."""
    named = tuple(data.get("secrets", ()))
    REGISTRY.learn_environment(os.environ, named)
    REGISTRY.learn(data, f"inventory {path.name}", named)
    with contextlib.suppress(OSError, UnicodeDecodeError):  # most fleets have none
        token = (certificates_dir(path) / "token").read_text(encoding="ascii")
        REGISTRY.add(token, "registration token of the fleet")


def _virtual(data: Mapping[str, Any]) -> VirtualFleet | None:
    if "virtual" not in data:
        return None
    virtual = data["virtual"]
    return VirtualFleet(
        name=virtual.get("name", "default"),
        kind=virtual.get("kind", "auto"),
        time_scale=float(virtual.get("time_scale", 60)),
    )


def _groups(document: Document, boards: list[str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for name in [*boards, *document.data.get("groups", {})]:
        if name == EVERY_BOARD:
            section = "boards" if name in boards else "groups"
            raise document.error(section, name, what=f"'{EVERY_BOARD}' already means every board", advice="rename it")
    for name, group in document.data.get("groups", {}).items():
        if name in boards:
            raise document.error("groups", name, what=f"'{name}' is a board and a group", advice="rename one of them")
        for index, member in enumerate(group["boards"]):
            if member not in boards:
                raise document.error(
                    "groups", name, "boards", index,
                    what=f"group '{name}' names the unknown board '{member}'",
                    advice=did_you_mean(member, boards, kind="boards"),
                )  # fmt: skip
        groups[name] = tuple(group["boards"])
    return groups


def _board(document: Document, name: str, groups: Mapping[str, tuple[str, ...]], virtual: bool) -> Board:
    data = document.data["boards"][name]
    mine = tuple(group for group, members in groups.items() if name in members)
    identity = data.get("identity", {})
    return Board(
        name=name,
        kind=data["kind"],
        access=_virtual_access(document, name) if virtual else _access(document, name),
        groups=mine,
        capabilities=frozenset(data.get("capabilities", [])),
        cooling=_cooling(document, name, virtual),
        power=_power(document, name, virtual),
        identity=Identity(identity.get("hostname"), identity.get("machine_id"), identity.get("serial")),
        vars=_vars(document, name, mine),
        where=document.where("boards", name),
    )


def _virtual_access(document: Document, name: str) -> Access:
    if "access" in document.data["boards"][name]:
        raise document.error(
            "boards", name, "access",
            what=f"board '{name}' is virtual, so its fleet says how to reach it",
            advice="remove 'access' here, or 'virtual' from the file",
        )  # fmt: skip
    return Access(host=name)


def _access(document: Document, name: str) -> Access:
    access = document.data["boards"][name].get("access", {})
    host = access.get("host", access.get("alias"))
    if host is None:
        raise document.error(
            "boards", name, "access",
            what=f"board '{name}' has no way in",
            advice="add 'access: {host: ADDRESS}' or 'access: {alias: NAME}' with a Host of your ssh_config",
        )  # fmt: skip
    key = access.get("key")
    return Access(
        host=host,
        port=int(access.get("port", 22)),
        user=access.get("user"),
        key_file=None if key is None else _beside(document.path, key),
        alias=access.get("alias"),
        gateway=access.get("gateway"),
    )


def _cooling(document: Document, name: str, virtual: bool) -> Cooling:
    options = dict(document.data["boards"][name].get("cooling", {}))
    driver = options.pop("driver", "virtual" if virtual else "manual")
    if driver == "virtual" and not virtual:
        raise document.error(
            "boards", name, "cooling", "driver",
            what=f"board '{name}' is real, and the cooling driver 'virtual' is for virtual boards",
            advice="use manual, hwmon, command or http",
        )  # fmt: skip
    if driver == "hwmon" and ("path" in options) == ("name" in options):
        raise document.error(
            "boards", name, "cooling",
            what=f"the cooling driver 'hwmon' of board '{name}' needs either 'name' or 'path'",
            advice="name: pwmfan finds the hwmon by its name",
        )  # fmt: skip
    for phase, rise in options.get("expect", {}).items():
        if isinstance(rise, dict) and rise.get("above_celsius", -math.inf) >= rise.get("below_celsius", math.inf):
            raise document.error(
                "boards", name, "cooling", "expect", phase,
                what="no rise is above and below these at once", advice="make above_celsius the smaller one",
            )  # fmt: skip
    return Cooling(driver, options)


def _power(document: Document, name: str, virtual: bool) -> Power | None:
    if "power" not in document.data["boards"][name]:
        return None
    options = dict(document.data["boards"][name]["power"])
    driver = options.pop("driver")
    if (driver == "virtual") != virtual:
        kind, advice = ("virtual", "use virtual") if virtual else ("real", "use command or http")
        raise document.error(
            "boards", name, "power", "driver",
            what=f"board '{name}' is {kind}, and the power driver '{driver}' is not for such boards", advice=advice,
        )  # fmt: skip
    return Power(driver, options)


def _vars(document: Document, name: str, groups: tuple[str, ...]) -> dict[str, Value]:
    sources: list[tuple[str, ...]] = [(), *(("groups", group) for group in groups), ("boards", name)]
    merged: dict[str, Value] = {}
    from_group: dict[str, tuple[str, Value]] = {}
    for source in sources:
        entry = document.data
        for key in source:
            entry = entry[key]
        for variable, value in entry.get("vars", {}).items():
            if variable in BUILT_IN_VARIABLES:
                raise document.error(
                    *source, "vars", variable,
                    what=f"every board already has the variable '{variable}'",
                    advice="use another name",
                )  # fmt: skip
            if source[:1] == ("groups",):
                other, before = from_group.setdefault(variable, (source[1], value))
                own = document.data["boards"][name].get("vars", {})
                # Groups have no order of their own: a winner by position in the file would be a trap.
                if before != value and variable not in own:
                    raise document.error(
                        *source, "vars", variable,
                        what=f"groups '{other}' and '{source[1]}' give board '{name}' different values of '{variable}'",
                        advice=f"set '{variable}' at the board",
                    )  # fmt: skip
            merged[variable] = value
    return merged


def _refuse_same_door(document: Document, boards: Iterable[Board]) -> None:
    doors: dict[tuple[str, int, str | None], str] = {}
    for board in boards:
        door = (board.access.host.casefold(), board.access.port, board.access.gateway)
        other = doors.setdefault(door, board.name)
        if other != board.name:
            raise document.error(
                "boards", board.name, "access",
                what=f"boards '{other}' and '{board.name}' have the same address {door[0]}:{door[1]}",
                advice="one board must be listed once",
            )  # fmt: skip


def _beside(path: Path, name: str) -> Path:
    """A path in the inventory counts from the folder of the inventory, so that it works from anywhere."""
    try:
        return path.parent / Path(name).expanduser()
    except RuntimeError:
        raise InputError(f"'{name}' names a user that does not exist", where=str(path), advice="use ~/") from None
