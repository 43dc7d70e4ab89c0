"""Our YAML: plain values, the line of every entry, and one clear sentence for whatever is not right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boardbench.errors import BugError, ExitCode, InputError
from boardbench.yamlfile import MAX_BYTES, MAX_NODES, Document, load, nearest, parse

HERE = Path("file.yml")


def data(text: str) -> object:
    return parse(text.encode(), HERE).data


def fault(raw: bytes) -> str:
    with pytest.raises(InputError) as caught:
        parse(raw, HERE)
    assert caught.value.exit_code == ExitCode.INPUT
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("2e3", 2000.0),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("0644", "0644"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ('"12"', "12"),
        ("'true'", "true"),
        ("'.nan'", ".nan"),
        ('""', ""),
    ],
)
def test_only_plain_numbers_true_false_and_null_are_not_text(text: str, value: object) -> None:
    found = data(f"a: {text}\n")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)  # type: ignore[index]


def test_keys_are_text_whatever_they_look_like() -> None:
    assert data("1: a\ntrue: b\non: c\n") == {"1": "a", "true": "b", "on": "c"}


def test_a_byte_order_mark_is_accepted() -> None:
    assert parse(b"\xef\xbb\xbfa: 1\n", HERE).data == {"a": 1}


def test_every_key_and_item_knows_its_line() -> None:
    document = parse(b"a: 1\n\nb:\n  - x\n  - c: 2\n    d: [3,\n      4]\n", HERE)
    assert document.where() == "file.yml:1"
    assert document.where("b") == "file.yml:3"
    assert document.where("b", 0) == "file.yml:4"
    assert document.where("b", 1, "d") == "file.yml:6"
    assert document.where("b", 1, "d", 1) == "file.yml:7"


def test_a_place_that_the_file_lacks_is_where_its_parent_is() -> None:
    document = parse(b"a:\n  b: 1\n", HERE)
    assert document.where("a", "nothing", 3) == "file.yml:1"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "file.yml: the file is empty"),
        (b"# words\n", "file.yml: the file is empty"),
        (b"a: 1\na: 2\n", "file.yml:2: key 'a' is here twice; it is also on line 1"),
        (b"a:\n\tb: 1\n", "file.yml:2: a tab is used to indent"),
        (b"a:\n  - b\n\t- c\n", "file.yml:3: a tab is used to indent"),
        (b"a: &x 1\n", "file.yml:1: anchor '&x' is not allowed"),
        (b"a: *x\n", "file.yml:1: alias '*x' is not allowed"),
        (b"<<: *x\n", "file.yml:1: alias '*x' is not allowed"),
        (b"a: !!binary aGk=\n", "file.yml:1: tag 'tag:yaml.org,2002:binary' is not allowed"),
        (b"a: .inf\n", "file.yml:1: '.inf' is not a number that can be used"),
        (b"a: 1e999\n", "file.yml:1: '1e999' is too large a number"),
        (b"a: 99999999999999999999\n", "file.yml:1: '99999999999999999999' is not a number"),
        (b"a: 1\n---\nb: 2\n", "file.yml:2: a second YAML document starts here"),
        (b"? [a]\n: 1\n", "file.yml:1: a key must be a word"),
        (b"a: 1\nb: \xff\n", "file.yml:2: not UTF-8 text: byte 0xff"),
        ("a: 1\n".encode("utf-16"), "file.yml:1: not UTF-8 text"),
        (b"a: 1\nb: \x07\n", "file.yml:2: a character that YAML does not allow"),
        (b"a: [1\n", "file.yml:2: not YAML"),
        (b"a: b: c\n", "file.yml:1: not YAML"),
        (b"[" * 500, "file.yml:1: nested deeper than 40"),
        (b"[" * 5000, "file.yml:1: not YAML"),
        (b"- 1\n" * (MAX_NODES + 1), f"file.yml:{MAX_NODES}: more than {MAX_NODES} values"),
        (b"#" * (MAX_BYTES + 1), f"file.yml: the file has {MAX_BYTES + 1} bytes; the limit is {MAX_BYTES}"),
    ],
)
def test_what_is_not_our_yaml_is_told_in_one_line(raw: bytes, says: str) -> None:
    assert fault(raw).startswith(says)


def test_a_missing_file_is_told_with_its_nearest_neighbour(tmp_path: Path) -> None:
    (tmp_path / "virtual.yml").write_text("a: 1\n")
    with pytest.raises(InputError, match=r"virtul\.yml: no such file; did you mean '.*/virtual\.yml'\?"):
        load(tmp_path / "virtul.yml", "inventory")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a folder, not a file"):
        load(tmp_path, "inventory")


def test_a_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yml")
    with pytest.raises(InputError, match="not a regular file"):
        load(tmp_path / "pipe.yml", "inventory")


def test_a_path_that_cannot_be_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("a: 1\n")
    for path in (tmp_path / "a.yml" / "b.yml", Path("x\0y"), tmp_path / ("n" * 300)):
        with pytest.raises(InputError):
            load(path, "inventory")


def test_a_schema_that_does_not_exist_is_our_own_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("a: 1\n")
    with pytest.raises(BugError, match="there is no schema 'nothing'"):
        load(tmp_path / "a.yml", "nothing")


@pytest.mark.parametrize(
    ("word", "best"),
    [
        ("qeen", "queen"),
        ("QUEEN", "queen"),
        ("time-scale", "time_scale"),
        ("capa", "capabilities"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_word_is_what_was_probably_meant(word: str, best: str | None) -> None:
    assert nearest(word, ["king", "queen", "time_scale", "capabilities"]) == best


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_a_document_or_an_input_error(raw: bytes) -> None:
    _document_or_input_error(raw)


_PIECES = st.sampled_from(
    ["a", "b: ", "- ", "? ", ": ", "\n", "  ", "\t", "[", "]", "{", "}", ",", "&x ", "*x", "!!str ", "!", "'", '"', "|",
     ">", "#", "---\n", "...\n", "%YAML 9.9\n", "%TAG ! x\n", "\\U99999999", '"\\ud800"', '"\\U00110000"', ".nan",
     "1e999", "9" * 30, "0", "-", "<<: ", "yes", "\x00", "\x85", "\u2028", "\ufeff", "é", "version: 1\n",
     "boards:\n", "king: "]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=40).map("".join))
@settings(max_examples=500, deadline=None)
def test_any_mix_of_yaml_pieces_gives_a_document_or_an_input_error(text: str) -> None:
    _document_or_input_error(text.encode())


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["king", "present", "nanopi-r76s"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["version", "boards", "groups", "vars", "steps", "file", "path", "kind", "access", "cooling", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_VALUES, st.sampled_from(["inventory", "playbook", "payload"]))
@settings(max_examples=150, deadline=None)
def test_any_data_passes_the_schema_or_is_an_input_error(value: object, schema: str) -> None:
    document = Document(HERE, value, {(): 1})
    said = "file.yml:1: "
    try:
        document.check(schema)
    except InputError as error:
        said = str(error)
    assert said.startswith("file.yml:1: ")


def _document_or_input_error(raw: bytes) -> None:
    try:
        said = parse(raw, HERE).where()
    except InputError as error:
        said = str(error)
    assert said.startswith("file.yml:")
