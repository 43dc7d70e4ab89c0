"""A patch fits exactly or is refused with its own name, the file and the hunk; nothing is ever guessed."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boardbench.builds import patching
from boardbench.errors import InputError

TEN = "".join(f"line {number}\n" for number in range(1, 11))


def diff(name: str, old: str, new: str, context: int = 3) -> str:
    sides = (old.splitlines(keepends=True), new.splitlines(keepends=True))
    text = ""
    for line in difflib.unified_diff(*sides, f"a/{name}", f"b/{name}", n=context):
        text += line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
    return text


def patched(tmp_path: Path, text: str, old: str, name: str = "src/x.c") -> str:
    tree, patch = tmp_path / "tree", tmp_path / "0001-change.patch"
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(old, newline="")
    patch.write_text(text, newline="")
    patching.apply(tree, [patch])
    return (tree / name).read_bytes().decode()


def test_a_change_is_made(tmp_path: Path) -> None:
    new = TEN.replace("line 5\n", "line five\nand more\n")
    assert patched(tmp_path, diff("src/x.c", TEN, new), TEN) == new


def test_a_hunk_whose_place_has_moved_still_fits(tmp_path: Path) -> None:
    new = TEN.replace("line 5\n", "line five\n").replace("line 10\n", "")
    moved = "before\n" * 7 + TEN
    assert patched(tmp_path, diff("src/x.c", TEN, new, 1), moved) == "before\n" * 7 + new


def test_words_before_the_diff_are_skipped(tmp_path: Path) -> None:
    new = TEN.replace("line 1\n", "first\n")
    head = "From: somebody\nSubject: x\n---\n src/x.c | 2 +-\n\ndiff --git a/src/x.c b/src/x.c\nindex 1..2 100644\n"
    assert patched(tmp_path, head + diff("src/x.c", TEN, new) + "-- \n2.39\n", TEN) == new


def test_files_come_and_go(tmp_path: Path) -> None:
    text = "--- /dev/null\n+++ b/new/y.c\n@@ -0,0 +1,2 @@\n+one\n+two\n" + diff("src/x.c", "a\n", "").replace(
        "+++ b/src/x.c", "+++ /dev/null"
    )
    tree, patch = tmp_path / "tree", tmp_path / "p.patch"
    (tree / "src").mkdir(parents=True)
    (tree / "src/x.c").write_text("a\n")
    patch.write_text(text)
    patching.apply(tree, [patch])
    assert (tree / "new/y.c").read_text() == "one\ntwo\n"
    assert not (tree / "src/x.c").exists()


@pytest.mark.parametrize(
    ("old", "says"),
    [
        (TEN.replace("line 6", "line VI"), "0001-change.patch does not fit this source: src/x.c: hunk 1 (line 2)"),
        ("", "src/x.c: hunk 1 (line 2) does not fit"),
    ],
)
def test_what_does_not_fit_is_told_by_patch_file_and_hunk(tmp_path: Path, old: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        patched(tmp_path, diff("src/x.c", TEN, TEN.replace("line 5\n", "V\n")), old)
    assert says in str(caught.value)


def test_the_second_hunk_is_named(tmp_path: Path) -> None:
    old = "".join(f"{number}\n" for number in range(40))
    new = old.replace("\n5\n", "\nfive\n").replace("\n30\n", "\nthirty\n")
    with pytest.raises(InputError, match=r"hunk 2 \(line 28\) does not fit"):
        patched(tmp_path, diff("src/x.c", old, new), old.replace("\n31\n", "\nother\n"))


def test_a_missing_file_and_one_too_many_are_told(tmp_path: Path) -> None:
    text = diff("src/z.c", TEN, TEN.replace("line 5", "V"))
    with pytest.raises(InputError, match=r"src/z\.c: the source has no such file"):
        patched(tmp_path, text, TEN)
    with pytest.raises(InputError, match="it adds a file that is there already"):
        patched(tmp_path, "--- /dev/null\n+++ b/src/x.c\n@@ -0,0 +1 @@\n+one\n", TEN)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "changes nothing"),
        ("only words\n", "changes nothing"),
        ("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n", "as many lines as it says"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n*two\n", "begins with none of"),
        ("--- ../../etc/passwd\n+++ ../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "does not begin with a/ or b/"),
        ("--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "does not begin with a/ or b/"),
        ("@@ -1 +1 @@\n-a\n+b\n", "belongs to no file"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n", "not understood"),
    ],
)
def test_a_broken_patch_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        patched(tmp_path, text, TEN)
    assert says in str(caught.value)
    assert "0001-change.patch" in str(caught.value)


TEXT = st.lists(st.sampled_from(["a", "b", "", "  c", "-d", "+e", "@@"]), max_size=30).map("\n".join)


@settings(max_examples=200, deadline=None)
@given(old=TEXT, new=TEXT, context=st.integers(0, 4))
def test_every_diff_of_two_texts_turns_one_into_the_other(
    tmp_path_factory: pytest.TempPathFactory, old: str, new: str, context: int
) -> None:
    if old == new or not old or not new:
        return
    assert patched(tmp_path_factory.mktemp("p"), diff("src/x.c", old, new, context), old) == new
