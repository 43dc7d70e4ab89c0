"""`sysfs`, `sysctl`, `governor`: written, read back, and refused with the kernel's own reason."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote.failures import Failure
from boardbench.remote.resources import governor, sysctl, sysfs
from boardbench.remote.restore import restore_scope
from boardbench.remote.things import kernel

from .trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_value_is_written_read_back_and_put_back(tree: Tree) -> None:
    tree.write("sys/class/devfreq/17000000.gpu/min_freq", "306000000\n")
    args = {"path": "/sys/class/devfreq/*.gpu/min_freq", "value": 1020000000}
    (change,) = sysfs.plan(args, tree.system()).changes
    assert (change.what, change.before) == ("/sys/class/devfreq/17000000.gpu/min_freq", "306000000")
    sysfs.apply(args, tree.system())
    assert sysfs.plan(args, tree.system()).changes == ()
    assert all(entry["ok"] for entry in restore_scope(tree.system()))
    assert tree.read("sys/class/devfreq/17000000.gpu/min_freq") == "306000000\n"


@pytest.mark.parametrize("names", [[], ["1.gpu", "2.gpu"]])
def test_a_star_must_match_exactly_one_node(tree: Tree, names: list[str]) -> None:
    for name in names:
        tree.write(f"sys/class/devfreq/{name}/min_freq", "1")
    with pytest.raises(Failure, match="must match exactly one node") as caught:
        sysfs.plan({"path": "/sys/class/devfreq/*.gpu/min_freq", "value": 1}, tree.system())
    assert (", ".join(f"{name}/min_freq" for name in names[:1]) or "nothing") in caught.value.what


def test_a_star_inside_a_name_matches_within_that_name_only(tree: Tree) -> None:
    tree.write("sys/class/thermal/thermal_zone8/policy", "step_wise\n")
    tree.write("sys/class/thermal/cooling_device0/policy", "x")
    assert sysfs.resolve("/sys/class/thermal/thermal_*/policy", tree.system()).endswith("thermal_zone8/policy")


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("/etc/passwd", 1, "not below /sys"),
        ("/sys/*/x*", 1, "more than one"),
        ("/sys/x?", 1, "more than one"),
        ("/sys/x", True, "value is True"),
        ("/sys/x", [1], "value is"),
    ],
)
def test_wrong_arguments_are_refused(tree: Tree, path: str, value: Any, word: str) -> None:
    tree.write("sys/x", "1")
    with pytest.raises(Failure, match=word) as caught:
        sysfs.plan({"path": path, "value": value}, tree.system())
    assert caught.value.fault == "bad-input"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES, errno.EBUSY, errno.ENODEV])
def test_the_kernels_refusal_is_named(tree: Tree, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    tree.write("sys/x", "1\n")
    real = os.write

    def refuse(fd: int, data: bytes) -> int:
        if data == b"2\n":
            raise OSError(number, os.strerror(number))
        return real(fd, data)

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(Failure, match=errno.errorcode[number]) as caught:
        sysfs.apply({"path": "/sys/x", "value": 2}, tree.system())
    assert caught.value.where == "/sys/x"


def test_a_value_that_the_driver_limits_is_a_failure_that_shows_both(tree: Tree) -> None:
    tree.write("sys/x", "1\n")
    real = kernel.reading.text
    patch = pytest.MonkeyPatch()
    patch.setattr(kernel.reading, "text", lambda path: "950000000" if path.endswith("sys/x") else real(path))
    try:
        with pytest.raises(Failure, match="wrote '1000000000', but it reads '950000000'"):
            sysfs.apply({"path": "/sys/x", "value": 1000000000}, tree.system())
    finally:
        patch.undo()


def test_a_node_that_cannot_be_read_is_not_written(tree: Tree) -> None:
    tree.write("sys/x", "")
    with pytest.raises(Failure, match="cannot be read: empty"):
        sysfs.plan({"path": "/sys/x", "value": 1}, tree.system())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[none] mq-deadline kyber\n", "none"),
        ("always [madvise] never\n", "madvise"),
        ("4096\t131072\t6291456\n", "4096 131072 6291456"),
        ("[none]", "[none]"),
        ("performance\n", "performance"),
    ],
)
def test_the_value_in_force_is_found(text: str, value: str) -> None:
    assert kernel.value_in(text) == value


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("1", "1", True), ("0600000", "600000", True), ("1.0", "1", True), ("1", "2", False), ("on", "1", False)],
)
def test_numbers_are_compared_as_numbers(one: str, other: str, same: bool) -> None:
    assert kernel.equal(one, other) is same


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("vm.swappiness", "/proc/sys/vm/swappiness"),
        ("net/ipv4/conf/eth0.1/rp_filter", "/proc/sys/net/ipv4/conf/eth0.1/rp_filter"),
        ("net.ipv4.conf.eth0/1.rp_filter", "/proc/sys/net/ipv4/conf/eth0.1/rp_filter"),
    ],
)
def test_a_parameter_name_is_a_path_below_proc_sys(name: str, node: str) -> None:
    assert sysctl.node_of(name) == node


@pytest.mark.parametrize("name", ["../etc", "a..b", "", "/abs", "a b", None])
def test_a_parameter_name_that_leads_elsewhere_is_refused(name: Any) -> None:
    with pytest.raises(Failure, match="not the name of a kernel parameter"):
        sysctl.node_of(name)


def policies(tree: Tree, **governors: str) -> None:
    for policy, now in governors.items():
        base = f"sys/devices/system/cpu/cpufreq/{policy}/"
        tree.write(base + "scaling_governor", now + "\n")
        tree.write(base + "scaling_available_governors", "ondemand performance schedutil \n")


def test_the_governor_is_set_on_every_policy_that_has_another(tree: Tree) -> None:
    policies(tree, policy0="ondemand", policy4="performance")
    args = {"governor": "performance"}
    assert [change.before for change in governor.plan(args, tree.system()).changes] == ["ondemand"]
    governor.apply(args, tree.system())
    assert governor.plan(args, tree.system()).changes == ()
    assert all(entry["ok"] for entry in restore_scope(tree.system()))
    assert tree.read("sys/devices/system/cpu/cpufreq/policy0/scaling_governor") == "ondemand\n"


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ({"governor": "turbo"}, "does not know the governor 'turbo'; it knows ondemand performance"),
        ({"governor": "performance", "policies": ["policy9"]}, "no policy9 on this board; it has policy0"),
        ({"governor": "performance", "policies": "some"}, "policies is 'some'"),
    ],
)
def test_a_governor_or_policy_that_is_not_there_names_those_that_are(
    tree: Tree, args: dict[str, Any], word: str
) -> None:
    policies(tree, policy0="ondemand")
    with pytest.raises(Failure) as caught:
        governor.plan(args, tree.system())
    assert word in str(caught.value).replace(", performance", " performance").replace(
        "/sys/devices/system/cpu/cpufreq: ", ""
    )


def test_a_board_without_policies_is_a_failure_not_a_success(tree: Tree) -> None:
    with pytest.raises(Failure, match="no CPU frequency policies"):
        governor.plan({"governor": "performance"}, tree.system())
