"""A table as a Parquet file, written without any library: flat columns, gzip, one page a column of a row group.

Any reader of Parquet takes it. Words (a node's name, a code) are a dictionary and a number a row; what is missing is
null, never a number that stands for it.
"""

import array
import collections
import sys
import zlib

from npuforge.wire import encode_varint
from npuload.thrift import BINARY, I32, STRUCT, i32, i64, listed, struct, text

MAGIC = b"PAR1"
CREATED_BY = "boardbench npu-load"
ROW_GROUP = 122_880
LEVEL = 1
# What the format calls them.
BOOLEAN, INT32, INT64, DOUBLE, BYTE_ARRAY = 0, 1, 2, 5, 6
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
REQUIRED, OPTIONAL = 0, 1
UTF8, GZIP = 0, 2
_KINDS = {"d": DOUBLE, "q": INT64, "i": INT32}
_DIGITS = bytes.maketrans(b"\x00\x01", b"01")

Column = collections.namedtuple("Column", "name values words missing")
Column.__doc__ = """A column. `values`: array.array of d, q or i, or a bytearray of 0 and 1 (true and false).

`words`: what the numbers in `values` mean, if it is a column of words. `missing`: the number (of a word, too) that says
that there is no value; None when there always is one.
"""
Column.__new__.__defaults__ = (None, None)


def write(file, about, columns, row_group=ROW_GROUP):
    """Writes the table to an open binary file. `about`: {key: text} for the file's own metadata. ValueError for
    columns of different lengths."""
    lengths = {len(column.values) for column in columns}
    if len(lengths) != 1:
        raise ValueError(f"the columns are not of equal length: {sorted(lengths)}")
    rows = lengths.pop()
    file.write(MAGIC)
    at, groups = len(MAGIC), []
    for begin in range(0, rows, row_group):
        count = min(row_group, rows - begin)
        first, chunks = at, []
        for column in columns:
            parts, chunk = _chunk(column, column.values[begin : begin + count], at)
            for part in parts:
                file.write(part)
                at += len(part)
            chunks.append(chunk)
        groups.append(struct({1: listed(STRUCT, chunks), 2: i64(at - first), 3: i64(count)}))
    schema = [struct({4: text("requests"), 5: i32(len(columns))}), *map(_described, columns)]
    pairs = [struct({1: text(key), 2: text(value)}) for key, value in sorted(about.items())]
    foot = struct(
        {
            1: i32(1),
            2: listed(STRUCT, schema),
            3: i64(rows),
            4: listed(STRUCT, groups),
            5: listed(STRUCT, pairs),
            6: text(CREATED_BY),
        }
    )[1]
    file.write(foot + len(foot).to_bytes(4, "little") + MAGIC)


def _kind(column):
    if column.words is not None:
        return BYTE_ARRAY
    return BOOLEAN if isinstance(column.values, bytearray) else _KINDS[column.values.typecode]


def _described(column):
    """The column in the schema."""
    return struct(
        {
            1: i32(_kind(column)),
            3: i32(REQUIRED if column.missing is None else OPTIONAL),
            4: text(column.name),
            6: i32(UTF8) if column.words is not None else None,
        }
    )


def _chunk(column, values, at):
    """(parts, metadata) of a column's values in one row group, which begin at `at` of the file."""
    parts, sizes, encodings, dictionary_at = [], [0, 0], [PLAIN, RLE], None
    if column.words is not None:
        words = [word.encode() for word in column.words]
        plain = b"".join(len(word).to_bytes(4, "little") + word for word in words)
        dictionary_at, encodings = at, [PLAIN, RLE, RLE_DICTIONARY]
        _page(parts, sizes, plain, DICTIONARY_PAGE, {7: struct({1: i32(len(words)), 2: i32(PLAIN)})})
    data_at = at + sizes[1]
    about = {
        1: i32(len(values)),
        2: i32(PLAIN if column.words is None else RLE_DICTIONARY),
        3: i32(RLE),
        4: i32(RLE),
    }
    _page(parts, sizes, _data(column, values), DATA_PAGE, {5: struct(about)})
    found = struct(
        {
            1: i32(_kind(column)),
            2: listed(I32, [i32(encoding) for encoding in encodings]),
            3: listed(BINARY, [text(column.name)]),
            4: i32(GZIP),
            5: i64(len(values)),
            6: i64(sizes[0]),
            7: i64(sizes[1]),
            9: i64(data_at),
            11: None if dictionary_at is None else i64(dictionary_at),
        }
    )
    return parts, struct({2: i64(at), 3: found})


def _page(parts, sizes, body, kind, about):
    """Adds a page; `sizes`: bytes so far, unpacked and packed, heads included."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
    packed = packer.compress(body) + packer.flush()
    head = struct({1: i32(kind), 2: i32(len(body)), 3: i32(len(packed)), **about})[1]
    parts += [head, packed]
    sizes[0] += len(head) + len(body)
    sizes[1] += len(head) + len(packed)


def _data(column, values):
    """A data page's body: which rows have a value, then the values that there are."""
    levels = b""
    if column.missing is not None:
        there = bytearray(value != column.missing for value in values)
        values = type(values)(values.typecode, [value for value in values if value != column.missing])
        runs = _runs(there)
        levels = len(runs).to_bytes(4, "little") + runs
    if column.words is not None:
        # Numbers of 8, 16 or 24 bits are runs of packed bits as they stand.
        width = max(1, (len(column.words).bit_length() + 7) // 8)
        numbers = b"".join(value.to_bytes(width, "little") for value in values)
        groups = -(-len(values) // 8)
        return levels + bytes([8 * width]) + encode_varint(groups << 1 | 1) + numbers.ljust(8 * groups * width, b"\0")
    if isinstance(values, bytearray):
        return levels + _bits(values)
    if sys.byteorder == "big":
        values = array.array(values.typecode, values)
        values.byteswap()
    return levels + values.tobytes()


def _bits(flags):
    """Flags as bits, the first one the lowest."""
    if not flags:
        return b""
    return int(bytes(flags[::-1]).translate(_DIGITS), 2).to_bytes(-(-len(flags) // 8), "little")


def _runs(flags):
    """Flags as Parquet's runs: one run when they are all alike, else packed bits."""
    if not flags or min(flags) == max(flags):
        return encode_varint(len(flags) << 1) + bytes(flags[:1] or b"\0")
    return encode_varint(-(-len(flags) // 8) << 1 | 1) + _bits(flags)
