"""What a gate leaves behind: its name, its verdict, what it saw, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Evidence = Mapping[str, Any]
"""`{"gate", "ok", "saw", "why"}`. `ok` with a `why`: nothing speaks against it, but something is not known."""


def passed(gate: str, saw: Mapping[str, Any], unknown: str = "") -> Evidence:
    """The gate is open; `unknown`: what could not be judged."""
    return {"gate": gate, "ok": True, "saw": dict(saw), "why": unknown}


def failed(gate: str, saw: Mapping[str, Any], why: str) -> Evidence:
    """The gate is shut, and why."""
    return {"gate": gate, "ok": False, "saw": dict(saw), "why": why}


def number(value: object) -> float | None:
    """A reading as a number; None for a missing one (which is never 0)."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
