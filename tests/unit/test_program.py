"""The board's side as one file: the same bytes everywhere, and a stub that survives any login shell."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import boardbench
from boardbench import program

_REMOTE = Path(boardbench.__file__).parent / "remote"


def test_the_same_source_gives_the_same_bytes_whatever_its_times_and_modes(tmp_path: Path) -> None:
    copies = []
    for name in ("a", "b"):
        copies.append(shutil.copytree(_REMOTE, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")))
    for path in copies[1].rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert program.build(copies[0]) == program.build(copies[1])


def test_the_hash_is_the_hash_of_the_bytes_and_changes_with_the_source(tmp_path: Path) -> None:
    copy = shutil.copytree(_REMOTE, tmp_path / "remote", ignore=shutil.ignore_patterns("__pycache__"))
    shipped = program.build(copy)
    assert shipped.sha256 == hashlib.sha256(shipped.data).hexdigest()
    changed = shutil.copytree(copy, tmp_path / "changed")
    with (changed / "main.py").open("a") as main:
        main.write("# changed\n")
    assert program.build(changed).sha256 != shipped.sha256


def test_the_zipapp_holds_every_module_under_its_name_on_the_board_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(program.build().data)) as archive:
        names = set(archive.namelist())
    wanted = {f"boardbench_remote/{path.relative_to(_REMOTE).as_posix()}" for path in _REMOTE.rglob("*.py")}
    assert names == wanted | {"__main__.py"}


def test_the_stub_can_be_quoted_for_any_login_shell() -> None:
    assert not set(program.STUB) & set("'\\!")
    for shell in ("/bin/sh", "/bin/bash"):
        if Path(shell).exists():
            said = subprocess.run(
                [shell, "-c", f"printf %s '{program.STUB}'"], capture_output=True, text=True, check=True
            )
            assert said.stdout == program.STUB


def test_the_stub_is_python_3_8() -> None:
    ast.parse(program.STUB, feature_version=(3, 8))


def _start(first: bytes, more: bytes = b"") -> tuple[list[dict[str, object]], int]:
    done = subprocess.run(
        [sys.executable, "-IS", "-c", program.STUB], input=first + b"\n" + more, capture_output=True, timeout=20
    )
    assert done.stderr == b""
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def _first(app: program.Program, root: Path) -> bytes:
    return json.dumps({"program": app.sha256, "size": len(app.data), "root": str(root)}).encode()


def test_bytes_that_are_not_the_program_are_refused_and_not_kept(tmp_path: Path) -> None:
    app = program.build()
    messages, code = _start(_first(app, tmp_path), b"x" * len(app.data))
    assert messages[0] == {"event": "program", "have": False}
    assert messages[1]["event"] == "error"
    assert messages[1]["what"] == "the program arrived with another hash"
    assert code == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "first",
    [b"hello", b"[]", b"{}", b'{"program": "../../etc", "size": 1}', b'{"program": "%s", "size": "x"}' % (b"a" * 64)],
)
def test_a_first_line_that_names_no_program_is_an_error_event(first: bytes) -> None:
    messages, code = _start(first)
    assert [message["event"] for message in messages] == ["error"]
    assert messages[0]["fault"] == "bug"
    assert code == 3


def test_an_input_that_ends_while_the_program_is_sent_leaves_nothing(tmp_path: Path) -> None:
    app = program.build()
    messages, code = _start(_first(app, tmp_path), app.data[:1000])
    assert messages == [{"event": "program", "have": False}]
    assert code == 0
    assert list(tmp_path.iterdir()) == []


def test_two_first_starts_at_once_both_work(tmp_path: Path) -> None:
    app = program.build()
    call = json.dumps({"call": "c1", "verb": "no-such", "deadline_s": 10, "args": {}}).encode() + b"\n"
    starts = [
        subprocess.Popen([sys.executable, "-IS", "-c", program.STUB], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    # All have said "not here" before the first byte is sent.
    for start in starts:
        assert start.stdin is not None
        assert start.stdout is not None
        start.stdin.write(_first(app, tmp_path) + b"\n")
        start.stdin.flush()
        assert json.loads(start.stdout.readline()) == {"event": "program", "have": False}
    for start in starts:
        answer, _ = start.communicate(app.data + call, timeout=20)
        assert "unknown verb" in json.loads(answer.splitlines()[-1])["what"]
    assert [path.name for path in (tmp_path / "var/lib/boardbench/programs").iterdir()] == [app.sha256]
