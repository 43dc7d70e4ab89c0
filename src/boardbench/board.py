"""The door: the one way to a board.

A call is one exec of a constant command line. Everything that varies travels as JSON on the program's standard input,
so nothing that a user or a board says is ever read by a shell. See `docs/architecture.md`, "The door and the wire".
"""

from __future__ import annotations

import shlex
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from boardbench import program
from boardbench.blobs import Outgoing, pieces
from boardbench.errors import (
    BenchError,
    BugError,
    DeadlineError,
    InputError,
    RigError,
    UnreachableError,
    WorkloadError,
)
from boardbench.frames import Frames, NotTheProtocol, OutOfTime
from boardbench.inventory import Board
from boardbench.no_start import did_not_start
from boardbench.ssh import SshLink
from boardbench.transport import Exec, Link, LinkLost

_FAULTS: dict[str, type[BenchError]] = {
    "bad-input": InputError,
    "rig": RigError,
    "workload": WorkloadError,
    "bug": BugError,
}
# After a deadline: how long the board gets to say that the call has really ended.
_PROOF_S = 10.0
# A program that was kept is used again only within this time. The board's side waits twice as long for it.
_KEPT_S = 30.0

Events = Callable[[dict[str, object]], None]
Data = Callable[[str, bytes], None]


def exec_line(user: str) -> str:
    """The constant command line; only whether `sudo` stands before it depends on the user."""
    sudo = "" if user == "root" else "sudo -n -- "
    return f"{sudo}python3 -IS -c '{program.STUB}'"


def trust_command(board: Board) -> str:
    """What a user types to pin the key that this board shows; it names the inventory that the board is in."""
    path, _, line = board.where.rpartition(":")
    inventory = f" -i {shlex.quote(path)}" if path and line.isdigit() else ""
    return f"./inv boards.trust {board.name}{inventory}"


class Door:
    """A connection to one board and the calls over it, one at a time. `connections` and `execs` count what was used.

    With `stay` the program on the board goes on from call to call, until one fails on the way or the door is closed;
    without, each call is an exec of its own.

    Every error names the board: UnreachableError, HostKeyError, DeadlineError, RigError, or what the board reported.
    """

    def __init__(
        self,
        board: Board,
        link: Link,
        *,
        app: program.Program | None = None,
        root: str | None = None,
        stay: bool = False,
    ) -> None:
        self.board = board
        self.stay = stay
        self.connections = 1
        self.execs = 0
        self._link = link
        self._app = app or program.build()
        # Only tests: the folder that plays the board's `/`.
        self._root = root
        self._kept: tuple[Exec, Frames, float] | None = None

    @classmethod
    def open(cls, board: Board, known_hosts: Path, *, deadline_s: float = 20.0, stay: bool = False) -> Door:
        """Connects and authenticates within the deadline. The host key must be pinned in `known_hosts`."""
        trust = trust_command(board)
        link = SshLink.open(board.access, known_hosts, where=board.name, deadline_s=deadline_s, trust=trust)
        return cls(board, link, stay=stay)

    def __enter__(self) -> Door:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and with it any call; may be called from another thread and more than once."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[0].close()
        self._link.close()

    def call(
        self,
        verb: str,
        args: Mapping[str, object],
        *,
        deadline_s: float,
        blobs: Mapping[str, Path | bytes] | None = None,
        on_event: Events | None = None,
        on_data: Data | None = None,
    ) -> dict[str, object]:
        """Runs one verb on the board and gives its result value.

        `blobs` are what the board may ask for, by SHA-256; files are streamed. `on_event` gets every event but `need`,
        `ping`, `data`, `result` and `error`; `on_data` gets the pieces of each stream. On time-out the call is closed,
        the board ends its side, and the DeadlineError says whether it was seen to have ended.
        """
        call = _Call(self, uuid.uuid4().hex, verb, deadline_s, blobs or {}, on_event, on_data)
        try:
            return call.run(dict(args))
        except DeadlineError as error:
            if verb != "ended":
                error.advice = self._proof_of_end(call.id)
            raise

    def start(self, timeout_s: float) -> Exec:
        """One exec of the board's side."""
        self.execs += 1
        return self._link.start(exec_line(self._link.user), timeout_s)

    def keep(self, running: Exec, frames: Frames) -> None:
        """The program goes on: the next call may be its."""
        self._kept = (running, frames, time.monotonic())

    def kept(self, deadline_monotonic: float) -> tuple[Exec, Frames] | None:
        """The program of the call before, if it still waits for this one. Raises LinkLost."""
        if self._kept is None:
            return None
        (running, frames, since_s), self._kept = self._kept, None
        if time.monotonic() - since_s < _KEPT_S and frames.renew(deadline_monotonic):
            return running, frames
        running.close()
        return None

    def greeting(self) -> dict[str, object]:
        """The first message of every call: which program."""
        first: dict[str, object] = {"program": self._app.sha256, "size": len(self._app.data)}
        if self._root is not None:
            first["root"] = self._root
        return first

    @property
    def program_bytes(self) -> bytes:
        """The board's side as it is sent where it is missing."""
        return self._app.data

    @property
    def user(self) -> str:
        """As whom the board was entered."""
        return self._link.user

    def alive(self) -> bool:
        """False once the connection is known to be lost."""
        return self._link.alive()

    def _proof_of_end(self, call_id: str) -> str:
        """What is known about a call that ran out of time. The board gets some seconds to end stubborn processes."""
        answer: dict[str, object] = {}
        end = time.monotonic() + _PROOF_S
        while (left_s := end - time.monotonic()) > 0:
            if not self.alive():
                return f"the link is lost; whether call {call_id} has ended there must be checked on the next contact"
            try:
                answer = self.call("ended", {"call": call_id}, deadline_s=max(1.0, left_s))
            except BenchError as error:
                return f"whether call {call_id} has ended there is not known: {error.what}"
            if answer.get("ended") is True:
                return "its work on the board has ended"
            time.sleep(0.5)
        return f"its work on the board has NOT ended (processes {answer.get('pids')}); reboot the board"


