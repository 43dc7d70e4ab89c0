"""Kinds of things that are noted before a change and put back by `restore`.

A kind is a module with `snapshot(name, system) -> state` (plain JSON) and `restore(name, state, system, files) ->
Restored`; `files` is the folder of the journal's large copies. `restore` is idempotent and reads back.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ..failures import BUG, Failure

KINDS = {
    "path": "paths",
    "tree": "trees",
    "kernel": "kernel",
    "unit": "unit_states",
    "package": "packages",
    "user": "users",
    "unit_mask": "unit_masks",
}


@dataclass(frozen=True)
class Restored:
    """How one thing was found and left by `restore`."""

    before: str
    after: str
    ok: bool
    why: str = ""


def load(kind: str) -> Any:
    """The module of a kind."""
    if kind not in KINDS:
        raise Failure(BUG, f"unknown kind {kind!r} in a journal", "things")
    return importlib.import_module("." + KINDS[kind], __name__)
