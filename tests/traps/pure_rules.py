"""Traps that are rules over numbers, and those that a whole campaign on fake boards shows."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from boardbench.remote import gates, supervise
from boardbench.results import audit
from boardbench.results.audit_patterns import BUILT_IN

from .harness import Off, Trap
from .made_files import BURN, gives, none, of_files
from .scene import Files, Scene, fake_boards, until
from .served import sprung

# ---- a column for another ----


def columns_changed(files: Files) -> None:
    """The parser of the workload's output takes the rate for the amount, and the amount for the rate."""
    lines = [json.loads(line) for line in files[BURN].splitlines()]
    for line in lines:
        if line["event"] == "interval":
            line["operations"], line["operations_per_s"] = line["operations_per_s"], line["operations"]
    files[BURN] = "".join(json.dumps(line) + "\n" for line in lines).encode()


STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.42    1.870000          11    170000       120 epoll_wait
"""


def strace_calls(served: dict[str, Any]) -> None:
    """The column usecs/call of `strace -c` is taken for calls; requests x syscalls a request say another number."""
    wrong_column = float(STRACE.splitlines()[2].split()[2])
    served["calls"]["epoll_wait"][0] = wrong_column


# ---- who took part ----


def one_node_of_three(served: dict[str, Any]) -> None:
    """Three nodes are registered with the scheduler; all 22 000 answers came from one of them."""
    served["answers"] = {"king": 22_000, "queen": 0}


def shared_context(served: dict[str, Any]) -> None:
    """Threads of one node share a context of its runtime: no call fails, the rate is as ever, the tensors are wrong."""
    served["golden"]["queen"] = ["77c1", "77c1"]


def context_without_order(served: dict[str, Any]) -> None:
    """The same where chance decides which thread's tensors come out."""
    served["golden"]["queen"] = ["0f5a", "77c1"]


def mixed_windows(served: dict[str, Any]) -> None:
    """Rate and latency of two windows stand beside each other: each is right, and together they are impossible."""
    served["mean_latency_s"] *= 1.3


def files_of_another_board(files: Files) -> None:
    """The run is registered as king's; the files say that another machine sampled them."""
    meta = json.loads(files["thermal.meta.json"])
    meta["hostname"] = "jack"
    files["thermal.meta.json"] = json.dumps(meta).encode()


# ---- a disk that fills ----


def disk_fills(scene: Scene) -> list[str]:
    """Between two looks of the run's own supervisor the disk fills up, and somebody makes room again before the end."""
    looks: list[float] = []

    def statvfs(_: object) -> SimpleNamespace:
        looks.append(5e9 if len(looks) not in (2, 3) else 4096.0)
        return SimpleNamespace(f_bavail=looks[-1], f_frsize=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "statvfs", statvfs)
        watch = supervise.Watch(str(scene.fresh()))
        watch.start()
        until(lambda: len(looks) > 5, "the supervisor looks")
        saw = watch.stop(time.monotonic())
    return scene.judged(gates.disk({"watch": saw}))


# ---- an arm that did nothing ----


def same_counters(scene: Scene) -> list[str]:
    """The switch between the arms reached neither: both count the same, to the last digit."""

    def change(files: Files) -> None:
        lines = [json.loads(line) for line in files[BURN].splitlines()]
        intervals = [line for line in lines if line["event"] == "interval"]
        for line in intervals:
            line["operations"] = 19.0 + line["index"]
            line["operations_per_s"] = line["operations"] / (line["end_monotonic_s"] - line["start_monotonic_s"])
        if "operations" in lines[-1]:
            lines[-1]["operations"] = sum(line["operations"] for line in intervals)
        files[BURN] = "".join(json.dumps(line) + "\n" for line in lines).encode()

    def prepare(fakes: Any) -> None:
        fakes["king"].change_files = change

    return scene.said_by(scene.fake_campaign(prepare))


def impossible_control(scene: Scene) -> list[str]:
    """The control has 5.6 times the rate of the arm that it repeats: these two were not one condition."""

    def prepare(fakes: Any) -> None:
        made: list[object] = []

        def change(files: Files) -> None:
            made.append(files)
            lines = [json.loads(line) for line in files[BURN].splitlines()]
            for line in lines if len(made) == 1 else []:
                for key in {"operations", "operations_per_s"} & set(line):
                    line[key] *= 0.18
            files[BURN] = "".join(json.dumps(line) + "\n" for line in lines).encode()

        fakes["king"].change_files = change

    return scene.said_by(scene.fake_campaign(prepare, text=CONTROLLED))


CONTROLLED = (
    fake_boards.MATRIX
    + """\
baseline: {arm: active, is: its fan runs}
controls: [{name: active-aa, of: active}]
rules:
  - {name: cost, metric: steady, arms: [fanless, active], compare: ratio, op: "<", threshold: 9,
     minimum_effect: {percent: 1}, assumed_noise: {percent: 2, because: made up for this test}}
"""
)


# ---- words in prose ----


# Put together here, so that this file is no finding itself.
WORD, VALUE = "pass" + "word", "Tr0ub4" + "dor&3"


