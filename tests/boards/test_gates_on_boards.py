"""The gates before a run on virtual boards: in order they pass, a broken one is named, and looking changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boardbench.board import Door
from boardbench.inventory import Board, Identity, Inventory
from boardbench.matrix.gates.doctor import FAIL, Diagnosis, examine
from boardbench.virtual.fleet import Fleet

from .lab import Lab
from .rig import BOARDS, board_of, ssh

pytestmark = pytest.mark.boards

CAP = "/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy4/scaling_governor"
BURN = Path(__file__).resolve().parents[2] / "payloads" / "burn" / "burn.py"
# Everything that a board keeps, and every knob that somebody could turn; not what the kernel itself counts.
SNAPSHOT = """
import glob, hashlib, os
for top in ("/etc", "/opt", "/root", "/var/lib/boardbench"):
    for base, folders, files in os.walk(top):
        for name in sorted(folders + files):
            path = os.path.join(base, name)
            seen = os.lstat(path)
            body = open(path, "rb").read() if os.path.isfile(path) and not os.path.islink(path) else b""
            print(path, oct(seen.st_mode), seen.st_mtime_ns, hashlib.sha256(body).hexdigest())
knobs = ["/run/boardbench-virtual/fan", "/proc/sys/kernel/hostname"]
for pattern in ("cpu/cpufreq/policy*/scaling_*_freq", "cpu/cpufreq/policy*/scaling_governor"):
    knobs += glob.glob("/sys/devices/system/" + pattern)
for name in ("governor", "min_freq", "max_freq"):
    knobs += glob.glob("/sys/class/devfreq/*/" + name)
for path in sorted(knobs):
    if "cur_freq" not in path and os.path.exists(path):
        print(path, open(path).read().strip())
