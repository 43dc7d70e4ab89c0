"""The load generator's Parquet: whatever the values, a reader of the format gets them back."""

from __future__ import annotations

import array
import math
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from npuload import parquet
from npuload.parquet import Column

MISSING = -1
WHOLE32, WHOLE64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=300, unique=True)


def back(columns: list[Column], about: dict[str, str], row_group: int = parquet.ROW_GROUP) -> list[tuple[Any, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        with path.open("wb") as file:
            parquet.write(file, about, columns, row_group)
        told = duckdb.connect().execute("SELECT key, value FROM parquet_kv_metadata(?)", [str(path)]).fetchall()
        assert {key.decode(): value.decode() for key, value in told} == about
        return duckdb.connect().execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 40), st.integers(1, 17), WORDS, st.dictionaries(st.text("abc"), st.text(), max_size=3))
def test_what_is_written_is_read(
    data: st.DataObject, rows: int, row_group: int, words: list[str], about: dict[str, str]
) -> None:
    def some(values: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(values, min_size=rows, max_size=rows))

    floats, whole, large = some(st.floats(allow_nan=False)), some(WHOLE32), some(WHOLE64)
    holes, flags = some(st.sampled_from([MISSING, 0, 7])), some(st.booleans())
    numbers = some(st.integers(0, len(words) - 1))
    columns = [
        Column("floats", array.array("d", floats)),
        Column("whole", array.array("i", whole)),
        Column("large", array.array("q", large)),
        Column("holes", array.array("i", holes), None, MISSING),
        Column("flags", bytearray(flags)),
        Column("words", array.array("i", numbers), words),
        Column("names", array.array("i", numbers), words, 0),
    ]
    expected = list(
        zip(
            floats, whole, large,
            [None if value == MISSING else value for value in holes], flags,
            [words[number] for number in numbers],
            [words[number] if number else None for number in numbers],
            strict=True,
        )
    )  # fmt: skip
    assert back(columns, about, row_group) == expected


def test_many_rows_are_several_groups_and_small() -> None:
    rows = 300_000
    columns = [
        Column("ok", bytearray([1]) * rows),
        Column("node", array.array("i", (at % 3 for at in range(rows))), ["king", "queen", "jack"]),
        Column("missing_us", array.array("i", [MISSING]) * rows, None, MISSING),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        with path.open("wb") as file:
            parquet.write(file, {}, columns)
        found = duckdb.connect().execute(
            "SELECT node, count(*), count(missing_us), bool_and(ok) FROM read_parquet(?) GROUP BY 1 ORDER BY 1",
            [str(path)],
        )
        assert found.fetchall() == [(name, rows // 3, 0, True) for name in ("jack", "king", "queen")]
        assert path.stat().st_size < 10_000
        groups = duckdb.connect().execute("SELECT num_row_groups FROM parquet_file_metadata(?)", [str(path)]).fetchall()
        assert groups == [(math.ceil(rows / parquet.ROW_GROUP),)]


def test_columns_of_different_lengths_are_no_table(tmp_path: Path) -> None:
    columns = [Column("a", array.array("d", [1.0])), Column("b", array.array("d", [1.0, 2.0]))]
    with (tmp_path / "t").open("wb") as file, pytest.raises(ValueError, match="equal length"):
        parquet.write(file, {}, columns)