def secret_in_a_note(scene: Scene) -> list[str]:
    """A note on the rig, to be committed with the code."""
    path = scene.fresh() / "NOTES.md"
    path.write_text(f"The boards boot slowly. Log in as pi; the {WORD} is {VALUE}, as on the label.\n")
    found = audit.audit([("NOTES.md", path)], BUILT_IN)
    assert VALUE not in repr(found), "the audit shows the secret"
    return [str(finding) for finding in found.findings]


def secret_in_a_log(files: Files) -> None:
    """A log of the board, collected with its run."""
    files["logs/workload.log"] = f"+ echo '{VALUE}' | sudo -S reboot\n".encode()


# ---- a board that stays changed ----


def restore_forgets_queen(scene: Scene) -> list[str]:
    """The restore says that all is well on both boards, and has done nothing on queen."""

    def prepare(fakes: Any) -> None:
        for name, board in fakes.fakes.items():
            board.verb_facts = with_governor(board, board.verb_facts)
            if name == "queen":
                board.verb_restore = gives({"restored": []})

    return scene.said_by(scene.fake_campaign(prepare))


def with_governor(board: Any, facts: Any) -> Any:
    """The facts of a fake board, with the governor that it has now."""

    def verb_facts(args: Any) -> Any:
        answer = facts(args)
        policy = {"policy": "policy0", "cpus": [0, 1, 2, 3], "governor": board.governor}
        clocks = {"cur_khz": 408000, "min_khz": 408000, "max_khz": 2208000, "hw_max_khz": 2208000}
        answer["facts"]["cpu_policies"] = [{**policy, **clocks, "available_khz": [408000, 2208000]}]
        return answer

    return verb_facts


COLUMN, NODES, WRONG = "column-mix-up", "nodes-counted-by-registration", "wrong-answers-at-full-speed"
TRAPS = (
    Trap(
        COLUMN, "workload-output", of_files(columns_changed), "counts-do-not-add-up: counts: interval 0 holds",
        (Off("boardbench.results.after:counts", none),),
    ),
    Trap(
        COLUMN, "strace", sprung(strace_calls),
        "instruments-disagree: instruments: epoll_wait: strace -c says 11 calls",
        (Off("boardbench.results.crosscheck:_apart", gives("")),),
    ),
    Trap(
        COLUMN, "two-windows", sprung(mixed_windows), "littles-law-broken: littles-law: rate x latency is",
        (Off("boardbench.analysis.littles_law:departure", gives(0.0)),),
    ),
    Trap(
        "overload-quoted-at-the-operating-point", "", sprung(loud="clients32"),
        "overload-quoted: board king: steady .clients32. of .* is overload; its operating point is 12",
        (Off("boardbench.results.loadcurve:doubts", gives([])),),
    ),
    Trap(
        NODES, "one-of-three", sprung(one_node_of_three),
        "nodes-unanswered: answers: 1 of 3 nodes answered, none from jack, queen",
        (Off("boardbench.results.answers:reasons", none),),
    ),
    Trap(
        WRONG, "on-one-node", sprung(shared_context),
        "outputs-differ: golden: queen: its output is not that of jack, king for the same image",
        (Off("boardbench.results.golden:reasons", none),),
    ),
    Trap(
        WRONG, "now-and-then", sprung(context_without_order),
        "outputs-differ: golden: queen: one image gave 2 outputs",
        (Off("boardbench.results.golden:reasons", none),),
    ),
    Trap(
        NODES, "files-of-another-board", of_files(files_of_another_board),
        "nodes-unanswered: 0 of 1 nodes answered, none from king",
        (Off("boardbench.results.answers:reasons", none),),
    ),
    Trap(
        "disk-filled-in-mid-run", "", disk_fills, "disk-full: disk: only 0.0 MB were free during the run",
        (Off("boardbench.remote.gates:disk", gives(gates.evidence("disk", True, {}))),),
    ),
    Trap(
        "arm-that-did-not-take-effect", "", same_counters,
        "arm-did-not-take-effect: board king: all 31 counters of arm",
        (Off("boardbench.results.armeffect:doubts", gives([])),),
    ),
    Trap(
        "arm-that-did-not-take-effect", "impossible-control", impossible_control,
        "rule cost is invalid: king: arm-did-not-take-effect: control active-aa has 5.56 x the rate of active",
        (Off("boardbench.results.armeffect:impossible_controls", none),),
    ),
    Trap(
        "overload-quoted-at-the-operating-point", "in-a-decision", sprung(loud="clients32"),
        "rule more is invalid: king: overload-quoted: .* is overload; its operating point is 12",
        (Off("boardbench.results.loadcurve:doubts", gives([])),),
    ),
    Trap(
        "password-in-prose", "to-be-committed", secret_in_a_note, r"NOTES\.md:1: password in prose: .*\*\*\*",
        (Off("boardbench.results.audit:audit_file", none),),
    ),
    Trap(
        "password-in-prose", "collected", of_files(secret_in_a_log), r".*workload\.log.*password fed to sudo",
        (Off("boardbench.results.audit:audit_file", none),),
    ),
    Trap(
        "restore-that-forgets-a-board", "facts", restore_forgets_queen,
        "leftovers-not-restored: board queen: not put back: policy0 governor is performance, it was ondemand before",
        (Off("boardbench.results.put_back:warnings", gives([])),),
    ),
)  # fmt: skip
