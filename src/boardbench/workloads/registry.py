"""The workloads that a matrix can name."""

from __future__ import annotations

from boardbench.errors import InputError
from boardbench.workloads.base import Workload
from boardbench.workloads.burn import Burn
from boardbench.yamlfile import did_you_mean

KNOWN: dict[str, Workload] = {"burn": Burn()}


def workload(name: str) -> Workload:
    """The workload of this name. Raises InputError naming the nearest one."""
    if name not in KNOWN:
        raise InputError(f"unknown workload '{name}'", advice=did_you_mean(name, KNOWN, kind="workloads"))
    return KNOWN[name]
