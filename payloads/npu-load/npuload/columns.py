"""A table on file, column by column: one JSON line that describes it, then each column's bytes, compressed.

`{"format": "boardbench-columns", "version": 1, "rows": N, "about": {..}, "columns": [{"name", "type", "unit", "words",
"bytes"}]}` and a newline; then, in this order and without gaps, each column as zlib-compressed little-endian values.
`type`: `f8` (float), `i8`, `i4` (whole numbers of so many bytes). `words`: what the numbers of a column of words mean.
Small enough for a board without libraries, and one `numpy.frombuffer` a column for whoever reads it.
"""

import array
import json
import sys
import zlib

FORMAT, VERSION = "boardbench-columns", 1
TYPES = {"d": "f8", "q": "i8", "i": "i4"}
_CODES = {text: code for code, text in TYPES.items()}
LEVEL = 1


def write(file, about, columns):
    """Writes the table to an open binary file. `columns`: (name, unit, array.array, words or None), of equal length."""
    rows = {len(values) for _, _, values, _ in columns}
    if len(rows) != 1:
        raise ValueError("the columns are not of equal length")
    described, parts = [], []
    for name, unit, values, words in columns:
        if sys.byteorder == "big":
            values = array.array(values.typecode, values)
            values.byteswap()
        packed = zlib.compress(values.tobytes(), LEVEL)
        entry = {"name": name, "type": TYPES[values.typecode], "unit": unit, "bytes": len(packed)}
        if words is not None:
            entry["words"] = words
        described.append(entry)
        parts.append(packed)
    head = {"format": FORMAT, "version": VERSION, "rows": rows.pop(), "about": about, "columns": described}
    file.write(json.dumps(head, sort_keys=True).encode() + b"\n")
    for part in parts:
        file.write(part)


def read(data):
    """(about, {name: array.array}, {name: words}) of a file's bytes. ValueError for what is none, or is cut short."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    if not isinstance(head, dict) or head.get("format") != FORMAT or head.get("version") != VERSION:
        raise ValueError("this is no table of columns")
    table, words, at = {}, {}, 0
    for entry in head["columns"]:
        values = array.array(_CODES[entry["type"]])
        values.frombytes(zlib.decompress(rest[at : at + entry["bytes"]]))
        if sys.byteorder == "big":
            values.byteswap()
        if len(values) != head["rows"]:
            raise ValueError(f"column {entry['name']} has {len(values)} of {head['rows']} rows")
        table[entry["name"]] = values
        if "words" in entry:
            words[entry["name"]] = entry["words"]
        at += entry["bytes"]
    if at != len(rest):
        raise ValueError("bytes follow the last column")
    return head["about"], table, words
