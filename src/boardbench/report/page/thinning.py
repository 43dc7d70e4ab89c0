"""Fewer points for a line on a page, with every extreme kept: a chart must not hide a peak or a dip."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def thin(
    times: Sequence[float], values: Sequence[float | None], buckets: int
) -> tuple[list[float], list[float | None]]:
    """At most `4 * buckets + 2` of the points: per stretch of equal count its first hole, least and greatest value.

    First and last point stay. A hole (None) stays one, so that a line breaks there. Raises ValueError for lengths that
    differ or fewer than one bucket.
    """
    if len(times) != len(values):
        raise ValueError(f"{len(times)} times and {len(values)} values are no points")
    if buckets < 1:
        raise ValueError(f"{buckets} buckets hold nothing")
    n = len(times)
    if n <= 2 * buckets:
        return list(times), list(values)
    found = np.array([np.nan if value is None else value for value in values], dtype=float)
    keep = {0, n - 1}
    edges = np.linspace(0, n, buckets + 1).astype(int)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        piece = found[low:high]
        holes = np.isnan(piece)
        if holes.any():
            first = int(np.argmax(holes))
            keep.add(low + first)
        if not holes.all():
            keep.add(low + int(np.nanargmin(piece)))
            keep.add(low + int(np.nanargmax(piece)))
    order = sorted(keep)
    return [times[at] for at in order], [values[at] for at in order]
