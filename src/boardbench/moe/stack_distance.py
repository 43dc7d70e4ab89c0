"""Exact LRU stack distances of a whole trace in one pass, in numpy alone.

The distance of an access is the size of all distinct units used since the unit's last use, itself included. A least
recently used cache that evicts until the new unit fits holds the unit exactly when its budget is at least that
distance: what was used since never shrinks as a window grows, so this holds for units of unequal size too. Hence
one pass gives the misses at every budget.

How: the trace is cut into chunks. Between chunks the LRU stack is kept as an array, so only what moved above a unit
inside the chunk is left to sum, and that is a sum over inversions: of two accesses the earlier counts for the later
one if its key (where the unit was before) is greater. These sums come from a radix pass over the keys, one bit at
a time; a chunk fits into a processor's cache, so 10 million accesses take a few seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError

COLD = -1
"""The distance of a first use: a miss at every budget."""
_CHUNK = 1 << 14
_PAIRWISE_BITS = 4

Ints = NDArray[np.int64]
# int32 where that is enough, else int64.
Sums = NDArray[Any]


def stack_distances(units: ArrayLike, sizes: ArrayLike) -> Ints:
    """Distance of every access: int64 [accesses], in the unit of `sizes`; `COLD` for first uses.

    `units`: whole numbers [accesses] from 0; `sizes`: a size above 0 for each unit number. Errors: `InputError` if a
    unit has no size.
    """
    accesses, weights = np.asarray(units), np.asarray(sizes, dtype=np.int64)
    if accesses.size and (accesses.min() < 0 or accesses.max() >= weights.size):
        raise InputError(f"unit {int(accesses.max())} of a trace over {weights.size} units")
    if weights.size and weights.min() <= 0:
        raise InputError("a unit has no size")
    stack = _Stack(weights)
    distances = np.empty(accesses.size, dtype=np.int64)
    for start in range(0, accesses.size, _CHUNK):
        distances[start : start + _CHUNK] = _chunk_distances(accesses[start : start + _CHUNK], stack)
    return distances


class _Stack:
    """All units seen, most recently used first, between two chunks."""

    def __init__(self, weights: Ints) -> None:
        self.narrow = np.uint16 if weights.size <= 1 << 16 else np.int32
        # Room in 32 bits makes every step faster; no sum exceeds a chunk's accesses and all units together.
        most = int(weights.max(initial=0)) * (_CHUNK + 1) + int(weights.sum())
        self.weights: Sums = weights.astype(np.int32) if most < 1 << 31 else weights
        self._order = np.empty(0, dtype=np.int32)
        self._unseen = weights.size
        self.place = np.full(weights.size, self._unseen, dtype=np.int32)
        self.above = np.full(weights.size, COLD, dtype=self.weights.dtype)

    def move_up(self, recent: NDArray[np.int32]) -> None:
        """`recent`, most recent first, go to the top."""
        moved = np.zeros(self._unseen, dtype=bool)
        moved[recent] = True
        self._order = np.concatenate((recent, self._order[~moved.take(self._order)]))
        self.place[self._order] = np.arange(self._order.size, dtype=np.int32)
        sizes = self.weights.take(self._order)
        self.above[self._order] = np.cumsum(sizes, dtype=sizes.dtype) - sizes


def _chunk_distances(chunk: NDArray[np.integer], stack: _Stack) -> Sums:
    units = chunk.astype(np.int32)
    order = np.argsort(chunk.astype(stack.narrow), kind="stable").astype(np.int32)
    in_order = units.take(order)
    same = in_order[1:] == in_order[:-1]
    repeats, sources = order[1:][same], order[:-1][same]
    firsts = np.sort(order[np.concatenate(([True], ~same))])
    weights = stack.weights.take(units)
    inversions = _inversion_sums(_keys(units, repeats, sources, firsts, stack), weights)
    through = np.cumsum(weights, dtype=weights.dtype)
    distance = np.empty_like(weights)
    # A repeat: all that was used since, each once. What was used before within the window is in the inversions.
    distance[repeats] = (through.take(repeats) - through.take(sources)) - inversions.take(repeats)
    # A first use in the chunk: what lay above before, and what was below and moved above since. The inversions count
    # every repeat before it too, since repeats have the greater keys.
    own = weights.take(firsts)
    first_uses_before = np.cumsum(own, dtype=own.dtype) - own
    repeats_before = through.take(firsts) - own - first_uses_before
    above = stack.above.take(units.take(firsts))
    distance[firsts] = np.where(above == COLD, COLD, own + above + inversions.take(firsts) - repeats_before)
    last = np.sort(order[np.concatenate((~same, [True]))])[::-1]
    stack.move_up(units.take(last))
    return distance


def _keys(
    units: NDArray[np.int32],
    repeats: NDArray[np.int32],
    sources: NDArray[np.int32],
    firsts: NDArray[np.int32],
    stack: _Stack,
) -> NDArray[np.int32]:
    """Keys as ranks 0..n-1: first uses by their place in the stack, below all repeats, which go by their last use."""
    keys = np.empty(units.size, dtype=np.int32)
    places = stack.place.take(units.take(firsts))
    keys[firsts[np.argsort(places)]] = np.arange(firsts.size, dtype=np.int32)
    used_again = np.zeros(units.size, dtype=np.int32)
    used_again[sources] = 1
    keys[repeats] = firsts.size - 1 + np.cumsum(used_again, dtype=np.int32).take(sources)
    return keys


def _inversion_sums(keys: NDArray[np.int32], weights: Sums) -> Sums:
    """For each place i of a permutation, the weights of all j < i with keys[j] > keys[i].

    Bit by bit from the top: places whose keys share the higher bits stand together, in order. A key with the bit clear
    is smaller than every earlier one in its group with the bit set. As keys are 0..n-1 and n is a power of two,
    each group is halved exactly. The last bits, where groups are too small for that to pay, pair by pair.
    """
    bits = max(_PAIRWISE_BITS, int(keys.size - 1).bit_length())
    size = 1 << bits
    # What fills up to the power of two comes last and in order, so it counts for nobody.
    current = np.arange(size, dtype=np.int32)
    current[: keys.size] = keys
    by_key = np.zeros(size, dtype=weights.dtype)
    by_key[keys] = weights
    sums = np.zeros(size, dtype=weights.dtype)
    for bit in range(bits - 1, _PAIRWISE_BITS - 1, -1):
        current, sums = _halve(current, sums, by_key, 1 << bit)
    result = np.empty(size, dtype=weights.dtype)
    result[current] = sums + _pairwise(current, by_key)
    return result.take(keys)


def _halve(current: NDArray[np.int32], sums: Sums, by_key: Sums, half: int) -> tuple[NDArray[np.int32], Sums]:
    """Parts each group of `2 * half` keys by the bit `half`, in order, and adds to the lower ones what passed them."""
    high = (current & np.int32(half)) != 0
    highs, lows = np.flatnonzero(high), np.flatnonzero(~high)
    passing = by_key.take(current)
    passing *= high
    # One running sum over all groups; a group's own is that minus the sum where the group begins.
    passed = np.cumsum(passing, dtype=passing.dtype)
    gain = passed.take(lows).reshape(-1, half)
    gain[1:] -= passed.reshape(-1, 2 * half)[:-1, -1:]
    gain += sums.take(lows).reshape(-1, half)
    parted = np.empty((gain.shape[0], 2, half), dtype=np.int32)
    parted[:, 0] = current.take(lows).reshape(-1, half)
    parted[:, 1] = current.take(highs).reshape(-1, half)
    parted_sums = np.empty(parted.shape, dtype=sums.dtype)
    parted_sums[:, 0] = gain
    parted_sums[:, 1] = sums.take(highs).reshape(-1, half)
    return parted.reshape(-1), parted_sums.reshape(-1)


def _pairwise(current: NDArray[np.int32], by_key: Sums) -> Sums:
    group = 1 << _PAIRWISE_BITS
    keys = np.ascontiguousarray((current & np.int32(group - 1)).astype(np.int8).reshape(-1, group).T)
    weights = np.ascontiguousarray(by_key.take(current).reshape(-1, group).T)
    sums = np.zeros_like(weights)
    for apart in range(1, group):
        sums[apart:] += (keys[:-apart] > keys[apart:]) * weights[:-apart]
    return sums.T.reshape(-1)
