"""The board's side runs as root on boards; its unit tests also pass for an ordinary user."""

from __future__ import annotations

import os
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def giving_to_root_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root may give a file to root. For anybody else the test's own user stands for root."""
    if os.geteuid() == 0:
        return
    for name in ("chown", "lchown", "fchown"):
        real = getattr(os, name)

        def to_root_is_done(target: Any, uid: int, gid: int, real: Any = real, **more: Any) -> None:
            if (uid, gid) != (0, 0):
                real(target, uid, gid, **more)

        monkeypatch.setattr(os, name, to_root_is_done)
