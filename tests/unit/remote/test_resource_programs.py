"""`package`, `user`, `command`: what is run, with which words, and when not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boardbench.remote.failures import Failure
from boardbench.remote.journal import Journal
from boardbench.remote.resources import command, package, user
from boardbench.remote.things import packages

from .trees import Tree

QUERY = ["/usr/bin/dpkg-query"]
APT = ["/usr/bin/apt-get"]
PASSWD = "root:x:0:0:root:/root:/bin/bash\nbench:x:1000:1000::/home/bench:/bin/sh\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.write("etc/passwd", PASSWD)
    made.write("etc/group", "root:x:0:\nvideo:x:44:bench\nrender:x:105:\n")
    return made


def noted(tree: Tree) -> list[tuple[str, str]]:
    return [(note["kind"], note["name"]) for note in Journal(tree.places, "provision").notes]


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("installed 5.2-1\n", "5.2-1"),
        ("config-files 5.2-1\n", None),
        ("half-configured 5.2-1\n", None),
        ("", None),
        ("unknown \ninstalled 1:2.3\n", "1:2.3"),
    ],
)
def test_only_a_fully_installed_package_counts(output: str, version: str | None) -> None:
    assert packages.parse_query(output) == version


def test_the_simulation_names_what_would_come_and_go() -> None:
    output = "Reading package lists...\nInst libx (1.0 stable [arm64])\nInst x (2.0)\nConf libx (1.0)\nRemv y [3]\n"
    assert packages.parse_simulation(output) == [("Inst", "libx"), ("Inst", "x"), ("Remv", "y")]


def test_what_comes_with_a_package_is_noted_before_it_is_installed(tree: Tree) -> None:
    tree.answer(QUERY, code=1)
    tree.answer(APT, "Inst libx (1.0)\nInst xx (2.0)\n")
    package.apply({"names": ["xx"]}, tree.system())
    assert noted(tree) == [("package", "libx"), ("package", "xx")]
    assert tree.commands[-1][-3:] == ["install", "--no-install-recommends", "xx"]
    assert "Dpkg::Use-Pty=0" in tree.commands[-1]


def test_installed_packages_are_left_alone(tree: Tree) -> None:
    tree.answer(QUERY, "installed 1")
    assert package.plan({"names": ["xx", "yy"]}, tree.system()).changes == ()
    assert len(package.plan({"names": ["xx", "yy"], "state": "absent"}, tree.system()).changes) == 2


@pytest.mark.parametrize("code", [0, 100])
def test_offline_is_said_in_words_and_nothing_is_noted(tree: Tree, code: int) -> None:
    """apt shrugs off a server that it cannot reach: the update of the lists ends with 0."""
    tree.answer(QUERY, code=1)
    tree.answer(APT, "E: Unable to locate package xx\n", code=100)
    words = "Err:1 http://mirror.example stable\n  Temporary failure resolving 'mirror.example'\nE: Failed to fetch\n"
    tree.answer([*packages._APT, "update"], words, code=code)
    with pytest.raises(Failure, match="Temporary failure resolving") as caught:
        package.apply({"names": ["xx"]}, tree.system())
    assert "offline" in caught.value.advice
    assert noted(tree) == []


@pytest.mark.parametrize("names", [["x;rm"], ["-y"], "x", [], ["UPPER"]])
def test_package_names_are_checked(tree: Tree, names: Any) -> None:
    with pytest.raises(Failure) as caught:
        package.plan({"names": names}, tree.system())
    assert caught.value.fault == "bad-input"
    assert tree.commands == []


def test_a_user_is_made_with_what_was_asked_for(tree: Tree) -> None:
    tree.answer(["/usr/sbin/useradd"])
    args = {"name": "npu", "system": True, "home": "/opt/npu", "shell": "/usr/sbin/nologin", "groups": ["render"]}
    assert user.plan(args, tree.system()).changes[0].after == "system user"
    user.apply(args, tree.system())
    words = "--system -d /opt/npu -s /usr/sbin/nologin -G render npu"
    assert tree.commands == [["/usr/sbin/useradd", *words.split()]]
    assert ("user", "npu") in noted(tree)
    assert ("path", "/etc/passwd-") in noted(tree)


def test_a_user_gets_only_the_groups_that_it_lacks(tree: Tree) -> None:
    tree.answer(["/usr/sbin/usermod"])
    args = {"name": "bench", "groups": ["video", "render"], "shell": "/bin/sh"}
    (change,) = user.plan(args, tree.system()).changes
    assert (change.before, change.after) == ("video", "render,video")
    user.apply(args, tree.system())
    assert tree.commands == [["/usr/sbin/usermod", "-s", "/bin/sh", "-a", "-G", "render", "bench"]]


def test_a_tool_of_the_user_database_that_fails_is_heard(tree: Tree) -> None:
    tree.answer(["/usr/sbin/userdel"], "userdel: user bench is currently used by process 77\n", code=8)
    with pytest.raises(Failure, match="used by process 77"):
        user.apply({"name": "bench", "state": "absent"}, tree.system())


@pytest.mark.parametrize("name", ["root; id", "-r", "", "Bench", None])
def test_user_names_are_checked(tree: Tree, name: Any) -> None:
    with pytest.raises(Failure):
        user.plan({"name": name}, tree.system())


def test_a_command_with_creates_runs_once(tree: Tree) -> None:
    args = {"argv": ["/bin/make"], "creates": "/opt/built"}
    assert command.plan(args, tree.system()).changes
    tree.answer(["/bin/make"])
    command.apply(args, tree.system())
    assert noted(tree) == [("path", "/opt/built")]
    tree.write("opt/built", "")
    assert command.plan(args, tree.system()).changes == ()


@pytest.mark.parametrize(("code", "changes"), [(0, 0), (1, 1)])
def test_a_command_with_unless_runs_when_its_question_is_answered_no(tree: Tree, code: int, changes: int) -> None:
    tree.answer(["/bin/test"], code=code)
    plan = command.plan({"argv": ["/bin/make"], "unless": ["/bin/test", "-e", "/x"]}, tree.system())
    assert len(plan.changes) == changes


def test_a_command_without_either_always_counts_as_a_change(tree: Tree) -> None:
    plan = command.plan({"argv": ["/bin/make", "-j", 2]}, tree.system())
    assert [change.what for change in plan.changes] == ["/bin/make -j 2"]
    assert not plan.provable


@pytest.mark.parametrize(
    "args",
    [
        {"argv": "make -j2"},
        {"argv": []},
        {"argv": ["x"], "creates": "/a", "unless": ["y"]},
        {"argv": ["x"], "env": ["A=1"]},
        {"argv": ["x"], "creates": "relative"},
    ],
)
def test_wrong_arguments_of_a_command_are_refused(tree: Tree, args: dict[str, Any]) -> None:
    with pytest.raises(Failure) as caught:
        command.plan(args, tree.system())
    assert caught.value.fault == "bad-input"


def test_a_command_ended_by_a_signal_says_so(tree: Tree) -> None:
    tree.answer(["/bin/make"], "", code=-9)
    with pytest.raises(Failure, match="ended by signal 9"):
        command.apply({"argv": ["/bin/make"]}, tree.system())
