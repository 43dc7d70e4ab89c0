"""Many samples: Parquet, read by DuckDB in bounded memory, so that 100 million of them need no more than a few.

Layouts (`what`): `requests` has `latency_ms DOUBLE, ok BOOLEAN`; `decode` has `mib_per_token, ms_per_token DOUBLE`; a
missing value is NULL. Imports keep both so; a run's own files are `workload/decode.parquet` and `requests.parquet`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from boardbench.analysis.sketch import RELATIVE_ERROR, Sketch
from boardbench.errors import InputError

MEMORY = "1GB"
THREADS = 2
ROW_GROUP = 122_880
DECODE = "decode.parquet"
MOST_POINTS = 5000
"""So many points of a scatter are read; where there are more, evenly spread ones by their position in the file."""


def connect() -> Any:
    """A DuckDB in memory that keeps to `MEMORY` and `THREADS`, and loads no extension from anywhere."""
    import duckdb

    base = duckdb.connect(
        config={
            "memory_limit": MEMORY,
            "threads": THREADS,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    base.execute("SET enable_progress_bar = false")  # it would write into what a verb prints
    return base


def write(path: Path, table: Mapping[str, Sequence[Any] | Any]) -> None:
    """Write columns (numpy arrays or sequences of one length) as Parquet: zstd, whole or not at all.

    NaN in a column of floats is numpy's word for a missing value: NULL in the file. Raises ValueError for columns of
    different lengths.
    """
    import numpy as np

    arrays = {name: np.asarray(values) for name, values in table.items()}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    partial = path.with_name(f".{path.name}.partial")
    with connect() as base:
        base.register("given", arrays)
        chosen = []
        for name, array in arrays.items():
            column = _quoted(name)
            whole = array.dtype.kind != "f"
            chosen.append(column if whole else f"CASE WHEN isnan({column}) THEN NULL ELSE {column} END AS {column}")
        rows = base.table("given").project(", ".join(chosen))
        rows.write_parquet(str(partial), compression="zstd", row_group_size=ROW_GROUP)
    partial.replace(path)


def sketch_of(paths: Sequence[Path], column: str = "latency_ms", where_ok: bool = True) -> Sketch:
    """The sketch of a column of these files (see `analysis.sketch`): counted by DuckDB, never held as samples.

    `where_ok`: only requests that succeeded, where the file says which did. Raises InputError for a file that is no
    such table or a value that a sketch does not hold.
    """
    import duckdb

    step = log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))
    files = [str(path) for path in paths]
    try:
        with connect() as base:
            source = base.read_parquet(files)
            if column not in source.columns:
                raise InputError(f"has no column {column}", where=files[0])
            good = "ok AND " if where_ok and "ok" in source.columns else ""
            name = _quoted(column)
            found = source.filter(f"{good}{name} IS NOT NULL")
            bad = found.filter(f"{name} < 0 OR NOT isfinite({name})").count("*").fetchall()[0][0]
            if bad:
                raise InputError(f"{bad} values of {column} are negative or not finite", where=files[0])
            rows = found.aggregate(
                f"CASE WHEN {name} > 0 THEN ceil(ln({name}) / {step!r})::BIGINT END AS bucket,"
                f" count(*) AS n, min({name}) AS least, max({name}) AS greatest"
            ).fetchall()
    except duckdb.Error as error:
        raise InputError(f"cannot be read as {column} samples: {_first(error)}", where=files[0]) from error
    buckets = {int(key): int(count) for key, count, _, _ in rows if key is not None}
    zeros = sum(int(count) for key, count, _, _ in rows if key is None)
    return Sketch(
        RELATIVE_ERROR, buckets, zeros,
        min((float(row[2]) for row in rows), default=None), max((float(row[3]) for row in rows), default=None),
    )  # fmt: skip


def values_of(path: Path, column: str) -> list[float]:
    """A column of a file of requests, of those that succeeded, as it lies. Raises InputError."""
    import duckdb

    if not path.is_file():
        raise InputError("is missing", where=str(path))
    try:
        with connect() as base:
            name = _quoted(column)
            found = base.read_parquet([str(path)]).filter(f"ok AND {name} IS NOT NULL").project(name)
            return [float(value) for (value,) in found.fetchall()]
    except duckdb.Error as error:
        raise InputError(f"cannot be read as {column} samples: {_first(error)}", where=str(path)) from error


def points_of(paths: Sequence[Path]) -> tuple[tuple[float, float], ...]:
    """(MiB a token, ms a token) of `decode` files, at most `MOST_POINTS`; rows with a missing half are left out."""
    import duckdb

    files = [str(path) for path in paths]
    try:
        with connect() as base:
            source = base.read_parquet(files).filter("mib_per_token IS NOT NULL AND ms_per_token IS NOT NULL")
            every = max(1, -(-int(source.count("*").fetchall()[0][0]) // MOST_POINTS))
            found = source.project("mib_per_token, ms_per_token, row_number() OVER () AS place").filter(
                f"(place - 1) % {every} = 0"
            )
            return tuple((float(x), float(y)) for x, y, _ in found.fetchall())
    except duckdb.Error as error:
        raise InputError(f"cannot be read as decode points: {_first(error)}", where=files[0]) from error


def decode_points(workload: Path, notes: list[str]) -> tuple[tuple[float, float], ...]:
    """The decode points of a run; none without the file. What cannot be read is a note."""
    path = workload / DECODE
    if not path.is_file():
        return ()
    try:
        return points_of([path])
    except InputError as error:
        notes.append(str(error))
        return ()


def _quoted(name: str) -> str:
    """A column's name inside a query."""
    return '"' + name.replace('"', '""') + '"'


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
