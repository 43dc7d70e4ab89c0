"""Header blocks: a HEADERS frame and its continuations, joined and decoded."""

from npuforge.lean import frames
from npuforge.lean.frames import ConnectionFault
from npuforge.lean.hpack import Decoder, HpackError

MAX_BLOCK_BYTES = 32 * 1024


class HeaderBlocks:
    """All blocks of a connection, in order: the decoder's table is that of the whole connection.

    Each frame gives the block that it ends as (stream id, headers, whether the stream ends), else None.
    """

    def __init__(self):
        self._decoder = Decoder()
        # Of the block that is being received: its stream, the flags of its first frame, what has come.
        self._block = None

    @property
    def open(self):
        """Whether a block has begun and not ended: then nothing else may come."""
        return self._block is not None

    def begin(self, stream_id, flags, body):
        """A HEADERS frame without its padding. ConnectionFault."""
        if not stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "headers on no stream")
        if flags & frames.HAS_PRIORITY:
            body = body[5:]
        self._block = (stream_id, flags, bytearray(body))
        return self._end() if flags & frames.END_HEADERS else None

    def proceed(self, stream_id, flags, body):
        """A CONTINUATION frame. ConnectionFault."""
        if self._block is None or self._block[0] != stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a continuation of nothing")
        self._block[2].extend(body)
        if len(self._block[2]) > MAX_BLOCK_BYTES:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many headers")
        return self._end() if flags & frames.END_HEADERS else None

    def _end(self):
        (stream_id, flags, body), self._block = self._block, None
        try:
            headers = self._decoder.decode(body)
        except HpackError as error:
            raise ConnectionFault(frames.COMPRESSION_ERROR, str(error)) from None
        return stream_id, headers, bool(flags & frames.END_STREAM)
