"""The daemon behind a fleet of virtual boards: `python -m boardbench.virtual.daemon FLEET_DIR`.

It reads `FLEET_DIR/fleet.json`, serves every board's files under `FLEET_DIR/tree/BOARD` and keeps
`FLEET_DIR/ctl/BOARD` (load files in, status out). `FLEET_DIR/daemon.json` appears when all of it works.
SIGTERM ends it; then it removes what it made. What a killed daemon left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from boardbench.errors import BenchError, InputError, RigError
from boardbench.virtual import fleet_file, fuse_fs, pagecache
from boardbench.virtual.boards import has_bpftrace, make_board, make_tree
from boardbench.virtual.control import Control, write_json
from boardbench.virtual.fleet_file import BoardEntry, FleetFile
from boardbench.virtual.fuse_fs import FuseMount, MountError, Served
from boardbench.virtual.live import LiveBoard
from boardbench.virtual.plain_fs import PlainFiles
from boardbench.virtual.tracing import Tracing

_PERIOD_S = 0.1
_log = logging.getLogger("boardbench.virtual")


class Daemon:
    """One fleet's daemon. `run` returns after SIGTERM or SIGINT."""

    def __init__(self, folder: Path, fleet: FleetFile) -> None:
        self.folder = folder
        self.fleet = fleet
        self.tree = folder / "tree"
        self.stopping = False
        self.controls = [self._control(entry) for entry in fleet.boards]
        self.tracings = [Tracing(one.folder) for one in self.controls if has_bpftrace(one.board.kind)]
        self.served = {control.board.name: Served(control.board, control.tree) for control in self.controls}
        # A fleet of very many boards is looked at less often, so that it never eats a core.
        self.period_s = max(_PERIOD_S, 0.002 * len(self.controls))

    def _control(self, entry: BoardEntry) -> Control:
        seed = f"{self.fleet.name}/{entry.name}"
        board = make_board(entry.name, entry.kind, seed, self.fleet.time_scale)
        control = Control(board, entry.sandbox, self.folder / "ctl" / entry.name)
        control.tree = make_tree(board, _dropper(board, entry, control.folder / "drops.jsonl"))
        return control

    def run(self) -> None:
        """Serve until told to stop. Errors: RigError when the wanted kind of sysfs cannot be had."""
        _remove_leftovers(self.folder)
        self.tree.mkdir(exist_ok=True)
        server, why = self._serve()
        try:
            mode = "fuse" if isinstance(server, FuseMount) else "plain"
            for control in self.controls:
                control.start(mode)
            for tracing in self.tracings:
                tracing.start()
            self._announce(mode, why)
            _log.info("boards served: %d; sysfs: %s", len(self.controls), mode)
            self._loop(server)
        finally:
            for tracing in self.tracings:
                tracing.stop()
            server.stop()
            _remove_leftovers(self.folder)
            for control in self.controls:
                control.stop()
            with contextlib.suppress(OSError):
                (self.folder / "ctl").rmdir()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        self.stopping = True

    def _serve(self) -> tuple[FuseMount | PlainFiles, str]:
        why = "asked for in fleet.json"
        if self.fleet.sysfs != "plain":
            try:
                return FuseMount.start(self.tree, self.served), ""
            except MountError as error:
                if self.fleet.sysfs == "fuse":
                    raise RigError(
                        f"FUSE cannot be used: {error}", where=str(self.folder), advice='or ask for sysfs "plain"'
                    ) from None
                why = str(error)
                _log.warning("sysfs falls back to plain files: %s", why)
        files = PlainFiles(self.tree, self.served)
        files.start()
        return files, why

    def _announce(self, mode: str, why: str) -> None:
        with open("/proc/self/stat", encoding="ascii") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        about = {"pid": os.getpid(), "start_time_ticks": ticks, "mode": mode, "why": why}
        write_json(self.folder / "daemon.json", about)

    def _loop(self, server: FuseMount | PlainFiles) -> None:
        due = time.monotonic()
        while not self.stopping:
            for control in self.controls:
                control.tick()
            due = max(due + self.period_s, time.monotonic())
            if isinstance(server, PlainFiles):
                server.refresh()
                while not self.stopping and (left := due - time.monotonic()) > 0:
                    server.take_writes(left)
            else:
                if not server.running:
                    raise RigError("the FUSE mount ended by itself", where=str(self.tree), advice="restart the fleet")
                time.sleep(max(0.0, due - time.monotonic()))


def _dropper(board: LiveBoard, entry: BoardEntry, log: Path) -> Callable[[int], None]:
    def drop(value: int) -> None:
        if board.faults.drop_caches == "ignored":
            done = pagecache.ignored(value)
        else:
            done = pagecache.drop(entry.pagecache_roots, entry.cgroup, value)
        pagecache.note(log, done)

    return drop


def _remove_leftovers(folder: Path) -> None:
    """Unmount and remove what this or a killed daemon made. The ctl folders stay: sandboxes have them bound."""
    (folder / "daemon.json").unlink(missing_ok=True)
    tree = folder / "tree"
    fuse_fs.detach(tree)
    if tree.is_symlink():
        raise RigError(f"{tree} is a link", where=str(folder), advice="remove it")
    shutil.rmtree(tree, ignore_errors=True)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Two daemons of one fleet would fight over its files: the lock ends with the process."""
    path = folder / "daemon.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RigError(
                "a daemon serves this fleet already", where=str(folder), advice="stop the fleet first"
            ) from None
        yield
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _more_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: list[str]) -> int:
    """Run the daemon; the exit code is 0 after SIGTERM."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        if len(argv) != 1:
            raise InputError("the daemon takes one argument: the fleet's folder")
        folder = Path(argv[0]).resolve()
        fleet = fleet_file.read(folder / "fleet.json")
        _more_files()
        with _only_one(folder):
            daemon = Daemon(folder, fleet)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, daemon.stop)
            daemon.run()
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    except OSError as error:
        print(f"error: {argv[0]}: {error}", file=sys.stderr)
        return int(RigError("").exit_code)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # A FUSE thread may still wait for sandboxes that hold the mount; the end of the process ends it.
    os._exit(code)
