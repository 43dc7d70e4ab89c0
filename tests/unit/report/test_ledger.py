"""The ledger: everything that was found, from files alone, with what is damaged named and what changed told."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.locations import cache_dir, ledger_dir
from boardbench.report.ledger_page import counts, ledger_page, main_figures
from boardbench.report.ledger_table import print_ledger
from boardbench.report.page import html, markdown
from boardbench.results import ledger, ledger_versions, store
from boardbench.results.ledger import Entry

from .made_campaign import Wanted, make


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    make(folder, Wanted(campaign="20261130T152429Z-00000001", duration_s=120, repeats=3))
    make(folder, Wanted(campaign="20261130T152429Z-00000002", duration_s=60, repeats=3, virtual=True))
    make(folder, Wanted(campaign="20261130T152429Z-00000003", duration_s=120, rules=False))
    return folder


def entries(results: Path) -> list[Entry]:
    return ledger.entries(results, main_figures)


def test_every_verdict_is_there_with_its_numbers(results: Path) -> None:
    supported, refuted, plain = entries(results)
    assert supported.verdicts == ("supported",)
    assert supported.prediction == "hit"
    assert "ratio 0.59" in supported.rulings[0].numbers
    assert refuted.verdicts in (("refuted",), ("null",))
    assert refuted.prediction == "missed"
    assert refuted.virtual is True
    assert plain.verdicts == ("no rule",)
    assert "steady" in plain.figures[0]


def test_what_failed_has_a_part_as_large_as_what_held(results: Path) -> None:
    found = ledger_versions.next_version(None, entries(results))
    page = ledger_page(found, results)
    titles = [section.title for section in page.sections]
    assert any(title.startswith(("Refuted", "Null")) for title in titles)
    parts = [section for section in page.sections if section.title.startswith(("Supported", "Refuted", "Null"))]
    assert [len(part.verdicts) for part in parts] == [1, 1]
    assert len({len(part.verdicts[0].lines) for part in parts}) == 1
    assert "1 missed" in page.answer
    assert "thermal model" in page.banner
    for text in (html.render(page), markdown.render(page)):
        assert "00000003" in text


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda campaign: (campaign / "MANIFEST.sha256").unlink(), "MANIFEST.sha256 is missing"),
        (lambda campaign: (campaign / "verdict.json").write_text("{}"), "verdict.json was changed"),
        (lambda campaign: next(campaign.glob("cells/*/*/thermal.csv")).unlink(), "thermal.csv is missing"),
        (lambda campaign: (campaign / "cells" / "more.txt").write_text("x"), "more.txt was added"),
        (lambda campaign: (campaign / "MANIFEST.sha256").write_bytes(b"\xff"), "is not UTF-8"),
    ],
)
def test_a_damaged_campaign_is_named(results: Path, harm: object, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    entries(results)  # what is kept in the cache must not hide the damage
    harm(results / "made" / "20261130T152429Z-00000001")  # type: ignore[operator]
    first = entries(results)[0]
    assert first.state == ledger.DAMAGED
    assert why in "; ".join(first.why)
    assert counts(entries(results))["damaged"] == 1
    print_ledger(ledger_versions.next_version(None, entries(results)))
    assert "damaged" in capsys.readouterr().out


def test_an_empty_folder_in_a_campaigns_place_is_damaged_not_dropped(results: Path) -> None:
    (results / "made" / "20261130T152429Z-00000004").mkdir()
    assert entries(results)[3].state == ledger.DAMAGED


def test_a_campaign_without_verdict_is_not_finished(results: Path) -> None:
    campaign = results / "made" / "20261130T152429Z-00000001"
    (campaign / "verdict.json").unlink()
    (campaign / "MANIFEST.sha256").unlink()
    assert entries(results)[0].state == ledger.UNFINISHED


def test_nothing_changed_is_the_same_version_and_the_same_bytes(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    first = ledger_versions.next_version(None, entries(results))
    ledger_versions.write(path, first)
    written = path.read_bytes()
    again = ledger_versions.next_version(ledger_versions.last(path), entries(results))
    assert again == first
    assert store.to_bytes(again.as_json()) == written


def test_a_new_version_says_what_changed(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    ledger_versions.write(path, ledger_versions.next_version(None, entries(results)))
    make(results, Wanted(campaign="20261130T152429Z-00000005", duration_s=120))
    shutil.rmtree(results / "made" / "20261130T152429Z-00000003")
    (results / "made" / "20261130T152429Z-00000002" / "verdict.json").write_text("{}")
    found = ledger_versions.next_version(ledger_versions.last(path), entries(results))
    change = found.changes[0]
    assert (found.version, len(found.changes)) == (2, 2)
    assert change.added == ("made/20261130T152429Z-00000005",)
    assert change.removed == ("made/20261130T152429Z-00000003",)
    assert "state" in change.changed["made/20261130T152429Z-00000002"]
    assert "version 2: added made/" in change.text


def test_a_ledger_that_cannot_be_read_is_told_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_text('{"schema_version": 99}')
    with pytest.raises(InputError, match="is no ledger"):
        ledger_versions.last(path)


def test_figures_are_asked_once_and_again_when_the_cache_is_gone(results: Path) -> None:
    asked: list[Path] = []

    def figures(folder: Path) -> Sequence[str]:
        asked.append(folder)
        return ["one"]

    first = ledger.entries(results, figures)
    assert ledger.entries(results, figures) == first
    assert len(asked) == 1
    shutil.rmtree(ledger_dir())
    assert ledger.entries(results, figures) == first
    assert len(asked) == 2


def test_entries_are_kept_in_the_users_cache_unless_another_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("BOARDBENCH_LEDGER", "/elsewhere")
    assert ledger_dir() == Path("/elsewhere")
    monkeypatch.delenv("BOARDBENCH_LEDGER")
    assert ledger_dir() == tmp_path / "boardbench" / "ledger"


def test_no_test_writes_into_the_users_ledger(results: Path) -> None:
    assert not ledger_dir().is_relative_to(cache_dir())
    assert not ledger_dir().exists()
    kept = {entry.campaign for entry in entries(results)}
    assert {path.stem.partition("-")[2].partition("-")[2] for path in ledger_dir().iterdir()} == kept
