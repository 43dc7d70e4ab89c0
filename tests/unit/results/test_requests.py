"""Every request of a load: the board's columns, as arrays and as Parquet."""

from __future__ import annotations

import array
import sys
from pathlib import Path

import duckdb
import pytest

from boardbench.errors import InputError
from boardbench.results import requests

sys.path.insert(0, str(Path(__file__).parents[3] / "payloads" / "npu-load"))

from npuload import columns


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "requests.columns"
    with path.open("wb") as file:
        columns.write(
            file,
            {"run_id": "r"},
            [
                ("intended_s", "s", array.array("d", [0.5, 0.0, 1.0]), None),
                ("ended_s", "s", array.array("d", [0.6, 0.2, 1.4]), None),
                ("attempts", "", array.array("i", [1, 1, 2]), None),
                ("code", "", array.array("i", [0, 0, 1]), ["NPF-0000", "NPF-1301"]),
                ("node", "", array.array("i", [0, 1, 0]), ["king", "queen"]),
                ("inference_us", "us", array.array("i", [14000, -1, -1]), None),
            ],
        )
    return path


def test_what_the_board_wrote_is_read(table: Path) -> None:
    found = requests.read(table)
    assert found.about == {"run_id": "r"}
    assert found.good.tolist() == [True, True, False]
    assert found.latency_ms.tolist() == pytest.approx([100.0, 200.0, 400.0])
    assert found.nodes().tolist() == ["king", "queen", "king"]


def test_its_latencies_are_those_of_the_requests_that_succeeded(table: Path) -> None:
    notes: list[str] = []
    sketch = requests.latencies(table.parent, notes)
    assert sketch is not None
    assert (sketch.count, sketch.minimum, sketch.maximum) == (2, pytest.approx(100.0), pytest.approx(200.0))
    assert notes == []


def test_a_run_without_the_file_has_no_latencies_and_nothing_to_say(tmp_path: Path) -> None:
    notes: list[str] = []
    assert requests.latencies(tmp_path, notes) is None
    assert notes == []


def test_latencies_that_cannot_be_are_a_note_and_no_figure(table: Path) -> None:
    notes: list[str] = []
    with table.open("wb") as file:
        columns.write(
            file,
            {},
            [
                ("intended_s", "s", array.array("d", [2.0]), None),
                ("ended_s", "s", array.array("d", [1.0]), None),
                ("code", "", array.array("i", [0]), ["NPF-0000"]),
                ("node", "", array.array("i", [0]), ["king"]),
            ],
        )
    assert requests.latencies(table.parent, notes) is None
    assert "requests.columns" in notes[0]
    table.write_bytes(table.read_bytes()[:-3])
    assert requests.latencies(table.parent, notes) is None
    assert "is no table of requests" in notes[1]


def test_as_parquet_it_is_sorted_and_what_was_not_measured_is_null(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "requests.parquet"
    requests.write_parquet(requests.read(table), "run-1", "jetson", out)
    rows = duckdb.sql(f"SELECT run, board, start_s, ok, node, inference_us FROM '{out}'").fetchall()
    assert rows == [
        ("run-1", "jetson", 0.0, True, "queen", None),
        ("run-1", "jetson", 0.5, True, "king", 14000),
        ("run-1", "jetson", 1.0, False, "king", None),
    ]
    with pytest.raises(InputError, match="is there already"):
        requests.write_parquet(requests.read(table), "run-1", "jetson", out)


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_table_that_was_cut_short_is_refused(table: Path, cut: int) -> None:
    table.write_bytes(table.read_bytes()[:-cut])
    with pytest.raises(InputError, match="is no table of requests"):
        requests.read(table)


def test_a_missing_table_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is missing"):
        requests.read(tmp_path / "requests.columns")
