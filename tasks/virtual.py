"""Virtual boards: start, stop, look at them, and hold their thermal model against a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invoke import Context

from boardbench.errors import ExitCode, InputError
from tasks._verb import emit, note, verb


def _status_document(status: Any) -> dict[str, Any]:
    return {
        "fleet": status.name,
        "kind": status.kind,
        "time_scale": status.time_scale,
        "sysfs": status.sysfs,
        "boards": {
            name: {
                "state": board.state,
                "address": board.address,
                "port": board.port,
                "pid": board.pid,
                "boot_id": board.boot_id,
                "uptime_s": board.uptime_s,
            }
            for name, board in status.boards.items()
        },
    }


def _show(status: Any, as_json: bool) -> None:
    if as_json:
        emit(_status_document(status))
        return
    from boardbench.report.tables import fleet_table, print_table

    print_table(fleet_table(status))


@verb(help={"kind": "bwrap, nspawn or auto", "time-scale": "how many times faster than real time the physics run"})
def up(c: Context, inventory: str = "", kind: str = "", time_scale: float = 0.0, json: bool = False) -> int:
    """Start the virtual boards of the inventory (they stay up between commands)."""
    from boardbench.virtual.fleet import Fleet
    from tasks._boards import open_rig

    rig = open_rig(inventory, "", kind=kind, time_scale=time_scale)
    if rig.inventory.virtual is None:
        raise InputError("this inventory has no virtual boards", where=str(rig.inventory.path))
    _show(Fleet.open(rig.inventory.virtual.name).status(), json)
    return ExitCode.OK


@verb()
def down(c: Context, inventory: str = "", json: bool = False) -> int:
    """Stop the virtual boards and remove everything of theirs."""
    fleet = _fleet(inventory)
    had = fleet.status().boards
    fleet.down()
    if json:
        emit({"stopped": sorted(had)})
    else:
        note(f"stopped {len(had)} virtual boards; nothing of them is left" if had else "no virtual board was up")
    return ExitCode.OK


@verb()
def status(c: Context, inventory: str = "", json: bool = False) -> int:
    """Show which virtual boards are up, where, and of which kind."""
    _show(_fleet(inventory).status(), json)
    return ExitCode.OK


@verb(
    positional=["logdir"],
    help={
        "logdir": "folder with raw/thermal/{k,q,j}.log and raw/throughput.csv",
        "cooling": "how the boards of that log were cooled: active or fanless",
    },
)
def fit(c: Context, logdir: str, cooling: str = "fanless", json: bool = False) -> int:
    """Drive the thermal model by a log's own load and print how far it is from the log."""
    from boardbench.report.tables import fit_table, print_table
    from boardbench.virtual.fit import compare

    figures = compare(Path(logdir), cooling)
    if json:
        emit(figures)
    else:
        print_table(fit_table(figures))
    return ExitCode.OK


def _fleet(inventory: str) -> Any:
    from boardbench.inventory import load_inventory
    from boardbench.virtual.fleet import Fleet
    from tasks._boards import inventory_path

    loaded = load_inventory(inventory_path(inventory))
    if loaded.virtual is None:
        raise InputError("this inventory has no virtual boards", where=str(loaded.path))
    return Fleet.open(loaded.virtual.name)
