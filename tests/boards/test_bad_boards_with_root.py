"""Faults that need a board with a root of its own: the real sudo, a Python that is gone, disks that are full."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boardbench.errors import RigError
from boardbench.virtual import processes
from boardbench.virtual.fleet import Fleet

from .lab import OTHERS, Lab, one_clear_error, recap_of
from .rig import ssh

pytestmark = [pytest.mark.boards, pytest.mark.nspawn]

BAD = "queen"
STATE = "/var/lib/boardbench"


@pytest.fixture
def lab(nspawn_fleet: Fleet, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(nspawn_fleet, tmp_path)
    yield made
    made.clean()


def root_of(lab: Lab) -> Path:
    """The board's `/`, through its own mounts; works also when nobody can become root on the board."""
    init = processes.init_of(lab.supervisor(BAD))
    return Path(f"/proc/{init}/root")


def on_board(lab: Lab, command: str) -> str:
    """A command of root on the bad board, which must work."""
    ran = ssh(lab.fleet, BAD, "sudo", "-n", "sh", "-c", f'"{command}"')
    assert ran.code == 0, ran.err
    return ran.out


@contextmanager
def small_disk(lab: Lab, path: str, size: str) -> Iterator[None]:
    """A file system of this size at `path`."""
    on_board(lab, f"mkdir -p {path} && mount -t tmpfs -o size={size},mode=755 small {path}")
    try:
        yield
    finally:
        on_board(lab, f"umount {path}")


def test_the_real_sudo_that_wants_a_password_is_named_with_the_remedy(lab: Lab) -> None:
    rule = root_of(lab) / "etc/sudoers.d/zz-ask"
    rule.write_text("pi ALL=(ALL) {}: ALL\n".format("PASSWD"))
    rule.chmod(0o440)
    try:
        assert ssh(lab.fleet, BAD, "sudo -n true").code == 1
        error = one_clear_error(lab.provision(), BAD)
    finally:
        rule.unlink()
    assert isinstance(error, RigError)
    assert str(error) == (
        f"{BAD}: sudo asks user pi for a password; "
        "allow it without: `pi ALL=(ALL) NOPASSWD: ALL` in /etc/sudoers.d/boardbench"
    )


def test_the_real_sudo_that_allows_nothing_is_named(lab: Lab) -> None:
    rule = root_of(lab) / "etc/sudoers.d/zz-only"
    rule.write_text("pi ALL=(ALL) NOPASSWD: !ALL\n")
    rule.chmod(0o440)
    try:
        error = one_clear_error(lab.provision(), BAD)
    finally:
        rule.unlink()
    assert re.search(r"user pi may not use sudo: .*; allow it in /etc/sudoers\.d|sudo asks user pi", str(error)), error


def test_a_board_without_python_is_told_what_to_install(lab: Lab) -> None:
    program = root_of(lab) / "usr/bin/python3"
    assert program.is_symlink(), "python3 is a link to python3.11 on Debian"
    target = os.readlink(program)
    program.unlink()
    try:
        error = one_clear_error(lab.provision(), BAD)
    finally:
        program.symlink_to(target)
    assert str(error) == f"{BAD}: there is no python3 on the board; apt-get install python3"


def test_a_disk_with_no_room_for_the_program_says_make_room_and_keeps_nothing_half(lab: Lab) -> None:
    with small_disk(lab, STATE, "64k"):
        error = one_clear_error(lab.provision(), BAD)
        assert str(error) == (
            f"{BAD}: start: cannot store the program in {STATE}/programs: No space left on device; make room"
        )
        assert on_board(lab, f"find {STATE} -type f") == ""
    assert recap_of(lab.provision())[BAD]["failed"] == 0


