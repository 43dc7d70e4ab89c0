"""A router trace in memory: which experts each row of each layer used, in the order in which it happened.

A *pass* is one evaluation of the model over some rows (tokens): a prompt's part, or one new token a sequence. A *use*
is one row in one layer with its chosen experts. Arrays are parallel; ids of all uses lie end to end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .expert_layout import MoeModel

UNKNOWN, PREFILL, DECODE = 0, 1, 2
PHASES = ("unknown", "prefill", "decode")


@dataclass(frozen=True)
class TracedModel:
    """What the traced program said of its model; `tensor_bytes` and `parameters` tell quantizations apart."""

    architecture: str
    name: str
    layers: int
    experts: int
    used: int
    tensor_bytes: int
    parameters: int


@dataclass(frozen=True)
class Trace:
    """A whole trace of one model.

    Per pass, `pass_run` (index into `runs`), `pass_context`, `pass_call`, `pass_part`, `pass_rows`, `pass_warm_up`.
    By row of all passes: `row_sequence` and `row_position` (-1: cannot be told), `row_phase`.
    By use: `use_pass`, `use_layer` (true layer number), `use_row` (index into the rows; -1: cannot be told),
    `use_count`.
    `ids`: the experts, `use_count` for each use. `torn_bytes`: what was left at the end of a file that was cut off.
    `ended`: the last run closed its trace.
    """

    model: TracedModel
    runs: tuple[str, ...]
    pass_run: NDArray[np.int32]
    pass_context: NDArray[np.int32]
    pass_call: NDArray[np.int64]
    pass_part: NDArray[np.int32]
    pass_rows: NDArray[np.int64]
    pass_warm_up: NDArray[np.bool_]
    row_sequence: NDArray[np.int32]
    row_position: NDArray[np.int32]
    row_phase: NDArray[np.uint8]
    use_pass: NDArray[np.int64]
    use_layer: NDArray[np.int32]
    use_row: NDArray[np.int64]
    use_count: NDArray[np.int64]
    ids: NDArray[np.uint16]
    torn_bytes: int = 0
    ended: bool = True

    @property
    def decode_tokens(self) -> int:
        """Tokens that were decoded, warm-up left out."""
        return self._rows_of(DECODE)

    @property
    def prefill_tokens(self) -> int:
        """Tokens of prompts, warm-up left out."""
        return self._rows_of(PREFILL)

    def _rows_of(self, phase: int) -> int:
        warm_up = np.repeat(self.pass_warm_up, self.pass_rows)
        return int(np.count_nonzero((self.row_phase == phase) & ~warm_up))

    def row_start(self) -> NDArray[np.int64]:
        """By pass: the index of its first row."""
        return np.cumsum(self.pass_rows) - self.pass_rows

    def problems(self) -> Iterator[str]:
        """What is not as a trace should be, though it can be read: one sentence each."""
        if self.torn_bytes:
            yield f"the trace was cut off: {self.torn_bytes} bytes at its end are not a whole record"
        elif not self.ended:
            yield "the traced program did not end its trace: it was killed, or still runs"
        lost = int(np.count_nonzero(self.row_sequence < 0))
        if lost:
            yield f"{lost} of {self.row_sequence.size} rows cannot be given to a sequence"
        unknown = int(np.count_nonzero(self.row_phase == UNKNOWN))
        if unknown:
            yield f"{unknown} of {self.row_phase.size} rows have no known phase"

    def check(self, where: str) -> None:
        """`InputError` for ids out of range, an expert twice in one use, or layers out of order."""
        if self.ids.size and int(self.ids.max()) >= self.model.experts:
            at = int(np.argmax(self.ids >= self.model.experts))
            self._blame(at, f"names expert {int(self.ids[at])} of {self.model.experts}", where)
        self._check_doubled(where)
        same_pass = self.use_pass[1:] == self.use_pass[:-1]
        falling = same_pass & (self.use_layer[1:] < self.use_layer[:-1])
        if falling.any():
            use = int(np.argmax(falling)) + 1
            what = f"pass {int(self.use_pass[use])} has layer {int(self.use_layer[use])} after a higher one"
            raise InputError(what, where=where)

    def _check_doubled(self, where: str) -> None:
        for count in np.unique(self.use_count):
            uses = np.flatnonzero(self.use_count == count)
            if count < 2:
                continue
            starts = (np.cumsum(self.use_count) - self.use_count)[uses]
            ids = np.sort(self.ids[starts[:, None] + np.arange(count)], axis=1)
            doubled = (ids[:, 1:] == ids[:, :-1]).any(axis=1)
            if doubled.any():
                self._blame(int(starts[int(np.argmax(doubled))]), "names an expert twice", where)

    def _blame(self, at: int, what: str, where: str) -> NoReturn:
        use = int(np.searchsorted(np.cumsum(self.use_count), at, side="right"))
        place = f"pass {int(self.use_pass[use])}, layer {int(self.use_layer[use])}"
        raise InputError(f"{place} {what}", where=where, advice="the trace is damaged or of another model")

    def check_model(self, model: MoeModel, where: str) -> None:
        """`InputError` unless this is a trace of `model`: same architecture, experts, layers, bytes and parameters."""
        mine, theirs = self.model, model
        pairs = (
            ("architecture", mine.architecture, theirs.architecture),
            ("experts a layer", mine.experts, theirs.experts),
            ("parameters", mine.parameters, theirs.parameters),
            ("bytes of tensors", mine.tensor_bytes, theirs.tensor_bytes),
        )
        for what, traced, there in pairs:
            if there is not None and traced != there:
                raise InputError(
                    f"a trace of another model or quantization: {what} {traced}, in {model.path.name} {there}",
                    where=where,
                    advice="trace the model that you ask about",
                )
        missing = sorted(set(np.unique(self.use_layer).tolist()) - set(model.layers))
        if missing:
            raise InputError(
                f"the trace uses layer {missing[0]}, which has no experts in {model.path.name}", where=where
            )

    def without_warm_up(self) -> Trace:
        """The trace without warm-up passes."""
        return self.only_passes(~self.pass_warm_up)

    def only_passes(self, keep: NDArray[np.bool_]) -> Trace:
        """The passes of a boolean mask, renumbered from 0."""
        if keep.all():
            return self
        rows = np.repeat(keep, self.pass_rows)
        uses = keep[self.use_pass]
        pass_number = np.cumsum(keep) - 1
        row_number = np.cumsum(rows) - 1
        use_row = self.use_row[uses]
        return replace(
            self,
            pass_run=self.pass_run[keep],
            pass_context=self.pass_context[keep],
            pass_call=self.pass_call[keep],
            pass_part=self.pass_part[keep],
            pass_rows=self.pass_rows[keep],
            pass_warm_up=self.pass_warm_up[keep],
            row_sequence=self.row_sequence[rows],
            row_position=self.row_position[rows],
            row_phase=self.row_phase[rows],
            use_pass=pass_number[self.use_pass[uses]],
            use_layer=self.use_layer[uses],
            use_row=np.where(use_row < 0, -1, row_number[use_row]),
            use_count=self.use_count[uses],
            ids=self.ids[np.repeat(uses, self.use_count)],
        )
