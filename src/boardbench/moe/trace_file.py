"""Trace files: the compact binary form that the preloaded tracer writes, and JSON lines. Both hold the same.

Binary: the magic `BBROUTE1`, then records of `kind u32, size u32, payload, crc32 u32` (of all before it),
little-endian. Kinds: 1 a run begins (JSON), 2 a context with its model (JSON), 3 a pass, 4 the run ended (JSON).
A pass is `context call part rows layers` as u32, `warm_up` and `id_width` as u8, u16 0; by row sequence i32, position
i32, phase u8; by layer `layer, experts a row, rows` as i32; for each layer with fewer rows than the pass their numbers
as i32; all ids in u8 or u16, layer by layer, row by row.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .trace import PHASES, Trace
from .trace_build import Builder, Pass, rows_in_order

MAGIC = b"BBROUTE1"
RUN, CONTEXT, PASS, END = 1, 2, 3, 4
JSONL_NAME = "boardbench-router-trace"
_RECORD = struct.Struct("<II")
_PASS = struct.Struct("<IIIIIBBH")
_LARGEST_RECORD = 1 << 30


def read_trace(path: Path) -> Trace:
    """Read and check a trace in either form; a torn end is left out and noted in `torn_bytes`.

    Errors: `InputError` for a file that is missing, no trace, damaged before its end, or impossible (`Trace.check`).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the trace: {error.strerror or error}", where=str(path)) from error
    if data.startswith(MAGIC):
        trace = _read_binary(data, str(path))
    elif data.lstrip()[:1] == b"{":
        trace = _read_lines(data, str(path))
    else:
        raise InputError("not a router trace", where=str(path), advice="make one as the payload's README says")
    trace.check(str(path))
    return trace


def write_trace(trace: Trace, path: Path) -> None:
    """Write as JSON lines if the name ends in `.jsonl`, else in the binary form. Errors: `InputError` if it cannot."""
    try:
        if path.suffix == ".jsonl":
            with path.open("w", encoding="utf-8") as text:
                _write_lines(trace, text)
        else:
            with path.open("wb") as file:
                _write_binary(trace, file)
    except OSError as error:
        raise InputError(f"cannot write the trace: {error.strerror or error}", where=str(path)) from error


def _read_binary(data: bytes, where: str) -> Trace:
    builder = Builder(where)
    at = len(MAGIC)
    while at < len(data):
        end = _record_end(data, at)
        if end is None:
            break
        kind, size = _RECORD.unpack_from(data, at)
        payload = memoryview(data)[at + 8 : at + 8 + size]
        if zlib.crc32(memoryview(data)[at : end - 4]) != struct.unpack_from("<I", data, end - 4)[0]:
            if end == len(data):
                break
            raise InputError(f"the record at byte {at:,} is damaged", where=where, advice="trace again")
        _take_record(builder, kind, payload, f"{where}, byte {at:,}")
        at = end
    return builder.trace(len(data) - at)


def _record_end(data: bytes, at: int) -> int | None:
    if len(data) - at < _RECORD.size + 4:
        return None
    size = _RECORD.unpack_from(data, at)[1]
    end = int(at + _RECORD.size + size + 4)
    return None if size > _LARGEST_RECORD or end > len(data) else end


def _take_record(builder: Builder, kind: int, payload: memoryview, where: str) -> None:
    if kind == PASS:
        builder.add_pass(_pass_of(payload, where))
    elif kind == RUN:
        builder.add_run(_object(bytes(payload), where))
    elif kind == CONTEXT:
        builder.add_context(_object(bytes(payload), where))
    elif kind == END:
        builder.ended = True
    else:
        raise InputError(f"a record of the unknown kind {kind}", where=where, advice="read it with a newer boardbench")


def _object(text: bytes | str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=where) from error
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=where)
    return value


