"""Lets a virtual board see calls of its own libraries: a real bpftrace on the host, spoken to through a socket.

No sandbox lets a board use the kernel's probes. So the `bpftrace` of a board (`programs/bpftrace.py`) hands its program
and its output streams to the fleet's daemon, which runs the host's bpftrace on the board's files. What a board
started ends with the board, and all of it with the daemon.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import logging
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from boardbench.errors import InputError
from boardbench.virtual.control import write_json
from boardbench.virtual.trace_words import BoardIds, program_for_host

DOOR, ABOUT = "bpftrace.sock", "bpftrace.json"
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
_LARGEST_REQUEST = 1 << 16
_END_S = 3.0
_UPROBES = Path("/sys/bus/event_source/devices/uprobe/type")
# The kernel's number of its first pid namespace (PROC_PID_INIT_INO); bpftrace speaks of that one's processes.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_BPF_NUMBER = {"x86_64": 321, "aarch64": 280}
_BPF_PROG_GET_NEXT_ID = 11
_log = logging.getLogger("boardbench.virtual")


def why_not() -> str:
    """Why this machine cannot trace for its virtual boards; empty when nothing is known against it. Cheap."""
    if os.geteuid() != 0:
        return "the controller does not run as root"
    for tool in ("bpftrace", "setpriv"):
        if shutil.which(tool, path=_PATH) is None:
            return f"{tool} is not installed on the controller"
    try:
        first = os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        first = False
    if not first:
        return "the controller runs in a container"
    if not _UPROBES.exists():
        return "the controller's kernel has no uprobes"
    refused = _bpf_refused()
    return f"the controller's kernel allows no BPF ({refused})" if refused else ""


def _bpf_refused() -> str:
    number = _BPF_NUMBER.get(os.uname().machine)
    if number is None:
        return ""
    ask = ctypes.create_string_buffer(112)
    if ctypes.CDLL(None, use_errno=True).syscall(number, _BPF_PROG_GET_NEXT_ID, ask, len(ask)) == 0:
        return ""
    code = ctypes.get_errno()
    # ENOENT: there is no program yet.
    return "" if code == errno.ENOENT else os.strerror(code)


@dataclass
class Tracing:
    """The tracing of one board. `folder`: its control folder, which the board sees as /run/boardbench-virtual."""

    folder: Path
    _door: socket.socket | None = None
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Listens for the board, where this machine can trace; says in the folder whether it can."""
        self._remove()
        why = why_not()
        write_json(self.folder / ABOUT, {"possible": not why, "why": why})
        if why:
            return
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _bind(door, self.folder, DOOR)
        door.listen(8)
        self._door = door
        threading.Thread(target=self._listen, args=(door,), daemon=True).start()

    def stop(self) -> None:
        """Ends every bpftrace; its probes are out of the kernel then."""
        if self._door is not None:
            with contextlib.suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)
            self._door.close()
        with self._lock:
            self._door = None
            running = list(self._running)
        for one in running:
            one.terminate()
        for one in running:
            _end(one)
        self._remove()

    def _remove(self) -> None:
        for name in (DOOR, ABOUT):
            (self.folder / name).unlink(missing_ok=True)

    def _listen(self, door: socket.socket) -> None:
        while True:
            try:
                board, _ = door.accept()
            except OSError:
                return  # stopped
            threading.Thread(target=self._serve, args=(board,), daemon=True).start()

    def _serve(self, board: socket.socket) -> None:
        """One bpftrace of the board, from its request to its exit code."""
        with board, contextlib.ExitStack() as streams:
            request, handles, _, _ = socket.recv_fds(board, _LARGEST_REQUEST, 2)
            for handle in handles:
                streams.callback(os.close, handle)
            if len(handles) != 2:
                return
            out, err = handles
            try:
                code = self._trace(board, *_words(request), out, err)
            except (InputError, OSError) as error:
                _log.warning("a board's bpftrace: %s", error)
                _say(err, f"ERROR: {error}\n")
                code = 1
            with contextlib.suppress(OSError):
                board.send(str(code).encode())

    def _trace(self, board: socket.socket, program: str, buffering: str, out: int, err: int) -> int:
        peer = struct.unpack("iII", board.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        text = program_for_host(program, f"/proc/{peer}/root")
        ids = BoardIds(os.readlink(f"/proc/{peer}/ns/pid"))
        with self._lock:
            if self._door is None:
                return 1
            # The thread that starts it lives as long as it does, so that it dies with the daemon and not before.
            child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "bpftrace", "-q", "-B", buffering, "-e", text],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                env={**os.environ, "LC_ALL": "C", "PATH": _PATH},
            )
            self._running.add(child)
        try:
            _hand_over(child, board, ids, out)
        finally:
            code = _end(child)
            with self._lock:
                self._running.discard(child)
        return code


def _bind(door: socket.socket, folder: Path, name: str) -> None:
    """Binds the socket by way of an open folder: the path of a socket has at most 107 bytes."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        door.bind(f"/proc/self/fd/{handle}/{name}")
    finally:
        os.close(handle)
    # Whoever runs the board as root is this user outside, also in a user namespace.
    (folder / name).chmod(0o600)


def _words(request: bytes) -> tuple[str, str]:
    """The program, and how its output is buffered."""
    try:
        found = json.loads(request)
        program, buffering = found["program"], found["buffering"]
    except (ValueError, KeyError, TypeError):
        raise InputError("the request of the board's bpftrace cannot be read") from None
    if not isinstance(program, str) or buffering not in ("line", "none"):
        raise InputError("the request of the board's bpftrace has wrong values")
    return program, buffering


def _hand_over(child: subprocess.Popen[bytes], board: socket.socket, ids: BoardIds, out: int) -> None:
    """Hands every line to the board until bpftrace has ended; the board's end of the link ends bpftrace."""
    assert child.stdout is not None
    events = select.poll()
    events.register(child.stdout, select.POLLIN)
    events.register(board, select.POLLIN)
    rest, patience_ms = b"", None
    while True:
        ready = events.poll(patience_ms)
        if not ready:
            child.kill()
        for handle, _ in ready:
            if handle == board.fileno():
                # It sends nothing after its request: this is its end.
                events.unregister(board)
                child.terminate()
                patience_ms = _END_S * 1e3
                continue
            data = os.read(child.stdout.fileno(), 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            found = [ids.line(line.decode(errors="replace")) for line in lines]
            said = "".join(f"{line}\n" for line in found if line is not None)
            if said and not _say(out, said):
                child.terminate()


def _say(handle: int, text: str) -> bool:
    """Writes all of it; False when nobody reads it any more."""
    data = text.encode()
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError:
        return False
    return True


def _end(child: subprocess.Popen[bytes]) -> int:
    try:
        code = child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    if child.stdout is not None:
        child.stdout.close()
    return code if code >= 0 else 128 - code
