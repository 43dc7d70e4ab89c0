"""What every switch promises: two functions, and the answer is read back from the thing itself."""

from __future__ import annotations

from typing import Protocol


class Switch(Protocol):
    """Something that is on or off: a socket with a board behind it, or with a fan."""

    def set(self, on: bool) -> None:
        """Switch, and return when the switch itself says that it is so. Raises RigError."""
        ...

    def get(self) -> bool:
        """Whether it is on now, as the switch says it. Raises RigError."""
        ...
