"""Starting, ending, being killed and starting again; and what the daemon says when it cannot work."""

import json
import os
import signal
import subprocess
import sys

import pytest

from boardbench.errors import InputError
from boardbench.virtual import fleet_file, fuse_fs

from .daemon_process import Fleet, eventually

NO_FUSE = fuse_fs.why_not()
MODES = [
    pytest.param("fuse", marks=pytest.mark.skipif(NO_FUSE is not None, reason=f"no FUSE here: {NO_FUSE}")),
    "plain",
]
ONE = {"king": "nanopi-r76s"}
SOC = "sys/class/thermal/thermal_zone0/temp"


def mounts_below(folder):
    with open("/proc/self/mountinfo") as file:
        return [line for line in file if str(folder) in line]


@pytest.mark.parametrize("mode", MODES)
def test_a_stopped_daemon_leaves_nothing_but_what_it_was_given(tmp_path, mode):
    fleet = Fleet(tmp_path, mode, ONE)
    fleet.start()
    assert fleet.read("king", SOC)
    assert fleet.stop() == 0
    assert sorted(os.listdir(fleet.folder)) == ["fleet.json", "own"]
    assert mounts_below(fleet.folder) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_daemon_is_cleaned_up_by_the_next(tmp_path, mode):
    fleet = Fleet(tmp_path, mode, ONE).start()
    fleet.kill()
    try:
        if mode == "fuse":
            assert mounts_below(tmp_path) != []
        with fleet:
            assert int(fleet.read("king", SOC)) > 0
            assert len(mounts_below(tmp_path)) == (1 if mode == "fuse" else 0)
        assert mounts_below(tmp_path) == []
    finally:
        fuse_fs.detach(tmp_path / "tree")


def test_two_daemons_of_one_fleet_are_refused(tmp_path):
    with Fleet(tmp_path, "plain", ONE) as fleet:
        second = run_daemon(tmp_path)
        assert second.returncode == 3
        assert "already" in second.stderr
        assert fleet.read("king", SOC)


def run_daemon(*arguments):
    argv = [sys.executable, "-m", "boardbench.virtual.daemon", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)


def test_no_fleet_file_is_one_sentence_and_bad_input(tmp_path):
    done = run_daemon(tmp_path)
    assert done.returncode == 2
    assert "fleet.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_sigint_ends_it_like_sigterm(tmp_path):
    fleet = Fleet(tmp_path, "plain", ONE).start()
    fleet.process.send_signal(signal.SIGINT)
    assert fleet.process.wait(timeout=10) == 0


@pytest.mark.skipif(NO_FUSE is not None, reason=f"no FUSE here: {NO_FUSE}")
def test_auto_takes_fuse_where_it_works(tmp_path):
    with Fleet(tmp_path, "auto", ONE):
        about = json.loads((tmp_path / "daemon.json").read_text())
        assert (about["mode"], about["why"]) == ("fuse", "")


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/dev/fuse"),
    reason="only root can replace /dev/fuse in a mount namespace of its own",
)
def test_auto_falls_back_to_plain_files_and_says_why(tmp_path):
    fleet = Fleet(tmp_path, "auto", ONE)
    script = 'mount --bind /dev/null /dev/fuse && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "boardbench.virtual.daemon"]
    with fleet.log.open("ab") as log:
        fleet.process = subprocess.Popen([*argv, str(tmp_path)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        eventually((tmp_path / "daemon.json").exists)
        about = json.loads((tmp_path / "daemon.json").read_text())
        assert about["mode"] == "plain"
        assert "FUSE" in about["why"]
        assert fleet.read("king", SOC)
    finally:
        assert fleet.stop() == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"time_scale": 0}, "time_scale"),
        ({"time_scale": True}, "time_scale"),
        ({"sysfs": "magic"}, "sysfs"),
        ({"boards": []}, "boards"),
        ({"boards": {"../x": {"kind": "nanopi-r76s"}}}, "name of a board"),
        ({"boards": {"a": {"kind": "toaster"}}}, "toaster"),
        ({"boards": {"a": {"kind": "nanopi-r76s", "pagecache_roots": ["/"]}}}, "pagecache_roots"),
        ({"boards": {"a": {"kind": "nanopi-r76s", "pagecache_roots": ["/x/../.."]}}}, "pagecache_roots"),
        ({"boards": {"a": {"kind": "nanopi-r76s", "sandbox": "vm"}}}, "sandbox"),
    ],
)
def test_a_fleet_file_that_is_wrong_is_refused_by_name(tmp_path, change, says):
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps({"name": "t", "time_scale": 1.0, "boards": {}} | change))
    with pytest.raises(InputError) as caught:
        fleet_file.read(path)
    assert says in caught.value.what
    assert caught.value.where == str(path)