"""


def rig_of(fleet: Fleet, vars_: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Inventory, tuple[Board, ...]]:
    boards = {name: replace(board_of(fleet, name), vars=dict((vars_ or {}).get(name, {}))) for name in BOARDS}
    return Inventory(fleet.folder / "none.yml", boards, {}, fleet.known_hosts, None), tuple(boards.values())


def doctor(fleet: Fleet, *boards: Board, **vars_: Mapping[str, Any]) -> Diagnosis:
    inventory, all_boards = rig_of(fleet, vars_)
    return examine(inventory, boards or all_boards, lambda board: Door.open(board, fleet.known_hosts))


def shut(found: Diagnosis) -> set[tuple[str, str]]:
    return {(finding.board, finding.gate) for finding in found.findings if not finding.evidence["ok"]}


def run(fleet: Fleet, board: str, *command: str, stdin: str = "") -> str:
    ran = ssh(fleet, board, "sudo", "-n", *command, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran.out


@contextmanager
def knob(fleet: Fleet, board: str, path: str, value: str) -> Iterator[None]:
    before = run(fleet, board, "cat", path)
    run(fleet, board, "tee", path, stdin=value + "\n")
    try:
        yield
    finally:
        run(fleet, board, "tee", path, stdin=before + "\n")


def test_a_fleet_in_order_passes_every_gate(fleet: Fleet) -> None:
    found = doctor(fleet)
    assert not found.lost
    assert shut(found) == set(), [finding.evidence["why"] for finding in found.findings if not finding.evidence["ok"]]
    assert found.worst() != FAIL
    for finding in found.findings:
        if finding.gate == "clock-sync":
            assert abs(finding.evidence["saw"]["offset_s"]) <= finding.evidence["saw"]["error_s"] + 0.01


def test_looking_changes_nothing_on_any_board(fleet: Fleet) -> None:
    doctor(fleet)  # the first contact brings the board's side
    before = {name: run(fleet, name, "python3", "-", stdin=SNAPSHOT) for name in BOARDS}
    doctor(fleet)
    for name in BOARDS:
        assert run(fleet, name, "python3", "-", stdin=SNAPSHOT) == before[name], name
        assert len(before[name].splitlines()) > 50


def test_a_board_behind_anothers_name_is_found(fleet: Fleet) -> None:
    swapped = replace(board_of(fleet, "king"), identity=Identity(hostname="queen"))
    assert shut(doctor(fleet, swapped)) == {("king", "identity")}


def test_a_cap_that_is_not_ours_is_throttling_and_a_noted_one_is_not(fleet: Fleet) -> None:
    with knob(fleet, "queen", CAP, "1608000"):
        assert shut(doctor(fleet)) == {("queen", "throttled")}
    step = {"id": "cap", "resource": "sysfs", "args": {"path": CAP, "value": "1608000"}, "line": "m.yml:1"}
    args: dict[str, object] = {
        "scope": "campaign-gates", "steps": [step], "check": False, "diff": False, "stop_on_failure": True,
    }  # fmt: skip
    with Door.open(board_of(fleet, "queen"), fleet.known_hosts) as door:
        door.call("apply", args, deadline_s=30.0)
        try:
            assert shut(doctor(fleet)) == set()
        finally:
            door.call("restore", {"scope": "campaign-gates"}, deadline_s=30.0)


def test_boards_of_a_kind_that_differ_are_told_apart(fleet: Fleet) -> None:
    other = "powersave" if run(fleet, "king", "cat", GOVERNOR) != "powersave" else "performance"
    with knob(fleet, "king", GOVERNOR, other):
        found = doctor(fleet)
    assert {gate for board, gate in shut(found) if board == "king"} == {"alike-governor"}
    why = next(f.evidence["why"] for f in found.findings if (f.board, f.gate) == ("king", "alike-governor"))
    assert other in why
    assert "queen has" in why


def test_a_payload_on_one_board_only_is_a_difference(fleet: Fleet) -> None:
    run(fleet, "jack", "mkdir", "-p", "/opt/boardbench/payloads/extra")
    run(fleet, "jack", "tee", "/opt/boardbench/payloads/extra/model", stdin="weights\n")
    try:
        found = shut(doctor(fleet))
    finally:
        run(fleet, "jack", "rm", "-r", "/opt/boardbench/payloads/extra")
    assert ("jack", "alike-payload") in found
    assert {gate for _, gate in found} == {"alike-payload"}


def test_a_zone_that_cannot_be_read_gives_no_start_temperature(fleet: Fleet) -> None:
    fleet.set_faults("king", {"zone_errors": {"soc-thermal": "EIO"}})
    try:
        deadline = time.monotonic() + 10
        while ("king", "idle") not in (found := shut(doctor(fleet))) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found == {("king", "idle")}
    finally:
        fleet.set_faults("king", {})


def test_page_caches_that_cannot_be_dropped_are_named(fleet: Fleet) -> None:
    if fleet.status().sysfs != "fuse":
        pytest.skip("a kernel file that refuses a write needs FUSE")
    fleet.set_faults("jack", {"drop_caches": "read-only"})
    try:
        deadline = time.monotonic() + 10
        while ("jack", "cache") not in (found := shut(doctor(fleet))) and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        fleet.set_faults("jack", {})
    assert found == {("jack", "cache")}


def test_somebody_elses_load_is_named(fleet: Fleet) -> None:
    run(fleet, "king", "tee", "/root/other.py", stdin=BURN.read_text())
    run(fleet, "king", "tee", "/root/burn_loads.py", stdin=BURN.with_name("burn_loads.py").read_text())
    argv = "import subprocess; p = subprocess.Popen(['python3', '/root/other.py', '--out', '/root/other', "
    argv += "'--duration-s', '60'], stdin=-3, stdout=-3, stderr=-3, start_new_session=True); print(p.pid)"
    pid = run(fleet, "king", "python3", "-", stdin=argv)
    try:
        deadline = time.monotonic() + 20
        while ("king", "quiet") not in (found := shut(doctor(fleet))) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found == {("king", "quiet")}
    finally:
        run(fleet, "king", "kill", pid)
        run(fleet, "king", "rm", "-rf", "/root/other", "/root/other.py", "/root/burn_loads.py", "/root/__pycache__")


def test_what_the_inventory_declares_is_held_against_the_board(fleet: Fleet) -> None:
    found = doctor(fleet, king={"min_input_volts": 5.5}, queen={"link": "eth0"}, jack={"idle_celsius": 20.0})
    assert shut(found) == {("king", "volts"), ("queen", "link"), ("jack", "idle")}


def test_the_command_says_by_its_exit_code_how_the_boards_are(bwrap_fleet: Fleet, tmp_path: Path) -> None:
    lab = Lab(bwrap_fleet, tmp_path)
    done = lab.inv("doctor", "--json")
    assert done.code == 0, done.err
    assert done.document["failed"] == {}
    assert {finding["board"] for finding in done.document["findings"]} == set(BOARDS)
    table = lab.inv("doctor", "--limit", "king")
    assert table.code == 0
    assert "clock-sync" in table.out
    with knob(bwrap_fleet, "king", CAP, "1608000"):
        done = lab.inv("doctor")
    assert done.code == 1
    assert "policy4 is capped at 1608 of 2208 MHz, and not by us" in done.out
    assert "let the board cool" in done.out
    lab.with_access("jack", port=1)
    done = lab.inv("doctor", "--json")
    assert done.code == 3
    assert set(done.document["failed"]) == {"jack"}
