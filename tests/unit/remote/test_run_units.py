"""The text of a unit: limits are in it, and no word of a command line is taken for something else."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from boardbench.remote import run_units
from boardbench.remote.failures import Failure
from boardbench.remote.places import Places
from boardbench.remote.run_state import Run


def systemd_words(line: str) -> list[str]:
    """What systemd makes of a command line without variables: systemd.service(5), "command lines"."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


@pytest.mark.parametrize(
    "word", ["plain", "/a/b-c_d.e", "a b", "100%", "$HOME ${X}", 'say "hi"', "back\\slash", "", "it's"]
)
def test_a_quoted_word_is_the_word_again(word: str) -> None:
    quoted = run_units.quote(word)
    assert systemd_words(quoted) == [word]
    assert "$H" not in quoted.replace("$$", "")


@pytest.mark.parametrize("word", ["a\nb", "a\rb", "a\0b"])
def test_a_line_end_in_a_word_is_refused(word: str) -> None:
    with pytest.raises(Failure) as error:
        run_units.quote(word)
    assert error.value.fault == "bad-input"


def test_a_unit_holds_its_limits_and_the_request_its_arguments(tmp_path: Path) -> None:
    run = Run(Places(str(tmp_path)), "r1")
    run.create()
    program = run_units.Program(
        argv=("/bin/tool", "100%", "a\nb"),
        env={"A": "$B", "LC_ALL": "C"},
        cwd="/tmp",
        deadline_s=60.0,
        limits=run_units.Limits(memory_max_bytes=1 << 30, swap_max_bytes=0),
    )
    text = run_units.write(run, "workload", program)
    lines = text.splitlines()
    for line in ("Restart=no", "RuntimeMaxSec=80", "MemoryMax=1073741824", "MemorySwapMax=0", "StandardInput=null"):
        assert line in lines
    assert f"StandardOutput=append:{run.logs}/workload.log" in lines
    assert "tool" not in text
    request = json.loads(Path(run.own, "workload-request.json").read_text())
    assert request["argv"] == ["/bin/tool", "100%", "a\nb"]
    assert request["env"]["A"] == "$B"
    assert request["env"]["LC_ALL"] == "C"
    assert request["env"]["PATH"] == run_units.BASE_ENVIRONMENT["PATH"]


def test_a_logger_has_neither_deadline_nor_limits(tmp_path: Path) -> None:
    run = Run(Places(str(tmp_path)), "r1")
    run.create()
    text = run_units.write(run, "logger", run_units.Program(argv=("/x",), env={}, cwd="/", replace=True))
    assert "Max" not in text
