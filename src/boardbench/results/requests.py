"""`requests.parquet`: every request of a load, as the board's load generator wrote it (payload npu-load, `parquet.py`).

It has the layout `requests` of `columns`, and the stages of each request beside it.
"""

from __future__ import annotations

from pathlib import Path

from boardbench.analysis.sketch import Sketch
from boardbench.errors import InputError
from boardbench.results import columns
from boardbench.workloads.npu_load import REQUESTS


def good_latencies_ms(workload: Path) -> list[float]:
    """The latencies of a run's requests that succeeded, in the order of the file. Raises InputError."""
    return columns.values_of(workload / REQUESTS, "latency_ms")


def latencies(workload: Path, notes: list[str]) -> Sketch | None:
    """The latencies, ms, of a run's requests that succeeded; None without the file. What cannot be read is a note."""
    path = workload / REQUESTS
    if not path.is_file():
        return None
    try:
        return columns.sketch_of([path])
    except InputError as error:
        notes.append(str(error))
        return None
