"""Putting back: newest first, read back, as often as asked, and nothing of somebody else's is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import restore
from boardbench.remote.failures import Failure
from boardbench.remote.restore import restore_scope

from .fakes import FakeCall
from .trees import BOOT_ID, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def put_back(tree: Tree) -> dict[str, dict[str, Any]]:
    return {entry["what"]: entry for entry in restore_scope(tree.system())}


def test_kernel_values_are_written_back_newest_first_and_read_back(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from boardbench.remote.things import kernel

    tree.write("sys/gpu/max_freq", "612000000\n")
    tree.write("sys/gpu/min_freq", "306000000\n")
    system = tree.system()
    for name in ("max_freq", "min_freq"):
        system.note("kernel", f"/sys/gpu/{name}")
        kernel.write(f"/sys/gpu/{name}", "1020000000", system)
    order: list[str] = []
    real = kernel.write
    monkeypatch.setattr(kernel, "write", lambda name, *rest: (order.append(name), real(name, *rest)))
    restored = put_back(tree)
    assert order == ["/sys/gpu/min_freq", "/sys/gpu/max_freq"]
    assert tree.read("sys/gpu/max_freq") == "612000000\n"
    assert restored["/sys/gpu/min_freq"] == {
        "what": "/sys/gpu/min_freq",
        "before": "1020000000",
        "after": "306000000",
        "ok": True,
        "why": "",
    }


def test_after_a_reboot_a_kernel_value_is_back_by_itself_and_that_is_said(tree: Tree) -> None:
    tree.write("sys/x", "1\n")
    tree.system().note("kernel", "/sys/x")
    tree.write(BOOT_ID, "boot-2")
    assert "rebooted" in put_back(tree)["/sys/x"]["why"]


def test_after_a_reboot_a_kernel_value_that_reads_otherwise_is_written(tree: Tree) -> None:
    tree.write("sys/x", "1\n")
    tree.system().note("kernel", "/sys/x")
    tree.write(BOOT_ID, "boot-2")
    tree.write("sys/x", "5\n")
    assert put_back(tree)["/sys/x"]["ok"]
    assert tree.read("sys/x") == "1\n"


def test_a_node_that_is_gone_is_not_ok_and_keeps_the_journal_but_not_the_others(tree: Tree) -> None:
    tree.write("sys/gone", "1\n")
    tree.write("sys/there", "1\n")
    tree.system().note("kernel", "/sys/gone")
    tree.system().note("kernel", "/sys/there")
    (tree.root / "sys/gone").unlink()
    tree.write("sys/there", "2\n")
    restored = put_back(tree)
    assert not restored["/sys/gone"]["ok"]
    assert "cannot be read" in restored["/sys/gone"]["why"]
    assert restored["/sys/there"]["ok"]
    tree.write("sys/gone", "3\n")
    assert all(entry["ok"] for entry in put_back(tree).values())
    assert tree.read("sys/gone") == "1\n"
    assert put_back(tree) == {}


def test_files_come_back_with_content_mode_and_link(tree: Tree) -> None:
    tree.write("etc/conf", "old", mode=0o600)
    (tree.root / "etc/link").symlink_to("conf")
    before = tree.snapshot()
    for name in ("/etc/conf", "/etc/link", "/etc/new"):
        tree.system().note("path", name)
    tree.write("etc/conf", "new", mode=0o644)
    (tree.root / "etc/link").unlink()
    tree.write("etc/link", "a file now")
    tree.write("etc/new", "x")
    assert all(entry["ok"] for entry in put_back(tree).values())
    assert tree.snapshot() == before


def test_a_folder_of_ours_stays_when_somebody_put_something_into_it(tree: Tree) -> None:
    tree.system().note("path", "/opt/ours")
    (tree.root / "opt/ours").mkdir()
    tree.write("opt/ours/precious", "not ours")
    restored = put_back(tree)["/opt/ours"]
    assert not restored["ok"]
    assert "precious" in restored["why"]
    assert tree.read("opt/ours/precious") == "not ours"


def test_a_payload_folder_goes_with_what_its_runs_left_in_it(tree: Tree) -> None:
    tree.system().note("tree", "/opt/payload")
    tree.write("opt/payload/deep/cache", "x")
    (tree.root / "opt/payload/out").symlink_to("/etc")
    assert put_back(tree)["folder /opt/payload"]["ok"]
    assert not (tree.root / "opt/payload").exists()
    assert (tree.root / "etc").is_dir()


def test_a_unit_is_stopped_and_removed_before_its_file_goes(tree: Tree) -> None:
    before = tree.snapshot()
    system = tree.system()
    system.note("path", "/etc/systemd")
    system.note("path", "/etc/systemd/system")
    (tree.root / "etc/systemd/system").mkdir(parents=True)
    system.note("unit", "x.service")
    tree.write("etc/systemd/system/x.service", "[Service]\n")
    tree.units.enable("x.service")
    tree.units.start("x.service")
    restored = put_back(tree)
    assert restored["unit x.service"]["before"] == "enabled, active"
    assert restored["unit x.service"]["after"] == "absent"
    assert all(entry["ok"] for entry in restored.values())
    assert tree.units.calls == ["start x.service", "stop x.service", "reload"]
    assert tree.snapshot() == before


def test_a_unit_that_ran_before_runs_again_with_its_old_file(tree: Tree) -> None:
    tree.write("etc/systemd/system/fan.service", "old", mode=0o644)
    tree.units.enable("fan.service")
    tree.units.active.add("fan.service")
    tree.system().note("unit", "fan.service")
    tree.units.stop("fan.service")
    tree.units.disable("fan.service")
    tree.write("etc/systemd/system/fan.service", "new", mode=0o644)
    assert put_back(tree)["unit fan.service"]["after"] == "enabled, active"
    assert tree.read("etc/systemd/system/fan.service") == "old"


def test_a_package_that_others_need_by_now_stays(tree: Tree) -> None:
    query = ["/usr/bin/dpkg-query"]
    tree.answer(query, code=1)
    tree.system().note("package", "libfoo")
    tree.answer(query, "installed 1.2")
    tree.answer(["/usr/bin/apt-get"], "Purg theirs [1]\nPurg libfoo [1.2]\n")
    restored = put_back(tree)["package libfoo"]
    assert not restored["ok"]
    assert "theirs" in restored["why"]
    assert all("-s" in command for command in tree.commands if command[0].endswith("apt-get"))


def test_a_package_that_we_brought_is_purged_and_the_read_back_counts(tree: Tree) -> None:
    query = ["/usr/bin/dpkg-query"]
    tree.answer(query, code=1)
    tree.system().note("package", "stress")
    tree.answer(query, "installed 1.2")
    tree.answer(["/usr/bin/apt-get"], "Purg stress [1.2]\n")
    restored = put_back(tree)["package stress"]
    assert tree.commands[-2][-2:] == ["purge", "stress"]
    assert not restored["ok"], "dpkg still says that it is installed"


PASSWD = "root:x:0:0:root:/root:/bin/bash\n"


def test_a_user_that_we_made_is_removed_with_its_home(tree: Tree) -> None:
    tree.write("etc/passwd", PASSWD)
    tree.write("etc/group", "root:x:0:\n")
    tree.system().note("user", "bench")
    tree.write("etc/passwd", PASSWD + "bench:x:1000:1000::/home/bench:/bin/sh\n")
    tree.answer(["/usr/sbin/userdel"])
    restored = put_back(tree)["user bench"]
    assert ["/usr/sbin/userdel", "--remove", "bench"] in tree.commands
    assert not restored["ok"], "the user is still in passwd"
    tree.write("etc/passwd", PASSWD)
    assert put_back(tree)["user bench"]["ok"]


def call(tree: Tree) -> Any:
    return FakeCall(tree.places)


def test_purge_is_refused_while_something_is_to_be_put_back(tree: Tree) -> None:
    tree.write("sys/x", "1\n")
    tree.system("campaign-1").note("kernel", "/sys/x")
    assert restore.scopes({}, call(tree)) == {"scopes": [{"scope": "campaign-1", "changes": 1}]}
    with pytest.raises(Failure, match="not put back yet: campaign-1"):
        restore.purge({}, call(tree))


def test_purge_is_refused_while_a_run_is_installed(tree: Tree) -> None:
    tree.write("run/systemd/system/boardbench-run-7.service", "")
    with pytest.raises(Failure, match=r"boardbench-run-7\.service.*\./inv collect"):
        restore.purge({}, call(tree))


@pytest.mark.parametrize("phase", ["started", "finished"])
def test_purge_throws_no_run_away_that_nobody_has_fetched(tree: Tree, phase: str) -> None:
    tree.write("var/lib/boardbench/runs/7/run-state.json", f'{{"run": "7", "phase": "{phase}"}}')
    with pytest.raises(Failure, match=r"nobody has fetched: 7.*\./inv collect.*/var/lib/boardbench/runs/7"):
        restore.purge({}, call(tree))
    assert (tree.root / "var/lib/boardbench/runs/7/run-state.json").is_file()


def test_purge_leaves_nothing_of_ours_and_everything_else(tree: Tree) -> None:
    tree.write("etc/theirs", "x")
    before = tree.snapshot()
    tree.write("var/lib/boardbench/programs/abc/main.py", "x")
    tree.write("run/boardbench/lease.json", "{}")
    (tree.root / "opt/boardbench/payloads").mkdir(parents=True)
    removed = restore.purge({}, call(tree))["removed"]
    assert removed == ["/var/lib/boardbench", "/run/boardbench", "/opt/boardbench/payloads", "/opt/boardbench"]
    assert tree.snapshot() == before
    assert not os.path.exists(tree.places.run)


def test_restoring_a_scope_that_was_never_used_is_a_success(tree: Tree) -> None:
    assert restore.restore({"scope": "provision"}, call(tree)) == {"restored": []}


def test_a_journal_from_another_version_does_not_stop_the_rest(tree: Tree) -> None:
    tree.write("sys/x", "1\n")
    tree.system().note("kernel", "/sys/x")
    path = tree.root / "var/lib/boardbench/journal/provision.jsonl"
    with path.open("a") as file:
        file.write(json.dumps({"kind": "martian", "name": "m", "state": {}}) + "\n")
    tree.write("sys/x", "2\n")
    restored = put_back(tree)
    assert not restored["m"]["ok"]
    assert tree.read("sys/x") == "1\n"
    assert path.exists()
