"""What the user or the board has wrong, in one sentence."""

from __future__ import annotations


class UserError(Exception):
    """Something that the user gave is wrong: exit code 2, and no restart helps."""


class BoardError(Exception):
    """The board does not do what it should now; it may later."""
