"""Runs, strays, leases and restarts on boards with a real service manager: systemd, and the systemctl replacement."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from boardbench.board import Door
from boardbench.errors import BenchError, RigError, WorkloadError
from boardbench.virtual.fleet import Fleet

from .rig import board_of, ssh

pytestmark = pytest.mark.boards

LOGGER = """\
import signal, sys, time
out, period = sys.argv[sys.argv.index('--out') + 1], float(sys.argv[sys.argv.index('--period-s') + 1])
going = [True]
signal.signal(signal.SIGTERM, lambda *_: going.clear())
with open(out + '/thermal.csv', 'w') as file:
    file.write('wall_unix_s,monotonic_s,soc_celsius,missing\\n')
    while going:
        file.write('%f,%f,55.5,\\n' % (time.time(), time.monotonic()))
        file.flush()
        time.sleep(period)
"""
NODE = "import time\ntime.sleep(1000)\n"
NODE_UNIT = """[Unit]
Description=a node that comes back
[Service]
ExecStart=/usr/bin/python3 /opt/bench-test/node.py
Restart=always
RestartSec=0.1
[Install]
WantedBy=multi-user.target
"""
SCOPE = "test-runs-provision"


class Bench:
    """One board with the tests' programs on it."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.name = name
        self.door = Door.open(board_of(fleet, name), fleet.known_hosts)
        self.phases: list[str] = []

    def call(self, verb: str, *, within_s: float = 60.0, **args: Any) -> dict[str, Any]:
        return self.door.call(verb, args, deadline_s=within_s, on_event=self._on_event)

    def _on_event(self, event: dict[str, object]) -> None:
        if event.get("event") == "phase":
            self.phases.append(f"{event['name']}: {event['message']}")

    def fetch(self, run: str) -> tuple[dict[str, bytes], int]:
        data: list[bytes] = []
        result = self.door.call("fetch", {"run": run}, deadline_s=60.0, on_data=lambda _name, piece: data.append(piece))
        with tarfile.open(fileobj=io.BytesIO(b"".join(data))) as tar:
            members = {member.name: tar.extractfile(member) for member in tar}
            return {name: file.read() for name, file in members.items() if file}, int(str(result["bytes"]))

    def prepare(self, run: str, **changes: Any) -> dict[str, Any]:
        args = {
            "run": run,
            "campaign": "t",
            "scope": "campaign-t",
            "strays": {"scripts": ["/opt/bench-test/node.py"]},
            "cool": None,
            "cache_files": None,
            "settings": [],
            "logger": {"argv": ["/usr/bin/python3", "/opt/bench-test/logger.py"], "period_s": 0.5},
        }
        return self.call("prepare", **{**args, **changes})

    def start(self, run: str, *argv: str, **changes: Any) -> dict[str, Any]:
        args: dict[str, Any] = {"exec": list(argv), "env": {}, "cwd": None, "limits": {}, "deadline_s": 60.0}
        return self.call("start", run=run, **{**args, **changes})


@pytest.fixture
def bench(fleet: Fleet) -> Iterator[Bench]:
    found = Bench(fleet, "queen")
    files = {"/opt/bench-test/logger.py": LOGGER, "/opt/bench-test/node.py": NODE}
    steps: list[dict[str, Any]] = [
        {"id": "folder", "resource": "directory", "args": {"path": "/opt/bench-test", "mode": "0755"}}
    ]
    for path, content in files.items():
        steps.append({"id": path, "resource": "file", "args": {"path": path, "content": content, "mode": "0644"}})
    recap = found.call("apply", scope=SCOPE, steps=steps, check=False, diff=False, stop_on_failure=True)["recap"]
    assert recap["failed"] == 0
    yield found
    for scope in [entry["scope"] for entry in found.call("scopes")["scopes"]]:
        restored = found.call("restore", scope=scope)["restored"]
        assert [entry for entry in restored if not entry["ok"]] == []
    found.door.close()


