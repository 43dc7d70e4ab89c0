"""From an inventory file to boards that can be reached: starts the virtual fleet where the inventory wants one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from boardbench.inventory import Board, Inventory, load_inventory
from boardbench.locations import project_dir
from tasks._verb import note

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
        virtual = replace(
            inventory.virtual,
            name=fleet_name or inventory.virtual.name,
            kind=kind or inventory.virtual.kind,
            time_scale=time_scale or inventory.virtual.time_scale,
        )
        inventory = start_fleet(replace(inventory, virtual=virtual))
    return Rig(inventory, inventory.select(limit or None))


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
    return inventory.with_access(fleet.access(), fleet.known_hosts)
