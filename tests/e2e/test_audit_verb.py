"""`inv audit` as a user types it: what it looks at, what it says, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
WORD = "PASSWORD".lower()
VALUE = "Kq7" + os.urandom(4).hex()


def audit(results: Path, *words: str, project: Path = PROJECT) -> tuple[int, str, str]:
    environment = {
        **os.environ,
        "BOARDBENCH_RESULTS": str(results),
        "BOARDBENCH_PROJECT": str(project),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tasks", "audit", *words],
        cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert VALUE not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def test_what_this_project_commits_is_clean(results: Path) -> None:
    code, out, err = audit(results)
    assert (code, out) == (0, ""), out
    assert "0 findings in" in err


def test_tracked_new_and_collected_files_are_looked_at_and_ignored_ones_are_not(results: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("tracked.md", "new.md", "ignored.md"):
        (project / name).write_text(f"line one\nthe {WORD} is {VALUE}\n")
    (project / ".gitignore").write_text("ignored.md\n")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(["git", "-C", str(project), "add", "tracked.md"], check=True)
    log = results / "thermal/20260101T000000Z-0123abcd/cells/001-a-king/attempt-1/logs/workload.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"wget http://pi:{VALUE}@10.0.0.1/x\n")
    code, out, _ = audit(results, "--json", project=project)
    assert code == 1
    found = {(Path(entry["file"]).name, entry["line"]) for entry in json.loads(out)["findings"]}
    assert found == {("tracked.md", 2), ("new.md", 2), ("workload.log", 1)}


def test_named_files_and_folders_are_looked_at(results: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.md").write_text(f"{WORD}: {VALUE}\n")
    (tmp_path / "b.md").write_text(f"sudo -S reboot <<< {VALUE}\n")
    (tmp_path / "clean.md").write_text("nothing here\n")
    code, out, err = audit(results, str(tmp_path / "notes"), str(tmp_path / "b.md"), str(tmp_path / "clean.md"))
    assert code == 1
    assert [line.split(": ")[0].rpartition("/")[2] for line in out.splitlines()] == ["b.md:1", "a.md:1"]
    assert "2 findings in 3 files" in err
    assert audit(results, str(tmp_path / "clean.md"))[0] == 0


def test_own_patterns_must_be_there_private_and_not_empty(results: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("it is swordfish, as always\n")
    own = tmp_path / "own"
    code, _, err = audit(results, str(tmp_path / "notes.md"), "--patterns", str(own))
    assert code == 2
    assert "cannot be read" in err
    own.write_text("swordfish\n")
    own.chmod(0o644)
    code, _, err = audit(results, str(tmp_path / "notes.md"), "--patterns", str(own))
    assert code == 2
    assert "others may read" in err
    own.chmod(0o600)
    code, out, _ = audit(results, str(tmp_path), "--patterns", str(own))
    assert code == 1
    assert "swordfish" not in out
    assert [line.partition(":")[0] for line in out.splitlines()] == [str(tmp_path / "notes.md")]
    own.write_text("# none\n")
    assert audit(results, str(tmp_path / "notes.md"), "--patterns", str(own))[0] == 2


def test_nothing_to_look_through_is_a_failure(results: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert audit(results, str(tmp_path / "empty"))[0] == 2
    assert audit(results, str(tmp_path / "none"))[0] == 2
