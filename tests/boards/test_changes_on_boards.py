"""Changes on boards with a real service manager and live sysfs: made, proved, and put back without a trace."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from boardbench.board import Door
from boardbench.virtual.fleet import Fleet

from .rig import board_of, ssh

pytestmark = pytest.mark.boards

SCOPE = "test-changes"
ROOT = "/opt/boardbench/payloads/test-node"
NODE = b"import sys, time\nif sys.argv[1:] == ['--health']: sys.exit(0)\ntime.sleep(1000)\n"
UNIT = f"[Service]\nExecStart=/usr/bin/python3 {ROOT}/node.py\n[Install]\nWantedBy=multi-user.target\n".encode()
# What a board has below these folders, with mode, owner and link; contents of what may be changed.
LISTING = (
    "find /etc /opt /usr/local /var/lib -xdev -not -path '/var/lib/systemd/*' -not -path '/var/lib/boardbench*' "
    "-printf '%p %m %u %g %y %l\\n' | sort; "
    "cat /proc/sys/vm/swappiness /sys/devices/system/cpu/cpufreq/policy*/scaling_governor "
    "/sys/class/devfreq/*/min_freq; cat /etc/passwd /etc/group"
)


class Board:
    """A board, and what its last `apply` said."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet = fleet
        self.name = name
        self.door = Door.open(board_of(fleet, name), fleet.known_hosts)
        self.steps: list[dict[str, Any]] = []

    def apply(self, steps: list[dict[str, Any]], blobs: dict[str, bytes], **args: Any) -> dict[str, int]:
        self.steps = []
        wanted = {"scope": SCOPE, "steps": steps, "check": False, "diff": False, "stop_on_failure": True, **args}
        value = self.door.call("apply", wanted, deadline_s=60.0, blobs=blobs, on_event=self._hear)
        recap: dict[str, int] = value["recap"]  # type: ignore[assignment]
        return recap

    def _hear(self, event: dict[str, object]) -> None:
        if event["event"] == "step":
            self.steps.append(event)

    def restore(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.door.call("restore", {"scope": SCOPE}, deadline_s=60.0)["restored"]  # type: ignore[assignment]
        return found

    def listing(self) -> list[str]:
        return ssh(self.fleet, self.name, "sudo", "-n", "sh", "-c", f'"{LISTING}"').out.splitlines()


@pytest.fixture
def board(fleet: Fleet) -> Iterator[Board]:
    made = Board(fleet, "king")
    yield made
    made.restore()
    made.door.close()


def steps(blobs: dict[str, bytes]) -> list[dict[str, Any]]:
    def blob(content: bytes) -> dict[str, Any]:
        sha = hashlib.sha256(content).hexdigest()
        blobs[sha] = content
        return {"blob": sha, "size": len(content)}

    payload = {
        "name": "test-node",
        "version_sha256": "1" * 64,
        "root": ROOT,
        "files": [{"path": "node.py", "mode": "0755", **blob(NODE)}],
        "units": [{"name": "test-node.service", "enabled": True, "active": True, **blob(UNIT)}],
        "settings": None,
        "health": ["/usr/bin/python3", f"{ROOT}/node.py", "--health"],
        "conflicts": [],
        "harness": {"executables": [], "scripts": [f"{ROOT}/node.py"], "units": ["test-node.service"]},
    }
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("directory", {"path": "/etc/bench-changes/deep", "mode": "0750"}),
        ("file", {"path": "/etc/bench-changes/deep/conf", "content": "a = 1\n", "mode": "0640"}),
        ("file", {"path": "/etc/hostname", "content": "renamed\n"}),
        ("governor", {"governor": "userspace"}),
        ("sysfs", {"path": "/sys/class/devfreq/*.npu/min_freq", "value": 950000000}),
        ("user", {"name": "bench-npu", "system": True}),
        ("payload", payload),
    ]
    return [{"id": f"{name} {number}", "resource": name, "args": args} for number, (name, args) in enumerate(wanted)]


def test_a_board_is_changed_once_and_put_back_to_the_last_path(board: Board) -> None:
    blobs: dict[str, bytes] = {}
    wanted = steps(blobs)
    before = board.listing()
    assert len(before) > 50

    assert board.apply(wanted, {}, check=True, diff=True)["changed"] == len(wanted), board.steps
    assert board.listing() == before

    assert board.apply(wanted, blobs)["changed"] == len(wanted), board.steps
    assert "950000000" in board.listing()
    assert "test-node.service" in ssh(board.fleet, board.name, "sudo", "-n", "systemctl", "list-units").out
    assert board.apply(wanted, {})["ok"] == len(wanted), board.steps

    restored = board.restore()
    assert all(entry["ok"] for entry in restored), restored
    assert set(board.listing()) ^ set(before) == set()
    assert board.restore() == []


def test_a_value_that_the_kernel_refuses_stops_the_playbook(board: Board) -> None:
    before = board.listing()
    refused = {"id": "bad", "resource": "governor", "args": {"governor": "warp"}}
    later = {"id": "later", "resource": "file", "args": {"path": "/etc/later", "content": ""}}
    assert board.apply([refused, later], {}) == {"ok": 0, "changed": 0, "skipped": 1, "failed": 1}
    assert "does not know the governor 'warp'" in board.steps[0]["message"]
    board.restore()
    assert board.listing() == before
