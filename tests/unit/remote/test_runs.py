"""A run from prepare to forget, with real processes under a service manager of the test's own."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import apply, gates, pagecache, processes, restore, run_prepare, runs, services, strays
from boardbench.remote.failures import Failure
from boardbench.remote.places import Places

from .fakes import FakeCall, FakeManager, board_places

LOGGER = """
import signal, sys, time
out, period = sys.argv[sys.argv.index('--out') + 1], float(sys.argv[sys.argv.index('--period-s') + 1])
going = [True]
signal.signal(signal.SIGTERM, lambda *_: going.clear())
with open(out + '/thermal.csv', 'w') as file:
    file.write('wall_unix_s,monotonic_s,soc_celsius,missing\\n')
    while going:
        file.write('%f,%f,%s,\\n' % (time.time(), time.monotonic(), TEMPERATURE))
        file.flush()
        time.sleep(period)
    file.write('0,%f,55.5,\\n' % time.monotonic())
"""
WORK = "import os,sys; open('result.json','w').write(os.environ['WHAT']); print('done', *sys.argv[1:])"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    def no_drop(_places: Places, files: list[str]) -> dict[str, Any]:
        state = {"state": "cold", "why": "", "meminfo_before": {}, "meminfo_after": {}}
        return dict(state, files=[{"path": path} for path in files])

    # The host's page cache stays: these tests see the real /proc.
    monkeypatch.setattr(pagecache, "drop", no_drop)
    monkeypatch.setattr(strays, "SETTLE_S", 0.0)
    # A busy machine must not look like a bad logger here; gaps have tests of their own.
    monkeypatch.setattr(gates, "MIN_GAP_LIMIT_S", 30.0)
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("soc-thermal\n")
    (zone / "temp").write_text("41000\n")
    return board_places(tmp_path)


@pytest.fixture
def manager(places: Places, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeManager]:
    fake = FakeManager(places)
    monkeypatch.setattr(services, "detect", lambda _places: fake)
    yield fake
    fake.close()


@pytest.fixture
def call(places: Places) -> FakeCall:
    return FakeCall(places)


def prepare_args(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    logger = tmp_path / "logger.py"
    if not logger.exists():
        logger.write_text(LOGGER.replace("TEMPERATURE", "'55.5'"))
    return {
        "run": "r1",
        "campaign": "c1",
        "scope": "campaign-c1",
        "strays": None,
        "cool": {"zone_types": ["soc-thermal"], "below_celsius": 50.0, "timeout_s": 0.5},
        "cache_files": None,
        "settings": [],
        "logger": {"argv": [sys.executable, str(logger)], "period_s": 0.02},
        **changes,
    }


def start_args(**changes: Any) -> dict[str, Any]:
    argv = [sys.executable, "-c", WORK, "a b", "100%", "$HOME", "two\nlines", '"q"']
    return {
        "run": "r1", "exec": argv, "env": {"WHAT": "it is $HOME 100%"}, "cwd": None, "limits": {}, "deadline_s": 30.0,
        **changes,
    }  # fmt: skip


def prepare(call: Any, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return runs.prepare(prepare_args(tmp_path, **changes), call)


def gate(result: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [entry for entry in result["evidence"] if entry["gate"] == name]
    return dict(found)


@pytest.mark.usefixtures("manager")
def test_a_run_from_start_to_end(call: Any, places: Places, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x")
    prepared = prepare(call, tmp_path, cache_files=[str(tmp_path / "model")])
    assert prepared["ready"], prepared
    assert [entry["gate"] for entry in prepared["evidence"]] == ["leftovers", "strays", "cool", "cache", "logger"]
    started = runs.start(start_args(), call)
    assert started["unit"] == "boardbench-run-r1.service"
    watched = runs.watch({"run": "r1"}, call)
    assert (watched["ended"], watched["exit"], watched["boot_id"]) == (True, {"code": 0}, started["boot_id"])
    finished = runs.finish({"run": "r1"}, call)
    assert [(entry["gate"], entry["ok"]) for entry in finished["evidence"]] == [
        ("boot-id", True),
        ("load", True),
        ("load-runs", True),
        ("disk", True),
        ("instruments", True),
        ("settings", True),
        ("clock", True),
        ("logger", True),
    ], finished
    names = [entry["name"] for entry in finished["files"]]
    assert names == ["logs/logger.log", "logs/workload.log", "thermal.csv", "workload/result.json"]
    # The logger was given the time to write its last row.
    assert (Path(places.runs) / "r1/thermal.csv").read_text().splitlines()[-1].startswith("0,")
    sent = runs.fetch({"run": "r1"}, call)
    assert sent["bytes"] == len(call.stream)
    with tarfile.open(fileobj=io.BytesIO(call.stream), mode="r:") as tar:
        content = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    for entry in finished["files"]:
        assert len(content[entry["name"]]) == entry["size"]
        assert hashlib.sha256(content[entry["name"]]).hexdigest() == entry["sha256"]
    assert content["workload/result.json"] == b"it is $HOME 100%"
    assert content["logs/workload.log"].decode() == 'done a b 100% $HOME two\nlines "q"\n'
    assert runs.forget({"run": "r1"}, call) == {}
    assert runs.forget({"run": "r1"}, call) == {}
    assert os.listdir(places.runs) == []
    assert not list(Path(places.started).glob("*"))


@pytest.mark.usefixtures("manager")
def test_the_same_start_again_gives_the_same_answer_and_another_is_refused(
    call: Any, tmp_path: Path, manager: FakeManager
) -> None:
    prepare(call, tmp_path, logger=None)
    first = runs.start(start_args(), call)
    assert runs.start(start_args(), call) == first
    assert manager.calls.count("start boardbench-run-r1.service") == 1
    with pytest.raises(Failure, match="has started already"):
        runs.start(start_args(deadline_s=31.0), call)
    runs.watch({"run": "r1"}, call)
    runs.finish({"run": "r1"}, call)
    with pytest.raises(Failure, match="has started already"):
        runs.start(start_args(), call)


@pytest.mark.usefixtures("manager")
def test_a_program_that_cannot_start_is_the_workloads_fault(call: Any, tmp_path: Path) -> None:
    prepare(call, tmp_path, logger=None)
    with pytest.raises(Failure, match=r"cannot start .*/no/such/program") as error:
        runs.start(start_args(exec=["/no/such/program"]), call)
    assert error.value.fault == "workload"
    assert "cannot start" in gate(runs.finish({"run": "r1"}, call), "load")["why"]


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize(
    ("code", "exit_"),
    [("raise SystemExit(7)", {"code": 7}), ("import os; os.kill(os.getpid(), 11)", {"signal": 11})],
)
def test_how_a_program_ends_is_told_exactly(call: Any, tmp_path: Path, code: str, exit_: dict[str, int]) -> None:
    prepare(call, tmp_path, logger=None)
    runs.start(start_args(exec=[sys.executable, "-c", code]), call)
    assert runs.watch({"run": "r1"}, call)["exit"] == exit_
    assert gate(runs.finish({"run": "r1"}, call), "load")["ok"] is False


@pytest.mark.usefixtures("manager")
def test_watch_waits_and_says_nothing(call: Any, tmp_path: Path) -> None:
    prepare(call, tmp_path, logger=None)
    runs.start(start_args(exec=["/bin/sleep", "0.6"]), call)
    call.events.clear()
    before = time.monotonic()
    assert runs.watch({"run": "r1"}, call)["exit"] == {"code": 0}
    assert 0.3 < time.monotonic() - before < 5
    assert call.events == []


def test_watch_works_where_python_has_no_pidfd(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    monkeypatch.setattr(runs, "_pidfd", lambda _pid: None)
    child = subprocess.Popen(["sleep", "0.2"])
    found = processes.stat(places, child.pid)
    assert found is not None
    runs.wait_end(places, child.pid, found.start_time_ticks)
    assert child.wait() == 0


@pytest.mark.usefixtures("manager")
def test_a_program_that_outstays_its_deadline_is_ended(call: Any, tmp_path: Path) -> None:
    prepare(call, tmp_path, logger=None)
    runs.start(start_args(exec=["/bin/sleep", "60"], deadline_s=0.3), call)
    assert runs.watch({"run": "r1"}, call)["exit"] == {"signal": signal.SIGTERM}
    assert gate(runs.finish({"run": "r1"}, call), "load")["why"] == "the workload was not done at its deadline"


@pytest.mark.usefixtures("manager")
def test_a_supervisor_that_is_killed_takes_its_program_with_it_and_is_told(
    call: Any, tmp_path: Path, places: Places, manager: FakeManager
) -> None:
    prepare(call, tmp_path, logger=None)
    pid = runs.start(start_args(exec=["/bin/sleep", "62.5"]), call)["pid"]
    manager.children["boardbench-run-r1.service"].kill()
    assert runs.watch({"run": "r1"}, call)["exit"] == {"missing": "its supervisor was killed"}
    for _ in range(100):
        found = processes.stat(places, pid)
        if found is None or found.dead:
            break
        time.sleep(0.02)
    assert found is None or found.dead
    load = gate(runs.finish({"run": "r1"}, call), "load")
    assert (load["ok"], load["saw"]["ended"]) == (False, {"missing": "its end was not recorded"})


@pytest.mark.usefixtures("manager")
def test_what_the_program_left_running_is_ended_and_told(call: Any, tmp_path: Path, places: Places) -> None:
    code = "import subprocess; p=subprocess.Popen(['sleep','61.5'], start_new_session=True); print(p.pid, flush=True)"
    prepare(call, tmp_path, logger=None)
    runs.start(start_args(exec=[sys.executable, "-c", code]), call)
    runs.watch({"run": "r1"}, call)
    left = int((Path(places.runs) / "r1/logs/workload.log").read_text())
    assert processes.stat(places, left) is None
    assert gate(runs.finish({"run": "r1"}, call), "load")["saw"]["left_running"] == [left]


@pytest.mark.usefixtures("manager")
def test_finish_stops_what_still_runs_and_says_so(call: Any, tmp_path: Path) -> None:
    prepare(call, tmp_path)
    pid = runs.start(start_args(exec=["/bin/sleep", "60"]), call)["pid"]
    finished = runs.finish({"run": "r1"}, call)
    assert gate(finished, "load")["why"] == "the workload was stopped before it ended"
    assert gate(finished, "logger")["ok"], finished
    assert processes.stat(call.places, pid) is None
    assert runs.finish({"run": "r1"}, call) == finished


@pytest.mark.usefixtures("manager")
def test_a_logger_that_does_not_sample_ends_prepare_with_its_own_words(
    call: Any, tmp_path: Path, manager: FakeManager
) -> None:
    (tmp_path / "logger.py").write_text("import sys; sys.exit('no sensors here')")
    with pytest.raises(Failure, match=r"the logger does not sample: .*no sensors here") as error:
        prepare(call, tmp_path)
    assert error.value.fault == "rig"
    assert manager.text == {}


@pytest.mark.usefixtures("manager")
def test_a_logger_without_one_temperature_does_not_sample(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_prepare, "MIN_PROVE_S", 0.3)
    (tmp_path / "logger.py").write_text(LOGGER.replace("TEMPERATURE", "''"))
    with pytest.raises(Failure, match="all its temperatures are missing"):
        prepare(call, tmp_path)


@pytest.mark.usefixtures("manager")
def test_a_logger_that_died_during_the_run_is_seen(call: Any, tmp_path: Path, manager: FakeManager) -> None:
    prepare(call, tmp_path)
    runs.start(start_args(exec=["/bin/sleep", "0.5"]), call)
    manager.children["boardbench-logger-r1.service"].kill()
    runs.watch({"run": "r1"}, call)
    found = gate(runs.finish({"run": "r1"}, call), "logger")
    assert not found["ok"]
    assert "before the load" in found["why"]
    assert found["saw"]["ran_until_finish"] is False


@pytest.mark.usefixtures("manager")
def test_a_reboot_in_between_is_evidence_and_not_an_error(call: Any, tmp_path: Path, places: Places) -> None:
    prepare(call, tmp_path)
    runs.start(start_args(exec=["/bin/sleep", "60"]), call)
    # As after a reboot: the state tells of another boot.
    path = Path(places.runs) / "r1/run-state.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), boot_id="earlier")))
    assert runs.watch({"run": "r1"}, call)["exit"] == {"missing": "the board rebooted while it ran"}
    finished = runs.finish({"run": "r1"}, call)
    assert gate(finished, "boot-id") == {
        "gate": "boot-id",
        "ok": False,
        "saw": {"before": "earlier", "after": runs.stamps.boot_id(places)},
        "why": "the board rebooted",
    }
    assert "thermal.csv" in [entry["name"] for entry in finished["files"]]


@pytest.mark.usefixtures("manager")
def test_a_board_that_stays_hot_is_evidence(call: Any, tmp_path: Path) -> None:
    (tmp_path / "sys/class/thermal/thermal_zone0/temp").write_text("61200\n")
    prepared = prepare(call, tmp_path, logger=None)
    assert not prepared["ready"]
    assert not gate(prepared, "cool")["ok"]
    assert ("phase", {"name": "cooling", "message": "61.2 -> 61.2 degC, below 50 wanted"}) in call.events


def setting(tmp_path: Path, value: str, path: str = "/sys/class/x/governor") -> dict[str, Any]:
    node = tmp_path / path.lstrip("/")
    node.parent.mkdir(parents=True, exist_ok=True)
    if not node.exists() and "missing" not in path:
        node.write_text("ondemand\n")
    return {"id": f"sysfs {path}", "resource": "sysfs", "args": {"path": path, "value": value}, "line": "m.yml:1"}


@pytest.mark.usefixtures("manager")
def test_settings_are_made_under_the_campaigns_scope_and_put_back(call: Any, tmp_path: Path) -> None:
    step = setting(tmp_path, "performance")
    prepared = prepare(call, tmp_path, logger=None, settings=[step])
    found = gate(prepared, "settings")
    assert found["ok"], found
    assert [(told["id"], told["state"]) for told in found["saw"]["steps"]] == [(step["id"], "changed")]
    node = tmp_path / "sys/class/x/governor"
    assert node.read_text().strip() == "performance"
    assert all(entry["ok"] for entry in restore.restore({"scope": "campaign-c1"}, call)["restored"])
    assert node.read_text().strip() == "ondemand"


@pytest.mark.usefixtures("manager")
def test_a_setting_that_cannot_be_made_ends_prepare_there(call: Any, tmp_path: Path, manager: FakeManager) -> None:
    prepared = prepare(call, tmp_path, settings=[setting(tmp_path, "performance", "/sys/class/missing/governor")])
    assert not prepared["ready"]
    assert [entry["gate"] for entry in prepared["evidence"]] == ["leftovers", "strays", "settings"]
    assert "/sys/class/missing/governor" in gate(prepared, "settings")["why"]
    assert manager.text == {}


@pytest.mark.usefixtures("manager")
def test_what_a_dead_campaign_left_is_put_back_first_and_provisioning_stays(call: Any, tmp_path: Path) -> None:
    nodes = {"campaign-dead": "/sys/class/a/value", "provision": "/sys/class/b/value"}
    for scope, path in nodes.items():
        step = setting(tmp_path, "changed", path)
        assert apply.apply({"scope": scope, "steps": [step]}, call)["recap"]["changed"] == 1
    found = gate(prepare(call, tmp_path, logger=None), "leftovers")
    assert found["ok"]
    assert list(found["saw"]["scopes"]) == ["campaign-dead"]
    assert (tmp_path / "sys/class/a/value").read_text().strip() == "ondemand"
    assert (tmp_path / "sys/class/b/value").read_text().strip() == "changed"


def test_units_of_an_earlier_run_are_ended_first(call: Any, tmp_path: Path, manager: FakeManager) -> None:
    old = manager.add("boardbench-run-r0.service", ["sleep", "60"])
    prepared = prepare(call, tmp_path, logger=None)
    assert [stray["pid"] for stray in gate(prepared, "strays")["saw"]["found"]] == [old.pid]
    assert prepared["ready"]
    assert old.poll() is not None


def test_a_prepare_that_was_cut_off_may_be_repeated(call: Any, tmp_path: Path, manager: FakeManager) -> None:
    prepare(call, tmp_path)
    first = manager.children["boardbench-logger-r1.service"]
    assert prepare(call, tmp_path)["ready"]
    assert first.poll() is not None
    runs.start(start_args(), call)
    with pytest.raises(Failure, match="r1 is started already"):
        prepare(call, tmp_path)
    runs.finish({"run": "r1"}, call)


@pytest.mark.usefixtures("manager")
def test_a_run_that_runs_is_neither_fetched_nor_forgotten(call: Any, tmp_path: Path) -> None:
    prepare(call, tmp_path, logger=None)
    for verb in (runs.fetch, runs.forget):
        with pytest.raises(Failure, match="not finished"):
            verb({"run": "r1"}, call)


@pytest.mark.usefixtures("manager")
def test_links_are_not_listed(call: Any, tmp_path: Path) -> None:
    prepare(call, tmp_path, logger=None)
    code = "import os; os.symlink('/etc/passwd','leak'); os.mkfifo('pipe'); open('real','w').write('x')"
    runs.start(start_args(exec=[sys.executable, "-c", code]), call)
    runs.watch({"run": "r1"}, call)
    names = [entry["name"] for entry in runs.finish({"run": "r1"}, call)["files"]]
    assert names == ["logs/workload.log", "workload/real"]


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "-x", None, "x" * 200])
def test_a_run_name_is_no_path(call: Any, name: object) -> None:
    for verb in (runs.start, runs.watch, runs.finish, runs.fetch, runs.forget):
        with pytest.raises(Failure) as error:
            verb({**start_args(), "run": name}, call)  # type: ignore[operator]
        assert error.value.fault == "bad-input"


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize(
    "change",
    [
        {"exec": ["sleep"]},
        {"exec": []},
        {"deadline_s": None},
        {"limits": {"cpu": 1}},
        {"limits": {"swap_max_bytes": -1}},
    ],
)
def test_bad_arguments_of_start_are_bad_input(call: Any, tmp_path: Path, change: dict[str, Any]) -> None:
    prepare(call, tmp_path, logger=None)
    with pytest.raises(Failure) as error:
        runs.start(start_args(**change), call)
    assert error.value.fault == "bad-input"


@pytest.mark.usefixtures("manager")
def test_a_finish_from_another_call_wakes_the_watch(call: Any, places: Places, tmp_path: Path) -> None:
    prepare(call, tmp_path, logger=None)
    runs.start(start_args(exec=["/bin/sleep", "60"]), call)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(runs.watch({"run": "r1"}, FakeCall(places))))  # type: ignore[arg-type]
    thread.start()
    runs.finish({"run": "r1"}, call)
    thread.join(10)
    assert seen[0]["exit"] == {"signal": signal.SIGTERM}
