"""How many look-ups miss, at every size of a cache: exact LRU in one pass, and what pinning and prediction could do.

A *budget* is the memory of all slots together, in bytes. A unit takes its slot's bytes while it is held; a miss
evicts the least recently used units until its own fits. So with slots of one size the cache holds
`budget // slot` units, and with several sizes the same order of use decides, by bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .accesses import Accesses
from .stack_distance import COLD, stack_distances

_MOST_COUNTED = 1 << 24
# Enough tokens for a share to a percent; more would only take time.
_MOST_GUESSED = 4096


@dataclass(frozen=True)
class Curve:
    """Misses as a step function of the budget: from `budget_bytes[i]` on, `misses[i]` units are read.

    `read_bytes[i]` are their bytes. `budget_bytes` rises from 0. `lookups`: all look-ups counted, also those that hit.
    """

    budget_bytes: NDArray[np.int64]
    misses: NDArray[np.int64]
    read_bytes: NDArray[np.int64]
    lookups: int

    def at(self, budget_bytes: int) -> tuple[int, int]:
        """(misses, bytes of the units that miss) at a budget."""
        step = int(np.searchsorted(self.budget_bytes, budget_bytes, side="right")) - 1
        return int(self.misses[step]), int(self.read_bytes[step])


def unit_distances(accesses: Accesses, slot_by_unit: NDArray[np.int64]) -> NDArray[np.int64]:
    """By access: the smallest budget in bytes at which it hits; `COLD` for first uses."""
    # In the largest common measure, so that sums stay small.
    measure = int(np.gcd.reduce(slot_by_unit)) if slot_by_unit.size else 1
    distances = stack_distances(accesses.unit, slot_by_unit // measure)
    return np.where(distances == COLD, COLD, distances * measure)


def lru_curve(distances: NDArray[np.int64], read_by_access: NDArray[np.int64]) -> Curve:
    """The curve from each access's distance and the bytes that it reads if it misses."""
    warm = distances != COLD
    budgets, hits, saved = _totals_by_distance(distances[warm], read_by_access[warm])
    # At a budget equal to a distance that access hits.
    return Curve(
        budget_bytes=np.concatenate(([0], budgets)),
        misses=distances.size - np.concatenate(([0], np.cumsum(hits))),
        read_bytes=int(read_by_access.sum()) - np.concatenate(([0], np.cumsum(saved))),
        lookups=int(distances.size),
    )


def _totals_by_distance(
    distances: NDArray[np.int64], reads: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The distances that occur, rising; how many accesses have each, and what they read together."""
    if not distances.size:
        return distances, distances, distances
    measure = int(np.gcd.reduce(distances))
    steps = distances // measure
    if int(steps.max()) < _MOST_COUNTED:
        # Counting is much faster than sorting. Sums of reads are exact: they stay far below 2^53.
        hits = np.bincount(steps)
        there = np.flatnonzero(hits)
        saved = np.bincount(steps, weights=reads)[there].astype(np.int64)
        return there * measure, hits[there], saved
    order = np.argsort(distances)
    budgets, first = np.unique(distances[order], return_index=True)
    return budgets, np.diff(np.append(first, distances.size)), np.add.reduceat(reads[order], first)


def pinned_curve(
    chosen_from: NDArray[np.integer],
    counted: NDArray[np.integer],
    slot_by_unit: NDArray[np.int64],
    read_by_unit: NDArray[np.int64],
) -> Curve:
    """Static pinning: the units used most in `chosen_from`, per byte of slot, stay; `counted` is looked up.

    Choosing from the same accesses that are counted gives the best that any fixed choice can do; from earlier ones,
    what it would do in fact.
    """
    units = slot_by_unit.size
    heat = np.bincount(chosen_from, minlength=units)
    uses = np.bincount(counted, minlength=units)
    order = np.argsort(-(heat / slot_by_unit), kind="stable")
    order = order[heat[order] > 0]
    hits = np.concatenate(([0], np.cumsum(uses[order])))
    saved = np.concatenate(([0], np.cumsum((uses * read_by_unit)[order])))
    return Curve(
        budget_bytes=np.concatenate(([0], np.cumsum(slot_by_unit[order]))),
        misses=counted.size - hits,
        read_bytes=int((uses * read_by_unit).sum()) - saved,
        lookups=int(counted.size),
    )


def next_layer_overlap(accesses: Accesses, half: int, seed: int = 0) -> tuple[float, float, float]:
    """Share of a decode look-up's experts that a guess from the layer before names: (guess, shuffled, heat).

    The guess knows, from the passes before number `half`, how often each expert followed each expert of the layer
    before, and names as many experts as the look-up has. Shuffled: the same, fed with another token's layer. Heat: the
    experts used most. Only guess above shuffled is knowledge of the next layer. The model's own router, fed early,
    can know more than any trace tells.
    """
    table, passes = _decode_table(accesses)
    train, test = table[passes < half][-_MOST_GUESSED:], table[passes >= half][:_MOST_GUESSED]
    if not train.size or not test.size:
        return float("nan"), float("nan"), float("nan")
    other = test[np.random.default_rng(seed).permutation(len(test))]
    hits = np.zeros(3)
    for layer in range(1, table.shape[1]):
        follows = np.zeros((accesses.experts, accesses.experts))
        for first in range(table.shape[2]):
            for second in range(table.shape[2]):
                np.add.at(follows, (train[:, layer - 1, first], train[:, layer, second]), 1)
        heat = follows.sum(axis=0)
        follows /= np.maximum(1, follows.sum(axis=1, keepdims=True))
        truth = test[:, layer]
        guesses = (follows[test[:, layer - 1]].sum(axis=1), follows[other[:, layer - 1]].sum(axis=1), heat[None])
        hits += [_named(np.broadcast_to(score, (len(test), accesses.experts)), truth) for score in guesses]
    guess, shuffled, by_heat = hits / max(1, table.shape[1] - 1)
    return float(guess), float(shuffled), float(by_heat)


def _decode_table(accesses: Accesses) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Experts of every pass that decoded one token in all layers: [passes, layers, experts used], and which passes."""
    sizes = np.bincount(accesses.lookup, minlength=accesses.lookup_pass.size)
    lookups = np.bincount(accesses.lookup_pass, minlength=accesses.pass_decode_tokens.size)
    single = (accesses.pass_decode_tokens == 1) & (lookups == len(accesses.layers))
    used = int(sizes[single[accesses.lookup_pass]].max(initial=0))
    whole = np.ones_like(single)
    np.logical_and.at(whole, accesses.lookup_pass, sizes == used)
    keep = single & whole
    experts = (accesses.unit % accesses.experts)[keep[accesses.access_pass]]
    return experts.astype(np.int64).reshape(-1, len(accesses.layers), max(1, used)), np.flatnonzero(keep)


def _named(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    used = truth.shape[1]
    best = np.argpartition(-scores, used - 1, axis=1)[:, :used]
    return float((truth[:, :, None] == best[:, None, :]).any(axis=2).mean())
