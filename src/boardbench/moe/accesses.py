"""From a router trace to what a cache of experts sees: which units are looked up, in which order.

A unit is one layer's one expert. A pass looks a layer's units up together and each once, however many rows chose
it, as the expert cache does: what is there is held before anything is evicted for what is not. Put one after
another that is the order from the most to the least recently used, whatever the size of the cache. A warm-up with
all experts at once does not reach the cache; what a server tries with a few tokens before it serves does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .expert_layout import MoeModel
from .trace import DECODE, PREFILL, Trace

PAGE = 4096


@dataclass(frozen=True)
class Accesses:
    """Look-ups in order. By access: `unit` (layer index * experts + expert), `lookup` (which look-up it is in).

    By look-up: `lookup_pass`, `lookup_layer` (index into `layers`), `lookup_decode` (no row of the pass is of a
    prompt). `layers`: true layer numbers. For each pass, `pass_decode_tokens`.
    """

    unit: NDArray[np.int32]
    lookup: NDArray[np.int64]
    lookup_pass: NDArray[np.int64]
    lookup_layer: NDArray[np.int64]
    lookup_decode: NDArray[np.bool_]
    pass_decode_tokens: NDArray[np.int64]
    layers: tuple[int, ...]
    experts: int

    @property
    def units(self) -> int:
        """How many units there are, used or not."""
        return len(self.layers) * self.experts

    @property
    def decode(self) -> NDArray[np.bool_]:
        """By access: true if it belongs to decode alone."""
        return self.lookup_decode[self.lookup]

    @property
    def access_pass(self) -> NDArray[np.int64]:
        """By access: its pass."""
        return self.lookup_pass[self.lookup]

    @property
    def decode_tokens(self) -> int:
        """Tokens decoded in passes of decode alone."""
        return int(self.pass_decode_tokens.sum())

    def by_unit(self, by_layer: Mapping[int, int]) -> NDArray[np.int64]:
        """A value for each layer, spread over units."""
        return np.repeat(np.array([by_layer[layer] for layer in self.layers], dtype=np.int64), self.experts)


def slot_bytes(model: MoeModel) -> dict[int, int]:
    """Memory that the expert cache needs for one unit, by layer: each slice up to whole pages, and a page more.

    A slice may begin anywhere in a page, so its window of whole pages can be a page longer than the slice.
    """
    return {
        layer: sum(-(-one.slice_bytes // PAGE) * PAGE + PAGE for one in kinds.values())
        for layer, kinds in model.layers.items()
    }


def accesses(trace: Trace) -> Accesses:
    """All look-ups of a trace; a warm-up with all experts at once is left out."""
    everything = (trace.use_count == trace.model.experts) & (trace.model.used < trace.model.experts)
    keep = np.ones(trace.pass_rows.size, dtype=bool)
    keep[trace.use_pass[everything]] = False
    trace = trace.only_passes(keep)
    layers, layer_index = np.unique(trace.use_layer, return_inverse=True)
    use_lookup = np.cumsum(_starts(trace.use_pass, trace.use_layer)) - 1
    first = np.flatnonzero(_starts(trace.use_pass, trace.use_layer))
    experts = trace.model.experts
    lookup_pass, lookup_layer = trace.use_pass[first], layer_index[first].astype(np.int64)
    # One sort puts each look-up's experts in order and takes out what several rows chose.
    # (numpy's unique goes by hashes, which takes ten times as long where most are unique.)
    keys = np.sort(np.repeat(use_lookup, trace.use_count) * experts + trace.ids.astype(np.int64))
    keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))[: keys.size]]
    keys = _recent_first(keys, lookup_layer, experts)
    lookup = keys // experts
    prompt_rows = _by_pass(trace, trace.row_phase == PREFILL)
    decode_rows = _by_pass(trace, trace.row_phase == DECODE)
    decode_pass = (prompt_rows == 0) & (decode_rows > 0) & ~trace.pass_warm_up
    return Accesses(
        unit=(lookup_layer[lookup] * experts + keys % experts).astype(np.int32),
        lookup=lookup,
        lookup_pass=lookup_pass,
        lookup_layer=lookup_layer,
        lookup_decode=decode_pass[lookup_pass],
        pass_decode_tokens=np.where(decode_pass, decode_rows, 0),
        layers=tuple(layers.tolist()),
        experts=experts,
    )


def _recent_first(keys: NDArray[np.int64], lookup_layer: NDArray[np.int64], experts: int) -> NDArray[np.int64]:
    """Orders the units of each look-up by their last use, the latest first; those never used come last, by number."""
    units = (lookup_layer[keys // experts] * experts + keys % experts).astype(np.int32)
    # By sorting what fits into 16 bits numpy is several times faster.
    small = units.astype(np.uint16) if units.size and int(units.max()) < 1 << 16 else units
    order = np.argsort(small, kind="stable")
    again = units[order[1:]] == units[order[:-1]]
    previous = np.full(keys.size, -1, dtype=np.int64)
    previous[order[1:][again]] = keys[order[:-1][again]] // experts
    # All units of one earlier look-up were used together; among them the number decides.
    lookup = keys // experts
    rank = (lookup - previous) * experts + keys % experts
    return keys[np.argsort(lookup * ((int(lookup[-1]) + 2) * experts) + rank)] if keys.size else keys


def _starts(passes: NDArray[np.int64], layers: NDArray[np.int32]) -> NDArray[np.bool_]:
    starts = np.ones(passes.size, dtype=bool)
    starts[1:] = (passes[1:] != passes[:-1]) | (layers[1:] != layers[:-1])
    return starts


def _by_pass(trace: Trace, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    of_pass = np.repeat(np.arange(trace.pass_rows.size), trace.pass_rows)
    return np.bincount(of_pass[rows], minlength=trace.pass_rows.size).astype(np.int64)
