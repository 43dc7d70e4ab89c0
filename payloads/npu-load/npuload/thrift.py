"""The few words of Thrift's compact protocol that the head of a Parquet file is written in."""

from npuforge.wire import encode_varint

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
_LONG = 15


def _zigzag(value):
    return encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def i32(value):
    """A whole number of 32 bits, or a word of an enumeration."""
    return I32, _zigzag(value)


def i64(value):
    """A whole number of 64 bits."""
    return I64, _zigzag(value)


def text(value):
    """A string."""
    data = value.encode()
    return BINARY, encode_varint(len(data)) + data


def struct(fields):
    """`{number: value}` with values as made here, in the order of their numbers; None is left out."""
    out, last = bytearray(), 0
    for number, value in sorted(fields.items()):
        if value is not None:
            kind, data = value
            # Numbers here are near each other, so the short form of a field's head is always enough.
            out.append(number - last << 4 | kind)
            out += data
            last = number
    out.append(0)
    return STRUCT, bytes(out)


def listed(kind, values):
    """Values, all of this kind."""
    count = len(values)
    head = bytes([count << 4 | kind]) if count < _LONG else bytes([_LONG << 4 | kind]) + encode_varint(count)
    return LIST, head + b"".join(data for _, data in values)
