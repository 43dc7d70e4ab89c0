"""Virtual boards as a lab would have them: an inventory file with addresses, keys and pins, and `inv` on top of it.

Unlike the virtual inventory this one never starts a board by itself, so a board that is down stays down.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from boardbench import crew
from boardbench.board import Door
from boardbench.errors import BenchError
from boardbench.inventory import Access, Board, Inventory, load_inventory
from boardbench.playbook import apply, load
from boardbench.playbook.recap import Outcome
from boardbench.virtual import links, processes
from boardbench.virtual.fleet import Fleet

from ..command_line import Done, environment, start
from .rig import BOARDS, TIME_SCALE

OTHERS = ("jetson", "king", "jack")
# A fan that is always on.
COOLING = "    cooling: {driver: command, active: ['true'], fanless: ['false'], read: [echo, active]}"
# A playbook that every board can follow, in a folder of its own that `./inv teardown` or `clean` removes.
PLAYBOOK = """\
version: 1
name: faults
deadline_s: {deadline_s}
steps:
  - directory: {{path: /etc/bench-faults, mode: "0755"}}
  - file: {{path: /etc/bench-faults/name, content: "${{board}}\\n", mode: "0644"}}
{more}"""


@dataclass
class Lab:
    """A fleet and a folder for the files of one test."""

    fleet: Fleet
    folder: Path
    access: dict[str, Access] = field(default_factory=dict)
    doors: dict[str, list[Door]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.as_it_was()

    @property
    def known_hosts(self) -> Path:
        """The pins, a copy of the fleet's."""
        return self.folder / "known_hosts"

    def inventory_file(self) -> Path:
        """The inventory with the access of now."""
        lines = ["version: 1", "known_hosts: known_hosts", "boards:"]
        for name, kind in BOARDS.items():
            at = self.access[name]
            way = f"{{host: {at.host}, port: {at.port}, user: {at.user}, key: {at.key_file}}}"
            lines += [f"  {name}:", f"    kind: {kind}", f"    access: {way}", "    capabilities: [cpufreq]", COOLING]
        path = self.folder / "lab.yml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def inventory(self) -> Inventory:
        """The same, loaded."""
        return load_inventory(self.inventory_file())

    def board(self, name: str) -> Board:
        """One board of it."""
        return self.inventory().boards[name]

    def door(self, name: str, deadline_s: float = 20.0) -> Door:
        """A connection to one board."""
        return Door.open(self.board(name), self.known_hosts, deadline_s=deadline_s)

    def playbook_file(self, more: str = "", deadline_s: float = 60.0) -> Path:
        """Two steps that work everywhere, and `more`."""
        path = self.folder / "faults.yml"
        path.write_text(PLAYBOOK.format(more=more, deadline_s=deadline_s))
        return path

    def provision(self, more: str = "", *, deadline_s: float = 60.0, open_s: float = 20.0) -> Outcome:
        """Applies that playbook to all four boards in this process; `doors` then holds what was opened."""
        inventory = self.inventory()
        self.doors = {name: [] for name in BOARDS}

        def open_door(board: Board) -> Door:
            opened = Door.open(board, inventory.known_hosts, deadline_s=open_s)
            self.doors[board.name].append(opened)
            return opened

        playbook = load.load(self.playbook_file(more, deadline_s), inventory)
        return apply.run(inventory, list(inventory.boards.values()), playbook, open_door=open_door)

    def inv(self, *words: str) -> Done:
        """The command line, as a user types it, with this inventory."""
        return self.run(*words, "-i", str(self.inventory_file()))

    def run(self, *words: str, timeout_s: float = 60.0) -> Done:
        """The command line, nothing added."""
        return self.finished(self.start(*words), timeout_s)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The command line, running."""
        return start(words, environment(self.folder / "state", self.folder / "results"))

    def finished(self, process: subprocess.Popen[str], timeout_s: float = 60.0) -> Done:
        """Waits for its end. It must never show a traceback."""
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{process.args} took longer than {timeout_s} s:\n{out}\n{err}") from None
        assert "Traceback" not in out + err, err
        return Done(process.returncode, out, err)

    def tool(self, *argv: str) -> str:
        """What a program of the host prints."""
        return subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout

    def as_it_was(self) -> Lab:
        """From now on the right addresses, users, keys and pins again."""
        self.access = dict(self.fleet.access())
        self.known_hosts.write_text(self.fleet.known_hosts.read_text())
        return self

    def with_access(self, name: str, **changes: Any) -> None:
        """From now on the inventory says this about the way to the board."""
        self.access[name] = replace(self.access[name], **changes)

    def unpin(self, name: str) -> None:
        """Drops the pin of the board."""
        lines = self.known_hosts.read_text().splitlines(keepends=True)
        self.known_hosts.write_text("".join(line for line in lines if f"[{self.access[name].host}]" not in line))

    def clean(self) -> None:
        """Puts back what `provision` changed on every board. Raises when a board is not as it should be."""

        def restore(board: Board) -> list[dict[str, Any]]:
            with Door.open(board, self.known_hosts) as door:
                restored: list[dict[str, Any]] = door.call("restore", {"scope": "provision"}, deadline_s=30.0)[
                    "restored"
                ]  # type: ignore[assignment]
                return restored

        for name, restored in crew.each(list(self.inventory().boards.values()), restore).items():
            assert not isinstance(restored, BenchError), restored
            assert [entry for entry in restored if not entry["ok"]] == [], name

    def board_folder(self, name: str) -> Path:
        """The folder of a bwrap board on the host; `root` in it is the board's `/`."""
        return self.fleet.folder / "boards" / name

    def supervisor(self, name: str) -> int:
        """The pid of the process below which all of the board runs."""
        pid = self.fleet.status().boards[name].pid
        assert pid is not None
        return pid

    def reload_sshd(self, *names: str) -> None:
        """Lets the boards' sshd read its configuration anew, and waits until it greets again where it did."""
        for name in names:
            processes.send(links.sshd_processes(self.supervisor(name))[0], signal.SIGHUP)
        # The signal is a matter of milliseconds; until it is taken the old listener would greet.
        time.sleep(0.2)
        for name in names:
            assert until(lambda name=name: self.fleet.status().boards[name].state == "up"), f"{name} does not answer"

    def bring_up(self) -> None:
        """Starts the boards that are down."""
        self.fleet.up(BOARDS, kind=self.fleet.name, time_scale=TIME_SCALE)


