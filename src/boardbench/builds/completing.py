"""Completes the payloads of boards: asks a board what it is, builds or fetches what is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from boardbench import crew
from boardbench.errors import BenchError, RigError
from boardbench.inventory import Board
from boardbench.locations import cache_dir
from boardbench.payload import Payload, PayloadFile
from boardbench.results.fetch import DoorLike

from . import builder, models, on_board, programs, wheels
from .recipe import BOARD
from .store import Built, Store
from .voice import Voice

FACTS_S = 60.0
OpenDoor = Callable[[Board], AbstractContextManager[DoorLike]]


class Completer:
    """Gives boards their complete payloads. `given`: a source that the user names, instead of every other."""

    def __init__(
        self, open_door: OpenDoor, voice: Voice, *, given: str = "", check: bool = False, cache: Path | None = None
    ) -> None:
        self._open_door = open_door
        self._voice = voice
        self._given = given
        self._check = check
        self._cache = cache or cache_dir()
        self._store = Store(self._cache)
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()

    def meet(self, boards: Sequence[Board]) -> dict[str, BenchError]:
        """Ask all these boards at once what they are; the errors of those that cannot be asked."""
        lost: dict[str, BenchError] = {}
        for name, outcome in crew.each([board for board in boards if board.name not in self._facts], self._ask).items():
            if isinstance(outcome, BenchError):
                lost[name] = outcome
            else:
                self._facts[name] = outcome
        return lost

    def complete(self, payload: Payload, board: Board, source: str = programs.PINNED) -> Payload:
        """The payload with all that is built and fetched for it, for a board that was met.

        Errors: InputError for a bad source or a patch that does not fit, RigError when a build fails or a library
        cannot be had.
        """
        if not payload.lacks:
            return payload
        with self._lock:
            files: list[PayloadFile] = []
            for part in payload.built:
                if part.built == "model":
                    files.append(_model_file(models.ensure(payload, self._store, self._voice), part.path))
                else:
                    files += _files(self._program(payload, part.built, board, source), part.path)
            libraries: Mapping[str, object] | None = None
            if payload.python:
                interpreter = self._interpreter(board)
                files += wheels.ensure(payload.python, interpreter, self._cache)
                libraries = wheels.libraries(payload.python, interpreter)
            return payload.with_built(files, libraries)

    def ready(self, payload: Payload, board: Board, source: str = programs.PINNED) -> bool:
        """Whether all programs and libraries are in the store for a board that was met. Models do not count: they take
        seconds."""
        if payload.python and not wheels.stored(payload.python, self._interpreter(board), self._cache):
            return False
        wanted = [self._wanted(payload, part.built, board, source) for part in payload.built if part.built != "model"]
        return all(one.place.on != BOARD and builder.look(one, self._store) is not None for one in wanted)

    def _ask(self, board: Board) -> Mapping[str, Any]:
        with self._open_door(board) as door:
            facts = door.call("facts", {"paths": []}, deadline_s=FACTS_S).get("facts")
        if not isinstance(facts, Mapping) or not isinstance(facts.get("arch"), str):
            raise RigError("the board does not say what machine it is", where=board.name)
        return facts

    def _interpreter(self, board: Board) -> wheels.Interpreter:
        return wheels.interpreter_of(self._facts[board.name], board.name)

    def _wanted(self, payload: Payload, variant: str, board: Board, source: str) -> builder.Wanted:
        facts = self._facts[board.name]
        return programs.wanted(
            payload,
            variant,
            kind=board.kind,
            arch=str(facts["arch"]),
            virtual=bool(facts.get("virtual")),
            given=self._given or source,
            board=board.name,
            cache=self._cache,
            voice=self._voice,
        )

    def _program(self, payload: Payload, variant: str, board: Board, source: str) -> Built:
        wanted = self._wanted(payload, variant, board, source)
        if wanted.place.on == BOARD:
            system = str(self._facts[board.name].get("os"))
            with self._open_door(board) as door:
                return on_board.ensure(wanted, board, system, door, self._store, self._voice, check=self._check)
        return builder.ensure(wanted, self._store, self._voice)


def _files(built: Built, path: str) -> list[PayloadFile]:
    return [
        PayloadFile(file.path, f"{path}/{file.name}", "0755" if file.executable else "0644", file.size, file.sha256)
        for file in built.files
    ]


def _model_file(built: Built, path: str) -> PayloadFile:
    (file,) = built.files
    return PayloadFile(file.path, path, "0644", file.size, file.sha256)