def test_a_disk_with_no_room_for_the_journal_changes_nothing(lab: Lab) -> None:
    """What cannot be noted is not changed, because it could not be put back."""
    with small_disk(lab, STATE, "4m"):
        with lab.door(BAD) as door:  # the program gets there
            door.call("scopes", {}, deadline_s=20.0)
        on_board(lab, f"mkdir -p {STATE}/journal; dd if=/dev/zero of={STATE}/filler bs=4k 2>/dev/null || true")
        outcome = lab.provision()
        recap = recap_of(outcome)
        assert recap[BAD] == {"ok": 0, "changed": 0, "skipped": 1, "failed": 1, "unreachable": 0}, outcome.as_json()
        assert [recap[name]["changed"] for name in OTHERS] == [2, 2, 2]
        assert outcome.exit_code == 1
        (failed,) = [step for step in outcome.boards[BAD].steps if step.state == "failed"]
        assert failed.message == f"{STATE}/journal/provision.jsonl: No space left on device; make room"
        assert ssh(lab.fleet, BAD, "ls -d /etc/bench-faults").out == ""
        on_board(lab, f"rm {STATE}/filler")
        assert recap_of(lab.provision())[BAD]["changed"] == 2
        lab.clean()


def test_a_file_that_does_not_fit_fails_its_step_and_leaves_the_old_one_whole(lab: Lab) -> None:
    with small_disk(lab, "/srv/small", "64k"):
        on_board(lab, "echo old > /srv/small/data")
        more = (
            f"  - file: {{path: /srv/small/data, content: '{'x' * 200_000}', mode: '0644'}}\n    boards: [{BAD}]\n"
            "  - file: {path: /etc/bench-faults/last, content: ''}\n"
        )
        outcome = lab.provision(more)
        recap = recap_of(outcome)
        assert recap[BAD] == {"ok": 0, "changed": 2, "skipped": 1, "failed": 1, "unreachable": 0}, outcome.as_json()
        assert [recap[name]["changed"] for name in OTHERS] == [3, 3, 3]
        (failed,) = [step for step in outcome.boards[BAD].steps if step.state == "failed"]
        assert failed.message == "/srv/small/data: No space left on device; make room"
        assert on_board(lab, "cat /srv/small/*; ls -A /srv/small").split() == ["old", "data"]
        lab.clean()
        assert on_board(lab, "cat /srv/small/data") == "old"


def test_a_disk_with_no_room_for_a_blob_fails_the_step_that_needs_it(lab: Lab) -> None:
    (lab.folder / "big").write_bytes(os.urandom(3_000_000))
    with small_disk(lab, STATE, "2m"):
        outcome = lab.provision(
            f"  - file: {{path: /etc/bench-faults/big, source: big}}\n    boards: [{BAD}]\n"
            "  - file: {path: /etc/bench-faults/last, content: ''}\n"
        )
        recap = recap_of(outcome)
        assert recap[BAD] == {"ok": 0, "changed": 2, "skipped": 1, "failed": 1, "unreachable": 0}, outcome.as_json()
        assert [recap[name]["changed"] for name in OTHERS] == [3, 3, 3]
        (failed,) = [step for step in outcome.boards[BAD].steps if step.state == "failed"]
        assert failed.message == f"{STATE}/blobs: cannot store a blob: No space left on device; make room"
        assert on_board(lab, f"ls -A {STATE}/blobs") == ""
        lab.clean()


def test_a_full_run_folder_is_named(lab: Lab) -> None:
    with small_disk(lab, "/run/boardbench", "16k"):
        on_board(lab, "dd if=/dev/zero of=/run/boardbench/filler bs=4k 2>/dev/null || true")
        error = one_clear_error(lab.provision(), BAD)
    assert re.search(r"queen: /run/boardbench/calls\S*: No space left on device .*; make room", str(error)), error


def test_a_disk_that_went_read_only_is_told_where_it_is_first_needed(lab: Lab) -> None:
    """As after errors of an SD card. What needs no change is still `ok`."""
    assert recap_of(lab.provision())[BAD]["changed"] == 2
    on_board(lab, f"mount --bind {STATE} {STATE} && mount -o remount,bind,ro {STATE}")
    try:
        outcome = lab.provision("  - file: {path: /etc/bench-faults/more, content: x}\n")
    finally:
        on_board(lab, f"umount {STATE}")
    assert recap_of(outcome)[BAD] == {"ok": 2, "changed": 0, "skipped": 0, "failed": 1, "unreachable": 0}
    message = outcome.boards[BAD].steps[-1].message
    assert message == f"{STATE}/journal/provision.jsonl: Read-only file system"
    with small_disk(lab, STATE, "64k"):
        on_board(lab, f"mount -o remount,ro {STATE}")
        error = one_clear_error(lab.provision(), BAD)
    assert str(error) == f"{BAD}: start: cannot store the program in {STATE}/programs: Read-only file system"
