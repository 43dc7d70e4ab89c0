"""Event lines: whole lines are events with their place, and what is none is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.workloads.event_lines import finite, number, read_events, stamp


def test_each_event_comes_with_its_line_and_the_cut_one_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"event": "start"}\n{"event": "end"}\n{"event": "en')
    assert read_events(path) == [(f"{path}:1", {"event": "start"}), (f"{path}:2", {"event": "end"})]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}\n{'a': 1}\n", r"a\.jsonl:2: is not JSON: "),
        (b"{}\n\n", r"a\.jsonl:2: is not JSON: "),
        (b"[]\n", r"a\.jsonl:1: is not an object"),
        (b'{"a": ' + b"1" * 5000 + b"}\n", r"a\.jsonl:1: is not JSON that can be read: "),
        (b"[" * 100_000 + b"\n", r"a\.jsonl:1: is not JSON that can be read: "),
        (b"\xff\n", r"a\.jsonl: is not UTF-8"),
    ],
)
def test_what_is_no_event_is_named_with_its_place(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_events(tmp_path / "a.jsonl")


def test_a_missing_file_is_no_file_without_events(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.jsonl: is missing"):
        read_events(tmp_path / "a.jsonl")


@pytest.mark.parametrize("value", [None, True, "1", float("nan"), float("inf"), {"missing": "why"}])
def test_only_finite_numbers_are_numbers(value: object) -> None:
    with pytest.raises(InputError, match=r"f:1: rate is not a number"):
        number({"rate": value}, "rate", "f:1")


def test_a_whole_number_is_one_too() -> None:
    assert finite(3, "rate", "f:1") == 3.0


def test_a_stamp_has_all_three_clocks() -> None:
    clocks = {"wall_unix_s": 1.0, "monotonic_s": 2, "boottime_s": 3.0}
    assert stamp({"stamp": {**clocks, "more": 1}}, "f:1") == clocks
    with pytest.raises(InputError, match="boottime_s is not a number"):
        stamp({"stamp": {**clocks, "boottime_s": None}}, "f:1")
    with pytest.raises(InputError, match="the event has no stamp"):
        stamp({}, "f:1")
