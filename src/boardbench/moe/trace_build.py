"""Gathers a trace pass by pass into the arrays of `Trace`; both file formats are read into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .trace import Trace, TracedModel


@dataclass(frozen=True)
class Pass:
    """One pass as a file holds it. `layers` [n, 3]: layer, experts a row, rows. `row_of` and `ids`: layer after layer.

    `row_of` is None if every layer has all rows in order.
    """

    context: int
    call: int
    part: int
    warm_up: bool
    sequences: NDArray[np.int32]
    positions: NDArray[np.int32]
    phases: NDArray[np.uint8]
    layers: NDArray[np.int32]
    row_of: NDArray[np.int64]
    ids: NDArray[np.uint16]


@dataclass
class Builder:
    """Takes runs, contexts and passes in file order; `trace()` gives the trace of the one model that has passes."""

    where: str
    runs: list[str] = field(default_factory=list)
    ended: bool = False
    _models: dict[tuple[int, int], TracedModel] = field(default_factory=dict)
    _passes: list[Pass] = field(default_factory=list)
    _pass_run: list[int] = field(default_factory=list)

    def add_run(self, record: Mapping[str, object]) -> None:
        """A program begins to trace."""
        self.runs.append(str(record.get("run", "")))
        self.ended = False

    def add_context(self, record: Mapping[str, object]) -> None:
        """The program says what model it computes in a context."""
        number = _whole(record, "context", self.where)
        self._models[len(self.runs) - 1, number] = TracedModel(
            architecture=str(record.get("architecture", "")),
            name=str(record.get("name", "")),
            layers=_whole(record, "layers", self.where),
            experts=_whole(record, "experts", self.where),
            used=_whole(record, "used", self.where),
            tensor_bytes=_whole(record, "tensor_bytes", self.where),
            parameters=_whole(record, "parameters", self.where),
        )

    def add_pass(self, one: Pass) -> None:
        """A pass of the run that began last."""
        if (len(self.runs) - 1, one.context) not in self._models:
            raise InputError(f"a pass of context {one.context}, which was never introduced", where=self.where)
        self._passes.append(one)
        self._pass_run.append(len(self.runs) - 1)

    def trace(self, torn_bytes: int) -> Trace:
        """The whole trace. Errors: `InputError` if there is no pass, or passes of more than one model."""
        if not self._passes:
            raise InputError(
                "the trace holds no pass", where=self.where, advice="send the traced program a request, then stop it"
            )
        runs = zip(self._pass_run, self._passes, strict=True)
        models = {self._models[run, one.context] for run, one in runs}
        if len(models) > 1:
            names = ", ".join(sorted(model.name or model.architecture for model in models))
            raise InputError(f"the trace holds {len(models)} models: {names}", where=self.where, advice="trace one")
        return self._join(models.pop(), torn_bytes)

    def _join(self, model: TracedModel, torn_bytes: int) -> Trace:
        passes = self._passes
        rows = np.array([one.sequences.size for one in passes], dtype=np.int64)
        tables = np.concatenate([one.layers for one in passes])
        table_pass = np.repeat(np.arange(len(passes)), [len(one.layers) for one in passes])
        row_of = np.concatenate([one.row_of for one in passes])
        use_pass = np.repeat(table_pass, tables[:, 2])
        start = (np.cumsum(rows) - rows)[use_pass]
        return Trace(
            model=model,
            runs=tuple(self.runs),
            pass_run=np.array(self._pass_run, dtype=np.int32),
            pass_context=np.array([one.context for one in passes], dtype=np.int32),
            pass_call=np.array([one.call for one in passes], dtype=np.int64),
            pass_part=np.array([one.part for one in passes], dtype=np.int32),
            pass_rows=rows,
            pass_warm_up=np.array([one.warm_up for one in passes], dtype=bool),
            row_sequence=np.concatenate([one.sequences for one in passes]),
            row_position=np.concatenate([one.positions for one in passes]),
            row_phase=np.concatenate([one.phases for one in passes]),
            use_pass=use_pass,
            use_layer=np.repeat(tables[:, 0], tables[:, 2]),
            use_row=np.where(row_of < 0, -1, row_of + start),
            use_count=np.repeat(tables[:, 1], tables[:, 2]).astype(np.int64),
            ids=np.concatenate([one.ids for one in passes]),
            torn_bytes=torn_bytes,
            ended=self.ended,
        )


def rows_in_order(layers: NDArray[np.int32]) -> NDArray[np.int64]:
    """`row_of` of a pass whose layers all have their rows in order."""
    if layers.size and int(layers[:, 2].max()) == 1:
        return np.zeros(len(layers), dtype=np.int64)
    parts: Sequence[NDArray[np.int64]] = [np.arange(count, dtype=np.int64) for count in layers[:, 2]]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _whole(record: Mapping[str, object], key: str, where: str) -> int:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"the trace says {key} = {value!r}, not a whole number", where=where)
    return value
