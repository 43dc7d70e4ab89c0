"""The memory limit that the supervisor puts in force itself where the service manager does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boardbench.remote import memory_limit

V1 = Path(memory_limit.ROOT)
NAME = f"boardbench-test-{os.getpid()}"
PROBE = """
import os, sys
sys.path.insert(0, sys.argv[1])
import memory_limit
limited = memory_limit.enter(sys.argv[2], 64 << 20, False)
group = next(line.rstrip().split(":", 2)[2] for line in open("/proc/self/cgroup") if ":memory:" in line)
print(group, open("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes").read().strip())
limited.leave()
print(os.path.exists("/sys/fs/cgroup/memory" + group))
"""


def own_group(proc: Path, text: str) -> None:
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(text)


def test_without_a_version_1_hierarchy_nothing_is_changed(tmp_path: Path) -> None:
    own_group(tmp_path / "proc", "0::/user.slice\n")
    assert memory_limit.enter("x", 1 << 20, False, str(tmp_path / "proc"), str(tmp_path / "root")) is None
    assert not (tmp_path / "root").exists()


def test_a_group_outside_of_what_the_board_sees_is_left_alone(tmp_path: Path) -> None:
    own_group(tmp_path / "proc", "4:memory:/../..\n")
    (tmp_path / "root").mkdir()
    assert memory_limit.enter("x", 1 << 20, False, str(tmp_path / "proc"), str(tmp_path / "root")) is None
    assert list((tmp_path / "root").iterdir()) == []


def test_a_hierarchy_that_has_no_limits_leaves_no_group_behind(tmp_path: Path) -> None:
    own_group(tmp_path / "proc", "4:memory:/\n")
    (tmp_path / "root").mkdir()
    assert memory_limit.enter("x", 1 << 20, False, str(tmp_path / "proc"), str(tmp_path / "root")) is None
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.skipif(
    os.geteuid() != 0 or not (V1 / "memory.limit_in_bytes").exists() or not os.access(V1, os.W_OK),
    reason="needs root and the memory controller of version 1",
)
def test_the_process_is_limited_and_leaves_nothing() -> None:
    folder = str(Path(memory_limit.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, folder, NAME], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    first, gone = done.stdout.splitlines()
    assert first.split()[0].endswith(f"/{NAME}")
    assert first.split()[1] == str(64 << 20)
    assert gone == "False"
