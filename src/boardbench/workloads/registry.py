"""The workloads that a matrix can name."""

from __future__ import annotations

from boardbench.errors import InputError
from boardbench.workloads.base import Traits, Workload
from boardbench.workloads.burn import Burn
from boardbench.workloads.llama_load import LlamaLoad
from boardbench.workloads.npu_load import NpuLoad
from boardbench.yamlfile import did_you_mean

KNOWN: dict[str, Workload] = {"burn": Burn(), "llama-load": LlamaLoad(), "npu-load": NpuLoad()}


def workload(name: str) -> Workload:
    """The workload of this name. Raises InputError naming the nearest one."""
    if name not in KNOWN:
        raise InputError(f"unknown workload '{name}'", advice=did_you_mean(name, KNOWN, kind="workloads"))
    return KNOWN[name]


def traits_of(name: str) -> Traits:
    """The traits of the workload of this name; those of a plain load for one that is not known here."""
    return KNOWN[name].traits if name in KNOWN else Traits()
