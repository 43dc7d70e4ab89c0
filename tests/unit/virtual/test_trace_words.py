"""What a virtual board's bpftrace may ask of its host, and whose process ids it is told."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.virtual.trace_words import BoardIds, ids_in_namespace, program_for_host

PROJECT = Path(__file__).resolve().parents[3]
OURS, OTHER = "pid:[7]", "pid:[8]"


def _gpu_floors_program(path: str, *, exits: bool) -> str:
    sys.path.insert(0, str(PROJECT / "payloads/gpu-floor"))
    try:
        from gpufloor.probes import program  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    return str(program(path, ["llama_process", "llama_decode"], exits=exits))


def test_the_gpu_floors_own_program_is_taken_with_the_boards_paths_below_its_root() -> None:
    text = _gpu_floors_program("/opt/llama/libllama.so.0", exits=False)
    found = program_for_host(text, "/proc/42/root")
    assert found.count('uprobe:"/proc/42/root/opt/llama/libllama.so.0":"llama_') == 2
    assert found.count('uretprobe:"/proc/42/root/opt/llama/libllama.so.0":"llama_') == 2
    assert found.replace("/proc/42/root", "") == text


@pytest.mark.parametrize(
    ("program", "word"),
    [
        ('kprobe:vfs_read { printf("x") }', "kprobe"),
        ('tracepoint:sched:sched_process_exit { printf("x") }', "tracepoint"),
        ('uprobe:"/lib/x.so":"f" { printf("%s", str(arg0)) }', "str"),
        ('uprobe:"/lib/x.so":"f" { printf("%d", *arg0) }', "pointers"),
        ('uprobe:"/lib/x.so":"f" { printf("%d", ((struct file *)arg0)->f_flags) }', "pointers"),
        ('uprobe:"/lib/x.so":"f" { system("id") }', "system"),
        ('uprobe:"/lib/x.so":"f" { @x = curtask }', "curtask"),
        ('uprobe:"/../x.so":"f" { printf("x") }', "'..'"),
        ("uprobe:/lib/x.so:f { exit() }", "does not know"),
        ('uprobe:"/lib/*.so":"f" { printf("x") }', "uprobe"),
        ('uprobe:"/lib/x.so":"f" { printf("x") } // "', "comments"),
        ('BEGIN { printf("x") }', "BEGIN"),
    ],
)
def test_what_reaches_beyond_the_boards_own_files_is_refused(program: str, word: str) -> None:
    with pytest.raises(InputError, match=word.replace("'..'", r"\.\.")):
        program_for_host(program, "/proc/42/root")


class Host:
    """Threads of a host: id -> (pid namespace, pid there, tid there)."""

    def __init__(self) -> None:
        self.threads = {1001: (OURS, 11, 12), 2001: (OTHER, 11, 12)}

    def look(self, thread: int) -> tuple[str, int, int] | None:
        return self.threads.get(thread)


def test_ids_become_the_boards_and_other_boards_calls_are_left_out() -> None:
    ids = BoardIds(OURS, Host().look)
    assert ids.line("call 1000 1001 1 77") == "call 11 12 1 77"
    assert ids.line("call 2000 2001 1 77") is None
    assert ids.line("call 3000 3001 1 77") is None
    for other in ("tick 5", "Lost 3 events", ""):
        assert ids.line(other) == other


def test_the_end_of_a_thread_that_is_gone_is_still_told() -> None:
    host = Host()
    ids = BoardIds(OURS, host.look)
    assert ids.line("call 1000 1001 1 77") is not None
    del host.threads[1001]
    assert ids.line("done 1000 1001 0 78") == "done 11 12 0 78"


def test_a_new_thread_with_an_old_ones_id_is_looked_at_anew() -> None:
    host = Host()
    ids = BoardIds(OURS, host.look)
    ids.line("call 1000 1001 1 77")
    host.threads[1001] = (OTHER, 5, 6)
    assert ids.line("call 1000 1001 1 79") is None
    assert ids.line("done 1000 1001 0 80") is None


def test_a_threads_own_ids_are_read_from_the_kernel() -> None:
    found = ids_in_namespace(threading.get_native_id())
    assert found is not None
    assert found[0].startswith("pid:[")
    assert found[1:] == (os.getpid(), threading.get_native_id())
    assert ids_in_namespace(2**22 + 1) is None
