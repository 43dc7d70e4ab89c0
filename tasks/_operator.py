"""The person who can touch the boards: asked on the terminal, or confirmed beforehand on the command line."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from boardbench.errors import InputError


def operator(confirmed: str = "") -> Any:
    """Who switches fans by hand. `confirmed`: the phase in which all hand-switched fans are now, as the user says.

    None where there is neither a terminal nor a confirmation. Raises InputError for a word that is no phase.
    """
    from boardbench.matrix.cooling import PHASES, Operator

    if confirmed and confirmed not in PHASES:
        raise InputError(
            f"'{confirmed}' is not a phase of cooling", where="--confirm-phase", advice="use active or fanless"
        )
    terminal = sys.stdin.isatty()
    if not terminal and not confirmed:
        return None

    def ask(question: str) -> bool:
        if not terminal:
            return False
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return Operator(getpass.getuser(), "terminal" if terminal else "argument", ask, (confirmed,) if confirmed else ())
