"""What a resource may use of the board: its places, its journal, its service manager, its programs and its blobs."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from . import programs
from .failures import BUG, Failure
from .journal import Journal
from .places import Places
from .services import ServiceManager

Runner = Callable[..., programs.Answer]


class System:
    """One board, for the time of one call. Tests give a root, a fake service manager and a fake runner of programs."""

    def __init__(
        self,
        places: Places,
        *,
        journal: Journal | None = None,
        fetch: Callable[[list[str]], list[str]] | None = None,
        remaining_s: Callable[[], float] = lambda: 600.0,
        services: Any = None,
        run: Runner = programs.run,
    ) -> None:
        self.places = places
        self.journal = journal
        self.remaining_s = remaining_s
        # Hashes of files that were looked at in this call; see `things.paths.hash_now`.
        self.hashes: dict[tuple[int, ...], str] = {}
        self._fetch = fetch
        self._services = services
        self._run = run

    @property
    def checking(self) -> bool:
        """True when nothing may be changed."""
        return self.journal is None

    @property
    def services(self) -> ServiceManager:
        """The board's service manager; Failure `rig` when it has none."""
        if self._services is None:
            from . import services

            self._services = services.detect(self.places)
        manager: ServiceManager = self._services
        return manager

    def note(self, kind: str, name: str) -> None:
        """Notes the state of a thing in the journal before its first change. See `things`."""
        if self.journal is None:
            raise Failure(BUG, f"a change of {kind} {name} was tried in check mode", "system")
        self.journal.note(kind, name, self)

    def noted(self, kind: str, name: str) -> bool:
        """Whether this scope has the thing noted already."""
        return self.journal is not None and self.journal.has(kind, name)

    def blobs(self, hashes: list[str]) -> list[str]:
        """Paths of these blobs, in order, asked from the controller when they are missing."""
        if self._fetch is None:
            raise Failure(BUG, "blobs were asked for in check mode", "system")
        return self._fetch(hashes)

    def run(
        self,
        argv: list[str],
        *,
        deadline_s: float = 60.0,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> programs.Answer:
        """Runs a program of the board, at most for `deadline_s` and for what is left of the call."""
        return self._run(argv, deadline_s=min(deadline_s, self.remaining_s()), cwd=cwd, env=env)
