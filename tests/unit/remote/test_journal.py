"""The journal: on the disk before the change, once a thing, and readable after a call that was cut off."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from boardbench.remote.failures import Failure
from boardbench.remote.journal import Journal, Lock, scope_names
from boardbench.remote.restore import restore_scope

from .trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def lines(tree: Tree, scope: str = "provision") -> list[str]:
    return (tree.root / f"var/lib/boardbench/journal/{scope}.jsonl").read_text().splitlines()


def test_a_note_is_synced_to_the_disk_before_the_change_may_happen(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write("etc/x", "old")
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    tree.system().note("path", "/etc/x")
    assert synced == [
        str(tree.root / "var/lib/boardbench/journal/provision.jsonl"),
        str(tree.root / "var/lib/boardbench/journal"),
    ]
    assert json.loads(lines(tree)[0])["name"] == "/etc/x"


def test_a_thing_is_noted_once_in_a_scope_even_by_a_later_call(tree: Tree) -> None:
    tree.write("etc/x", "first")
    tree.system().note("path", "/etc/x")
    tree.write("etc/x", "second")
    tree.system().note("path", "/etc/x")
    assert len(lines(tree)) == 1
    restore_scope(tree.system())
    assert tree.read("etc/x") == "first"


def test_scopes_are_kept_apart(tree: Tree) -> None:
    tree.system("provision").note("path", "/etc/x")
    tree.system("campaign-1").note("path", "/etc/x")
    assert sorted(scope_names(tree.places)) == ["campaign-1", "provision"]


def test_a_torn_last_line_is_said_and_overwritten_by_the_next_note(tree: Tree) -> None:
    tree.write("etc/x", "old")
    tree.system().note("path", "/etc/x")
    path = tree.root / "var/lib/boardbench/journal/provision.jsonl"
    with path.open("a") as file:
        file.write('{"kind": "path", "na')
    journal = Journal(tree.places, "provision")
    assert journal.torn
    assert len(journal.notes) == 1
    tree.system().note("path", "/etc/y")
    assert [json.loads(line)["name"] for line in lines(tree)] == ["/etc/x", "/etc/y"]


def test_restore_goes_on_behind_a_torn_line_and_says_so(tree: Tree) -> None:
    tree.write("etc/x", "old")
    tree.system().note("path", "/etc/x")
    tree.write("etc/x", "new")
    path = tree.root / "var/lib/boardbench/journal/provision.jsonl"
    with path.open("a") as file:
        file.write('{"torn')
    restored = restore_scope(tree.system())
    assert tree.read("etc/x") == "old"
    assert [entry["what"] for entry in restored] == ["/etc/x", "journal provision"]
    assert "cut off" in restored[1]["why"]
    assert not path.exists()


def test_damage_in_the_middle_is_never_passed_over(tree: Tree) -> None:
    path = tree.write("var/lib/boardbench/journal/provision.jsonl", 'garbage\n{"kind":"path","name":"/x","state":{}}\n')
    with pytest.raises(Failure, match="line 1 of the journal cannot be read"):
        Journal(tree.places, "provision")
    assert path.exists()


@pytest.mark.parametrize("scope", ["../x", "", "a/b", ".hidden", None, 7])
def test_a_scope_is_a_plain_name(tree: Tree, scope: str) -> None:
    with pytest.raises(Failure, match="not the name of a scope"):
        Journal(tree.places, scope)


def test_large_files_are_copied_beside_the_journal(tree: Tree) -> None:
    content = os.urandom(1024 * 1024 + 1)
    path = tree.write("etc/large", content, mode=0o640)
    os.utime(path, (1, 1))
    tree.system().note("path", "/etc/large")
    assert len(lines(tree)[0]) < 1000
    path.write_bytes(b"small")
    assert all(entry["ok"] for entry in restore_scope(tree.system()))
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o7777 == 0o640
    assert path.stat().st_mtime == 1
    assert list((tree.root / "var/lib/boardbench/journal").iterdir()) == []


def test_what_cannot_be_put_back_is_not_noted(tree: Tree) -> None:
    os.mkfifo(tree.root / "etc/pipe")
    with pytest.raises(Failure, match="could not be put back"):
        tree.system().note("path", "/etc/pipe")
    with pytest.raises(Failure, match="could not be put back"):
        tree.system().note("kernel", "/sys/no/such/node")
    assert list(scope_names(tree.places)) == []


def test_two_calls_never_change_a_board_at_once(tree: Tree) -> None:
    with Lock(tree.places):
        with pytest.raises(Failure, match="another call is changing this board") as caught, Lock(tree.places):
            pass
        assert caught.value.transient
    with Lock(tree.places):
        pass