def _pass_of(payload: memoryview, where: str) -> Pass:
    try:
        context, call, part, rows, layers, warm_up, width, _ = _PASS.unpack_from(payload)
        numbers = np.frombuffer(payload, np.int32, 2 * rows, _PASS.size)
        at = _PASS.size + 8 * rows
        phases = np.frombuffer(payload, np.uint8, rows, at)
        table = np.frombuffer(payload, "<i4", 3 * layers, at + rows).astype(np.int32).reshape(-1, 3)
        at += rows + 12 * layers
        row_of, at = _rows_listed(payload, at, table, rows)
        id_count = int((table[:, 1].astype(np.int64) * table[:, 2]).sum())
        ids = np.frombuffer(payload, np.uint8 if width == 1 else "<u2", id_count, at).astype(np.uint16)
        at += id_count * width
    except (ValueError, struct.error) as error:
        raise InputError(f"a pass is not as long as it says: {error}", where=where) from error
    if at != len(payload) or width not in (1, 2) or (table < 0).any() or (phases >= len(PHASES)).any():
        raise InputError("a pass is not as its head says", where=where)
    return Pass(context, call, part, warm_up != 0, numbers[:rows], numbers[rows:], phases, table, row_of, ids)


def _rows_listed(payload: memoryview, at: int, table: NDArray[np.int32], rows: int) -> tuple[NDArray[np.int64], int]:
    if (table[:, 2] == rows).all():
        return rows_in_order(table), at
    parts: list[NDArray[np.int64]] = []
    for count in table[:, 2].tolist():
        if count == rows:
            parts.append(np.arange(rows, dtype=np.int64))
            continue
        part = np.frombuffer(payload, "<i4", count, at).astype(np.int64)
        if part.size and not -1 <= int(part.min()) <= int(part.max()) < rows:
            raise ValueError("a row number beyond the rows")
        parts.append(part)
        at += 4 * count
    return np.concatenate(parts), at


def _write_binary(trace: Trace, file: IO[bytes]) -> None:
    def record(kind: int, payload: bytes) -> None:
        head = _RECORD.pack(kind, len(payload)) + payload
        file.write(head + struct.pack("<I", zlib.crc32(head)))

    file.write(MAGIC)
    _write(trace, record, lambda one: record(PASS, _pass_bytes(one, trace.model.experts)))


def _write(trace: Trace, record: Callable[[int, bytes], None], put: Callable[[Pass], None]) -> None:
    run = -1
    known: set[int] = set()
    for index, one in enumerate(_passes(trace)):
        while run < trace.pass_run[index]:
            run += 1
            known.clear()
            record(RUN, _json({"run": trace.runs[run]}))
        if one.context not in known:
            known.add(one.context)
            record(CONTEXT, _json(_context(trace, one.context)))
        put(one)
    if trace.ended:
        record(END, _json({"passes": len(trace.pass_rows)}))


def _context(trace: Trace, number: int) -> dict[str, object]:
    return {"context": number, **vars(trace.model)}


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _passes(trace: Trace) -> Iterator[Pass]:
    row_start = np.append(trace.row_start(), trace.row_sequence.size)
    bounds = np.arange(len(trace.pass_rows) + 1)
    use_bounds = np.searchsorted(trace.use_pass, bounds)
    id_start = np.concatenate(([0], np.cumsum(trace.use_count)))
    for index in range(len(trace.pass_rows)):
        rows = slice(int(row_start[index]), int(row_start[index + 1]))
        uses = slice(int(use_bounds[index]), int(use_bounds[index + 1]))
        row_of = trace.use_row[uses]
        yield Pass(
            int(trace.pass_context[index]),
            int(trace.pass_call[index]),
            int(trace.pass_part[index]),
            bool(trace.pass_warm_up[index]),
            trace.row_sequence[rows],
            trace.row_position[rows],
            trace.row_phase[rows],
            _table(trace.use_layer[uses], trace.use_count[uses]),
            np.where(row_of < 0, -1, row_of - rows.start),
            trace.ids[int(id_start[uses.start]) : int(id_start[uses.stop])],
        )


def _table(layers: NDArray[np.int32], counts: NDArray[np.int64]) -> NDArray[np.int32]:
    first = np.flatnonzero(np.concatenate(([True], layers[1:] != layers[:-1])))[: layers.size]
    rows = np.diff(np.append(first, layers.size))
    return np.stack((layers[first], counts[first], rows), axis=1).astype(np.int32)


