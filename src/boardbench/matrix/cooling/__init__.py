"""The fans: who switches them, and what proves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boardbench.matrix.cooling.base import GATE, PHASES, Driver, Look, Operator, Step, evidence
from boardbench.matrix.cooling.drivers import driver_of, drivers_of
from boardbench.matrix.cooling.from_outside import CommandFan, HttpFan, ManualFan
from boardbench.matrix.cooling.on_board import VIRTUAL_FAN, HwmonFan, VirtualFan

__all__ = [
    "GATE", "PHASES", "VIRTUAL_FAN", "CommandFan", "Driver", "HttpFan", "HwmonFan", "Look", "ManualFan", "Operator",
    "Step", "VirtualFan", "driver_of", "drivers_of", "evidence", "steps_of",
]  # fmt: skip


def steps_of(settings: Sequence[Any]) -> list[dict[str, object]]:
    """The matrix's settings as steps of the wire."""
    return [
        {
            "id": f"{setting.resource} {' '.join(str(value) for value in setting.args.values())}",
            "resource": setting.resource,
            "args": dict(setting.args),
            "line": setting.where,
        }
        for setting in settings
    ]
