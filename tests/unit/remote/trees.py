"""A board in a folder: files as the test writes them, a service manager without processes, and what resources need."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from boardbench.remote.journal import Journal
from boardbench.remote.places import Places
from boardbench.remote.programs import Answer
from boardbench.remote.services import UnitState
from boardbench.remote.system import System

from .fakes import SilentManager

BOOT_ID = "proc/sys/kernel/random/boot_id"


class Units(SilentManager):
    """Units are the files in /etc/systemd/system and the names in `vendor`; a word in the file makes a start fail."""

    kind = "fake"

    def __init__(self, places: Places) -> None:
        super().__init__(places, "systemctl")
        self.folder = Path(places.units)
        self.vendor: set[str] = set()
        self.active: set[str] = set()
        self.calls: list[str] = []

    def _wants(self, unit: str) -> Path:
        return self.folder / "multi-user.target.wants" / unit

    def state(self, unit: str) -> UnitState:
        exists = unit in self.vendor or (self.folder / unit).exists()
        enabled = os.path.lexists(self._wants(unit))
        return UnitState(exists, unit in self.active, enabled, 0, "exit-code", 1)

    def reload(self) -> None:
        self.calls.append("reload")

    def start(self, unit: str) -> None:
        self.calls.append(f"start {unit}")
        file = self.folder / unit
        if not (file.exists() and "dies-at-once" in file.read_text()):
            self.active.add(unit)

    def stop(self, unit: str, timeout_s: float = 120.0) -> None:
        self.calls.append(f"stop {unit}")
        assert self.state(unit).exists, f"{unit} has no file any more"
        self.active.discard(unit)

    def restart(self, unit: str) -> None:
        self.calls.append(f"restart {unit}")

    def enable(self, unit: str) -> None:
        self._wants(unit).parent.mkdir(parents=True, exist_ok=True)
        self._wants(unit).symlink_to(self.folder / unit)

    def disable(self, unit: str) -> None:
        # Like the real ones: without its file nothing is known of a unit, also not what enabled it.
        assert self.state(unit).exists, f"{unit} has no file any more"
        self._wants(unit).unlink()


class Tree:
    """One such board. `write` and `read` take paths as the board names them, without the first slash."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = Places(str(root))
        self.units = Units(self.places)
        self.commands: list[list[str]] = []
        self.answers: list[tuple[list[str], Answer]] = []
        self.fetched: list[str] = []
        self.write(BOOT_ID, "boot-1")
        for folder in ("etc", "opt", "var/lib", "run"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: str | bytes, mode: int | None = None) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            file.chmod(mode)
        return file

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def system(self, scope: str | None = "provision") -> System:
        """As a call would have it; `None`: check mode."""
        return System(
            self.places,
            journal=Journal(self.places, scope) if scope else None,
            fetch=self._fetch if scope else None,
            services=self.units,
            run=self.run,
        )

    def _fetch(self, hashes: list[str]) -> list[str]:
        self.fetched += hashes
        return [os.path.join(self.places.blobs, sha) for sha in hashes]

    def blob(self, content: bytes) -> dict[str, Any]:
        """A blob that lies ready: the arguments that name it."""
        import hashlib

        sha = hashlib.sha256(content).hexdigest()
        self.write(f"var/lib/boardbench/blobs/{sha}", content)
        return {"blob": sha, "size": len(content)}

    def answer(self, prefix: list[str], output: str = "", code: int = 0) -> None:
        """How a program whose arguments begin so will answer; later rules win."""
        self.answers.insert(0, (prefix, Answer(code, output)))

    def run(self, argv: list[str], **_: Any) -> Answer:
        self.commands.append(argv)
        for prefix, answer in self.answers:
            if argv[: len(prefix)] == prefix:
                return answer
        raise AssertionError(f"no answer for {argv}")

    def snapshot(self) -> dict[str, tuple[int, str]]:
        """Every path with mode and content, without what boardbench itself keeps."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if name.startswith(("var/lib/boardbench", "run/boardbench")):
                continue
            if path.is_symlink():
                content = f"-> {os.readlink(path)}"
            else:
                content = path.read_text(errors="replace") if path.is_file() else ""
            found[name] = (path.lstat().st_mode & 0o7777, content)
        return found