class _Call:
    """One call: the conversation, and the words for everything that can go wrong in it."""

    def __init__(
        self,
        door: Door,
        call_id: str,
        verb: str,
        deadline_s: float,
        blobs: Mapping[str, Path | bytes],
        on_event: Events | None,
        on_data: Data | None,
    ) -> None:
        self.id = call_id
        self._door = door
        self._where = door.board.name
        self._verb = verb
        self._deadline_s = deadline_s
        self._deadline = time.monotonic() + deadline_s
        self._outgoing = Outgoing(blobs, on_event)
        self._on_event = on_event
        self._on_data = on_data
        self._running: Exec | None = None

    def run(self, args: dict[str, object]) -> dict[str, object]:
        if self._deadline_s <= 0:
            raise self._out_of_time()
        # The last resort, for what Paramiko waits for without a limit: a dead connection ends every wait.
        last_resort = threading.Timer(self._deadline_s + 1.0, self._door.close)
        last_resort.daemon = True
        last_resort.start()
        try:
            running, frames = self._ask_kept(args) or self._ask_anew(args)
            last = self._listen(running, frames)
            if last.get("stays") is True:
                self._door.keep(running, frames)
                self._running = None
            return self._outcome(last)
        except LinkLost as error:
            if time.monotonic() >= self._deadline:
                raise self._out_of_time() from error
            raise UnreachableError(
                f"the link was lost during `{self._verb}` (call {self.id}): {error}",
                where=self._where,
                advice="the board ends that call by itself",
            ) from error
        except (OutOfTime, TimeoutError) as error:
            raise self._out_of_time() from error
        finally:
            last_resort.cancel()
            if self._running is not None:
                self._running.close()

    def _ask_kept(self, args: dict[str, object]) -> tuple[Exec, Frames] | None:
        """The program of the call before, asked; None without one, or when it ended before it had all of it."""
        kept = self._door.kept(self._deadline)
        if kept is None:
            return None
        self._running, frames = kept
        try:
            self._ask(frames, args)
        except EOFError:
            self._running.close()
            self._running = None
            return None
        return kept

    def _ask_anew(self, args: dict[str, object]) -> tuple[Exec, Frames]:
        self._running = running = self._door.start(self._deadline_s)
        frames = Frames(running, self._deadline)
        try:
            frames.send(self._door.greeting())
            if self._first_event(frames).get("have") is not True:
                frames.send_raw(pieces(self._door.program_bytes))
            self._ask(frames, args)
        except EOFError:
            self._ended_early(frames, running)
        except NotTheProtocol as error:
            self._no_protocol(frames, error)
        return running, frames

    def _outcome(self, last: dict[str, object]) -> dict[str, object]:
        if last["event"] == "error":
            raise self._reported(last)
        value = last.get("value")
        if not isinstance(value, dict):
            raise BugError(f"`{self._verb}` gave no value", where=self._where)
        return value

    def _ask(self, frames: Frames, args: dict[str, object]) -> None:
        request = {"call": self.id, "verb": self._verb, "deadline_s": self._board_deadline_s(), "args": args}
        if self._door.stay:
            request["stay"] = True
        try:
            frames.send(request)
        except (TypeError, ValueError) as error:
            raise BugError(f"the arguments of `{self._verb}` cannot be sent: {error}", where=self._where) from error

    def _first_event(self, frames: Frames) -> dict[str, object]:
        message = frames.message()
        if message["event"] == "error":
            raise self._reported(message)
        if message["event"] != "program":
            raise BugError(f"the board began with {message['event']!r}", where=self._where)
        return message

    def _board_deadline_s(self) -> float:
        # A little less than ours, so that the board's own word about the deadline gets here.
        left_s = self._deadline - time.monotonic()
        return round(max(0.05, left_s - min(1.0, 0.1 * left_s)), 3)

    def _listen(self, running: Exec, frames: Frames) -> dict[str, object]:
        """The last message of the call: its result or its error."""
        try:
            while (message := frames.message())["event"] not in ("result", "error"):
                self._hear(frames, message)
            return message
        except EOFError:
            self._ended_early(frames, running)
        except NotTheProtocol as error:
            self._no_protocol(frames, error)

    def _hear(self, frames: Frames, message: dict[str, object]) -> None:
        match message["event"]:
            case "need":
                self._serve(frames, message)
            case "ping":
                # The board compares clocks: nothing may come between reading ours and sending it.
                frames.send({"pong": time.time()})
            case "data":
                self._data(frames, message)
            case _ if self._on_event is not None:
                self._on_event(message)

    def _serve(self, frames: Frames, message: dict[str, object]) -> None:
        wanted = message.get("blobs")
        hashes = wanted if isinstance(wanted, list) else []
        self._outgoing.ask(map(str, hashes))
        for sha in hashes:
            if sha not in self._outgoing:
                raise BugError(f"the board asks for a blob that nobody offered: {sha!r}", where=self._where)
            self._outgoing.send(frames, str(sha))

    def _data(self, frames: Frames, message: dict[str, object]) -> None:
        count = message.get("bytes")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise BugError(f"a data event says bytes: {count!r}", where=self._where)
        if self._on_data is None:
            raise BugError(f"`{self._verb}` sends data, and nobody takes it", where=self._where)
        for piece in frames.raw(count):
            self._on_data(str(message.get("name", "")), piece)

    def _reported(self, message: dict[str, object]) -> BenchError:
        what = str(message.get("what", "unknown error"))
        kind = _FAULTS.get(str(message.get("fault")), BugError)
        if kind is RigError and what.startswith("deadline"):
            return self._out_of_time()
        inner = str(message.get("where") or "")
        return kind(
            what,
            where=f"{self._where}: {inner}" if inner else self._where,
            advice=str(message.get("advice") or ""),
            transient=message.get("transient") is True,
        )

    def _out_of_time(self) -> DeadlineError:
        return DeadlineError(f"`{self._verb}` was not done within {self._deadline_s:g} s", where=self._where)

    def _no_protocol(self, frames: Frames, error: NotTheProtocol) -> NoReturn:
        if frames.messages:
            raise RigError(
                f"`{self._verb}` was answered with {error.why}: {error.saw!r}",
                where=self._where,
                advice="something on the board writes into the answer",
            ) from error
        raise RigError(
            f"the board says something before our program does: {error.saw!r}",
            where=self._where,
            advice=f"make the login of user {self._door.user} silent (.bashrc and the like must not print)",
        ) from error

    def _ended_early(self, frames: Frames, running: Exec) -> NoReturn:
        """The program is gone without `result` or `error`: who ended it is told by its exit code and last words."""
        frames.drain_to_end(1.0)
        code = running.exit_code(1.0)
        said = frames.stderr_text()
        if not frames.messages:
            raise did_not_start(code, said, self._door.user, self._where)
        killed = code is None or code > 128  # a shell between us and the program reports a signal so
        how = "by a signal" if code is None else f"by signal {code - 128}" if killed else f"with exit code {code}"
        raise RigError(
            f"the board's program ended {how} before `{self._verb}` was answered" + (f": {said}" if said else ""),
            where=self._where,
            transient=killed,
        )
