"""An import becomes a campaign that validates, names its sources, and whose figures are those of its files."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boardbench.errors import InputError
from boardbench.imports import columns
from boardbench.imports.campaign import write
from boardbench.imports.documents import Told
from boardbench.imports.model import Missing
from boardbench.imports.registry import read
from boardbench.imports.stored import StoredImport, is_imported, load
from boardbench.moe.expert_layout import read_model
from boardbench.moe.make_model import MadeModel, make_model
from boardbench.moe.trace import DECODE
from boardbench.moe.trace_build import Builder, Pass, rows_in_order
from boardbench.moe.trace_file import write_trace
from boardbench.report.import_figures import boards, by_arm, import_figures, operating_points, over_time
from boardbench.report.import_table import print_import
from boardbench.results import schema, store
from boardbench.results.validate import validate
from boardbench.results.verdict import ending_of

from . import rig_files
from .test_llama_bench import record

MUTATED = (
    rig_files.table(npu="70.5"),
    rig_files.thermal_log(last=rig_files.START + 20),
    json.dumps(rig_files.bench(1_900_000_500)),
    json.dumps([record(), record(0, 32)]),
    "RAM 1/2MB CPU [5%@729] VDD_IN 5000mW/1mW tj@50C\nRAM 1/2MB CPU [6%@729] NC 5mW/1mW tj@-256C\n",
    "/sys/class/thermal/thermal_zone0/type\tcpu-thermal\n/sys/class/thermal/thermal_zone0/temp\t44156\n",
    "NPU load:  Core0:  9%, Core1:  42%,\n",
)
KEPT = Told(phase="fanless", question="how hot?")


def imported(tmp_path: Path, source: Path, told: Told = KEPT) -> Path:
    return write(read(source, board=told.board), source.name, tmp_path / "results", told)


@pytest.fixture
def rig(tmp_path: Path) -> Path:
    return imported(tmp_path, rig_files.folder(tmp_path / "sustained"))


def test_it_is_labelled_imported_with_its_sources_and_what_is_not_known(rig: Path) -> None:
    assert is_imported(rig)
    assert rig.parent.name == "imported-npu-rig"
    stored = load(rig)
    said = stored.provenance
    assert (said["format"], said["source"]) == ("npu-rig", "sustained")
    assert "guessed" in said["chosen"]
    names = {entry["name"]: entry for entry in said["files"]}
    assert set(names) == {"meta.txt", "raw/run6.json", "raw/throughput.csv", "raw/thermal/k.log", "raw/thermal/q.log"}
    log = rig / "source" / "raw/thermal/k.log"
    assert log.read_text() == rig_files.thermal_log()
    assert names["raw/thermal/k.log"]["sha256"] == store.sha256_file(log)
    assert any("gates" in text for text in said["not_known"])
    assert stored.campaign["question"] == "how hot?"
    assert {run.phase for run in stored.measured} == {"fanless"}


def test_it_is_valid_and_every_document_fits_its_schema(rig: Path) -> None:
    assert validate(rig) == []
    assert validate(rig.parent.parent) == []
    for name in ("campaign", "runs", "faults", "facts"):
        assert list(schema.faults(store.read_object(rig / f"{name}.json"), f"imported.{name}")) == []
    verdict = store.read_object(rig / "verdict.json")
    assert list(schema.faults(verdict, "verdict")) == []
    assert verdict["counts"] == {"cells": 6, "valid": 6, "invalid": 0, "missing": 0, "not_selected": 0}
    assert not ending_of(verdict).missing


def test_runs_and_samples_come_back_as_they_were(rig: Path) -> None:
    stored = load(rig)
    assert [run.number("inferences_per_s") for run in stored.measured] == list(rig_files.RATES)
    assert isinstance(stored.measured[0].metrics["told_npu_max_celsius"], Missing)
    king = next(log for log in stored.logs if log.board == "king")
    times, values = stored.column(king, "soc-thermal_celsius")
    first = rig_files.thermal_log().splitlines()[1].split()
    assert (times[0], values[0]) == (float(first[0]), float(first[1]))
    assert len(times) == king.rows == len(rig_files.thermal_log().splitlines()) - 1
    assert len({run.run for run in stored.measured}) == 6


def test_a_missing_reading_is_null_in_the_samples_and_never_nan(tmp_path: Path) -> None:
    rows = rig_files.thermal_log().splitlines()
    cells = rows[5].split()
    rows[5] = " ".join([cells[0], "0", *cells[2:]])
    folder = imported(tmp_path, rig_files.folder(tmp_path / "s", king="\n".join(rows) + "\n"))
    king = next(log for log in load(folder).logs if log.board == "king")
    with columns.connect() as base:
        counts = base.execute(
            'SELECT count(*), count("soc-thermal_celsius"), sum(isnan("soc-thermal_celsius")::INT)'
            " FROM read_parquet(?)",
            [str(king.path)],
        ).fetchone()
    assert counts == (king.rows, king.rows - 1, 0)
    assert load(folder).column(king, "soc-thermal_celsius")[1][4] is None


def _edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a figure": (_edit("runs.json", "278.0", "378.0"), "is not what the sources say"),
    "a validity": (_edit("verdict.json", '"valid": 6', '"valid": 5'), "is not what the runs say"),
    "a source": (_edit("source/raw/throughput.csv", "278.0", "378.0"), "is not the file that was imported"),
    "a fault removed": (_edit("faults.json", "failed-read", "torn-line"), "is not what the sources say"),
    "a stranger": (lambda folder: (folder / "notes.txt").write_text("x") and None, "does not belong"),
    "samples gone": (lambda folder: next((folder / "samples").iterdir()).unlink(), "is missing"),
    "samples changed": (
        lambda folder: shutil.copyfile(*sorted((folder / "samples").iterdir())) and None,
        "does not hold the readings",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_was_changed_afterwards_is_found_even_with_a_new_manifest(rig: Path, name: str) -> None:
    from boardbench.results import manifest

    change, said = TAMPERED[name]
    change(rig)
    assert validate(rig), "the manifest must tell"
    manifest.write(rig)
    assert any(said in problem.what for problem in validate(rig))


def test_a_path_that_leads_out_of_the_sources_is_refused_by_the_schema(rig: Path) -> None:
    _edit("campaign.json", '"raw/throughput.csv"', '"../../secret"')(rig)
    assert any("does not match" in problem.what for problem in validate(rig))


def test_a_source_that_is_too_large_is_not_copied_and_its_hash_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boardbench.imports.campaign.LARGEST_COPY_BYTES", 10)
    folder = imported(tmp_path, rig_files.folder(tmp_path / "s"))
    files = load(folder).provenance["files"]
    assert all(entry["copied"] is False and len(entry["sha256"]) == 64 for entry in files)
    assert not (folder / "source").exists()
    assert validate(folder) == []


def test_nothing_is_left_when_an_import_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("boardbench.imports.campaign.columns.write", fail)
    with pytest.raises(InputError, match="No space left"):
        imported(tmp_path, rig_files.folder(tmp_path / "s"))
    assert list((tmp_path / "results").rglob("*.json")) == []


def test_figures_of_a_sustained_load(rig: Path) -> None:
    stored = load(rig)
    texts = {named.name: named.text for named in over_time(stored)}
    assert texts["by the rig's definition"] == "peak 300.0, steady 278.5 +- 0.7, -7.2 %"
    assert texts["by ours"].startswith(("not determinable", "still falling"))
    king, queen = boards(stored)
    assert (king.name, queen.name) == ("king", "queen")
    assert (king.cpu_min_mhz, king.cpu_median_mhz, king.npu_median_mhz) == (1416.0, 1416.0, 950.0)
    assert king.soc_max_celsius == pytest.approx(80.0, abs=0.2)
    assert queen.soc_max_celsius == pytest.approx(76.0, abs=0.2)
    assert king.throttled_at_s == 51.0
    assert king.clock_steps == ((1416.0, 51.0),)
    assert import_figures(stored)["king cpu_min_mhz"] == 1416.0


def test_the_operating_point_of_each_configuration(tmp_path: Path) -> None:
    rows = ["conns,concurrency,rep,throughput,p95_ms"]
    for conns, rates in ((2, (120, 136, 136)), (4, (110, 125, 140))):
        for slots, rate in zip((8, 12, 16), rates, strict=True):
            rows += [f"{conns},{slots},{rep},{rate + rep / 10},{100 + rep}.0" for rep in (1, 2, 3)]
    source = rig_files.write(tmp_path / "sweep", {"raw/results.csv": "\n".join(rows) + "\n"})
    points = {named.name: named.text for named in operating_points(load(imported(tmp_path, source)))}
    assert points["operating point, connections 2"].startswith("c12")
    assert points["operating point, connections 4"].startswith("c16")
    assert "not pooled 102.0 ms" in points["operating point, connections 2"]


def test_runs_that_do_not_count_are_shown_and_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "policy,round,throughput,max_soc_c"
    rows = [f"{policy},{round_},{rate}," for policy, rate in (("round-robin", 300), ("ect", 150)) for round_ in (1, 2)]
    source = rig_files.write(tmp_path / "ab", {"results.csv": "\n".join([head, *rows]) + "\n"})
    stored = load(imported(tmp_path, source))
    assert [(arm.arm, arm.mean, arm.valid, arm.runs) for arm in by_arm(stored)] == [
        ("round-robin", 300.0, 0, 2),
        ("ect", 150.0, 0, 2),
    ]
    print_import(stored)
    shown = capsys.readouterr().out
    assert "max_soc_c is blank in all 4 rows" in shown
    assert "[not valid: no-temperature]" in shown
    assert "0 valid, 4 invalid of 4 runs" in shown


def test_llama_results_and_facts_are_campaigns_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.json").write_text(json.dumps([record(), record(0, 32)]))
    (tmp_path / "dump.txt").write_text("/sys/class/thermal/thermal_zone0/type\tcpu-thermal\n")
    (tmp_path / "t.log").write_text("RAM 1/2MB CPU [5%@729] VDD_IN 5000mW/1mW tj@50C\n")
    told = Told(board="orin")
    for name in ("bench.json", "dump.txt", "t.log"):
        folder = imported(tmp_path, tmp_path / name, told)
        assert validate(folder) == []
        stored = load(folder)
        print_import(stored)
        assert f"{name}" in capsys.readouterr().out
        assert {run.boards for run in stored.measured} <= {("orin",)}
        assert {log.board for log in stored.logs} <= {"orin"}


def test_a_campaign_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "campaign.json").write_text("{}")
    assert not is_imported(tmp_path)
    assert not is_imported(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no imported campaign"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere", "no such file"),
        ("empty", "holds no file"),
        ("text.txt", "cannot tell which format"),
        ("mixed", "several formats"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_sentence(tmp_path: Path, given: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello\n")
    rig_files.write(tmp_path / "mixed", {"a.log": "RAM 1/2MB APE 5\n", "b.json": json.dumps([record()])})
    with pytest.raises(InputError, match=said):
        read(tmp_path / given)


def test_a_format_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no format 'csv'"):
        read(tmp_path, "csv")


def test_a_file_whose_name_no_manifest_can_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a\nb.log").write_text("RAM 1/2MB APE 5\n")
    with pytest.raises(InputError, match="name cannot be kept"):
        read(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeModel:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    return make_model(path, types="q8_0", n_embd=64, n_ff=32, n_layers=2, n_experts=8, n_used=2, seed=3)


def test_a_model_gives_facts_and_is_not_copied(tmp_path: Path, made: MadeModel) -> None:
    folder = imported(tmp_path, made.path)
    stored: StoredImport = load(folder)
    facts = {fact["name"]: fact["value"] for fact in stored.facts}
    assert facts["metadata.general.architecture"] == "qwen3moe"
    assert facts["metadata.qwen3moe.expert_count"] == 8
    # Two layers of gate, up and down; a quarter of a MiB of 8-bit weights: 34 bytes for 32 of them.
    assert facts["tensors_of.Q8_0"] >= 6
    assert facts["tensor_bytes"] > 2 * 3 * 8 * 64 * 32 * 34 // 32
    assert stored.provenance["files"][0]["copied"] is False
    assert validate(folder) == []


@pytest.mark.parametrize("name", ["t.bbr", "t.jsonl"])
def test_a_router_trace_gives_facts_and_a_torn_one_says_so(tmp_path: Path, made: MadeModel, name: str) -> None:
    builder = Builder("made")
    builder.add_run({"run": "1-1"})
    facts = read_model(made.path)
    builder.add_context({
        "context": 0, "architecture": facts.architecture, "name": facts.name or "", "layers": facts.block_count,
        "experts": facts.experts, "used": facts.used_in_file, "tensor_bytes": facts.tensor_bytes,
        "parameters": facts.parameters,
    })  # fmt: skip
    table = np.array([(0, 2, 1), (1, 2, 1)], dtype=np.int32)
    for position in range(3):
        builder.add_pass(Pass(
            context=0, call=position, part=0, warm_up=False, sequences=np.zeros(1, np.int32),
            positions=np.array([position], np.int32), phases=np.full(1, DECODE, np.uint8), layers=table,
            row_of=rows_in_order(table), ids=np.array([1, 2, 3, 4], np.uint16),
        ))  # fmt: skip
    path = tmp_path / name
    builder.ended = True
    write_trace(builder.trace(0), path)
    stored = load(imported(tmp_path / "whole", path))
    found = {fact["name"]: fact["value"] for fact in stored.facts}
    assert (found["decode_tokens"], found["model.experts_a_layer"], found["expert_uses"]) == (3, 8, 12)
    path.write_bytes(path.read_bytes()[:-3])
    torn = load(imported(tmp_path / "torn", path))
    assert "torn-line" in [fault["code"] for fault in torn.faults]


HOSTILE = {
    "half a character": json.dumps([record(note="\ud800", build_commit="a\x1b[2Jb")]),
    "a key with half a character": json.dumps([record(**{"k\udc00": "x"})]),
    "huge": json.dumps([record(big="9" * 5000, samples_ts=[1e308, 1e308])]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_kept_without_what_steers_terminals(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench.json").write_text(HOSTILE[name])
    folder = imported(tmp_path, tmp_path / "bench.json")
    assert validate(folder) == []
    print_import(load(folder))
    assert "\x1b[2J" not in capsys.readouterr().out
    assert "\x1b" not in (folder / "runs.json").read_text()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.data())
def test_whatever_can_be_read_can_be_kept_and_validates(tmp_path: Path, seed: st.DataObject) -> None:
    home = Path(tempfile.mkdtemp(dir=tmp_path))
    text = bytearray(seed.draw(st.sampled_from(MUTATED)).encode())
    for _ in range(seed.draw(st.integers(0, 6))):
        at = seed.draw(st.integers(0, len(text) - 1))
        text[at : at + seed.draw(st.integers(0, 2))] = seed.draw(st.binary(min_size=1, max_size=2))
    (home / "file").write_bytes(text)
    try:
        found = read(home / "file")
    except InputError:
        return
    folder = write(found, "file", home / "results", KEPT)
    assert validate(folder) == []
    print_import(load(folder))


def test_a_link_in_a_folder_is_not_followed(tmp_path: Path) -> None:
    source = rig_files.folder(tmp_path / "s")
    (tmp_path / "secret.log").write_text("RAM 1/2MB APE 5\n")
    (source / "linked.log").symlink_to(tmp_path / "secret.log")
    folder = imported(tmp_path, source)
    assert not list(folder.rglob("linked.log"))
    assert any("links to elsewhere" in text for text in load(folder).provenance["not_known"])


def test_one_board_for_several_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave --board out"):
        read(rig_files.folder(tmp_path / "s"), board="king")
