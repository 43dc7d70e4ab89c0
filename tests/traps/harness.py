"""A trap: a set-up in which an instrument lies, the word by which the product must name it, and what sees through it.

Each trap is sprung twice. With the product as it is, the word must be among what the product says. With the trap's
detections switched off, and nothing else changed, it must go unnoticed: that proves that the check can fail.
"""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boardbench import program

if TYPE_CHECKING:
    from .scene import Scene

REMOTE = Path(program.__file__).parent / "remote"


@dataclass(frozen=True)
class Off:
    """A detection on the controller: `where` is `module:name` or `module:Class.name`, `instead` takes its place."""

    where: str
    instead: object

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Switches it off until the end of `patch`. Raises when there is nothing of this name any more."""
        module, _, path = self.where.partition(":")
        *owners, name = path.split(".")
        owner: Any = reduce(getattr, owners, importlib.import_module(module))
        patch.setattr(owner, name, self.instead, raising=True)


@dataclass(frozen=True)
class OffOnBoard:
    """A detection in the board's own program: `name` in `remote/MODULE.py`, and the source of what takes its place.

    It runs on the board, in another process, so the program that is pushed to the board is made with it.
    """

    module: str
    name: str
    instead: str

    def apply(self, source: Path) -> None:
        """Puts it into a copy of the program's source. Raises when there is nothing of this name any more."""
        reduce(getattr, self.name.split("."), importlib.import_module(f"boardbench.remote.{self.module}"))
        with (source / f"{self.module}.py").open("a") as file:
            file.write(f"\n\n{self.name} = {self.instead}\n")


@dataclass(frozen=True)
class Trap:
    """One way to be lied to.

    `kind` is the line of the catalogue that it belongs to. `spring` sets it up and returns all that the product says.
    `caught_as` is a regular expression that one of these must match from its start. `also` are those that other walls
    say and that may stay when the detection is off; none is the rule, since then the trap goes wholly unnoticed.
    """

    kind: str
    variant: str
    spring: Callable[[Scene], Sequence[str]]
    caught_as: str
    off: tuple[Off | OffOnBoard, ...]
    on_boards: bool = False
    also: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """Its name in test reports."""
        return f"{self.kind}-{self.variant}" if self.variant else self.kind

    def is_named_in(self, said: Iterable[str]) -> bool:
        """Whether the product named it."""
        return any(re.match(self.caught_as, line) for line in said)

    def unnoticed(self, said: Iterable[str]) -> bool:
        """Whether nothing was said but what may stay."""
        return all(any(re.match(word, line) for word in self.also) for line in said)


def switch_off(trap: Trap, patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Switches all detections of a trap off until the end of `patch`; `folder` is for the changed program."""
    on_board = [off for off in trap.off if isinstance(off, OffOnBoard)]
    for off in trap.off:
        if isinstance(off, Off):
            off.apply(patch)
    if on_board:
        source = folder / "remote"
        shutil.copytree(REMOTE, source, ignore=shutil.ignore_patterns("__pycache__"))
        for change in on_board:
            change.apply(source)
        blind = program.build(source)
        patch.setattr(program, "build", lambda: blind)
