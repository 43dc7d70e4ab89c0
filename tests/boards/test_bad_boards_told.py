"""What a user sees of a bad board on the command line: one line for it, the others' results, a fitting exit code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from boardbench.virtual.fleet import Fleet

from .lab import OTHERS, Lab
from .rig import BOARDS, ssh

pytestmark = pytest.mark.boards

BAD = "queen"
CLOSED_PORT = 2299


@pytest.fixture
def lab(bwrap_fleet: Fleet, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(bwrap_fleet, tmp_path)
    yield made
    made.bring_up()
    made.as_it_was()
    made.clean()


def test_provision_with_one_board_down_reaches_the_others_and_exits_with_1(lab: Lab) -> None:
    lab.fleet.kill(BAD)
    done = lab.inv("provision", "--json")
    assert (done.code, done.err) == (1, "")
    recap = done.document["recap"]
    assert recap.pop(BAD) == {"ok": 0, "changed": 0, "skipped": 0, "failed": 0, "unreachable": 1}
    assert set(recap) == set(OTHERS)
    for counts in recap.values():
        assert counts["changed"] > 0
        # A step for real boards alone is skipped on virtual ones.
        assert (counts["failed"], counts["unreachable"]) == (0, 0)
    error = done.document["errors"]
    assert list(error) == [BAD]
    assert error[BAD]["fault"] == "rig"
    assert error[BAD]["transient"] is True
    assert error[BAD]["where"] == BAD

    # The same for people: the recap, and one sentence for the bad board.
    again = lab.inv("provision")
    assert again.code == 1
    told = [line for line in (again.out + again.err).splitlines() if line.startswith(f"{BAD}: ")]
    assert len(told) == 1, again.out
    assert "refuses the connection; is sshd running, and is the port right?" in told[0]
    assert re.search(rf"^ *{BAD} +0 +0 +0 +0 +1 *$", again.out, re.MULTILINE), again.out

    lab.bring_up()
    back = lab.inv("provision", "--json")
    assert back.code == 0, back.out
    assert back.document["recap"][BAD]["changed"] > 0
    assert all(back.document["recap"][name]["changed"] == 0 for name in OTHERS)


def test_provision_with_a_failing_step_on_one_board_exits_with_1_and_skips_only_its_rest(lab: Lab) -> None:
    more = (
        f"  - command: {{argv: ['false'], creates: /etc/bench-faults/x}}\n    boards: [{BAD}]\n"
        "  - file: {path: /etc/bench-faults/last, content: ''}\n"
    )
    done = lab.inv("provision", "--json", "--playbook", str(lab.playbook_file(more)))
    assert (done.code, done.err) == (1, "")
    assert "errors" not in done.document, "a failed step is told as a step, once"
    recap = done.document["recap"]
    assert recap.pop(BAD) == {"ok": 0, "changed": 2, "skipped": 1, "failed": 1, "unreachable": 0}
    assert [counts["changed"] for counts in recap.values()] == [3, 3, 3]


def test_provision_with_no_board_there_exits_with_3(lab: Lab) -> None:
    for name in BOARDS:
        lab.with_access(name, port=CLOSED_PORT)
    done = lab.inv("provision", "--json")
    assert (done.code, done.err) == (3, "")
    assert [counts["unreachable"] for counts in done.document["recap"].values()] == [1] * len(BOARDS)
    assert set(done.document["errors"]) == set(BOARDS)
    assert lab.inv("boards").code == 3


def test_boards_shows_who_does_not_answer_beside_the_facts_of_the_others(lab: Lab) -> None:
    lab.fleet.kill(BAD)
    done = lab.inv("boards")
    assert done.code == 1
    rows = {line.split()[0]: line for line in done.out.splitlines() if line.split()[:1] and line.split()[0] in BOARDS}
    assert set(rows) == set(BOARDS)
    assert "no answer" in rows[BAD]
    assert all("no answer" not in rows[name] and "bwrap" in rows[name] for name in OTHERS)
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith(f"inv: {BAD}: ")

    told = lab.inv("boards", "--json")
    assert set(told.document["boards"]) == set(OTHERS)
    assert list(told.document["failed"]) == [BAD]


@pytest.mark.parametrize("how", ["changed", "unknown"])
def test_a_host_key_is_pinned_by_exactly_the_command_that_the_refusal_names(lab: Lab, how: str) -> None:
    if how == "changed":
        lab.fleet.change_host_key(BAD)
    else:
        lab.unpin(BAD)
    try:
        refused = lab.inv("provision", "--json")
        assert refused.code == 1
        assert refused.document["recap"][BAD]["unreachable"] == 1
        error = refused.document["errors"][BAD]
        shown = fingerprint(lab, "root/etc/ssh/host_key.pub")
        pinned = fingerprint(lab, "keys/pinned.pub")
        if how == "changed":
            assert error["what"].endswith(f"has changed: pinned is {pinned}, the board shows {shown}")
            assert pinned != shown
        else:
            assert error["what"].endswith(f"is not known: ssh-ed25519 {shown}")
        found = re.search(r": (\./inv boards\.trust [^;]+)", error["advice"])
        assert found, error
        words = shlex.split(found.group(1))[1:]

        # Nobody is there to compare fingerprints: nothing is pinned until that is said.
        pins = lab.known_hosts.read_text()
        asked = lab.run(*words)
        assert asked.code == 2
        assert "--yes" in asked.err
        assert f"the board shows {shown}" in asked.err
        assert lab.known_hosts.read_text() == pins

        trusted = lab.run(*words, "--yes", "--json")
        assert trusted.code == 0, trusted.err
        assert trusted.document == {
            "board": BAD, "before": [pinned] if how == "changed" else [], "after": shown, "changed": True
        }  # fmt: skip
        others = [line for line in pins.splitlines() if f"[{lab.access[BAD].host}]" not in line]
        assert [line for line in lab.known_hosts.read_text().splitlines() if line in others] == others
        works = lab.inv("provision", "--json")
        assert works.code == 0, works.out
        assert works.document["recap"][BAD]["changed"] > 0
    finally:
        if how == "changed":
            lab.fleet.restore_host_key(BAD)


def fingerprint(lab: Lab, file: str) -> str:
    """What `ssh-keygen -l`, and so the board itself, prints of a key."""
    return lab.tool("ssh-keygen", "-l", "-f", str(lab.board_folder(BAD) / file)).split()[1]


def test_teardown_puts_the_others_back_while_one_board_is_down_and_that_one_later(lab: Lab) -> None:
    assert lab.inv("provision").code == 0
    lab.fleet.kill(BAD)
    done = lab.inv("teardown", "--json")
    assert (done.code, done.err) == (1, "")
    recap = done.document["recap"]
    assert recap.pop(BAD)["unreachable"] == 1
    assert all(counts["changed"] > 0 and not counts["failed"] for counts in recap.values()), recap
    for name in OTHERS:
        assert ssh(lab.fleet, name, "ls -d /etc/boardbench /opt/boardbench /var/lib/boardbench").out == ""
    lab.bring_up()
    assert ssh(lab.fleet, BAD, "cat /etc/boardbench/board.json").code == 0
    assert lab.inv("teardown").code == 0
    assert ssh(lab.fleet, BAD, "ls -d /etc/boardbench /opt/boardbench /var/lib/boardbench").out == ""
