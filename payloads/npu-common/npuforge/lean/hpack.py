"""Header compression of HTTP/2 (RFC 7541): all that a peer may send, and the plainest of what one may write."""

_STATIC = (
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
)  # fmt: skip

# The code is canonical: the lengths of the symbols give the codes. 256 is the end of a string.
_SYMBOLS_BY_LENGTH = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: bytes.fromhex("5cc3d0"),
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("818485868892 9a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9"),
    23: bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("02030405060708 0b0c0e0f101112131415 1718191a1b1c1d1e1f7fdcf9"),
    30: bytes.fromhex("0a0d16"),
}
DYNAMIC_TABLE_BYTES = 4096
_ENTRY_OVERHEAD = 32
_MAX_HEADERS = 200


class HpackError(ValueError):
    """The header block is none."""


def _codes():
    codes, code, last = {}, 0, 5
    for length, symbols in _SYMBOLS_BY_LENGTH.items():
        code <<= length - last
        last = length
        for symbol in sorted(symbols):
            codes[length, code] = symbol
            code += 1
    return codes


_HUFFMAN = _codes()


def _huffman(data):
    out, length, code = bytearray(), 0, 0
    for byte in data:
        for shift in range(7, -1, -1):
            code = code << 1 | byte >> shift & 1
            length += 1
            symbol = _HUFFMAN.get((length, code))
            if symbol is not None:
                out.append(symbol)
                length = code = 0
            elif length > 30:
                raise HpackError("a Huffman code is not known")
    # What is left over is the start of the code of the string's end: ones.
    if length > 7 or code != (1 << length) - 1:
        raise HpackError("the padding of a Huffman string is wrong")
    return bytes(out)


def _integer(data, at, prefix):
    limit = (1 << prefix) - 1
    try:
        value = data[at] & limit
        at += 1
        if value < limit:
            return value, at
        for shift in range(0, 35, 7):
            byte = data[at]
            at += 1
            value += (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
    except IndexError:
        raise HpackError("a number is cut short") from None
    raise HpackError("a number is too long")


def _string(data, at):
    if at >= len(data):
        raise HpackError("a string is missing")
    packed = data[at] & 0x80
    length, at = _integer(data, at, 7)
    if at + length > len(data):
        raise HpackError("a string is cut short")
    raw = bytes(data[at : at + length])
    return (_huffman(raw) if packed else raw).decode("latin-1"), at + length


class Decoder:
    """Reads the header blocks of one connection, which build on each other."""

    def __init__(self):
        self._entries = []
        self._bytes = 0
        self._limit = DYNAMIC_TABLE_BYTES

    def _entry(self, index):
        if not index:
            raise HpackError("a header has the index 0")
        if index <= len(_STATIC):
            return _STATIC[index - 1]
        try:
            return self._entries[index - len(_STATIC) - 1]
        except IndexError:
            raise HpackError(f"there is no header {index}") from None

    def _evict(self):
        while self._bytes > self._limit:
            name, value = self._entries.pop()
            self._bytes -= len(name) + len(value) + _ENTRY_OVERHEAD

    def _literal(self, data, at, prefix):
        index, at = _integer(data, at, prefix)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _string(data, at)
        value, at = _string(data, at)
        return name, value, at

    def decode(self, data):
        """The headers as [(name, value)]. HpackError."""
        headers, at = [], 0
        while at < len(data):
            first = data[at]
            if first & 0x80:
                index, at = _integer(data, at, 7)
                headers.append(self._entry(index))
            elif first & 0x40:
                name, value, at = self._literal(data, at, 6)
                headers.append((name, value))
                self._entries.insert(0, (name, value))
                self._bytes += len(name) + len(value) + _ENTRY_OVERHEAD
                self._evict()
            elif first & 0x20:
                limit, at = _integer(data, at, 5)
                if limit > DYNAMIC_TABLE_BYTES:
                    raise HpackError("the table is to be greater than we allow")
                self._limit = limit
                self._evict()
            else:
                name, value, at = self._literal(data, at, 4)
                headers.append((name, value))
            if len(headers) > _MAX_HEADERS:
                raise HpackError("too many headers")
        return headers


def _encoded_integer(value, prefix, flags):
    limit = (1 << prefix) - 1
    if value < limit:
        return bytes([flags | value])
    out = bytearray([flags | limit])
    value -= limit
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(headers):
    """A header block that builds on nothing, so that blocks can be made ahead and used on any connection."""
    out = bytearray()
    for name, value in headers:
        if (name, value) in _STATIC:
            out += _encoded_integer(_STATIC.index((name, value)) + 1, 7, 0x80)
            continue
        out += b"\x00"
        for text in (name, value):
            data = text.encode("latin-1", "replace")
            out += _encoded_integer(len(data), 7, 0) + data
    return bytes(out)
