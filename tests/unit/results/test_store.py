"""Atomic, strict files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boardbench.errors import InputError
from boardbench.results import store

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON.filter(lambda value: "\ud800" not in repr(value)))
def test_what_is_written_is_read_again(value: object) -> None:
    try:
        data = store.to_bytes(value)
    except UnicodeEncodeError:
        return  # a lone surrogate is no text
    assert data.endswith(b"\n")
    assert store.parse_json(data.decode()) == value


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(), min_size=2, max_size=5))
def test_the_canonical_hash_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    assert store.canonical_sha256(value) == store.canonical_sha256(dict(reversed(value.items())))


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', '{"a": 1e400}', '{"a": 1, "a": 2}', "[" * 100_000])
def test_loose_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.json"):
        store.read_json(path)


def test_a_byte_order_mark_is_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')
    assert store.read_object(path) == {"a": 1}


def test_nan_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        store.write_json(tmp_path / "x.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    store.write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(FileExistsError):
        store.write_json(tmp_path / "x.json", {"a": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}


def test_two_campaigns_of_one_second_get_two_folders(tmp_path: Path) -> None:
    made = {store.new_campaign_folder(tmp_path, "m", now_unix_s=1_000_000.0) for _ in range(5)}
    assert len(made) == 5
    assert all(folder.is_dir() for folder in made)


def test_a_cut_off_last_line_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a"')
    with pytest.raises(InputError, match=r"x\.jsonl:2: the last line is cut off"):
        list(store.read_lines(path))
