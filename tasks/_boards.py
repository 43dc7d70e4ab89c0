"""From an inventory file to boards that can be reached: starts the virtual fleet where the inventory wants one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from boardbench.errors import InputError
from boardbench.inventory import Board, Inventory, Power, VirtualFleet, load_inventory
from boardbench.locations import project_dir
from tasks._verb import note

KINDS = ("auto", "bwrap", "nspawn")
DEFAULT_INVENTORY = "inventory/virtual.yml"


@dataclass(frozen=True)
class Rig:
    """An inventory whose boards have addresses, and the boards that the user chose."""

    inventory: Inventory
    boards: tuple[Board, ...]


def inventory_path(given: str) -> Path:
    """The file that the user named, as seen from where they stand; without one, the default of the checkout."""
    return Path(given) if given else project_dir() / DEFAULT_INVENTORY


def open_rig(given: str, limit: str, *, fleet_name: str = "", kind: str = "", time_scale: float = 0.0) -> Rig:
    """Load the inventory, start its virtual fleet when it has one and it is not up, and choose the boards."""
    inventory = load_inventory(inventory_path(given))
    inventory.select(limit or None)  # a wrong name is said before anything is started
    if inventory.virtual is not None:
        wanted = replace(inventory.virtual, name=fleet_name or inventory.virtual.name)
        inventory = start_fleet(replace(inventory, virtual=_settings(wanted, kind, time_scale)))
    return Rig(inventory, inventory.select(limit or None))


def look_at(given: str, limit: str) -> tuple[tuple[Board, ...], float]:
    """The chosen boards and the time scale they will have, without starting or asking any of them."""
    inventory = load_inventory(inventory_path(given))
    scale = 1.0 if inventory.virtual is None else _settings(inventory.virtual, "", 0.0).time_scale
    return inventory.select(limit or None), scale


def _settings(wanted: VirtualFleet, kind: str, time_scale: float) -> VirtualFleet:
    """What the fleet is to be: as the user says, else as it runs, else as the inventory says."""
    from boardbench.virtual.fleet import Fleet

    if kind and kind not in KINDS:
        raise InputError(
            f"no kind of virtual board is called '{kind}'", where="--kind", advice=f"one of {', '.join(KINDS)}"
        )
    if time_scale < 0:
        raise InputError(f"{time_scale:g} is not above 0", where="--time-scale")
    now = Fleet.open(wanted.name).status()
    running = any(board.state == "up" for board in now.boards.values())
    as_it_is = replace(wanted, kind=now.kind, time_scale=now.time_scale) if running else wanted
    return replace(as_it_is, kind=kind or as_it_is.kind, time_scale=time_scale or as_it_is.time_scale)


def start_fleet(inventory: Inventory, say: Callable[[str], None] = note) -> Inventory:
    """Bring the inventory's virtual fleet up (nothing happens when it is) and give its boards their addresses."""
    from boardbench.virtual.fleet import Fleet
    from boardbench.virtual.host_packages import ensure

    assert inventory.virtual is not None
    ensure(inventory.virtual.kind, say)
    fleet = Fleet.open(inventory.virtual.name)
    before = fleet.status()
    already = {name for name, board in before.boards.items() if board.state == "up"}
    began = time.monotonic()
    status = fleet.up(
        {board.name: board.kind for board in inventory.boards.values()},
        kind=inventory.virtual.kind,
        time_scale=inventory.virtual.time_scale,
        on_progress=say,
    )
    started = set(status.boards) - already
    if started:
        say(
            f"virtual fleet '{status.name}' was not up: started {len(started)} {status.kind} boards "
            f"in {time.monotonic() - began:.1f} s (physics {status.time_scale:g} x real time; "
            "./inv virtual.down ends them)"
        )
    return _with_power(_with_loopback(inventory.with_access(fleet.access(), fleet.known_hosts)), fleet.name)


def _with_loopback(inventory: Inventory) -> Inventory:
    """Virtual boards share the controller's network: what listens on one does so at that board's own address."""

    def own(board: Board) -> Board:
        return replace(board, vars={"loopback": board.access.host, **board.vars})

    return replace(inventory, boards={name: own(board) for name, board in inventory.boards.items()})


def _with_power(inventory: Inventory, fleet: str) -> Inventory:
    """Power driver `virtual` as commands to the fleet: to the rest such a board hangs on a switched socket."""

    def real(board: Board) -> Board:
        if board.power is None or board.power.driver != "virtual":
            return board
        argv = [sys.executable, "-m", "boardbench.virtual.power", fleet, board.name]
        commands = {word: [*argv, word] for word in ("on", "off", "read")}
        return replace(board, power=Power("command", {**board.power.options, **commands}))

    return replace(inventory, boards={name: real(board) for name, board in inventory.boards.items()})
