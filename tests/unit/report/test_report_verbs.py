"""The verbs as a user types them: one file where it was asked for, one sentence where it cannot be."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boardbench.locations import ledger_dir

from .made_campaign import Wanted, make

A, B = "20261130T152429Z-aaaaaaaa", "20261130T162429Z-bbbbbbbb"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    make(folder / "results", Wanted(campaign=A, repeats=2, duration_s=120))
    make(folder / "results", Wanted(campaign=B, duration_s=120, virtual=True))
    return folder


def inv(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BOARDBENCH_RESULTS": str(place / "results"), "XDG_STATE_HOME": str(place / "state")}
    return subprocess.run([sys.executable, "-m", "tasks", *words], cwd=Path(__file__).resolve().parents[3],
                          env=environment, capture_output=True, text=True, timeout=120)  # fmt: skip


def test_html_is_one_file_and_its_path_the_one_line(place: Path) -> None:
    out = place / "page.html"
    done = inv(place, "report", A, "--html", "--out", str(out))
    assert (done.returncode, done.stdout) == (0, f"{out}\n"), done.stderr
    assert out.read_text().startswith("<!doctype html>")


def test_csv_has_a_row_per_cell_with_units_in_its_names(place: Path) -> None:
    done = inv(place, "report", A, "--csv", "--out", "-")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 12
    assert {row["virtual"] for row in rows} == {"false"}
    assert float(rows[0]["mean_of_last_third_per_s"]) == pytest.approx(8000, rel=0.01)
    assert all(row["npu_min_mhz"] == "950.0" for row in rows)


def test_markdown_and_json_go_to_stdout(place: Path) -> None:
    assert inv(place, "report", B, "--markdown", "--out", "-").stdout.startswith("# What does it cost?\n")
    assert json.loads(inv(place, "report", B, "--json").stdout)["virtual"] is True


def test_compare_refuses_virtual_against_hardware_in_one_sentence(place: Path) -> None:
    done = inv(place, "compare", A, B)
    assert done.returncode == 2
    assert "virtual: hardware against virtual boards" in done.stderr
    assert "Traceback" not in done.stderr
    told = inv(place, "compare", A, B, "--despite", "virtual,boards", "--metric", "steady", "--json")
    found = json.loads(told.stdout)
    assert [one["condition"] for one in found["despite"]] == ["virtual", "boards"]
    assert found["comparisons"][0]["verdict"] == "alike"
    assert found["only_in_a"] == 6


def test_the_ledger_keeps_its_version_and_exits_1_for_damage(place: Path) -> None:
    assert inv(place, "ledger").returncode == 0
    first = (place / "results" / "ledger.json").read_bytes()
    assert json.loads(inv(place, "ledger", "--json").stdout)["version"] == 1
    assert (place / "results" / "ledger.json").read_bytes() == first
    (place / "results" / "made" / B / "cells" / "added").write_text("x")
    done = inv(place, "ledger")
    assert done.returncode == 1
    assert "damaged" in done.stdout
    assert "version 2" in done.stdout
    # The command that this test started wrote where the test's own ledger is, not into the user's.
    assert {path.stem[-len(A) :] for path in ledger_dir().iterdir()} == {A, B}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("report", A, "--html", "--csv"), "--html and --csv are two formats"),
        (("report", A, "--out", "x"), "--out needs a format"),
        (("report", A, "--html", "--out", "/nowhere/x.html"), "/nowhere/x.html: cannot be written"),
        (("compare", A, A), "compared with itself"),
        (("compare", A, B, "--minimum-effect", "much"), "'much' is no percentage"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(place: Path, words: tuple[str, ...], told: str) -> None:
    done = inv(place, *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
