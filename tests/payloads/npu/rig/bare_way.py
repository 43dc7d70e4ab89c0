"""The cluster's way with bare sockets: client, relay and node as three processes, 1.2 MB there and 1.2 MB back.

Nothing is parsed and no buffer is made anew, so this is what the kernel alone takes on this host. Prints CPU seconds
per request and requests a second.
"""

import os
import select
import socket
import time

SIZE = 1_228_800
SLOTS, REQUESTS = 36, 720


def connected():
    """Two ends of a connection on loopback."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for end in (near, far):
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


class Legs:
    """A message on its way over a row of (socket, whether it is sent), again and again; `rounds`: None for ever."""

    def __init__(self, legs, rounds):
        self._legs, self._rounds = legs, rounds
        self._buffer = memoryview(bytearray(SIZE))
        self._at = self._done = 0

    def go(self, poll):
        """As far as it goes now; False when it has ended."""
        try:
            while True:
                end, sends = self._legs[self._at]
                left = self._buffer[self._done :]
                count = end.send(left) if sends else end.recv_into(left)
                if not count:
                    return False
                self._done += count
                if self._done == SIZE:
                    self._done, self._at = 0, (self._at + 1) % len(self._legs)
                    if not self._at and self._rounds is not None:
                        self._rounds -= 1
                        if not self._rounds:
                            return False
        except BlockingIOError:
            poll.modify(end, select.EPOLLOUT if sends else select.EPOLLIN)
            for other in {other for other, _ in self._legs} - {end}:
                poll.modify(other, 0)
            return True


def play(rows, rounds=None):
    """Every row until it ends."""
    poll, by_file = select.epoll(), {}
    for row in rows:
        legs = Legs(row, rounds)
        for end in {end for end, _ in row}:
            by_file[end.fileno()] = legs
            poll.register(end, 0)
        if not legs.go(poll):
            raise SystemExit("a connection ended before it began")
    left = set(by_file.values())
    while left:
        for number, _ in poll.poll():
            if by_file[number] in left and not by_file[number].go(poll):
                left.discard(by_file[number])


def main():
    """The three processes; the client's end is the end of all."""
    fronts, backs = ([connected() for _ in range(SLOTS)] for _ in range(2))
    client = [[(near, True), (near, False)] for near, _ in fronts]
    middle = zip((front for _, front in fronts), (back for back, _ in backs), strict=True)
    relay = [[(front, False), (back, True), (back, False), (front, True)] for front, back in middle]
    node = [[(far, False), (far, True)] for _, far in backs]
    children = []
    began = time.monotonic()
    for rows, rounds in ((node, None), (relay, None), (client, REQUESTS // SLOTS)):
        child = os.fork()
        if not child:
            mine = {end for row in rows for end, _ in row}
            for end in {end for pair in (*fronts, *backs) for end in pair} - mine:
                end.close()
            play(rows, rounds)
            os._exit(0)
        children.append(child)
    for pair in (*fronts, *backs):
        for end in pair:
            end.close()
    # Each one's end closes the connections of the next.
    for child in reversed(children):
        os.waitpid(child, 0)
    took_s, used = time.monotonic() - began, os.times()
    print((used.children_user + used.children_system) / REQUESTS, REQUESTS / took_s)


main()
