"""`look` reads what the gates judge, where it acts; what it cannot read it says; and it changes nothing."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import look, look_load, pings, run_after, wire
from boardbench.remote.failures import Failure
from boardbench.remote.places import Places

from .fakes import FakeCall, FakeManager, board_places
from .trees import BOOT_ID, Tree

CPUFREQ = "sys/devices/system/cpu/cpufreq/policy0/"
LIMITS = {"scaling_max_freq": "1608000", "cpuinfo_max_freq": "2208000", "scaling_governor": "performance"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    found = Tree(tmp_path)
    found.write("proc/sys/kernel/hostname", "king\n")
    found.write("proc/sys/kernel/osrelease", "6.1.99\n")
    found.write("proc/cmdline", "root=/dev/mmcblk0 androidboot.fwver=bl31-v1.24 quiet\n")
    found.write("proc/loadavg", "0.10 0.20 0.30 1/99 4711\n")
    found.write("proc/stat", "cpu  10 0 10 80 0 0 0 0 0 0\n")
    found.write("proc/sys/vm/drop_caches", "0\n")
    found.write("etc/machine-id", "abc\n")
    found.write("etc/rom-version", "20260721\n")
    found.write("opt/boardbench/payloads/burn/burn.py", "print()\n", 0o755)
    for name, value in LIMITS.items():
        found.write(CPUFREQ + name, value + "\n")
    return found


@pytest.fixture(autouse=True)
def manager(monkeypatch: pytest.MonkeyPatch, tree: Tree) -> None:
    monkeypatch.setattr(tree.units, "unit_of", lambda _: None, raising=False)
    monkeypatch.setattr("boardbench.remote.services.detect", lambda _: tree.units)


def looked(tree: Tree, **args: Any) -> dict[str, Any]:
    call: Any = FakeCall(tree.places)
    asked = {"path": "/var/lib/boardbench", "hashes": True, "probe": True, "sample_s": 0.01, **args}
    found: dict[str, Any] = look.look(asked, call)["look"]
    json.dumps(found, allow_nan=False)
    return found


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder: mode, time of change, content."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [root, *root.rglob("*")]
    }


def test_it_reads_identity_image_and_payloads_where_they_act(tree: Tree) -> None:
    found = looked(tree)
    assert found["board"] == {"hostname": "king", "machine_id": "abc", "serial": None, "boot_id": "boot-1"}
    assert found["image"]["kernel"] == "6.1.99"
    assert found["image"]["rom_version"] == "20260721"
    assert found["image"]["bootloader"] == "bl31-v1.24"
    assert found["image"]["l4t_release"] == {"missing": "not there"}
    assert found["runtime"]["rknpu_driver"] == {"missing": "not there"}
    assert len(found["payloads"]["burn"]) == 64


def test_it_leaves_every_file_of_the_board_as_it_was(tree: Tree) -> None:
    before = snapshot(tree.root)
    looked(tree)
    assert snapshot(tree.root) == before


def test_a_payload_with_another_byte_mode_or_file_has_another_hash(tree: Tree) -> None:
    def now() -> Any:
        return looked(tree)["payloads"]["burn"]

    seen = [now()]
    tree.write("opt/boardbench/payloads/burn/burn.py", "print(1)\n", 0o755)
    seen.append(now())
    (tree.root / "opt/boardbench/payloads/burn/burn.py").chmod(0o644)
    seen.append(now())
    tree.write("opt/boardbench/payloads/burn/more.py", "")
    seen.append(now())
    assert len(set(seen)) == 4
    tree.write("opt/boardbench/payloads/burn/__pycache__/burn.pyc", "x")
    assert now() == seen[-1]


def test_libraries_are_told_as_recorded_with_what_is_not_as_it_was_put_there(tree: Tree) -> None:
    wanted = {"python": "3.12", "arch": "aarch64", "wheels": ["small==1.0"]}
    root = "opt/boardbench/payloads/libraries/"
    contents = {name: f"# {name}\n" for name in ("same.py", "other.py", "gone.py")}
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
    record = {"name": "libraries", "files": {**hashes, "settings.json": None}, "libraries": wanted}
    tree.write("var/lib/boardbench/payloads/libraries.json", json.dumps(record))
    for name, text in {**contents, "settings.json": "{}"}.items():
        tree.write(root + name, text)
    assert looked(tree)["libraries"] == {"libraries": {**wanted, "changed": []}}
    tree.write(root + "other.py", "x = 1\n")
    tree.write(root + "added.py", "")
    tree.write(root + "__pycache__/other.pyc", "")
    (tree.root / (root + "gone.py")).unlink()
    assert looked(tree)["libraries"]["libraries"]["changed"] == ["added.py", "gone.py", "other.py"]


def test_a_payload_without_a_record_of_libraries_is_told_to_have_none(tree: Tree) -> None:
    assert looked(tree)["libraries"] == {}
    tree.write("var/lib/boardbench/payloads/burn.json", json.dumps({"name": "burn", "files": {}}))
    assert looked(tree)["libraries"] == {}
    assert looked(tree, hashes=False)["libraries"] is None


def test_a_cap_is_told_with_the_scopes_that_noted_it(tree: Tree) -> None:
    assert looked(tree)["cpu_policies"][0]["capped_by"] == []
    note = {"kind": "kernel", "name": f"/{CPUFREQ}scaling_max_freq", "state": {}}
    tree.write("var/lib/boardbench/journal/campaign-1.jsonl", json.dumps(note) + "\n" + '{"torn": ')
    policy = looked(tree)["cpu_policies"][0]
    assert (policy["capped_by"], policy["max_khz"], policy["hw_max_khz"]) == (["campaign-1"], 1608000, 2208000)


def test_the_probe_says_why_a_file_system_takes_no_data(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked(tree)["disk"]["probe"] == {"ok": True, "why": ""}
    assert looked(tree, probe=False)["disk"]["probe"] is None

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    probe = looked(tree)["disk"]["probe"]
    assert not probe["ok"]
    assert "Input/output error" in probe["why"]


def test_page_caches_that_cannot_be_dropped_are_said_to_be_so(tree: Tree) -> None:
    assert looked(tree)["drop_caches"] == {"ok": True, "why": ""}
    (tree.root / "proc/sys/vm/drop_caches").unlink()
    assert not looked(tree)["drop_caches"]["ok"]


@pytest.mark.parametrize(
    "args", [{"path": "x"}, {"sample_s": -1}, {"round_trips": 99}, {"paths": []}, {"except_runs": "a"}]
)
def test_wrong_arguments_are_refused(tree: Tree, args: dict[str, Any]) -> None:
    with pytest.raises(Failure):
        looked(tree, **args)


def test_the_shortest_round_trip_gives_the_offset(tree: Tree) -> None:
    class Ahead(FakeCall):
        def ping(self) -> float:
            self.phase("ping", "")
            time.sleep(0.0 if len(self.events) == 2 else 0.05)
            return time.time() - 7.0

    call: Any = Ahead(tree.places)
    found = pings.clock(call, 3)
    assert len(found["round_trips_s"]) == 3
    assert found["offset_s"] == pytest.approx(7.0, abs=found["error_s"] + 0.02)
    assert found["error_s"] == pytest.approx(min(found["round_trips_s"]) / 2, abs=1e-5)
    assert pings.clock(call, 0)["offset_s"] == {"missing": "no round trip was asked for"}


def test_offset_and_its_bound_by_arithmetic() -> None:
    assert pings.offset(100.0, 90.0, 102.0) == (11.0, 1.0)


def test_the_share_of_busy_cpus_comes_from_the_first_line_of_stat() -> None:
    before = look_load.cpu_ticks(["cpu", "100", "0", "100", "800", "0", "0", "0", "0", "50", "0"])
    after = look_load.cpu_ticks(["cpu", "150", "0", "150", "900", "0", "0", "0", "0", "90", "0"])
    assert before == (200, 1000)
    assert look_load.busy_share(before, after) == 0.5
    assert "missing" in look_load.busy_share(None, after)
    assert "missing" in look_load.busy_share(before, before)
    assert look_load.cpu_ticks(["cpu0", "1", "2", "3", "4", "5", "6"]) is None


@pytest.fixture
def burner() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield child
    child.kill()
    child.wait()


def test_a_process_that_burns_cpu_is_named(tmp_path: Path, burner: subprocess.Popen[bytes]) -> None:
    places = board_places(tmp_path)
    deadline = time.monotonic() + 20
    while True:
        found = look_load.watch(places, FakeManager(places), 0.5)["processes"]
        mine = [entry for entry in found if entry["pid"] == burner.pid]
        if mine or time.monotonic() > deadline:
            break
    assert mine
    assert mine[0]["cpu_share"] > 0.1
    assert os.path.realpath(sys.executable) == mine[0]["exe"]


def test_only_a_load_whose_lock_is_held_is_registered(tmp_path: Path) -> None:
    places = Places(str(tmp_path))
    assert look_load.registered(places) is None
    folder = tmp_path / "run/boardbench-virtual/load"
    folder.mkdir(parents=True)
    path = folder / "7.json"
    path.write_text('{"cpu_threads": 8}')
    assert look_load.registered(places) == []
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert look_load.registered(places) == [{"name": "7.json", "load": {"cpu_threads": 8}}]


def test_settings_that_somebody_wrote_over_are_found_after_the_load(tree: Tree) -> None:
    path = f"/{CPUFREQ}scaling_governor"
    step = {"id": "governor", "resource": "sysfs", "args": {"path": path, "value": "performance"}, "line": "m.yml:1"}
    call: Any = FakeCall(tree.places)
    state: dict[str, Any] = {"settings": [step], "scope": "campaign-1", "scope_noted": True}
    assert "put back since" in run_after.settings(state, call)["why"]
    note = {"kind": "kernel", "name": path, "state": {}}
    tree.write("var/lib/boardbench/journal/campaign-1.jsonl", json.dumps(note) + "\n")
    assert run_after.settings(state, call)["ok"]
    tree.write(CPUFREQ + "scaling_governor", "ondemand\n")
    entry = run_after.settings(state, call)
    assert not entry["ok"]
    assert "governor" in entry["why"]
    unchanged = {"settings": [step], "scope": "campaign-2", "scope_noted": False}
    assert not run_after.settings(unchanged, call)["ok"], "a board that was as wanted from the start is checked too"
    assert run_after.settings({"settings": [], "scope": "campaign-1"}, call)["ok"]
    assert tree.read(BOOT_ID) == "boot-1"


def test_a_ping_is_answered_with_the_controllers_clock_and_a_lost_link_ends_the_wait(tmp_path: Path) -> None:
    to_board, from_controller = os.pipe()
    to_controller, from_board = os.pipe()
    request = {"call": "c1", "verb": "look", "deadline_s": 20.0}
    call = wire.Call(request, wire.Reader(to_board), wire.Writer(from_board), Places(str(tmp_path)))
    lost: list[str] = []
    thread = threading.Thread(target=call.serve_input, args=(lost.append,), daemon=True)
    thread.start()

    def controller() -> None:
        assert json.loads(os.read(to_controller, 4096)) == {"event": "ping"}
        os.write(from_controller, b'{"pong": 1234.5}\n')
        os.read(to_controller, 4096)
        os.write(from_controller, b"garbage\n")

    answering = threading.Thread(target=controller, daemon=True)
    answering.start()
    assert call.ping() == 1234.5
    with pytest.raises(Failure):
        call.ping()
    thread.join(10)
    assert lost


def test_a_pong_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    to_board, from_controller = os.pipe()
    request = {"call": "c1", "verb": "look", "deadline_s": 20.0}
    call = wire.Call(
        request, wire.Reader(to_board), wire.Writer(os.open(os.devnull, os.O_WRONLY)), Places(str(tmp_path))
    )
    os.write(from_controller, b'{"pong": 1.0}\n')
    lost: list[str] = []
    call.serve_input(lost.append)
    assert "nobody asked for" in lost[0]