@contextmanager
def replaced(path: Path, text: str, mode: int = 0o755) -> Iterator[None]:
    """The file of a board with other contents, for a while; a file that was not there is removed again."""
    before = path.read_bytes() if path.exists() else None
    old_mode = path.stat().st_mode if before is not None else 0
    _write(path, text.encode(), mode)
    try:
        yield
    finally:
        if before is None:
            path.unlink()
        else:
            _write(path, before, old_mode & 0o7777)


def _write(path: Path, content: bytes, mode: int) -> None:
    # By rename: a program that runs cannot be written to.
    partial = path.with_name(f".{path.name}.new")
    partial.write_bytes(content)
    partial.chmod(mode)
    partial.replace(path)


def command_lines(pid: int) -> list[list[str]]:
    """The command lines of all that runs below a process, from the host: no link to the board is needed."""
    found = []
    for mark in processes.descendants(pid):
        try:
            words = Path(f"/proc/{mark.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if words:
            found.append(words)
    return found


def recap_of(outcome: Outcome) -> Mapping[str, Mapping[str, int]]:
    """The counts by board."""
    return {name: board.recap.as_json() for name, board in outcome.boards.items()}


def one_clear_error(outcome: Outcome, bad: str) -> BenchError:
    """The only error of the outcome. It is one line that begins with the board, and the others did all of theirs."""
    recap = recap_of(outcome)
    for name in set(BOARDS) - {bad}:
        counts = recap[name]
        assert counts["ok"] + counts["changed"] == 2, (name, outcome.as_json())
        assert (counts["failed"], counts["unreachable"], counts["skipped"]) == (0, 0, 0), name
    assert list(outcome.errors) == [bad], outcome.as_json()
    error = outcome.errors[bad]
    text = str(error)
    assert text.startswith(f"{bad}: "), text
    assert "\n" not in text
    assert "Traceback" not in text
    assert len(text) < 600, text
    assert not outcome.boards[bad].recap.good
    assert outcome.exit_code == 1
    return error


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Waits for the condition; False when it did not come true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
