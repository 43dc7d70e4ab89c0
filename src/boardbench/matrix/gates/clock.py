"""When boardbench itself was made: no right clock is older."""

from __future__ import annotations

import functools
from pathlib import Path

import boardbench


@functools.cache
def built_unix_s() -> float:
    """When the newest file of what is sent to boards was written: no right clock on a board is older."""
    remote = Path(boardbench.__file__).parent / "remote"
    return max(path.stat().st_mtime for path in remote.rglob("*.py"))
