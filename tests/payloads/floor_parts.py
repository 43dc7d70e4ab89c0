"""The modules of the GPU floor payload, which is no part of the package: imported from its folder."""

from __future__ import annotations

import sys

from .sensors import ROOT

sys.path.insert(0, str(ROOT / "payloads/gpu-floor"))

from gpufloor import (
    calls,
    counting,
    elf,
    faults,
    floor,
    health,
    node,
    probes,
    processes,
    record,
    settings,
    virtual,
)

__all__ = [
    "calls",
    "counting",
    "elf",
    "faults",
    "floor",
    "health",
    "node",
    "probes",
    "processes",
    "record",
    "settings",
    "virtual",
]
