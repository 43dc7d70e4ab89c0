"""Load files: who counts, how they add up, and what happens when a holder dies."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from boardbench.virtual.loads import LoadSum, read_loads

LONG_AGO = 1000.0


def write(folder, name, **values):
    path = folder / name
    path.write_text(json.dumps(values))
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


@pytest.fixture
def hold():
    handles = []

    def take(path):
        handle = os.open(path, os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX)
        handles.append(handle)

    yield take
    for handle in handles:
        os.close(handle)


def test_no_folder_and_an_empty_folder_are_no_load(tmp_path):
    assert read_loads(tmp_path / "none", 8) == LoadSum()
    assert read_loads(tmp_path, 8) == LoadSum()


def test_held_loads_add_up_over_the_cores(tmp_path, hold):
    hold(write(tmp_path, "1.json", cpu_threads=2, cpu_activity=1.0, npu_activity=0.5, gpu_activity=0.0))
    hold(write(tmp_path, "2.json", cpu_threads=4, cpu_activity=0.5))
    assert read_loads(tmp_path, 8) == LoadSum(0.5, 0.5, 0.0, 1.0, 6)


def test_more_threads_than_cores_share_them(tmp_path, hold):
    hold(write(tmp_path, "1.json", cpu_threads=12, cpu_activity=1.0))
    hold(write(tmp_path, "2.json", cpu_threads=4, cpu_activity=1.0, npu_activity=1.0))
    seen = read_loads(tmp_path, 8)
    assert (seen.cpu_activity, seen.cpu_share, seen.npu_activity) == (1.0, 0.5, 1.0)


def test_a_file_without_a_holder_is_removed_and_does_not_count(tmp_path):
    path = write(tmp_path, "1.json", cpu_threads=8, cpu_activity=1.0)
    assert read_loads(tmp_path, 8) == LoadSum()
    assert not path.exists()


def test_a_file_that_is_a_moment_old_counts_before_it_is_locked(tmp_path):
    path = write(tmp_path, "1.json", cpu_threads=8, cpu_activity=1.0)
    assert read_loads(tmp_path, 8, wall_unix_s=LONG_AGO + 0.5).cpu_activity == 1.0
    assert path.exists()


def test_looking_does_not_take_the_lock_of_a_young_file(tmp_path):
    path = write(tmp_path, "1.json", cpu_threads=1, cpu_activity=1.0)
    read_loads(tmp_path, 8, wall_unix_s=LONG_AGO + 0.1)
    handle = os.open(path, os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"cpu_threads": -1}',
        '{"cpu_threads": 1.5}',
        '{"cpu_threads": true}',
        '{"cpu_activity": NaN}',
        '{"npu_activity": 1.1}',
        '{"gpu_activity": "1"}',
        '{"cpu_threads": 99999999}',
    ],
)
def test_nonsense_is_no_load(tmp_path, hold, text):
    path = tmp_path / "1.json"
    path.write_text(text)
    os.utime(path, (LONG_AGO, LONG_AGO))
    hold(path)
    assert read_loads(tmp_path, 8) == LoadSum()


def test_links_pipes_and_other_names_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text('{"cpu_threads": 8, "cpu_activity": 1.0}')
    folder = tmp_path / "load"
    folder.mkdir()
    (folder / "1.json").symlink_to(outside)
    os.mkfifo(folder / "2.json")
    (folder / "3.txt").write_text(outside.read_text())
    assert read_loads(folder, 8) == LoadSum()
    assert outside.exists()


HOLDER = """
import fcntl, json, sys, time
file = open(sys.argv[1], "w")
json.dump({"cpu_threads": 8, "cpu_activity": 1.0}, file); file.flush()
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_killed_holder_stops_loading(tmp_path):
    path = tmp_path / "9.json"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        later = time.time() + 10
        assert read_loads(tmp_path, 8, wall_unix_s=later).cpu_activity == 1.0
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert read_loads(tmp_path, 8, wall_unix_s=later) == LoadSum()
    assert not path.exists()
