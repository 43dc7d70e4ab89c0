"""`requests.columns`: every request of a load, as arrays, as a sketch, and as Parquet for whoever queries it.

The board writes it without any library (payload npu-load, `columns.py`): a JSON line, then zlib-compressed columns.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boardbench.analysis.sketch import Sketch
from boardbench.errors import InputError
from boardbench.workloads.npu_load import REQUESTS

FORMAT, VERSION = "boardbench-columns", 1
GOOD = "NPF-0000"
_TYPES = {"f8": "<f8", "i8": "<i8", "i4": "<i4"}
Column = NDArray[Any]


@dataclass(frozen=True)
class Requests:
    """Requests in the order of their ends; seconds count from the load's begin. `words`: of columns of words."""

    about: dict[str, Any]
    columns: dict[str, Column]
    words: dict[str, list[str]]

    @property
    def good(self) -> Column:
        """Which requests succeeded."""
        codes = self.words.get("code", [])
        number = codes.index(GOOD) if GOOD in codes else -1
        return np.asarray(self.columns["code"] == number)

    @property
    def latency_ms(self) -> Column:
        """Latency of each request from its intended start."""
        return np.asarray(1000.0 * (self.columns["ended_s"] - self.columns["intended_s"]))

    def nodes(self) -> Column:
        """The node that answered each request, by name."""
        return np.asarray(self.words["node"], dtype=str)[self.columns["node"]]


def read(path: Path) -> Requests:
    """The table of a file. Raises InputError when it is missing, cut short or of another kind."""
    try:
        line, _, rest = path.read_bytes().partition(b"\n")
        head = json.loads(line)
        if head.get("format") != FORMAT or head.get("version") != VERSION:
            raise ValueError("another format")
        columns: dict[str, Column] = {}
        words: dict[str, list[str]] = {}
        at = 0
        for entry in head["columns"]:
            packed = rest[at : at + entry["bytes"]]
            values = np.frombuffer(zlib.decompress(packed), dtype=_TYPES[entry["type"]])
            if len(packed) != entry["bytes"] or len(values) != head["rows"]:
                raise ValueError(f"column {entry['name']} is cut short")
            columns[entry["name"]] = values
            if "words" in entry:
                words[entry["name"]] = list(entry["words"])
            at += entry["bytes"]
        if at != len(rest):
            raise ValueError("bytes follow the last column")
        missing = {"intended_s", "ended_s", "code", "node"} - set(columns)
        if missing:
            raise ValueError(f"there is no column {sorted(missing)[0]}")
    except FileNotFoundError:
        raise InputError("is missing", where=str(path)) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise InputError(f"is no table of requests: {error}", where=str(path)) from None
    return Requests(head["about"], columns, words)


def latencies(workload: Path, notes: list[str]) -> Sketch | None:
    """The latencies, ms, of a run's requests that succeeded; None without the file. What cannot be read is a note."""
    path = workload / REQUESTS
    if not path.is_file():
        return None
    sketch = Sketch()
    try:
        table = read(path)
        sketch.add(table.latency_ms[table.good])
    except InputError as error:
        notes.append(str(error))
        return None
    except ValueError as error:
        notes.append(f"{path}: {error}")
        return None
    return sketch


def write_parquet(table: Requests, run: str, board: str, path: Path) -> None:
    """The requests as Parquet (zstd): `run, board, start_s, latency_ms, ok`, then the node, the code and every stage.

    Sorted by start; a stage that was not measured is NULL. `path` must not be there.
    """
    import duckdb

    if path.exists():
        raise InputError("is there already", where=str(path))
    stages = [name for name in table.columns if name.endswith("_us")]
    data: dict[str, Column] = {
        "start_s": table.columns["intended_s"],
        "latency_ms": table.latency_ms,
        "ok": table.good,
        "node": table.nodes(),
        "code": np.asarray(table.words["code"], dtype=str)[table.columns["code"]],
        "attempts": table.columns["attempts"],
        **{name: table.columns[name] for name in stages},
    }
    chosen = ", ".join(f'nullif("{name}", -1) AS "{name}"' for name in stages)
    head = "start_s, latency_ms, ok, node, code, attempts"
    with duckdb.connect() as base:
        base.register("data", data)
        query = f"SELECT ?::VARCHAR AS run, ?::VARCHAR AS board, {head}, {chosen} FROM data ORDER BY start_s"
        base.execute(f"CREATE TABLE made AS {query}", [run, board])
        base.table("made").write_parquet(str(path), compression="zstd", row_group_size=122_880)
