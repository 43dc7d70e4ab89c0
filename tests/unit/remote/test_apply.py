"""Steps: order, conditions, check mode, and the proof after a change."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import apply as apply_module
from boardbench.remote.apply import Facts, Outcome, run_step
from boardbench.remote.failures import Failure
from boardbench.remote.journal import Lock

from .fakes import FakeCall
from .trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.write("proc/sys/vm/swappiness", "60\n")
    return made


def file_step(path: str, content: str, **more: Any) -> dict[str, Any]:
    return {"id": f"file {path}", "resource": "file", "args": {"path": path, "content": content}, **more}


SWAPPINESS = {"id": "swap", "resource": "sysctl", "args": {"name": "vm.swappiness", "value": 10}}


def one(tree: Tree, step: dict[str, Any], *, check: bool = False, diff: bool = False) -> Outcome:
    system = tree.system(None if check else "provision")
    return run_step(step, system, Facts(system), diff=diff)


def run(tree: Tree, steps: list[dict[str, Any]], **args: Any) -> tuple[dict[str, int], list[dict[str, Any]]]:
    call: Any = FakeCall(tree.places)
    value = apply_module.apply({"scope": "provision", "steps": steps, **args}, call)
    return value["recap"], [fields for name, fields in call.events if name == "step"]


def test_steps_run_in_order_and_a_second_time_changes_nothing(tree: Tree) -> None:
    steps = [
        {"id": "d", "resource": "directory", "args": {"path": "/etc/bench", "mode": "0750"}},
        file_step("/etc/bench/a", "x\n"),
        SWAPPINESS,
    ]
    recap, events = run(tree, steps)
    assert recap == {"ok": 0, "changed": 3, "skipped": 0, "failed": 0}
    assert [event["id"] for event in events] == ["d", "file /etc/bench/a", "swap"]
    assert events[2]["changes"] == [{"what": "/proc/sys/vm/swappiness", "before": "60", "after": "10"}]
    before = tree.snapshot()
    recap, events = run(tree, steps)
    assert recap["ok"] == 3
    assert tree.snapshot() == before
    assert run(tree, steps, check=True)[0]["ok"] == 3


def test_check_mode_says_what_would_change_and_touches_nothing_at_all(tree: Tree) -> None:
    steps = [
        {"id": "d", "resource": "directory", "args": {"path": "/etc/bench"}},
        file_step("/etc/bench/a", "x\n"),
        {"id": "blob", "resource": "file", "args": {"path": "/etc/b", "blob": "0" * 64, "size": 10}},
        SWAPPINESS,
        {"id": "run", "resource": "command", "args": {"argv": ["/bin/touch", str(tree.root / "made")]}},
    ]
    everything = sorted(tree.root.rglob("*"))
    recap, events = run(tree, steps, check=True, diff=True)
    assert recap == {"ok": 0, "changed": 5, "skipped": 0, "failed": 0}
    assert "+x" in events[1]["diff"]
    assert "10 bytes" in events[2]["diff"]
    assert sorted(tree.root.rglob("*")) == everything
    assert tree.read("proc/sys/vm/swappiness") == "60\n"


def test_a_resource_that_forgets_check_mode_is_stopped_by_the_journal(tree: Tree) -> None:
    from boardbench.remote.resources import sysctl

    with pytest.raises(Failure) as caught:
        sysctl.apply(SWAPPINESS["args"], tree.system(None))  # type: ignore[arg-type]
    assert caught.value.fault == "bug"
    assert tree.read("proc/sys/vm/swappiness") == "60\n"


def test_after_a_failed_step_the_rest_is_skipped_with_the_reason(tree: Tree) -> None:
    steps = [SWAPPINESS, file_step("/no/such/folder/a", "x"), file_step("/etc/b", "x")]
    recap, events = run(tree, steps)
    assert recap == {"ok": 0, "changed": 1, "skipped": 1, "failed": 1}
    assert "folder for it does not exist" in events[1]["message"]
    assert events[2]["state"] == "skipped"
    assert "file /no/such/folder/a failed" in events[2]["message"]
    assert not (tree.root / "etc/b").exists()
    assert run(tree, steps, stop_on_failure=False)[0] == {"ok": 1, "changed": 1, "skipped": 0, "failed": 1}


@pytest.mark.parametrize(
    ("when", "state"),
    [
        ({"boot_id": "boot-1"}, "changed"),
        ({"boot_id": "boot-9"}, "skipped"),
        ({"compatible": "rockchip,rk3576"}, "changed"),
        ({"compatible": "nvidia,tegra234"}, "skipped"),
        ({"compatible": ["a", "rockchip,rk3576"]}, "changed"),
        ({"clock.monotonic_s": -1}, "skipped"),
        ({"boot_id": "boot-1", "arch": "none"}, "skipped"),
        ({"virtual": None}, "changed"),
    ],
)
def test_when_compares_facts_by_equality(tree: Tree, when: dict[str, Any], state: str) -> None:
    tree.write("proc/device-tree/compatible", b"a\0rockchip,rk3576\0")
    assert one(tree, dict(SWAPPINESS, when=when)).state == state


@pytest.mark.parametrize(
    ("when", "word"),
    [
        ({"colour": "red"}, "no fact 'colour'"),
        ({"clock.x": 1}, "no fact 'clock.x'"),
        ({"uptime_s": 1}, "cannot be read"),
    ],
)
def test_a_fact_that_is_unknown_or_missing_fails_the_step(tree: Tree, when: dict[str, Any], word: str) -> None:
    outcome = one(tree, dict(SWAPPINESS, when=when))
    assert outcome.state == "failed"
    assert word in outcome.message


def test_a_change_that_does_not_hold_is_a_failure(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from boardbench.remote.things import paths

    monkeypatch.setattr(paths, "write", lambda path, *_: Path(path).write_text("somebody else's"))
    outcome = one(tree, file_step("/etc/a", "ours"))
    assert outcome.state == "failed"
    assert "after the change it reads" in outcome.message


def test_a_secret_step_shows_neither_values_nor_a_diff(tree: Tree) -> None:
    outcome = one(tree, file_step("/etc/key", "hunter2\n", secret=True), diff=True)
    assert outcome.state == "changed"
    assert outcome.diff == ""
    assert outcome.changes == [{"what": "/etc/key", "before": "(secret)", "after": "(secret)"}]


def test_a_diff_is_only_made_when_asked_for(tree: Tree) -> None:
    tree.write("etc/a", "one\ntwo\n")
    assert one(tree, file_step("/etc/a", "one\n2\n"), check=True).diff == ""
    assert one(tree, file_step("/etc/a", "one\n2\n"), check=True, diff=True).diff.endswith(" one\n-two\n+2\n")


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ({"resource": "firmware", "args": {}}, "unknown resource 'firmware'"),
        ({"resource": "file", "args": {"path": "/a", "colour": 1}}, "unknown argument colour"),
        ({"resource": "file", "args": {}}, "argument path is missing"),
        ({"resource": "file", "args": {"path": "etc/x", "content": ""}}, "not an absolute path"),
        ({"resource": "file", "args": {"path": "/etc/../x", "content": ""}}, "not an absolute path"),
        ({"resource": "file", "args": {"path": "/x", "state": "gone"}}, "state is 'gone'"),
        ({"resource": "file", "args": 5}, "args is not a mapping"),
        ({"resource": "file", "args": {"path": "/x", "content": "", "mode": 420}}, "mode is 420"),
        ({"resource": "file", "args": {"path": "/x", "content": "", "owner": "nobody-at-all"}}, "does not exist"),
    ],
)
def test_a_wrong_step_fails_in_one_clear_sentence(tree: Tree, step: dict[str, Any], word: str) -> None:
    outcome = one(tree, {"id": "x", **step})
    assert outcome.state == "failed"
    assert word in outcome.message


def test_a_board_is_not_changed_by_two_calls_at_once(tree: Tree) -> None:
    with Lock(tree.places), pytest.raises(Failure, match="another call"):
        run(tree, [SWAPPINESS])
    with Lock(tree.places):
        assert run(tree, [SWAPPINESS], check=True)[0]["changed"] == 1


def test_a_blob_is_removed_once_it_is_installed(tree: Tree) -> None:
    blob = tree.blob(b"\0binary")
    outcome = one(tree, {"id": "b", "resource": "file", "args": {"path": "/etc/b", **blob}})
    assert outcome.state == "changed"
    assert (tree.root / "etc/b").read_bytes() == b"\0binary"
    assert not (tree.root / "var/lib/boardbench/blobs" / blob["blob"]).exists()
    tree.fetched.clear()
    assert one(tree, {"id": "b", "resource": "file", "args": {"path": "/etc/b", **blob}}).state == "ok"
    assert tree.fetched == []


def test_a_program_that_fails_tells_its_last_words(tree: Tree) -> None:
    argv = [sys.executable, "-c", "import sys; print('first'); print('no space left'); sys.exit(3)"]
    recap, events = run(tree, [{"id": "c", "resource": "command", "args": {"argv": argv}}])
    assert recap["failed"] == 1
    assert "exit code 3: first | no space left" in events[0]["message"]
