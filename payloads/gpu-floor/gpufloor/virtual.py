"""What is different on a virtual board: its host sees the calls for it, where it can, and there is no GPU."""

from __future__ import annotations

import os

from .record import read_json

FOLDER = "/run/boardbench-virtual"
NO_GPU = "virtual board: the clock is a file, there is no GPU to speed up"


def here(folder: str = FOLDER) -> bool:
    """Whether this is a virtual board."""
    return os.path.exists(os.path.join(folder, "status.json"))


def kind(folder: str = FOLDER) -> str | None:
    """The sandbox of this virtual board, `bwrap` or `nspawn`; None on a real one."""
    found = (read_json(os.path.join(folder, "status.json")) or {}).get("kind")
    return found if isinstance(found, str) else None


def why_blind(folder: str = FOLDER) -> str:
    """Why the host of this virtual board sees no calls for it; empty when it does."""
    about = read_json(os.path.join(folder, "bpftrace.json"))
    if about is None:
        return "this is a virtual board, and its host sees no calls for it"
    if about.get("possible") is True:
        return ""
    return f"this is a virtual board, and its host sees no calls for it: {about.get('why') or 'it does not say why'}"
