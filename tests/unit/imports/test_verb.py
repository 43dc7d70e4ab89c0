"""`inv import` as a user calls it: what it prints, keeps and returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invoke import Context, Exit

from boardbench.results.validate import validate
from tasks.import_ import import_

from . import rig_files
from .test_llama_bench import record


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOARDBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "results"


def code_of(**arguments: object) -> int:
    try:
        import_(Context(), **arguments)
    except Exit as ended:
        return int(ended.code)
    return 0


def test_a_clean_file_is_kept_and_fine(tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.json").write_text(json.dumps([record(), record(0, 32)]))
    assert code_of(path=str(tmp_path / "bench.json")) == 0
    (campaign,) = results.glob("imported-llama-bench/*")
    shown = capsys.readouterr().out
    assert f"kept in {campaign}" in shown
    assert "decode_tokens_per_s" in shown
    assert validate(results) == []


def test_a_source_with_faults_is_kept_and_returns_1(tmp_path: Path, results: Path) -> None:
    assert code_of(path=str(rig_files.folder(tmp_path / "rig")), phase="fanless") == 1
    assert len(list(results.glob("imported-npu-rig/*/runs.json"))) == 1


def test_a_dry_run_keeps_nothing(tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code_of(path=str(rig_files.folder(tmp_path / "rig")), dry_run=True)
    assert "nothing was kept" in capsys.readouterr().out
    assert not results.exists()


def test_json_is_one_document_with_figures_and_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code_of(path=str(rig_files.folder(tmp_path / "rig")), json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"runs": 6, "valid": 6, "samples": document["counts"]["samples"], "facts": 15}
    assert document["figures"]["by the rig's definition"] == "peak 300.0, steady 278.5 +- 0.7, -7.2 %"
    assert "failed-read" in {fault["code"] for fault in document["faults"]}
    assert Path(document["campaign"]).is_dir()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "nowhere"}, "there is no such file or folder"),
        ({"path": ".", "format": "csv"}, "no format 'csv'"),
        ({"path": ".", "phase": "cold"}, "no phase 'cold'"),
        ({"path": ".", "board": "../x"}, "is no name of a board"),
    ],
)
def test_mistakes_give_one_sentence(
    arguments: dict[str, str], said: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(**arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not results.exists()
