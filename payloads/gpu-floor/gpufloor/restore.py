"""Puts the lowest frequency back after the service has ended, in whatever way: run by the unit after every stop."""

from __future__ import annotations

from typing import Callable

from .faults import BoardError
from .floor import Floor, mhz
from .node import Node
from .record import RecordFile
from .sysfs import Sysfs


def restore(run_dir: str, say: Callable[[str], None]) -> int:
    """0 when no floor of ours is left (verified), 1 when it could not be put back."""
    record = RecordFile(run_dir)
    left = record.read()
    if left is None:
        say("no floor is left")
        return 0
    files = Sysfs()
    try:
        floor = Floor(Node(str(left["node"])), files, record, None, say)
        if floor.foreign_hz is not None:
            say(f"min_freq is {mhz(floor.foreign_hz)}, which this service did not write: left as it is")
        record.clear()
        return 0
    except BoardError as error:
        say(f"the floor of {mhz(int(left['hz']))} is still in force: {error}")
        return 1
    finally:
        files.close()
