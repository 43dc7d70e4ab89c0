"""Writes the floor: which value, whether it is in force, and whose the value is that stands there.

`min_freq` is one slot and the last writer wins. What this service wrote it also takes back; a value that it did not
write belongs to somebody else (jetson_clocks, nvpmodel, a person), is reported, and is left alone until the lowest
frequency stands there again. `max_freq` is only read: the floor yields to the ceiling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Protocol, Sequence

from .faults import BoardError, UserError
from .node import Node


class Files(Protocol):
    """Access to the node's files."""

    def read(self, paths: Sequence[str]) -> list[str]:
        """The texts of files."""

    def write(self, path: str, text: str) -> None:
        """Write a file."""


class Record(Protocol):
    """Keeps what was written, for whoever cleans up after a crash."""

    def get(self, node: str) -> int | None:
        """What this service wrote to the node in this boot and has not taken back, in Hz."""

    def put(self, node: str, hz: int) -> None:
        """About to write this value."""

    def clear(self) -> None:
        """All is taken back."""


def mhz(hz: int) -> str:
    """A frequency as people write it."""
    return f"{hz / 1_000_000:g} MHz"


def parse_table(text: str) -> tuple[int, ...]:
    """`available_frequencies`, ascending; BoardError when it is empty or holds something else than numbers."""
    words = text.split()
    if not words or not all(word.isdigit() for word in words):
        raise BoardError(f"available_frequencies reads '{text[:60]}', which is no list of frequencies")
    return tuple(sorted({int(word) for word in words}))


def parse_hz(text: str, name: str) -> int:
    """A frequency; BoardError when it is no number."""
    if not text.isdigit():
        raise BoardError(f"{name} reads '{text[:60]}', which is no frequency")
    return int(text)


def choose(table: tuple[int, ...], wanted_hz: int | None) -> int:
    """The floor; UserError when the wanted one is not in the table."""
    if wanted_hz is None:
        return table[-1]
    if wanted_hz not in table:
        points = " ".join(f"{hz / 1_000_000:g}" for hz in table)
        raise UserError(
            f"a floor of {mhz(wanted_hz)} is not among the GPU's frequencies ({points} MHz); "
            "set GPU_FLOOR_MHZ to one of them or to 'highest'"
        )
    return wanted_hz


def below_ceiling(table: tuple[int, ...], hz: int, ceiling_hz: int) -> int:
    """The highest point that is neither above `hz` nor above the ceiling; the lowest point when none is."""
    fitting = [point for point in table if point <= min(hz, ceiling_hz)]
    return fitting[-1] if fitting else table[0]


@dataclass(frozen=True)
class Look:
    """The node at one moment, in Hz."""

    table: tuple[int, ...]
    min_hz: int
    max_hz: int

    @property
    def idle_hz(self) -> int:
        """What `min_freq` reads when nobody asks for a floor."""
        return min(self.table[0], self.max_hz)

    def in_force(self, written_hz: int) -> int:
        """What `min_freq` reads after that was written."""
        return min(max(written_hz // 1000 * 1000, self.table[0]), self.max_hz)


def look(node: Node, files: Files) -> Look:
    """Reads the node; BoardError when that fails."""
    table, low, high = files.read([node.file(name) for name in ("available_frequencies", "min_freq", "max_freq")])
    return Look(parse_table(table), parse_hz(low, "min_freq"), parse_hz(high, "max_freq"))


class Floor:
    """The floor of one node. `raised_hz`: what is in force through us; `foreign_hz`: somebody else's value."""

    def __init__(
        self,
        node: Node,
        files: Files,
        record: Record,
        wanted_hz: int | None,
        say: Callable[[str], None],
    ) -> None:
        self.node = node
        self._files = files
        self._record = record
        self._say = say
        self._written: int | None = None
        # A write that failed may have been taken all the same.
        self._doubtful = False
        self.foreign_hz: int | None = None
        found = self.look()
        self.floor_hz = choose(found.table, wanted_hz)
        self._adopt(found)

    @property
    def raised_hz(self) -> int | None:
        """What we wrote and have not taken back."""
        return self._written

    def look(self) -> Look:
        """Reads the node; BoardError when that fails."""
        return look(self.node, self._files)

    def _adopt(self, found: Look) -> None:
        """A floor that a crashed service left is ours, and is taken back first."""
        left = self._record.get(self.node.path)
        if left is not None and found.min_hz == found.in_force(left) != found.idle_hz:
            self._say(f"a floor of {mhz(left)} was left by a service that did not end well")
            self._written = left
            self.lower("left over")
            return
        if left is not None:
            self._record.clear()
        self._see_foreign(found)

    def _see_foreign(self, found: Look) -> bool:
        """Whether a value stands there that is not ours; says so once."""
        if self._doubtful and found.min_hz == found.idle_hz:
            self._forget()
        ours = found.idle_hz if self._written is None else found.in_force(self._written)
        if found.min_hz == ours:
            if self.foreign_hz is not None:
                self._say(f"min_freq is {mhz(found.min_hz)} again: the floor is ours")
                self.foreign_hz = None
            return False
        if self.foreign_hz != found.min_hz:
            self._say(
                f"min_freq is {mhz(found.min_hz)} and not {mhz(ours)}: another program writes it (jetson_clocks, "
                "nvpmodel?); it is left alone until it is the lowest frequency again"
            )
        self.foreign_hz = found.min_hz
        self._forget()
        return True

    def _forget(self) -> None:
        if self._written is not None:
            self._written = None
            self._record.clear()
        self._doubtful = False

    def _write(self, hz: int) -> Look:
        self._files.write(self.node.file("min_freq"), str(hz))
        found = self.look()
        if found.min_hz != found.in_force(hz):
            raise BoardError(f"{mhz(hz)} was written to min_freq and {mhz(found.min_hz)} is in force")
        return found

    def keep_up(self, why: str) -> bool:
        """Raises the floor, or keeps it raised as high as the ceiling lets it; True when it is raised by us now.

        BoardError when the board refuses. `why` stands in the log line of a raise.
        """
        found = self.look()
        if self._see_foreign(found):
            return False
        target = below_ceiling(found.table, self.floor_hz, found.max_hz)
        if self._written == target:
            return True
        self._record.put(self.node.path, target)
        self._written, self._doubtful = target, True
        after = self._write(target)
        self._doubtful = False
        self._say(f"floor {mhz(target)} ({why})")
        if target < self.floor_hz:
            self._say(f"the ceiling max_freq is {mhz(after.max_hz)}: below the floor of {mhz(self.floor_hz)}")
        return True

    def lower(self, why: str) -> None:
        """Takes the floor back to the lowest frequency and verifies it; BoardError when the board refuses."""
        if self._written is None:
            return
        found = self.look()
        if self._see_foreign(found):
            return
        self._doubtful = True
        self._write(found.table[0])
        self._forget()
        self._say(f"floor {mhz(found.table[0])} ({why})")

    def watch_idle(self) -> None:
        """Looks, while the floor is not raised, whether somebody else has raised it."""
        if self._written is None:
            self._see_foreign(self.look())
