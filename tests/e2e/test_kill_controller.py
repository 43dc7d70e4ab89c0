"""The controller is killed, stopped and cut off at any instant; going on loses nothing and repeats nothing.

Instants are drawn anew each time from a seed that is printed; BOARDBENCH_KILL_SEED draws the same ones again.
BOARDBENCH_KILLS and BOARDBENCH_CUTS say how many the long tests make.
"""

from __future__ import annotations

import getpass
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from .conftest import Bench
from .kill_rig import (
    BOARDS,
    LIMIT,
    MATRIX,
    Rig,
    Watch,
    go_on,
    last_line,
    made_rig,
    read_until,
    ssh,
    until_done,
    whole_attempts,
)

pytestmark = pytest.mark.boards
SEED = int(os.environ.get("BOARDBENCH_KILL_SEED") or random.SystemRandom().randrange(10**8))
KILLS = int(os.environ.get("BOARDBENCH_KILLS", "50"))
CUTS = int(os.environ.get("BOARDBENCH_CUTS", "20"))
STEAL = ("--steal", "--why", "her desk is off")
Say = Callable[[str], None]


@pytest.fixture(scope="module")
def rig(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return made_rig(bench, tmp_path_factory.mktemp("matrix") / "kill.yml")


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Say:
    """A line that is seen while the test runs, and again when it fails."""

    def line(text: str) -> None:
        print(text)
        with capfd.disabled():
            print(f"{request.node.name}: {text}", file=sys.stderr, flush=True)

    return line


@pytest.mark.parametrize(
    ("kills", "a_campaign"), [(4, 2), pytest.param(KILLS, 5, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_killed_controller_loses_nothing_and_repeats_nothing(rig: Rig, say: Say, kills: int, a_campaign: int) -> None:
    draw = random.Random(SEED)
    say(f"BOARDBENCH_KILL_SEED={SEED}, undisturbed {rig.undisturbed_s:.1f} s")
    done = 0
    while done < kills:
        known, watch = rig.campaigns(), Watch(rig.verdict)
        process = rig.bench.start(*rig.new)
        for _ in range(min(a_campaign, kills - done)):
            instant_s = draw.uniform(0.2, rig.undisturbed_s)
            try:
                process.wait(instant_s)
                break  # it was done before its turn
            except subprocess.TimeoutExpired:
                pass
            process.send_signal(signal.SIGKILL)
            _, err = process.communicate()
            done += 1
            new = [path for path in rig.campaigns() if path not in known]
            whole = f"{len(whole_attempts(new[-1]))} cells whole" if new else "no campaign yet"
            say(f"kill {done} of {kills} after {instant_s:.2f} s, {whole}, at: {last_line(err)}")
            if new:
                watch.look(new[-1])
            process = rig.bench.start(*go_on(rig, known))
        folder = until_done(rig, known, process)
        watch.check(folder)
        rig.settle()


@pytest.mark.parametrize("cuts", [2, pytest.param(CUTS, marks=pytest.mark.slow)], ids=["few", "many"])
def test_a_cut_link_loses_nothing_and_repeats_nothing(rig: Rig, say: Say, cuts: int) -> None:
    draw = random.Random(SEED + 1)
    say(f"BOARDBENCH_KILL_SEED={SEED}, undisturbed {rig.undisturbed_s:.1f} s")
    done = 0
    while done < cuts:
        known, watch = rig.campaigns(), Watch(rig.verdict)
        process = rig.bench.start(*rig.new)
        for _ in range(min(2, cuts - done)):
            instant_s, length_s = draw.uniform(0.5, rig.undisturbed_s / 2), draw.uniform(0.5, 6.0)
            board = draw.choice(BOARDS)
            try:
                process.wait(instant_s)
                break
            except subprocess.TimeoutExpired:
                pass
            rig.fleet.cut(board)
            try:
                time.sleep(length_s)
            finally:
                rig.fleet.mend(board)
            done += 1
            say(f"cut {done} of {cuts}: the link of {board} for {length_s:.2f} s, {instant_s:.2f} s after the last")
        _, err = process.communicate(timeout=300)
        if process.returncode != 0:
            say(f"goes on after: {last_line(err)}")
            resumed = rig.bench.inv(*go_on(rig, known))
            assert resumed.code == 0, resumed.err
        watch.check(next(path for path in rig.campaigns() if path not in known))
        rig.settle()


def test_a_second_controller_is_refused_and_takes_over_at_once_when_the_first_is_dead(rig: Rig) -> None:
    known = rig.campaigns()
    first = rig.bench.start(*rig.new)
    read_until(first, "measure")
    first.send_signal(signal.SIGSTOP)  # a controller that only stands still is no dead one
    second = rig.bench.inv(*rig.new)
    (folder,) = [path for path in rig.campaigns() if path not in known]
    assert second.code == 3, second.err
    for said in (getpass.getuser(), folder.name, "s left"):
        assert said in second.err
    refused = rig.bench.inv("provision", "--limit", LIMIT)
    assert refused.code != 0
    assert folder.name in refused.out + refused.err
    first.kill()
    first.communicate()
    third = rig.bench.inv(*rig.new)
    assert third.code == 0, third.err
    assert f"took over the hold of {getpass.getuser()}@" in third.err
    assert f"process {first.pid} of this machine, is gone" in third.err
    assert len(rig.campaigns()) == len(known) + 2, "a refused campaign left a folder"
    resumed = rig.bench.inv("bench", "--resume")
    assert resumed.code == 0, resumed.err
    assert str(folder) in resumed.err, "the newest unfinished campaign is the first one"
    rig.settle()


def test_from_another_machine_the_hold_of_a_dead_controller_ends_by_its_expiry(rig: Rig) -> None:
    first = rig.bench.start(*rig.new, "--lease-ttl", "4")
    read_until(first, "measure")
    first.kill()
    first.communicate()
    # As the hold reads to everybody but the machine that the controller died on.
    elsewhere = """sudo sed -i 's/"host": "[^"]*"/"host": "elsewhere"/' /run/boardbench/lease.json"""
    for board in BOARDS:
        ssh(rig.fleet, board, elsewhere)
    second = rig.bench.inv(*rig.new)
    if second.code != 0:  # on a slow machine the hold has ended by now
        left = re.search(r"(\d+) s left", second.err)
        assert left is not None, second.err
        assert f"{getpass.getuser()}@elsewhere" in second.err
        assert int(left.group(1)) <= 8
        time.sleep(int(left.group(1)) + 1)
        second = rig.bench.inv(*rig.new)
    assert second.code == 0, second.err
    assert "took over" not in second.err
    assert rig.bench.inv("bench", "--resume").code == 0
    rig.settle()


@pytest.mark.parametrize("word", ["provision", "teardown"])
def test_those_that_change_boards_take_over_what_a_dead_controller_held_and_left(rig: Rig, word: str) -> None:
    first = rig.bench.start(*rig.new)
    read_until(first, "measure")
    first.kill()
    first.communicate()
    campaign = rig.campaigns()[-1].name
    told = rig.bench.inv(word, "--limit", LIMIT, "--check")
    assert f"would take over the hold of {getpass.getuser()}@" in told.err, told.err
    done = rig.bench.inv(word, "--limit", LIMIT)
    for board in BOARDS:
        assert f"{board}: took over the hold of {getpass.getuser()}@" in done.err
    assert "left when it died" in done.out + done.err
    assert rig.settings() == (rig.settings_before if word == "provision" else rig.settings_found)
    # Only what nobody has fetched yet is not thrown away.
    assert done.code == (0 if word == "provision" else 1), done.err
    if word == "teardown":
        assert "./inv collect" in done.out + done.err
        assert rig.bench.inv("collect", "--limit", LIMIT).code == 0
        assert rig.bench.inv(word, "--limit", LIMIT).code == 0
        assert rig.bench.inv("provision", "--limit", LIMIT).code == 0
    watch = Watch(rig.verdict)
    resumed = rig.bench.inv("bench", "--resume", campaign)
    assert resumed.code == 0, resumed.err
    watch.check(rig.campaigns()[-1])
    rig.settle()


def test_a_board_is_taken_away_with_a_reason_that_both_sides_keep(rig: Rig) -> None:
    known = rig.campaigns()
    first = rig.bench.start(*rig.new)
    read_until(first, "measure")
    first.send_signal(signal.SIGSTOP)
    second = rig.bench.inv(*rig.new, *STEAL)
    first.kill()
    first.communicate()
    assert second.code == 0, second.err
    old, new = [path for path in rig.campaigns() if path not in known]
    stolen = json.loads((new / "campaign.json").read_text())["stolen"]
    assert [entry["board"] for entry in stolen] == list(BOARDS)
    assert all(entry["from"]["campaign"] == old.name and entry["why"] == STEAL[2] for entry in stolen)
    seen = rig.bench.inv("lease", "--limit", LIMIT, "--json").document["boards"]
    for entry in seen.values():
        lost = [hold for hold in entry["history"] if hold["campaign"] == old.name]
        won = [hold for hold in entry["history"] if hold["campaign"] == new.name]
        assert STEAL[2] in lost[-1]["how"]
        assert new.name in lost[-1]["how"]
        assert old.name in won[-1]["why"]
    assert rig.bench.inv("bench", "--resume", old.name).code == 0
    rig.settle()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["INT", "TERM", "HUP"])
def test_a_stop_abandons_the_cells_puts_the_boards_back_and_says_how_to_go_on(rig: Rig, number: signal.Signals) -> None:
    process = rig.bench.start(*rig.new)
    read_until(process, "measure")
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"{number.name}: abandoning 001-active-king, 002-active-queen" in err
    rig.settle()
    command = re.search(r"go on with: \./inv (.*)", err)
    assert command is not None, err
    if number is not signal.SIGINT:
        return  # one way to go on is like the other
    watch = Watch(rig.verdict)
    resumed = rig.bench.inv(*command.group(1).split())
    assert resumed.code == 0, resumed.err
    watch.check(rig.campaigns()[-1])
    rig.settle()


def test_a_second_ctrl_c_ends_at_once_and_the_next_contact_puts_back(rig: Rig) -> None:
    process = rig.bench.start(*rig.new)
    read_until(process, "measure")
    # As long as a board does not answer nobody is done with putting it back, however slow this test is.
    rig.fleet.cut("king")
    try:
        process.send_signal(signal.SIGINT)
        read_until(process, "abandoning")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    finally:
        rig.fleet.mend("king")
    assert process.returncode == 130
    assert "aborted" in err
    assert "next contact" in err
    campaign = rig.campaigns()[-1].name
    told = rig.bench.inv("lease", "--limit", LIMIT)
    assert f"campaign {campaign} died and left" in told.err
    put_back = rig.bench.inv("provision", "--limit", LIMIT)
    assert put_back.code == 0, put_back.err
    assert f"campaign-{campaign} left when it died" in put_back.out
    assert rig.settings() == rig.settings_before
    assert rig.bench.inv("bench", "--resume", campaign).code == 0
    rig.settle()


def test_a_changed_matrix_is_not_gone_on_with(rig: Rig) -> None:
    process = rig.bench.start(*rig.new)
    read_until(process, "measure")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    campaign = rig.campaigns()[-1]
    rig.matrix.write_text(MATRIX.replace("repeats: 1", "repeats: 2"))
    try:
        refused = rig.bench.inv("bench", "--resume", campaign.name)
    finally:
        rig.matrix.write_text(MATRIX)
    assert refused.code == 2, refused.err
    assert "a changed file is a new campaign" in refused.err
    assert rig.bench.inv("bench", "--resume", campaign.name).code == 0
    rig.settle()
