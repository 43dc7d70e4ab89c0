"""Flow control of what we send: messages of all streams, within the windows and frames that the peer allows."""

import collections

from npuforge.lean import frames
from npuforge.lean.frames import ConnectionFault


class Outflow:
    """The streams that have something to send, in turn. `streams`: {id: stream}, those that are open.

    `sent(stream)` is called when a stream's outbox has been written.
    """

    def __init__(self, streams, sent):
        self._streams, self._sent = streams, sent
        self._transport = None
        # What the peer takes of all streams together, of a new stream, and in one frame.
        self._window = self.stream_window = 65535
        self._frame_bytes = 16384
        # How many streams the peer takes at once; RFC 9113: no limit until it names one.
        self.most_streams = frames.LARGEST_NUMBER
        self._paused = False
        self._waiting = collections.deque()

    def begin(self, transport):
        """From now on there is a network."""
        self._transport = transport

    def stop(self):
        """The connection is gone: nothing is sent any more."""
        # `_sent` goes too: it refers to the connection, which would wait for the garbage collector with its buffers.
        self._transport = self._sent = None
        self._waiting.clear()

    def pause(self):
        """The network is slower than we."""
        self._paused = True

    def resume(self):
        """It has caught up."""
        self._paused = False
        self.pump()

    def settings(self, pairs):
        """Takes the peer's settings, as (key, value). ConnectionFault for one that cannot be."""
        for key, value in pairs:
            if key == frames.INITIAL_WINDOW:
                if value > frames.LARGEST_NUMBER:
                    raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "a window that is too large")
                for stream in self._streams.values():
                    stream.send_window += value - self.stream_window
                self.stream_window = value
            elif key == frames.MAX_FRAME:
                if not 16384 <= value <= frames.FRAME_BYTES:
                    raise ConnectionFault(frames.PROTOCOL_ERROR, "a frame size that cannot be")
                self._frame_bytes = value
            elif key == frames.MAX_CONCURRENT:
                self.most_streams = value

    def widen(self, stream_id, more):
        """The peer takes so many bytes more of a stream, of all together where the id is 0. ConnectionFault."""
        if not stream_id:
            self._window += more
            if not more or self._window > frames.LARGEST_NUMBER:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "a window that cannot be")
        elif stream_id in self._streams:
            self._streams[stream_id].send_window += more
        self.pump()

    def send(self, stream):
        """Sends the stream's outbox when its turn comes."""
        self._waiting.append(stream)
        self.pump()

    def pump(self):
        """Sends what the windows allow, stream after stream."""
        while self._waiting and not self._paused and self._transport is not None:
            stream = self._waiting[0]
            if stream.id not in self._streams and stream.outbox:
                stream.outbox.clear()
                self._waiting.popleft()
                continue
            if not self._send_some(stream):
                if self._window <= 0 or self._paused:
                    return
                # This one's own window is full: the others need not wait for it.
                self._waiting.popleft()
                if not any(other.send_window > 0 for other in self._waiting):
                    self._waiting.appendleft(stream)
                    return
                self._waiting.append(stream)
                continue
            if not stream.outbox:
                self._waiting.popleft()
                self._sent(stream)

    def _send_some(self, stream):
        """One DATA frame of a stream; whether there was room for it."""
        left = sum(len(part) for part in stream.outbox)
        room = max(0, min(self._window, stream.send_window, self._frame_bytes, left))
        if left and not room:
            return False
        parts = stream.take(room)
        last = not stream.outbox
        flags = frames.END_STREAM if last and stream.trailer == b"" else 0
        self._window -= room
        stream.send_window -= room
        tail = [stream.trailer] if last and stream.trailer else []
        self._transport.writelines([frames.frame_head(room, frames.DATA, flags, stream.id), *parts, *tail])
        return True
