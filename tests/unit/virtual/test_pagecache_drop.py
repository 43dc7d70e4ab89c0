"""Dropping a board's page cache: really out of memory, and nobody else's."""

import ctypes
import json
import mmap
import os
import pathlib
import subprocess

import pytest

from boardbench.virtual.pagecache import drop, ignored, note

SIZE = 1 << 20


def resident_share(path):
    """Share of the file's pages that are in the page cache, by mincore."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = path.stat().st_size
    handle = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
        pages = -(-size // mmap.PAGESIZE)
        found = ctypes.create_string_buffer(pages)
        assert libc.mincore(address, size, found) == 0
        libc.munmap(address, size)
    finally:
        os.close(handle)
    return sum(byte & 1 for byte in found.raw) / pages


def make_cached(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(os.urandom(SIZE))
        os.fsync(file.fileno())
    path.read_bytes()
    assert resident_share(path) == 1.0
    return path


@pytest.fixture
def on_disk(tmp_path):
    """A folder whose file system has a page cache that can be dropped (a tmpfs keeps its pages)."""
    probe = make_cached(tmp_path / "probe")
    handle = os.open(probe, os.O_RDONLY)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)
    if resident_share(probe) > 0:
        pytest.skip("the temporary folder lies on a file system without a page cache of its own")
    return tmp_path


def test_a_drop_evicts_every_file_below_the_roots_and_none_outside(on_disk):
    inside = [make_cached(on_disk / "board/opt/a.bin"), make_cached(on_disk / "board/var/deep/er/b.bin")]
    outside = make_cached(on_disk / "other/c.bin")
    done = drop([on_disk / "board/opt", on_disk / "board/var"], None, 3)
    assert [resident_share(path) for path in inside] == [0.0, 0.0]
    assert resident_share(outside) == 1.0
    assert (done.files, done.bytes, done.value, done.problems) == (2, 2 * SIZE, 3, ())


def test_a_link_does_not_lead_out_of_the_roots(on_disk):
    outside = make_cached(on_disk / "other/c.bin")
    board = on_disk / "board"
    board.mkdir()
    (board / "file").symlink_to(outside)
    (board / "folder").symlink_to(outside.parent)
    assert drop([board], None, 3).files == 0
    assert resident_share(outside) == 1.0


def test_dirty_pages_stay_because_syncing_is_the_callers_job(on_disk):
    path = make_cached(on_disk / "board/dirty.bin")
    with path.open("r+b") as file:
        file.write(b"x" * 100)
    drop([on_disk / "board"], None, 3)
    assert path.read_bytes()[:100] == b"x" * 100


def test_pipes_and_missing_roots_do_no_harm(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = drop([tmp_path, tmp_path / "gone"], None, 1)
    assert done.files == 0
    assert len(done.problems) == 1
    assert "gone" in done.problems[0]


def test_a_control_group_that_is_none_is_left_alone(tmp_path):
    (tmp_path / "memory.force_empty").write_text("")
    drop([], tmp_path, 3)
    assert (tmp_path / "memory.force_empty").read_text() == ""


def test_the_log_gets_one_line_per_drop(tmp_path):
    log = tmp_path / "drops.jsonl"
    note(log, drop([], None, 1))
    note(log, ignored(3))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["value"], line["ignored"]) for line in lines] == [(1, False), (3, True)]


V1_MEMORY = "/sys/fs/cgroup/memory/memory.usage_in_bytes"


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists(V1_MEMORY), reason="needs root and control groups v1 with memory"
)
def test_a_control_group_gives_up_what_its_dead_processes_cached(on_disk):
    group = pathlib.Path(f"/sys/fs/cgroup/memory/boardbench-test-{os.getpid()}")
    file = on_disk / "elsewhere.bin"
    group.mkdir()
    try:
        script = "echo $$ > $1/cgroup.procs; head -c 4194304 /dev/urandom > $2; sync $2"
        subprocess.run(["sh", "-c", script, "sh", str(group), str(file)], check=True)
        assert resident_share(file) == 1.0
        done = drop([], group, 3)
        assert done.problems == ()
        assert resident_share(file) == 0.0
    finally:
        group.rmdir()
