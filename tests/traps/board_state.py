"""Traps in the state of boards: real sshd, the board's own program, no workload."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from boardbench.errors import BenchError
from boardbench.matrix import lease, preflight

from .harness import Off, OffOnBoard, Trap
from .made_files import none
from .scene import Scene, until

MODEL = "var/lib/trap-model.bin"
MODEL_BYTES = 8 << 20
# A server that has its model mapped, and touches it all the time or not at all.
SERVER = """
import mmap, sys, time
file = open("/{model}", "rb")
data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(sum(data[::4096]), flush=True)
while True:
    time.sleep({every_s})
    sum(data[::4096])
"""


def model_on(scene: Scene, name: str) -> Path:
    """A file on the board that is in memory, clean."""
    path = scene.root(name) / MODEL
    path.write_bytes(b"m" * MODEL_BYTES)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        file.read()
    scene.later(lambda: path.unlink(missing_ok=True))
    return path


def dropped(scene: Scene, name: str) -> list[str]:
    """What the product makes of a drop of the model's cache: by the reasons against a run that needs it cold."""
    entry = prepare(scene, name, cache_files=[f"/{MODEL}"])["cache"]
    return scene.judged(entry)


def prepare(scene: Scene, name: str, **changes: Any) -> dict[str, dict[str, Any]]:
    """The board's evidence for the start of a run, by gate."""
    run = f"trap-{scene.number()}"
    args: dict[str, Any] = {
        "run": run, "campaign": "trap", "scope": "campaign-trap", "strays": None, "cool": None, "cache_files": None,
        "settings": [], "logger": None,
    }  # fmt: skip
    answer = scene.call(name, "prepare", **{**args, **changes})
    if answer["ready"] or "cache" in {entry["gate"] for entry in answer["evidence"]}:
        scene.call(name, "finish", run=run)
    scene.call(name, "forget", run=run)
    return {entry["gate"]: entry for entry in answer["evidence"]}


def read_only(scene: Scene) -> list[str]:
    """The kernel's file cannot be written, as in most containers: a script's `echo 3` fails, and the run goes on."""
    if scene.fleet.status().sysfs != "fuse":
        pytest.skip("a kernel file that refuses a write needs FUSE")
    model_on(scene, "king")
    scene.fleet.set_faults("king", {"drop_caches": "read-only"})
    return dropped(scene, "king")


def mapped(scene: Scene) -> list[str]:
    """The kernel takes the order, and the pages stay: somebody has them mapped."""
    return with_server(scene, every_s=1000.0)


def served(scene: Scene) -> list[str]:
    """The server still runs, and touches its model all the time."""
    return with_server(scene, every_s=0.01)


def with_server(scene: Scene, every_s: float) -> list[str]:
    """A drop while the server has the model mapped."""
    model_on(scene, "king")
    with scene.running("king", "/usr/bin/python3", "-c", SERVER.format(model=MODEL, every_s=every_s)):
        return dropped(scene, "king")


# ---- who is behind a name ----


def another_board(scene: Scene) -> list[str]:
    """The address of king leads to queen: DHCP has moved the boards, and both have good keys."""
    try:
        preflight.meet([scene.board("king", at="queen")], scene.open)
    except BenchError as error:
        return [str(error)]
    return []


# ---- two harnesses ----

ADA = {"owner": "ada", "host": "desk", "campaign": "c1"}


BOB = lease.Holder("bob", "attic", "c2")


def bob_comes(scene: Scene) -> list[str]:
    """What a second harness is told that takes the board by the product."""
    try:
        taken = lease.take_all(BOB, [scene.board("king")], 60.0, scene.open)
    except BenchError as error:
        return [str(error)]
    assert not taken.errors, taken
    lease.release_all(BOB, [scene.board("king")], scene.open)
    return []


def second_harness(scene: Scene) -> list[str]:
    """Ada's harness has the board; another one is started."""
    scene.call("king", "lease", action="take", ttl_s=300.0, **ADA)
    return bob_comes(scene)


