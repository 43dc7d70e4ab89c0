"""What several boards' threads print at once stays one line each."""

from __future__ import annotations

import json
import sys
import threading

import pytest

from tasks._verb import emit


class _Torn:
    """A stream that hands every text on in two pieces, and lets another thread in between."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        for piece in (text[:3], text[3:]):
            self.pieces.append(piece)
            threading.Event().wait(0.0002)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def test_json_lines_of_many_threads_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Torn()
    monkeypatch.setattr(sys, "stdout", stream)
    threads = [threading.Thread(target=lambda: [emit({"n": n}) for n in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [json.loads(line) for line in "".join(stream.pieces).splitlines()]
    assert sorted(line["n"] for line in lines) == sorted([*range(50)] * 4)
