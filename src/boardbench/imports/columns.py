"""Samples in columns: Parquet files, written and read by DuckDB. A missing reading is NULL, never NaN."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boardbench.errors import InputError
from boardbench.imports.model import Samples
from boardbench.results.columns import connect

TIME = "time_s"
Array = npt.NDArray[np.float64]


def quoted(name: str) -> str:
    """A column's name inside a query."""
    return '"' + name.replace('"', '""') + '"'


def write(table: Samples, path: Path) -> None:
    """Write one table as Parquet (zstd, row groups of 122,880 rows), rows in their order."""
    con = connect()
    try:
        source = {TIME: np.frombuffer(table.time_s, dtype=np.float64)}
        source |= {name: np.frombuffer(values, dtype=np.float64) for name, values in table.values.items()}
        con.register("given", source)
        chosen = [quoted(TIME)]
        for name in table.values:
            column = quoted(name)
            chosen.append(f"CASE WHEN isnan({column}) THEN NULL ELSE {column} END AS {column}")
        target = str(path).replace("'", "''")
        con.execute(f"COPY (SELECT {', '.join(chosen)} FROM given) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
    finally:
        con.close()


def read(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Columns of a file (`time_s` too) in the order of its rows, NaN for missing. Raises InputError naming the file."""
    import duckdb

    con = connect()
    try:
        query = f"SELECT {', '.join(quoted(name) for name in names)} FROM read_parquet(?)"
        found = con.execute(query, [str(path)]).fetchnumpy()
    except duckdb.Error as error:
        raise InputError(f"cannot be read as samples: {str(error).splitlines()[0]}", where=str(path)) from error
    finally:
        con.close()
    return {name: _plain(found[name]) for name in names}


def _plain(values: Any) -> Array:
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    return np.asarray(values, dtype=np.float64)


def same(table: Samples, path: Path) -> bool:
    """Whether a file holds exactly this table. Raises InputError when it cannot be read."""
    stored = read(path, [TIME, *table.values])
    return all(
        np.array_equal(stored[name], np.frombuffer(values, dtype=np.float64), equal_nan=True)
        for name, values in {TIME: table.time_s, **table.values}.items()
    )


def readings(values: Array | array[float]) -> list[float | None]:
    """A column with None for missing readings."""
    return [None if math.isnan(value) else float(value) for value in values]
