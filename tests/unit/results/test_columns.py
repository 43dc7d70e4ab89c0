"""Many samples in columns: the same percentiles as by hand, no sample ever zero for missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boardbench.analysis.estimates import Estimate
from boardbench.analysis.percentiles import nearest_rank
from boardbench.analysis.sketch import RELATIVE_ERROR, Sketch
from boardbench.errors import InputError
from boardbench.results.columns import DECODE, MOST_POINTS, decode_points, points_of, sketch_of, write


def test_a_file_gives_the_sketch_of_its_samples(tmp_path: Path) -> None:
    values = np.random.default_rng(7).lognormal(4, 1, 20_000)
    write(tmp_path / "requests.parquet", {"latency_ms": values, "ok": np.ones(len(values), dtype=bool)})
    by_file, by_hand = sketch_of([tmp_path / "requests.parquet"]), Sketch()
    by_hand.add(values)
    assert by_file.count == by_hand.count == 20_000
    assert (by_file.minimum, by_file.maximum) == (by_hand.minimum, by_hand.maximum)
    for percentile in (1, 50, 95, 99, 99.9):
        exact = nearest_rank(sorted(values.tolist()), percentile)
        found = by_file.percentile(percentile)
        assert isinstance(found, Estimate)
        assert found.value == pytest.approx(exact, rel=RELATIVE_ERROR * 1.01)


def test_failed_requests_and_missing_latencies_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    write(path, {"latency_ms": [10.0, 0.0, 30.0, float("nan")], "ok": [True, True, False, True]})
    sketch = sketch_of([path])
    assert (sketch.count, sketch.zeros, sketch.maximum) == (2, 1, 10.0)


def test_values_that_no_latency_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    for bad in (-1.0, float("inf")):
        write(path, {"latency_ms": [1.0, bad], "ok": [True, True]})
        with pytest.raises(InputError, match=r"requests\.parquet"):
            sketch_of([path])


def test_what_is_no_such_table_is_a_note_and_no_figure(tmp_path: Path) -> None:
    (tmp_path / DECODE).write_bytes(b"PAR1 but not really")
    notes: list[str] = []
    assert decode_points(tmp_path, notes) == ()
    assert DECODE in notes[0]
    write(tmp_path / "requests.parquet", {"other": [1.0]})
    with pytest.raises(InputError, match="has no column latency_ms"):
        sketch_of([tmp_path / "requests.parquet"])


def test_a_scatter_of_many_points_is_spread_evenly(tmp_path: Path) -> None:
    path = tmp_path / "decode.parquet"
    many = np.arange(12_345, dtype=float)
    write(path, {"mib_per_token": many, "ms_per_token": many * 2})
    points = points_of([path])
    assert 0.5 * MOST_POINTS < len(points) <= MOST_POINTS
    assert points[0] == (0.0, 0.0)
    assert all(y == 2 * x for x, y in points)


def test_columns_of_different_lengths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="different lengths"):
        write(tmp_path / "x.parquet", {"a": [1.0], "b": [1.0, 2.0]})
