"""`unit` and `payload`: installed whole, started and proved, and gone without a trace."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import programs
from boardbench.remote.apply import Facts, run_step
from boardbench.remote.failures import Failure
from boardbench.remote.resources import payload, unit
from boardbench.remote.restore import restore_scope

from .trees import Tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unit files belong to root: only root can install them")

UNIT = "[Service]\nExecStart=/bin/true\n"
ROOT = "/opt/boardbench/payloads/burn"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(unit, "_SETTLE_S", 0.02)
    return Tree(tmp_path)


def put_back(tree: Tree) -> None:
    restored = restore_scope(tree.system())
    assert all(entry["ok"] for entry in restored), restored


def test_a_unit_is_written_enabled_started_and_all_of_it_goes_again(tree: Tree) -> None:
    before = tree.snapshot()
    args = {"name": "x.service", "content": UNIT, "enabled": True, "active": True}
    assert len(unit.plan(args, tree.system()).changes) == 3
    unit.apply(args, tree.system())
    assert unit.plan(args, tree.system()).changes == ()
    assert tree.units.calls == ["reload", "start x.service"]
    put_back(tree)
    assert tree.snapshot() == before


def test_a_changed_file_restarts_a_unit_that_runs_and_only_that(tree: Tree) -> None:
    for name, active in (("on.service", True), ("off.service", False)):
        unit.apply({"name": name, "content": UNIT, "active": active}, tree.system())
    tree.units.calls.clear()
    for name in ("on.service", "off.service"):
        unit.apply({"name": name, "content": UNIT + "Nice=5\n"}, tree.system())
    assert tree.units.calls == ["reload", "restart on.service", "reload"]


def test_a_unit_that_dies_at_once_is_a_failure(tree: Tree) -> None:
    args = {"name": "x.service", "content": UNIT + "# dies-at-once\n", "active": True}
    with pytest.raises(Failure, match="not active \\(result exit-code, exit code 1\\)"):
        unit.apply(args, tree.system())


def test_a_unit_that_does_not_exist_cannot_be_started_but_may_be_off(tree: Tree) -> None:
    assert unit.plan({"name": "x.service", "active": False, "enabled": False}, tree.system()).changes == ()
    (change,) = unit.plan({"name": "x.service", "active": True}, tree.system()).changes
    assert change.before == "absent"
    with pytest.raises(Failure, match="no such unit"):
        unit.apply({"name": "x.service", "active": True}, tree.system())


def test_a_unit_of_the_distribution_is_stopped_and_runs_again_after_restore(tree: Tree) -> None:
    tree.units.vendor.add("nvfancontrol.service")
    tree.units.active.add("nvfancontrol.service")
    unit.apply({"name": "nvfancontrol.service", "active": False}, tree.system())
    assert tree.units.active == set()
    put_back(tree)
    assert tree.units.active == {"nvfancontrol.service"}


def test_an_absent_unit_is_stopped_disabled_and_removed(tree: Tree) -> None:
    unit.apply({"name": "x.service", "content": UNIT, "enabled": True, "active": True}, tree.system())
    removal = {"name": "x.service", "state": "absent"}
    unit.apply(removal, tree.system())
    assert unit.plan(removal, tree.system()).changes == ()
    assert not (tree.root / "etc/systemd/system/x.service").exists()


@pytest.mark.parametrize("name", ["x", "../x.service", "-x.service", "a b.service"])
def test_a_unit_name_is_checked(tree: Tree, name: str) -> None:
    with pytest.raises(Failure, match="not the name of a unit"):
        unit.plan({"name": name, "active": True}, tree.system())


def burn(tree: Tree, code: bytes = b"#!/bin/sh\n", version: str = "1", **more: Any) -> dict[str, Any]:
    return {
        "name": "burn",
        "version_sha256": version * 64,
        "root": ROOT,
        "files": [
            {"path": "burn.py", "mode": "0755", **tree.blob(code)},
            {"path": "data/table.txt", "mode": "0644", **tree.blob(b"1\n")},
        ],
        "units": [{"name": "burn.service", "enabled": True, "active": True, **tree.blob(UNIT.encode())}],
        "settings": {"threads": 4},
        "health": None,
        "conflicts": [],
        "harness": {"executables": [], "scripts": [f"{ROOT}/burn.py"], "units": ["burn.service"]},
        **more,
    }


def test_a_payload_is_installed_recorded_and_leaves_no_trace(tree: Tree) -> None:
    before = tree.snapshot()
    args = burn(tree)
    payload.apply(args, tree.system())
    assert payload.plan(args, tree.system()).changes == ()
    installed = tree.root / ROOT[1:]
    assert (installed / "burn.py").stat().st_mode & 0o7777 == 0o755
    assert json.loads((installed / "settings.json").read_text()) == {"threads": 4}
    record = json.loads(tree.read("var/lib/boardbench/payloads/burn.json"))
    assert record["harness"]["scripts"] == [f"{ROOT}/burn.py"]
    assert tree.units.active == {"burn.service"}
    (installed / "__pycache__").mkdir()
    put_back(tree)
    assert tree.snapshot() == before
    assert not (tree.root / "var/lib/boardbench/payloads").exists()


def test_which_libraries_a_payload_brought_stands_in_its_record_and_others_are_a_change(tree: Tree) -> None:
    wanted = {"python": "3.12", "arch": "aarch64", "wheels": ["small==1.0"]}
    payload.apply(burn(tree), tree.system())
    assert "libraries" not in json.loads(tree.read("var/lib/boardbench/payloads/burn.json"))
    args = burn(tree, libraries=wanted)
    assert len(payload.plan(args, tree.system()).changes) == 1
    payload.apply(args, tree.system())
    assert json.loads(tree.read("var/lib/boardbench/payloads/burn.json"))["libraries"] == wanted
    assert payload.plan(args, tree.system()).changes == ()
    assert len(payload.plan(burn(tree, libraries={**wanted, "python": "3.13"}), tree.system()).changes) == 1


def test_only_what_differs_is_asked_for(tree: Tree) -> None:
    payload.apply(burn(tree), tree.system())
    tree.fetched.clear()
    args = burn(tree, b"#!/bin/sh\n# new\n", version="2")
    assert payload.blobs(args, tree.system()) == [args["files"][0]["blob"]]
    payload.apply(args, tree.system())
    assert tree.fetched == [args["files"][0]["blob"]]


def test_a_new_version_removes_old_files_and_restarts_its_unit(tree: Tree) -> None:
    payload.apply(burn(tree), tree.system())
    tree.units.calls.clear()
    args = burn(tree, version="2")
    args["files"] = args["files"][:1]
    payload.apply(args, tree.system())
    assert not (tree.root / ROOT[1:] / "data/table.txt").exists()
    assert tree.units.calls == ["restart burn.service"]
    assert payload.plan(args, tree.system()).changes == ()


def test_a_file_that_was_changed_on_the_board_is_put_right(tree: Tree) -> None:
    args = burn(tree)
    payload.apply(args, tree.system())
    (tree.root / ROOT[1:] / "burn.py").write_text("tampered")
    (change,) = payload.plan(args, tree.system()).changes
    assert change.what == f"{ROOT}/burn.py"
    payload.apply(args, tree.system())
    assert payload.plan(args, tree.system()).changes == ()


def test_an_absent_payload_is_gone_and_restore_of_another_scope_brings_it_back(tree: Tree) -> None:
    args = burn(tree)
    payload.apply(args, tree.system("provision"))
    before = tree.snapshot()
    removal = {"name": "burn", "root": ROOT, "state": "absent"}
    payload.apply(removal, tree.system("campaign-1"))
    assert payload.plan(removal, tree.system("campaign-1")).changes == ()
    assert not (tree.root / ROOT[1:]).exists()
    assert tree.units.active == set()
    restored = restore_scope(tree.system("campaign-1"))
    assert all(entry["ok"] for entry in restored), restored
    assert tree.snapshot() == before
    assert payload.plan(args, tree.system()).changes == ()


def test_a_payload_is_refused_while_a_conflicting_unit_runs(tree: Tree) -> None:
    tree.units.active.add("npu-node.service")
    args = burn(tree, conflicts=["npu-node.service"])
    assert "npu-node.service" in payload.plan(args, tree.system(None)).message
    before = tree.snapshot()
    with pytest.raises(Failure, match=r"npu-node\.service is active and conflicts"):
        payload.apply(args, tree.system())
    assert tree.snapshot() == before


def test_a_payload_that_says_it_is_ill_fails(tree: Tree) -> None:
    args = burn(tree, health=["./burn.py", "--check"])
    tree.answer([f"{tree.root}{ROOT}/burn.py"], "no NPU found\n", code=2)
    payload.apply(args, tree.system())
    with pytest.raises(Failure, match="ended with 2: no NPU found"):
        payload.finish(args, tree.system())


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a//b"])
def test_a_file_cannot_leave_the_payload(tree: Tree, path: str) -> None:
    args = burn(tree)
    args["files"][0]["path"] = path
    with pytest.raises(Failure, match="not a plain path inside the payload"):
        payload.plan(args, tree.system())


def test_a_full_disk_is_said_before_anything_is_written(tree: Tree) -> None:
    args = burn(tree)
    args["files"][0]["size"] = 10**18
    before = tree.snapshot()
    step = {"id": "burn", "resource": "payload", "args": args}
    outcome = run_step(step, tree.system(), Facts(tree.system()), diff=False)
    assert outcome.state == "failed"
    assert "are free" in outcome.message
    assert tree.fetched == []
    assert tree.snapshot() == before


def test_a_program_that_takes_too_long_is_ended() -> None:
    with pytest.raises(Failure, match=r"not done within 0\.2 s") as caught:
        programs.run([sys.executable, "-c", "import time; time.sleep(30)"], deadline_s=0.2)
    assert caught.value.transient


def test_a_program_gets_an_empty_input_and_a_plain_locale() -> None:
    code = "import os, sys; print(repr(sys.stdin.read()), os.environ['LC_ALL'])"
    assert programs.run([sys.executable, "-c", code], deadline_s=20).output == "'' C\n"
