"""Every request of a load, as the board's load generator writes it."""

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.results import requests

sys.path.insert(0, str(Path(__file__).parents[3] / "payloads" / "npu-load"))
sys.path.insert(0, str(Path(__file__).parents[3] / "payloads" / "npu-common"))

from npuload import parquet


def written(folder: Path, latency_ms: Sequence[float], ok: Sequence[bool]) -> Path:
    with (folder / "requests.parquet").open("wb") as file:
        columns = [
            parquet.Column("latency_ms", array.array("d", latency_ms)),
            parquet.Column("ok", bytearray(ok)),
        ]
        parquet.write(file, {"run_id": "r"}, columns)
    return folder


def test_its_latencies_are_those_of_the_requests_that_succeeded(tmp_path: Path) -> None:
    notes: list[str] = []
    sketch = requests.latencies(written(tmp_path, [100.0, 200.0, 400.0], [True, True, False]), notes)
    assert sketch is not None
    assert (sketch.count, sketch.minimum, sketch.maximum) == (2, pytest.approx(100.0), pytest.approx(200.0))
    assert notes == []
    assert requests.good_latencies_ms(tmp_path) == [100.0, 200.0]


def test_a_run_without_the_file_has_no_latencies_and_nothing_to_say(tmp_path: Path) -> None:
    notes: list[str] = []
    assert requests.latencies(tmp_path, notes) is None
    assert notes == []
    with pytest.raises(InputError, match=r"requests\.parquet.*is missing"):
        requests.good_latencies_ms(tmp_path)


def test_latencies_that_cannot_be_are_a_note_and_no_figure(tmp_path: Path) -> None:
    notes: list[str] = []
    assert requests.latencies(written(tmp_path, [-1.0], [True]), notes) is None
    assert "requests.parquet" in notes[0]
    path = tmp_path / "requests.parquet"
    path.write_bytes(path.read_bytes()[:-3])
    assert requests.latencies(tmp_path, notes) is None
    assert "cannot be read as latency_ms samples" in notes[1]
    with pytest.raises(InputError, match="cannot be read as latency_ms samples"):
        requests.good_latencies_ms(tmp_path)