def gate(result: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [entry for entry in result["evidence"] if entry["gate"] == name]
    return dict(found)


def test_a_whole_run(bench: Bench) -> None:
    prepared = bench.prepare("whole")
    assert prepared["ready"], prepared
    code = "import sys,time; time.sleep(1); open('out.txt','w').write(repr(sys.argv[1:]))"
    words = ["100%", "$HOME", "a b", "two\nlines", "%n"]
    started = bench.start("whole", "/usr/bin/python3", "-c", code, *words)
    assert bench.start("whole", "/usr/bin/python3", "-c", code, *words) == started
    watched = bench.call("watch", run="whole")
    assert watched["exit"] == {"code": 0}
    assert watched["boot_id"] == started["boot_id"]
    finished = bench.call("finish", run="whole")
    assert all(entry["ok"] for entry in finished["evidence"]), finished
    content, _ = bench.fetch("whole")
    assert content["workload/out.txt"].decode() == repr(words)
    for entry in finished["files"]:
        assert hashlib.sha256(content[entry["name"]]).hexdigest() == entry["sha256"]
    assert bench.call("forget", run="whole") == {}
    left = ssh(bench.fleet, bench.name, "ls /run/systemd/system /var/lib/boardbench/runs")
    assert "boardbench-" not in left.out
    assert "whole" not in left.out


def test_exit_code_and_signal_are_exact(bench: Bench) -> None:
    for run, code, exit_ in (
        ("e1", "raise SystemExit(7)", {"code": 7}),
        ("e2", "import os; os.abort()", {"signal": 6}),
    ):
        bench.prepare(run, logger=None)
        bench.start(run, "/usr/bin/python3", "-c", code)
        assert bench.call("watch", run=run)["exit"] == exit_
        assert not gate(bench.call("finish", run=run), "load")["ok"]
        bench.call("forget", run=run)


def test_a_program_that_is_not_there_is_the_workloads_fault(bench: Bench) -> None:
    bench.prepare("none", logger=None)
    with pytest.raises(WorkloadError, match="cannot start"):
        bench.start("none", "/opt/bench-test/none")
    bench.call("finish", run="none")
    bench.call("forget", run="none")


def test_finish_ends_a_stubborn_workload_with_all_its_children(bench: Bench) -> None:
    code = (
        "import signal,subprocess,sys,time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "p=subprocess.Popen(['sleep','777'], start_new_session=True)\nprint(p.pid, flush=True)\ntime.sleep(777)"
    )
    bench.prepare("stubborn", logger=None)
    pid = bench.start("stubborn", "/usr/bin/python3", "-c", code)["pid"]
    time.sleep(1.0)
    finished = bench.call("finish", run="stubborn")
    assert gate(finished, "load")["saw"]["exit"] == {"signal": 9}
    content, _ = bench.fetch("stubborn")
    child = int(content["logs/workload.log"])
    assert ssh(bench.fleet, bench.name, f"ls -d /proc/{pid} /proc/{child}").out == ""
    bench.call("forget", run="stubborn")


def test_a_watch_whose_link_is_lost_leaves_the_workload_running(bench: Bench) -> None:
    bench.prepare("lost", logger=None)
    bench.start("lost", "/bin/sleep", "3")
    other = Door.open(board_of(bench.fleet, bench.name), bench.fleet.known_hosts)
    seen: list[BaseException] = []

    def watch() -> None:
        try:
            other.call("watch", {"run": "lost"}, deadline_s=30.0)
        except BenchError as error:
            seen.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    time.sleep(1.0)
    other.close()
    thread.join(20)
    assert seen
    assert bench.call("watch", run="lost")["exit"] == {"code": 0}
    assert gate(bench.call("finish", run="lost"), "load")["ok"]
    bench.call("forget", run="lost")


def test_a_restarting_service_is_really_stopped_and_comes_back_at_the_end(bench: Bench) -> None:
    args = {"name": "bench-node.service", "content": NODE_UNIT, "enabled": True, "active": True}
    step = {"id": "unit", "resource": "unit", "args": args}
    assert bench.call("apply", scope=SCOPE, steps=[step], check=False, diff=False)["recap"]["failed"] == 0
    prepared = bench.prepare("strays", logger=None)
    evidence = gate(prepared, "strays")
    assert evidence["ok"], evidence
    assert [(stray["unit"], stray["ended"]) for stray in evidence["saw"]["found"]] == [("bench-node.service", True)]
    time.sleep(0.5)
    assert ssh(bench.fleet, bench.name, "sudo systemctl is-active bench-node.service").out != "active"
    assert bench.call("strays", harness={"scripts": ["/opt/bench-test/node.py"]}, end=False)["found"] == []
    restored = bench.call("restore", scope="campaign-t")["restored"]
    assert [(entry["what"], entry["ok"]) for entry in restored] == [("unit bench-node.service", True)]
    assert ssh(bench.fleet, bench.name, "sudo systemctl is-active bench-node.service").out == "active"
    bench.call("finish", run="strays")
    bench.call("forget", run="strays")


def test_a_stray_in_a_login_is_ended_without_the_login_service(bench: Bench) -> None:
    ran = ssh(bench.fleet, bench.name, "nohup python3 /opt/bench-test/node.py >/dev/null 2>&1 </dev/null & echo $!")
    found = bench.call("strays", harness={"scripts": ["/opt/bench-test/node.py"]}, end=True, grace_s=2.0)["found"]
    assert [(stray["pid"], stray["how"], stray["ended"]) for stray in found] == [(int(ran.out), "script", True)]
    assert ssh(bench.fleet, bench.name, "echo still here").out == "still here"


def test_a_cold_file_is_cold_and_a_mapped_one_is_not(bench: Bench) -> None:
    model = "/opt/bench-test/model.bin"
    hold = (
        "import mmap,sys,time; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n"
        "print(sum(m[::4096]), flush=True); time.sleep(600)"
    )
    made = ssh(
        bench.fleet, bench.name, f"sudo dd if=/dev/urandom of={model} bs=1M count=8 conv=fsync; cat {model} | wc -c"
    )
    assert made.out == str(8 << 20)
    bench.prepare("hold", logger=None)
    try:
        cold = bench.call("drop-cache", files=[model])
        (entry,) = cold["files"]
        assert entry["resident_bytes_before"] == 8 << 20
        assert (cold["state"], cold["why"], entry["resident_bytes_after"]) == ("cold", "", 0)
        bench.start("hold", "/usr/bin/python3", "-c", hold, model)
        time.sleep(1.0)
        warm = bench.call("drop-cache", files=[model])
        # An nspawn board's pages are taken from outside, mapped ones too: there the file is really gone.
        resident = warm["files"][0]["resident_bytes_after"]
        assert resident == (0 if bench.fleet.name == "nspawn" else 8 << 20)
        assert warm["state"] == ("warm" if resident else "cold")
    finally:
        bench.call("finish", run="hold")
        bench.call("forget", run="hold")
        ssh(bench.fleet, bench.name, f"sudo rm {model}")


def test_a_memory_limit_is_in_force_or_the_run_says_that_it_was_not(bench: Bench) -> None:
    bench.prepare("limit", logger=None)
    bench.start("limit", "/bin/true", limits={"memory_max_bytes": 256 << 20})
    bench.call("watch", run="limit")
    found = gate(bench.call("finish", run="limit"), "limits")
    assert found["ok"] is (found["saw"]["memory_limit_bytes"] == 256 << 20)
    bench.call("forget", run="limit")


def test_two_campaigns_cannot_hold_one_board(bench: Bench) -> None:
    ada = {"owner": "ada", "host": "desk", "campaign": "c1", "ttl_s": 30.0}
    bob = dict(ada, owner="bob", campaign="c2")
    assert bench.call("lease", action="take", **ada)["held"]
    with pytest.raises(RigError, match=r"held by ada@desk \(campaign c1\)"):
        bench.call("lease", action="take", **bob)
    assert bench.call("lease", action="release", **ada) == {"held": False, "lease": None, "note": ""}
    assert bench.call("lease", action="show")["held"] is False


def test_a_reboot_in_the_middle_of_a_run_is_evidence(bench: Bench) -> None:
    bench.prepare("reboot")
    bench.start("reboot", "/bin/sleep", "600", deadline_s=900.0)
    old = bench.call("reboot")["boot_id"]
    bench.door.close()
    until = time.monotonic() + 60
    while True:
        assert time.monotonic() < until, "the board did not come back"
        time.sleep(0.5)
        try:
            bench.door = Door.open(board_of(bench.fleet, bench.name), bench.fleet.known_hosts, deadline_s=5.0)
            new = bench.call("facts", paths=[])["facts"]["boot_id"]
        except BenchError:
            continue
        if new != old:
            break
    # An orderly restart lets the supervisor write down that it was stopped, a power cut does not.
    assert bench.call("watch", run="reboot")["exit"] in (
        {"signal": 15},
        {"missing": "the board rebooted while it ran"},
    )
    finished = bench.call("finish", run="reboot")
    assert gate(finished, "boot-id")["saw"] == {"before": old, "after": new}
    assert [gate(finished, name)["ok"] for name in ("boot-id", "load", "logger")] == [False, False, False]
    assert "thermal.csv" in [entry["name"] for entry in finished["files"]]
    bench.call("forget", run="reboot")