def _pass_bytes(one: Pass, experts: int) -> bytes:
    rows = one.sequences.size
    width = 2 if experts > 255 else 1
    listed, at = [], 0
    for count in one.layers[:, 2].tolist():
        if count != rows:
            listed.append(one.row_of[at : at + count].astype("<i4").tobytes())
        at += count
    return b"".join(
        (
            _PASS.pack(one.context, one.call, one.part, rows, len(one.layers), one.warm_up, width, 0),
            one.sequences.astype("<i4").tobytes(),
            one.positions.astype("<i4").tobytes(),
            one.phases.tobytes(),
            one.layers.astype("<i4").tobytes(),
            *listed,
            one.ids.astype("<u2" if width == 2 else np.uint8).tobytes(),
        )
    )


def _write_lines(trace: Trace, text: IO[str]) -> None:
    names = {RUN: "run", CONTEXT: "context", END: "end"}

    def record(kind: int, payload: bytes) -> None:
        text.write(f'{{"{names[kind]}":{payload.decode()}}}\n')

    def put(one: Pass) -> None:
        text.write(_json({"pass": _pass_object(one)}).decode() + "\n")

    text.write(json.dumps({"trace": JSONL_NAME, "version": 1}) + "\n")
    _write(trace, record, put)


def _pass_object(one: Pass) -> dict[str, object]:
    layers = []
    row_at = id_at = 0
    for layer, used, rows in one.layers.tolist():
        ids = one.ids[id_at : id_at + used * rows].reshape(rows, used).tolist()
        layers.append({"layer": layer, "rows": one.row_of[row_at : row_at + rows].tolist(), "ids": ids})
        row_at, id_at = row_at + rows, id_at + used * rows
    return {
        "context": one.context,
        "call": one.call,
        "part": one.part,
        "warm_up": one.warm_up,
        "sequences": one.sequences.tolist(),
        "positions": one.positions.tolist(),
        "phases": [PHASES[phase] for phase in one.phases.tolist()],
        "layers": layers,
    }


def _read_lines(data: bytes, where: str) -> Trace:
    builder = Builder(where)
    lines = data.decode("utf-8-sig", "replace").split("\n")
    torn = len(lines.pop().encode())
    if not lines or _object(lines[0], f"{where}:1").get("trace") != JSONL_NAME:
        raise InputError("not a router trace", where=f"{where}:1", advice=f'its first line names "{JSONL_NAME}"')
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        here = f"{where}:{number}"
        value = _object(line, here)
        if "pass" in value:
            builder.add_pass(_pass_from(value["pass"], here))
        elif "run" in value:
            builder.add_run(_member(value, "run", here))
        elif "context" in value:
            builder.add_context(_member(value, "context", here))
        elif "end" in value:
            builder.ended = True
        else:
            raise InputError("neither a run, a context, a pass nor an end", where=here)
    return builder.trace(torn)


def _member(value: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    if not isinstance(value[key], dict):
        raise InputError(f"'{key}' is not a JSON object", where=where)
    return dict(value[key])


def _pass_from(value: Any, where: str) -> Pass:
    try:
        layers = value["layers"]
        ids = [np.array(one["ids"], dtype=np.int64).reshape(len(one["rows"]), -1) for one in layers]
        table = np.array(
            [(one["layer"], part.shape[1], part.shape[0]) for one, part in zip(layers, ids, strict=True)],
            dtype=np.int32,
        )
        flat = np.concatenate([part.reshape(-1) for part in ids]) if ids else np.empty(0, dtype=np.int64)
        if flat.size and not 0 <= int(flat.min()) <= int(flat.max()) < 1 << 16:
            raise ValueError("an expert's id is out of range")
        return Pass(
            context=int(value["context"]),
            call=int(value["call"]),
            part=int(value["part"]),
            warm_up=bool(value["warm_up"]),
            sequences=np.array(value["sequences"], dtype=np.int32),
            positions=np.array(value["positions"], dtype=np.int32),
            phases=np.array([PHASES.index(phase) for phase in value["phases"]], dtype=np.uint8),
            layers=table.reshape(-1, 3),
            row_of=np.array([row for one in layers for row in one["rows"]], dtype=np.int64),
            ids=flat.astype(np.uint16),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"not a pass: {type(error).__name__}: {error}", where=where) from error
