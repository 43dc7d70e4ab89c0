"""Tells the nodes of a run when the load begins and ends.

A node connects to the load's board and sends its name; then it only listens: a line `begin`, and a line `end`. A
connection that closes without `end` is a load that did not end in order. During the load nothing is sent.
"""

import select
import socket
import time

CONNECT_S = 2.0
RETRY_S = 0.2
BEGIN, END = "begin", "end"


class BellError(Exception):
    """The bell cannot be heard or rung; one sentence."""


def _address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


class Bell:
    """The load's side: it listens from the start, and nodes may come as late as they like before `begin`."""

    def __init__(self, listen):
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._server.bind(_address(listen))
            self._server.listen(16)
        except OSError as error:
            raise BellError(f"cannot listen on {listen}: {error.strerror}") from None
        self._hearers = {}

    def gather(self, names, patience_s):
        """Waits for these nodes. BellError naming those that did not come."""
        until = time.monotonic() + patience_s
        while set(names) - set(self._hearers):
            left_s = until - time.monotonic()
            ready = select.select([self._server], [], [], max(0.0, left_s))[0]
            if not ready:
                raise BellError(f"no word from {', '.join(sorted(set(names) - set(self._hearers)))}")
            peer = self._server.accept()[0]
            peer.settimeout(CONNECT_S)
            try:
                with peer.makefile("rb") as lines:
                    name = lines.readline(256).decode("utf-8", "replace").strip()
            except OSError:
                peer.close()
                continue
            if name in names:
                self._hearers[name] = peer
            else:
                peer.close()

    def ring(self, word):
        """Tells all nodes; one that is gone is not waited for."""
        for peer in self._hearers.values():
            try:
                peer.sendall(f"{word}\n".encode())
            except OSError:
                continue

    def close(self):
        """Hangs up."""
        for peer in self._hearers.values():
            peer.close()
        self._server.close()


class Hearer:
    """A node's side."""

    def __init__(self, address, name, patience_s):
        until = time.monotonic() + patience_s
        while True:
            try:
                self._socket = socket.create_connection(_address(address), CONNECT_S)
                break
            except OSError as error:
                if time.monotonic() >= until:
                    raise BellError(f"the load's board at {address} does not answer: {error}") from None
                time.sleep(RETRY_S)
        self._socket.sendall(f"{name}\n".encode())
        self._socket.setblocking(False)
        self._heard = b""

    def wait(self, word, until_monotonic_s):
        """Whether this word came before the time; BellError when another came, or the load hung up."""
        while True:
            line, newline, rest = self._heard.partition(b"\n")
            if newline:
                self._heard = rest
                if line.decode("utf-8", "replace") == word:
                    return True
                raise BellError(f"'{line.decode('utf-8', 'replace')[:40]}' came for '{word}'")
            left_s = until_monotonic_s - time.monotonic()
            if left_s <= 0:
                return False
            if select.select([self._socket], [], [], left_s)[0]:
                data = self._socket.recv(256)
                if not data:
                    raise BellError(f"the load hung up before '{word}'")
                self._heard += data

    def close(self):
        """Hangs up."""
        self._socket.close()