def second_harness_in_the_gap(scene: Scene) -> list[str]:
    """Between two runs of a campaign nothing runs on the board; there another one takes it."""
    second: list[str] = []

    def in_the_gap(wave: int) -> None:
        if wave == 2:
            second.extend(bob_comes(scene))

    return [*scene.board_campaign(at_wave=in_the_gap, repeats=2, duration_s=120), *second]


# ---- a board that stays changed ----


def left_by_the_dead(scene: Scene) -> list[str]:
    """A campaign changed king and queen and died; the restore does king only. The next campaign comes to queen."""
    for name in ("king", "queen"):
        step = {"id": "swap", "resource": "sysctl", "args": {"name": "vm.swappiness", "value": "77"}, "line": "t:1"}
        done = scene.call(
            name, "apply", scope="campaign-dead", steps=[step], check=False, diff=False, stop_on_failure=True
        )
        assert done["recap"]["changed"] == 1, done
    scene.call("king", "restore", scope="campaign-dead")
    said = []
    for name in ("king", "queen"):
        scopes = prepare(scene, name)["leftovers"]["saw"].get("scopes", {})
        said += [f"{name}: {scope} put back {entry['what']}" for scope, found in scopes.items() for entry in found]
    return said


# ---- a harness that lives on ----

BURN = "/opt/boardbench/payloads/burn/burn.py"
RESPAWN = f"while :; do /usr/bin/python3 {BURN} --out $(mktemp -d) --threads 1 --interval-s 1 --duration-s 900; done"


def killed(scene: Scene, name: str, program: str) -> bool:
    """Kills what runs of a program; whether there was something."""
    found = scene.pids_of(name, program)
    if found:
        scene.kill(name, found)
    return bool(found)


def lives_on(scene: Scene) -> list[str]:
    """The harness was killed by its pid, and believed stopped; what had started it starts it again."""

    with scene.running("king", "/bin/sh", "-c", f"echo up; {RESPAWN}"):
        until(lambda: killed(scene, "king", BURN), "the harness runs")
        return scene.judged(prepare(scene, "king", strays={"scripts": [BURN]})["strays"])


CACHE, ALIAS, SECOND, RESTORE = (
    "cache-drop-that-did-not-work", "board-swapped-behind-its-alias", "second-harness", "restore-that-forgets-a-board",
)  # fmt: skip
NO_LEASE = (OffOnBoard("lease", "Store.current", 'lambda self: (None, "")'),)


TRAPS = (
    Trap(
        CACHE, "read-only", read_only, "cache-warm: .*drop_caches cannot be written: Read-only file system",
        (OffOnBoard("pagecache", "_order", 'lambda places: ""'),), on_boards=True,
    ),
    Trap(
        CACHE, "still-mapped", mapped, "cache-warm: .*100.0 % is still in memory",
        (OffOnBoard("pagecache", "_why_warm", 'lambda places, evidence: ""'),), on_boards=True,
    ),
    Trap(
        CACHE, "server-still-runs", served, "cache-warm: .*100.0 % is still in memory",
        (OffOnBoard("pagecache", "_why_warm", 'lambda places, evidence: ""'),), on_boards=True,
    ),
    Trap(
        ALIAS, "", another_board, r"king.*: the machine that answers has hostname 'queen', the inventory says 'king'",
        (Off("boardbench.matrix.preflight:check_identity", none),), on_boards=True,
    ),
    Trap(
        SECOND, "at-once", second_harness, r"king: .*held by ada@desk \(campaign c1\)", NO_LEASE, on_boards=True,
    ),
    Trap(
        SECOND, "in-the-gap", second_harness_in_the_gap, r"king: .*held by .* \(campaign ", NO_LEASE, on_boards=True,
    ),
    Trap(
        "harness-believed-stopped", "", lives_on, "strays-present: strays: .* it came back",
        (OffOnBoard("strays", "find", "lambda places, manager, harness, except_runs: []"),), on_boards=True,
    ),
    Trap(
        RESTORE, "left-by-the-dead", left_by_the_dead, "queen: campaign-dead put back .*swappiness",
        (
            OffOnBoard(
                "run_prepare", "_leftover_scopes",
                'lambda call, scope: gates.evidence("leftovers", True, {"scopes": {}})',
            ),
        ), on_boards=True,
    ),
)  # fmt: skip
