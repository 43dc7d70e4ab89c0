"""`directory` and `file`: what they make, what they refuse, and that all of it can be put back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote.failures import Failure
from boardbench.remote.resources import directory, file
from boardbench.remote.restore import restore_scope

from .trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def made(resource: Any, tree: Tree, args: dict[str, Any]) -> None:
    """Applies, and proves that there is nothing left to do and that restoring brings the old tree back."""
    before = tree.snapshot()
    system = tree.system()
    assert resource.plan(args, system).changes
    resource.apply(args, system)
    assert not resource.plan(args, system).changes
    after = tree.snapshot()
    assert all(entry["ok"] for entry in restore_scope(tree.system()))
    assert tree.snapshot() == before
    resource.apply(args, tree.system())
    assert tree.snapshot() == after


def test_a_folder_and_those_above_it_are_made_and_go_again(tree: Tree) -> None:
    made(directory, tree, {"path": "/opt/a/b/c", "mode": "0700"})
    assert (tree.root / "opt/a/b/c").stat().st_mode & 0o7777 == 0o700
    assert (tree.root / "opt/a/b").stat().st_mode & 0o7777 == 0o755


def test_the_mode_of_a_folder_is_changed_and_comes_back(tree: Tree) -> None:
    (tree.root / "opt/a").mkdir(mode=0o755)
    made(directory, tree, {"path": "/opt/a", "mode": "1777"})


def test_an_empty_folder_is_removed_and_comes_back(tree: Tree) -> None:
    (tree.root / "opt/a").mkdir(mode=0o711)
    made(directory, tree, {"path": "/opt/a", "state": "absent"})


def test_a_folder_with_something_in_it_is_not_removed(tree: Tree) -> None:
    tree.write("opt/a/precious", "x")
    with pytest.raises(Failure, match=r"not empty \(precious\)"):
        directory.apply({"path": "/opt/a", "state": "absent"}, tree.system())
    assert tree.read("opt/a/precious") == "x"


def test_a_link_to_a_folder_is_a_folder(tree: Tree) -> None:
    (tree.root / "opt/real").mkdir(mode=0o755)
    (tree.root / "opt/link").symlink_to("real")
    assert directory.plan({"path": "/opt/link", "mode": "0755"}, tree.system()).changes == ()


@pytest.mark.parametrize(("resource", "args"), [(directory, {"path": "/opt/x"})])
def test_a_file_where_a_folder_should_be_is_a_failure(tree: Tree, resource: Any, args: dict[str, Any]) -> None:
    tree.write("opt/x", "")
    with pytest.raises(Failure, match="there is a file where the folder should be"):
        resource.plan(args, tree.system())


def test_a_folder_where_a_file_should_be_is_a_failure(tree: Tree) -> None:
    (tree.root / "opt/x").mkdir()
    with pytest.raises(Failure, match="there is a directory where the file should be"):
        file.plan({"path": "/opt/x", "content": ""}, tree.system())


@pytest.mark.parametrize("content", ["", "text\n", "no newline", "ünïcode\n"])
def test_a_file_is_made_with_its_content(tree: Tree, content: str) -> None:
    made(file, tree, {"path": "/etc/a", "content": content, "mode": "0640"})
    assert tree.read("etc/a") == content
    assert (tree.root / "etc/a").stat().st_mode & 0o7777 == 0o640


def test_a_new_content_keeps_the_mode_that_is_not_asked_for(tree: Tree) -> None:
    tree.write("etc/a", "old", mode=0o600)
    made(file, tree, {"path": "/etc/a", "content": "new"})
    assert (tree.root / "etc/a").stat().st_mode & 0o7777 == 0o600


def test_a_mode_alone_does_not_write_the_content_again(tree: Tree) -> None:
    tree.write("etc/a", "old", mode=0o600)
    inode = (tree.root / "etc/a").stat().st_ino
    file.apply({"path": "/etc/a", "mode": "0644"}, tree.system())
    assert (tree.root / "etc/a").stat().st_ino == inode


def test_a_file_replaces_a_link_and_not_what_it_leads_to(tree: Tree) -> None:
    tree.write("etc/target", "theirs")
    (tree.root / "etc/a").symlink_to("target")
    made(file, tree, {"path": "/etc/a", "content": "ours"})
    assert tree.read("etc/target") == "theirs"


def test_a_file_is_removed_and_comes_back(tree: Tree) -> None:
    tree.write("etc/a", "x", mode=0o604)
    made(file, tree, {"path": "/etc/a", "state": "absent"})


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write("etc/a", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        file.apply({"path": "/etc/a", "content": "new"}, tree.system())
    assert tree.read("etc/a") == "old"
    assert [path.name for path in (tree.root / "etc").iterdir()] == ["a"]


def test_both_content_and_blob_are_refused(tree: Tree) -> None:
    with pytest.raises(Failure, match="both content and blob"):
        file.plan({"path": "/etc/a", "content": "", "blob": "0" * 64}, tree.system())


def test_a_long_diff_is_cut_and_says_how_much_is_missing() -> None:
    diff = file.unified(b"", "".join(f"{n}\n" for n in range(1000)).encode(), "/x")
    assert len(diff.splitlines()) == file.DIFF_LINES + 1
    assert diff.splitlines()[-1] == "... 803 more lines"


def test_binary_contents_are_named_and_not_shown() -> None:
    assert file.unified(b"\0a", b"b", "/x") == "/x: binary content differs\n"
    assert file.unified(b"a", b"\xff\xfe", "/x") == "/x: binary content differs\n"


def test_a_missing_last_newline_is_visible_in_the_diff() -> None:
    assert file.unified(b"a\n", b"a", "/x").endswith("-a\n+a\n\\ No newline at end of file\n")
