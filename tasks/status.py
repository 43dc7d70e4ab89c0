"""status: what the boards and their campaigns do now, from a second terminal."""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from invoke import Context

from boardbench.errors import ExitCode
from tasks._verb import emit, note, verb

REFRESH_S = 1.0
OPEN_S = 5.0


def _standing_rig(given: str, limit: str) -> Any:
    """The inventory as it is now. Unlike other verbs this one starts no virtual board, and asks none whether it is up:
    that alone would be traffic."""
    from boardbench.inventory import load_inventory
    from tasks._boards import Rig, inventory_path

    inventory = load_inventory(inventory_path(given))
    inventory.select(limit or None)
    if inventory.virtual is not None:
        from boardbench.virtual.fleet import Fleet

        fleet = Fleet.open(inventory.virtual.name)
        access = {name: way for name, way in fleet.access().items() if name in inventory.boards}
        standing = inventory.with_access(access, fleet.known_hosts)
        return Rig(standing, tuple(board for board in standing.select(limit or None) if board.name in access))
    return Rig(inventory, inventory.select(limit or None))


def _watch(given: str, limit: str, ask: bool) -> Any:
    from boardbench.board import Door
    from boardbench.report.status_watch import Watch
    from tasks._files import results_dir

    rig = _standing_rig(given, limit)
    return Watch(
        rig.boards,
        results_dir(),
        lambda board: Door.open(board, rig.inventory.known_hosts, deadline_s=OPEN_S),
        ask_all=ask,
    )


@verb(
    help={
        "once": "print one table and end (as always where there is no terminal)",
        "ask": "ask boards in their measured window too; this disturbs the measurement",
    }
)
def status(
    c: Context, inventory: str = "", limit: str = "", once: bool = False, ask: bool = False, json: bool = False
) -> int:
    """Show live what boards and campaigns do now, without touching a board that is measured."""
    watch = _watch(inventory, limit, ask)
    if ask:
        note("inv: --ask: boards are asked in their measured window too; runs that are under way are disturbed")
    if not (once or json) and sys.stdout.isatty():
        _live(watch)
        return ExitCode.OK
    watch.ask()
    lines, notes = watch.lines(), watch.notes()
    if json:
        emit({"boards": {line.board: line.as_json() for line in lines}, "notes": notes})
    else:
        from boardbench.report.status_table import status_table
        from boardbench.report.tables import print_table

        print_table(status_table(lines, notes))
    return ExitCode.RIG if any(line.error for line in lines) else ExitCode.OK


def _live(watch: Any) -> None:
    """A table that is read anew each second; boards are asked beside it, so that a slow one does not stop it."""
    from rich.console import Console
    from rich.live import Live

    from boardbench.report.status_table import status_table

    done = threading.Event()
    broken: list[Exception] = []

    def ask() -> None:
        try:
            while not done.is_set():
                watch.ask()
                done.wait(REFRESH_S)
        except Exception as error:  # told by the main thread, which shows the table
            broken.append(error)

    threading.Thread(target=ask, name="status-asks", daemon=True).start()
    try:
        with _keys() as pressed, Live(console=Console(highlight=False), auto_refresh=False, transient=False) as live:
            while True:
                if broken:
                    raise broken[0]
                live.update(status_table(watch.lines(), [*watch.notes(), "q ends"]), refresh=True)
                if pressed(REFRESH_S) == "q":
                    return
    except KeyboardInterrupt:
        return
    finally:
        done.set()


@contextmanager
def _keys() -> Iterator[Any]:
    """Keys without a line end; a function that waits for one for so many seconds and gives it, or nothing."""
    if not sys.stdin.isatty():
        yield lambda seconds: _sleep(seconds)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return sys.stdin.read(1) if ready else ""

    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    threading.Event().wait(seconds)
    return ""


VERBS = (status,)
