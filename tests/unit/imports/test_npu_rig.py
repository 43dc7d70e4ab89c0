"""Result folders of the NPU rig: right values, and each way in which its files lied is named."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.imports.model import Fault, Missing, Parsed, Run
from boardbench.imports.registry import read

from . import rig_files

SOC, NPU = "king_soc_max_celsius", "king_npu_max_celsius"


def parsed(path: Path, **changed: str | bytes) -> Parsed:
    return read(rig_files.folder(path, **changed)).parsed


def faults(found: Parsed, code: str) -> list[Fault]:
    return [fault for fault in found.faults if fault.code == code]


def codes(run: Run) -> set[str]:
    return {code for code, _ in run.reasons}


def single(path: Path, text: str, name: str = "results.csv") -> Parsed:
    return read(rig_files.write(path, {name: text}) / name).parsed


def test_a_folder_becomes_runs_with_their_windows_and_the_logs_temperatures(tmp_path: Path) -> None:
    found = read(rig_files.folder(tmp_path))
    assert found.format == "npu-rig"
    assert "guessed" in found.chosen
    runs = found.parsed.runs
    assert [run.metrics["inferences_per_s"] for run in runs] == list(rig_files.RATES)
    assert runs[0].window_unix_s == (rig_files.START, rig_files.START + rig_files.RUN_S)
    assert runs[0].boards == ("king", "queen")
    assert runs[0].metrics["latency_p95_ms"] == 120.0
    assert runs[1].metrics[SOC] == pytest.approx(80.0, abs=0.2)
    assert runs[1].metrics["queen_soc_max_celsius"] == pytest.approx(76.0, abs=0.2)
    assert not any(run.reasons for run in runs)
    assert [log.board for log in found.parsed.samples] == ["king", "queen"]
    king = found.parsed.samples[0]
    assert set(king.column("npu_cur_hz")) == {950e6}
    assert min(value for value in king.column("policy4_cur_khz") if value) == 1416e3
    assert {fact.name: fact.value for fact in found.parsed.facts}["freeze_commit"] == "abc123"


def test_a_column_of_zeros_is_a_failed_read_and_never_a_temperature(tmp_path: Path) -> None:
    found = parsed(tmp_path)
    (zero,) = [fault for fault in faults(found, "failed-read") if "max_npu_c" in fault.detail]
    assert "0.0 in all 6 rows" in zero.detail
    assert isinstance(found.runs[0].metrics["told_npu_max_celsius"], Missing)
    assert any("max_npu_c" in fault.detail for fault in faults(found, "instruments-disagree"))
    assert found.runs[0].metrics[NPU] == pytest.approx(81.0, abs=1.0)


def test_a_stamp_that_is_the_runs_end_is_found_in_the_log(tmp_path: Path) -> None:
    found = parsed(tmp_path)
    told = [fault for fault in faults(found, "end-stamped-start") if fault.where == "raw/throughput.csv"]
    assert len(told) == 1
    assert "before the first stamp" in told[0].detail
    assert "behind the last stamp" in told[0].detail


def test_a_stamp_that_is_the_runs_start_is_not_taken_for_its_end(tmp_path: Path) -> None:
    begun = rig_files.stamps(at_start=True)
    report = json.dumps(rig_files.bench(begun[-1], rig_files.RATES[-1]))
    found = parsed(tmp_path, table=rig_files.table(at_start=True), report=report)
    assert found.runs[0].window_unix_s == (rig_files.START, rig_files.START + rig_files.RUN_S)
    assert not [fault for fault in faults(found, "end-stamped-start") if fault.where == "raw/throughput.csv"]


def test_without_a_log_it_is_said_that_the_stamp_is_not_known(tmp_path: Path) -> None:
    found = parsed(tmp_path, king="", queen="")
    assert any("start or the end of a run" in text for text in found.not_known)
    assert isinstance(found.runs[0].window_unix_s, Missing)
    assert {"no-temperature"} == codes(found.runs[0])


def test_a_max_that_was_read_after_the_run_disagrees_with_the_log(tmp_path: Path) -> None:
    found = parsed(tmp_path, table=rig_files.table(npu="74.5"))
    assert codes(found.runs[0]) == {"instruments-disagree"}
    assert "74.5" in found.runs[0].reasons[0][1]


def test_a_blank_temperature_column_is_named_and_no_run_counts(tmp_path: Path) -> None:
    head = "policy,round,throughput,p50_ms,king_share,queen_share,max_soc_c"
    rows = ["round-robin,1,310.5,80.1,50.0,50.0,", "ect,1,150.0,210.0,49.5,50.5,"]
    found = single(tmp_path, "\n".join([head, *rows]) + "\n")
    (blank,) = faults(found, "failed-read")
    assert blank.detail == "the column max_soc_c is blank in all 2 rows: it was never read"
    assert [codes(run) for run in found.runs] == [{"no-temperature"}] * 2
    assert [run.metrics["inferences_per_s"] for run in found.runs] == [310.5, 150.0]
    assert found.runs[1].arm == {"policy": "ect"}


def test_the_column_sets_of_all_harnesses_are_known(tmp_path: Path) -> None:
    heads = {
        "concurrency": ("conns,concurrency,rep,throughput,p95_ms,new_column", "2,12,1,130.5,118.0,x"),
        "capacity": (
            "cap_mhz,rep,throughput,king_share,jack_share,king_cur_mhz,king_soc_c",
            "816,1,350,40,60,816,71.5",
        ),
        "scale-out": ("nodes,concurrency,rep,conns_per_node,conns_total,observed_nodes,throughput", "2,24,1,2,4,2,260"),
    }
    for name, (head, row) in heads.items():
        found = single(tmp_path, f"{head}\n{row}\n", f"{name}.csv")
        assert len(found.runs) == 1, name
        assert isinstance(found.runs[0].metrics["inferences_per_s"], float)
        assert not found.runs[0].reasons
    found = single(tmp_path, "\n".join(heads["concurrency"]) + "\n")
    assert found.runs[0].extra == {"new_column": "x"}
    assert found.runs[0].arm == {"connections": "2", "concurrency": "12"}


def test_a_repetition_that_is_there_twice_does_not_count_twice(tmp_path: Path) -> None:
    found = single(tmp_path, "conns,concurrency,rep,throughput\n2,12,1,130\n2,12,1,131\n")
    assert [codes(run) for run in found.runs] == [set(), {"repeated-run-id"}]


def test_shares_that_do_not_add_up_are_told(tmp_path: Path) -> None:
    found = single(tmp_path, "policy,round,throughput,king_share,queen_share\nect,1,150,60.0,50.5\n")
    assert codes(found.runs[0]) == {"counts-do-not-add-up"}


def test_rows_that_do_not_fit_the_header_are_named_by_line_and_left_out(tmp_path: Path) -> None:
    text = "conns,concurrency,rep,throughput\n2,12,1,130\n2,12,2\n\n2,12,3,130,7\n2,12,4,131\n"
    found = single(tmp_path, text)
    assert [run.repetition for run in found.runs] == [1, 4]
    assert [fault.where for fault in faults(found, "malformed-file")] == ["results.csv:3", "results.csv:5"]


def test_a_row_that_was_cut_off_is_no_row(tmp_path: Path) -> None:
    found = single(tmp_path, "conns,concurrency,rep,throughput\n2,12,1,130.5\n2,12,2,13")
    assert [run.metrics["inferences_per_s"] for run in found.runs] == [130.5]
    assert [fault.where for fault in faults(found, "torn-line")] == ["results.csv:3"]


def test_numbers_with_a_comma_or_nan_are_missing_not_something_else(tmp_path: Path) -> None:
    found = single(tmp_path, 'conns,concurrency,rep,throughput\n2,12,1,"130,5"\n2,12,2,nan\n')
    assert all(isinstance(run.metrics["inferences_per_s"], Missing) for run in found.runs)
    assert "LC_ALL=C" in found.runs[0].reasons[0][1]
    assert [codes(run) for run in found.runs] == [{"malformed-file"}] * 2


def test_a_log_that_ends_in_the_middle_of_a_run_makes_it_invalid(tmp_path: Path) -> None:
    found = parsed(tmp_path, king=rig_files.thermal_log(last=rig_files.START + 30))
    assert "logger-short" in codes(found.runs[1])
    assert "logger-short" not in codes(found.runs[0])


def test_a_hole_in_a_log_is_named_and_makes_its_run_invalid(tmp_path: Path) -> None:
    rows = rig_files.thermal_log().splitlines()
    holed = (
        "\n".join(row for row in rows if not row.startswith(tuple(str(rig_files.START + s) for s in range(5, 13))))
        + "\n"
    )
    found = parsed(tmp_path, king=holed)
    assert any("k.log" in fault.where for fault in faults(found, "logger-gap"))
    assert "logger-gap" in codes(found.runs[0])


def test_a_clock_that_goes_back_or_stands_still_is_named_and_the_rows_are_left_out(tmp_path: Path) -> None:
    rows = rig_files.thermal_log().splitlines()
    rows.insert(20, rows[19])
    rows.insert(40, rows[30])
    found = parsed(tmp_path, king="\n".join(rows) + "\n")
    told = [fault.detail for fault in faults(found, "clock-jump")]
    assert any("stands still" in text for text in told)
    assert any("goes back" in text for text in told)
    times = found.samples[0].time_s
    assert all(after > before for before, after in pairwise(times))


def test_zeros_in_a_log_are_missing_and_short_rows_are_named(tmp_path: Path) -> None:
    rows = rig_files.thermal_log().splitlines()
    rows[10] = rows[10].rsplit(" ", 1)[0]
    cells = rows[11].split()
    rows[11] = " ".join([cells[0], "0", *cells[2:]])
    found = parsed(tmp_path, king="\n".join(rows) + "\n")
    assert any(fault.where == "raw/thermal/k.log:11" for fault in faults(found, "malformed-file"))
    assert any("soc-thermal_celsius: 1 of" in fault.detail for fault in faults(found, "failed-read"))
    assert None in found.samples[0].column("soc-thermal_celsius")
    assert 0.0 not in found.samples[0].column("soc-thermal_celsius")


BROKEN = {
    "counts": ({"summary__succeeded": 5999}, "counts-do-not-add-up"),
    "throughput": ({"summary__throughput": 310.0}, "counts-do-not-add-up"),
    "law": ({"conditions__concurrency": 72}, "littles-law-broken"),
    "own verdict": (
        {"verdict": {"valid": False, "reasons": [{"kind": "too-few-samples", "observed": 3}]}},
        "workload-short",
    ),
    "errors": ({"summary__error_rate": 0.82}, "workload-failed"),
    "no nodes": ({"summary__per_node": []}, "nodes-unanswered"),
    "reboot": ({"nodes_after": [rig_files.snapshot("king", 60.0, boot="boot-2")]}, "rebooted"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_bench_report_that_does_not_add_up_does_not_count(tmp_path: Path, name: str) -> None:
    changes, code = BROKEN[name]
    report = rig_files.bench(rig_files.stamps()[0], **changes)
    found = single(tmp_path, json.dumps(report), "run.json")
    assert code in codes(found.runs[0])


def test_a_bench_report_alone_gives_its_window_from_its_end(tmp_path: Path) -> None:
    found = single(tmp_path, json.dumps(rig_files.bench(1_900_000_500)), "run.json")
    (run,) = found.runs
    assert run.window_unix_s == (1_900_000_480.0, 1_900_000_500.0)
    assert not run.reasons
    assert run.metrics["latency_mean_ms"] == 120.0
    assert run.metrics["king_share_percent"] == 50.0
    assert run.metrics["half_of_rpc_remainder_network_to_node_p50_ms"] == 20.0
    assert run.extra["added_later"] == '{"kept": true}'
    assert faults(found, "end-stamped-start")


def test_a_key_that_occurs_twice_has_no_value(tmp_path: Path) -> None:
    text = json.dumps(rig_files.bench(1_900_000_500)).replace('"throughput":', '"throughput": 999.0, "throughput":')
    found = single(tmp_path, text, "run.json")
    assert any("'throughput'" in fault.detail for fault in faults(found, "repeated-key"))
    assert isinstance(found.runs[0].metrics["inferences_per_s"], Missing)
    assert "malformed-file" in codes(found.runs[0])


def test_one_run_id_for_all_reports_is_told(tmp_path: Path) -> None:
    texts = {f"raw/{n}.json": json.dumps(rig_files.bench(1_900_000_500 + 100 * n)) for n in range(3)}
    found = read(rig_files.write(tmp_path, texts)).parsed
    (fault,) = faults(found, "repeated-run-id")
    assert "3 reports" in fault.detail
    assert len(found.runs) == 3


def test_two_experiments_are_not_mixed(tmp_path: Path) -> None:
    rig_files.folder(tmp_path / "a")
    rig_files.folder(tmp_path / "b")
    with pytest.raises(InputError, match="one result folder at a time"):
        read(tmp_path)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    found = parsed(tmp_path)
    assert any("20 s in 1 of 6 reports" in text for text in found.not_known)


def test_a_report_whose_load_the_log_shows_behind_its_stamp_does_not_count(tmp_path: Path) -> None:
    first = rig_files.START
    files = {
        "run.json": json.dumps(rig_files.bench(first)),
        "k.log": rig_files.thermal_log(last=first + rig_files.RUN_S),
    }
    found = read(rig_files.write(tmp_path, files)).parsed
    assert codes(found.runs[0]) >= {"window-not-of-load"}
    assert faults(found, "window-not-of-load")


def test_a_log_of_another_time_than_the_table_is_told(tmp_path: Path) -> None:
    rows = rig_files.thermal_log().splitlines()
    other = [rows[0], *(f"{int(row.split()[0]) - 20_000_000} {row.split(maxsplit=1)[1]}" for row in rows[1:])]
    found = parsed(tmp_path, king="\n".join(other) + "\n")
    assert [fault.where for fault in faults(found, "window-not-of-load")] == ["raw/thermal/k.log"]


def test_a_stamp_that_all_reports_have_at_their_end_is_said_once(tmp_path: Path) -> None:
    texts = {f"{n}.json": json.dumps(rig_files.bench(1_900_000_500 + 100 * n)) for n in range(3)}
    (fault,) = faults(read(rig_files.write(tmp_path, texts)).parsed, "end-stamped-start")
    assert fault.detail.endswith("so in 3 reports")
