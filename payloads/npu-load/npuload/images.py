"""The images that are sent: the same bytes for the same seed on every machine, in a few slots that take turns."""

from npuforge import wire

_MASK = (1 << 64) - 1
_FACTOR = 2654435761
_PERIOD = 251
RGB8 = 3


def image(seed, slot, size):
    """Slot `slot`: byte k is ((seed + slot) * 2654435761 + k) mod 251, in wrapping 64-bit arithmetic."""
    start = ((seed + slot) * _FACTOR & _MASK) % _PERIOD
    # The sum wraps at 2**64 for no k that an image has: the period goes on.
    cycle = bytes((start + k) % _PERIOD for k in range(_PERIOD))
    return (cycle * (size // _PERIOD + 1))[:size]


class Requests:
    """Ready-made parts of `InferRequest`s; only the id is new in each."""

    def __init__(self, model, seed, slots, size, run):
        self._bodies = [
            b"".join(
                (
                    wire.bytes_field(2, model.encode()),
                    wire.bytes_field(3, image(seed, slot, size)),
                    wire.number_field(4, RGB8),
                )
            )
            for slot in range(slots)
        ]
        self._run = run

    def make(self, number, slot=None):
        """Request `number` as buffers, its id first: that says run and number, its image is that of `slot` (number mod
        slots)."""
        request_id = f"{self._run}-{number}".encode()
        return [wire.bytes_field(1, request_id), self._bodies[(number if slot is None else slot) % len(self._bodies)]]

    def for_node(self, number, node, slot):
        """The same, for this node and no other."""
        entry = wire.bytes_field(1, b"node") + wire.bytes_field(2, node.encode())
        return [*self.make(number, slot), wire.bytes_field(7, entry)]
