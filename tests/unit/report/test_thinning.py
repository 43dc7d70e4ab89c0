"""Lines with fewer points: no extreme and no hole may be lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boardbench.report.page.thinning import thin


@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(1, 60))
def test_extremes_ends_and_holes_stay(values: list[float | None], buckets: int) -> None:
    times = [float(at) for at in range(len(values))]
    at, kept = thin(times, values, buckets)
    known = [value for value in values if value is not None]
    left = [value for value in kept if value is not None]
    assert bool(known) == bool(left)
    if known:
        assert (min(left), max(left)) == (min(known), max(known))
    assert (None in values) == (None in kept)
    assert (at[0], at[-1]) == (times[0], times[-1])
    assert at == sorted(set(at))
    assert [values[int(time)] for time in at] == kept
    assert len(at) <= max(2 * buckets, 3 * buckets + 2)


def test_a_single_spike_among_many_readings_stays() -> None:
    values: list[float | None] = [50.0] * 100_000
    values[77_777] = 99.0
    _, kept = thin([float(at) for at in range(100_000)], values, 200)
    assert 99.0 in kept


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="are no points"):
        thin([1.0], [], 3)
    with pytest.raises(ValueError, match="hold nothing"):
        thin([1.0], [1.0], 0)
