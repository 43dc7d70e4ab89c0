"""Lines of tegrastats of every JetPack, made here in the formats that the field saw: values with units, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boardbench.imports.model import Missing, Parsed, Samples
from boardbench.imports.registry import read
from boardbench.imports.tegrastats import TegraLine, parse_line

TX1_OLD = "RAM 3100/3983MB (lfb 40x4MB) SWAP 800/8192MB (cached 280MB) cpu [18%,0%]@1700 EMC 2%@1500 APE 24 GR3D 41%@77"
NANO = (
    "RAM 600/3900MB (lfb 90x4MB) IRAM 0/256kB(lfb 256kB) CPU [12%@210,off] EMC_FREQ 0%@210 GR3D_FREQ 0%@78 APE 24"
    " PLL@33C CPU@35.5C thermal@34.25C POM_5V_IN 1100/1200 POM_5V_CPU 210/220"
)
ORIN = (
    "06-16-2026 10:45:09 RAM 6000/15000MB (lfb 1700x4MB) SWAP 500/7500MB (cached 0MB) CPU [7%@730,off] EMC_FREQ 0%@2100"
    " GR3D_FREQ 0%@610 GR3D2_FREQ 3%@300 VIC_FREQ 730 APE 170 CV0@44.5C GPU@43.25C tj@46.125C VDD_IN 5400mW/6000mW"
    " VDD_CPU_GPU_CV 800mW/810mW"
)
ORIN_OFF = (
    "RAM 4300/62000MB (lfb 9x4MB) CPU [1%@730] EMC_FREQ 0%@2100 GR3D_FREQ 0%@[0,0] CV0@-256C CPU@43.5C NC 0mW/0mW"
    " NC 5mW/5mW"
)
ORIN_USER = "05-05-2026 06:05:39 RAM 2600/7600MB (lfb 9x4MB) CPU [1%@730] GR3D_FREQ 0% cpu@42.125C VDD_IN 5100mW/5200mW"
ORIN_ROOT = (
    "10-08-2026 04:35:02 RAM 6700/7600MB (lfb 12x4MB) CPU [38%@1500] EMC_FREQ 60%@2100 GR3D_FREQ 99%@[610] NVDEC off"
    " VIC off APE 200 tj@57.5C VDD_IN 16000mW/11000mW"
)
SPACES = (
    "RAM 29000/30000MB (lfb 3x4MB)    CPU [3%@730] GR3D_FREQ 0%@[305,306] NVENC      off  PVA0_FREQ off   APE"
    "           170   cpu@52.5C"
)
DRIVE = "RAM 260/28000MB (lfb 7000x4MB) CPU [0%@1800] EMC_FREQ @2100 GR3D_FREQ 0%@1100 APE 240"
XAVIER = "RAM 700/15000MB (lfb 9x4MB) CPU [0%@1190] GR3D_FREQ 7% GPU@36.5C CPU@37C GPU 100/90 CPU 300/310 SOC -5/12"


def line(text: str) -> TegraLine:
    found = parse_line(text)
    assert found is not None
    assert found.unread == ""
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TX1_OLD, {"cpu0_load_percent": 18.0, "cpu1_cur_khz": 1700e3, "emc_load_percent": 2.0, "emc_cur_hz": 1500e6}),
        (TX1_OLD, {"gpu_load_percent": 41.0, "gpu_cur_hz": 77e6, "ape_cur_hz": 24e6, "swap_cached_mib": 280.0}),
        (NANO, {"ram_used_mib": 600.0, "iram_total_mib": 0.25, "ram_largest_free_blocks": 90.0}),
        (NANO, {"POM_5V_IN_watts": 1.1, "CPU_celsius": 35.5, "POM_5V_CPU_watts": 0.21, "thermal_celsius": 34.25}),
        (ORIN, {"VDD_IN_watts": 5.4, "gr3d2_load_percent": 3.0, "gr3d2_cur_hz": 300e6, "vic_cur_hz": 730e6}),
        (ORIN, {"tj_celsius": 46.125, "gpu_cur_hz": 610e6, "VDD_CPU_GPU_CV_watts": 0.8}),
        (ORIN_OFF, {"CPU_celsius": 43.5, "NC_watts": 0.0, "NC_watts_2": 0.005, "gpu0_cur_hz": 0.0, "gpu1_cur_hz": 0.0}),
        (ORIN_USER, {"gpu_load_percent": 0.0, "cpu_celsius": 42.125, "VDD_IN_watts": 5.1}),
        (ORIN_ROOT, {"gpu_load_percent": 99.0, "gpu_cur_hz": 610e6, "emc_load_percent": 60.0, "VDD_IN_watts": 16.0}),
        (SPACES, {"gpu0_cur_hz": 305e6, "gpu1_cur_hz": 306e6, "ape_cur_hz": 170e6, "cpu_celsius": 52.5}),
        (DRIVE, {"emc_cur_hz": 2100e6, "gpu_cur_hz": 1100e6, "gpu_load_percent": 0.0}),
        (XAVIER, {"GPU_celsius": 36.5, "GPU_watts": 0.1, "CPU_celsius": 37.0, "CPU_watts": 0.3, "SOC_watts": -0.005}),
    ],
)
def test_every_dialect_gives_its_values(text: str, expected: dict[str, float]) -> None:
    readings = line(text).readings
    assert {name: readings.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        (ORIN_USER, "emc_cur_hz"), (ORIN_USER, "gpu_cur_hz"), (DRIVE, "emc_load_percent"), (NANO, "swap_used_mib"),
        (TX1_OLD, "CPU_celsius"), (XAVIER, "gpu_cur_hz"), (ORIN_ROOT, "vic_load_percent"),
    ],
)  # fmt: skip
def test_what_a_line_does_not_tell_is_absent_and_not_zero(text: str, absent: str) -> None:
    assert absent not in line(text).readings


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (ORIN_OFF, "CV0_celsius"),
        (ORIN_ROOT, "vic_cur_hz"),
        (ORIN, "cpu1_load_percent"),
        (NANO, "cpu1_cur_khz"),
        (SPACES, "pva0_cur_hz"),
    ],
)
def test_off_is_a_missing_reading(text: str, name: str) -> None:
    assert isinstance(line(text).readings[name], Missing)


@pytest.mark.parametrize("load", [0, 3, 7, 33, 99, 100])
def test_the_load_is_not_the_3_in_its_label(load: int) -> None:
    assert line(f"RAM 1/2MB GR3D_FREQ {load}%@[612]").readings["gpu_load_percent"] == load


def test_negative_power_is_kept_and_flagged() -> None:
    assert line(XAVIER).odd == ("SOC_watts reads -0.005",)


def test_a_group_that_nobody_knows_is_kept_as_text() -> None:
    found = parse_line("RAM 1/2MB (lfb 1x1MB) WHAT is~this APE 5")
    assert found is not None
    assert found.unread == "WHAT is~this"
    assert found.readings["ape_cur_hz"] == 5e6


@pytest.mark.parametrize("text", ["", "hello", "RAM", "CPU [1%@2] RAM 1/2MB", '{"RAM": "1/2MB"}'])
def test_other_text_is_no_line(text: str) -> None:
    assert parse_line(text) is None


def log(path: Path, lines: list[str], end: str = "\n") -> Parsed:
    (path / "t.log").write_text("\n".join(lines) + end)
    found = read(path / "t.log", board="orin")
    assert found.format == "tegrastats"
    return found.parsed


def stamped(second: int, watts: int = 5000) -> str:
    return f"06-16-2026 10:45:{second:02d} RAM 1/2MB GR3D_FREQ 5%@306 VDD_IN {watts}mW/1mW"


def table(found: Parsed) -> Samples:
    (samples,) = found.samples
    return samples


def test_a_log_becomes_columns_over_wall_time(tmp_path: Path) -> None:
    samples = table(log(tmp_path, [stamped(1), stamped(3, 7000), stamped(4)]))
    assert (samples.board, samples.clock) == ("orin", "wall")
    assert [at - samples.time_s[0] for at in samples.time_s] == [0.0, 2.0, 3.0]
    assert samples.column("VDD_IN_watts") == [5.0, 7.0, 5.0]


def test_a_clock_that_goes_back_is_named_and_the_line_left_out(tmp_path: Path) -> None:
    found = log(tmp_path, [stamped(10), stamped(11), stamped(5), stamped(12)])
    assert [(fault.code, fault.where) for fault in found.faults] == [("clock-jump", "t.log:3")]
    assert table(found).rows == 3
    assert len(table(found).column("VDD_IN_watts")) == 3


def test_lines_of_one_second_are_spaced_in_it_and_that_is_said(tmp_path: Path) -> None:
    found = log(tmp_path, [stamped(1), stamped(1), stamped(2), stamped(2)])
    assert [at - table(found).time_s[0] for at in table(found).time_s] == [0.0, 0.5, 1.0, 1.5]
    assert any("spaced evenly" in text for text in found.not_known)


def test_without_stamps_only_the_order_is_known(tmp_path: Path) -> None:
    found = log(tmp_path, [NANO, NANO.replace("CPU@35.5C", "CPU@36.5C")])
    assert table(found).clock == "index"
    assert table(found).column("CPU_celsius") == [35.5, 36.5]
    assert any("no stamp" in text for text in found.not_known)


def test_a_column_that_comes_late_is_missing_before(tmp_path: Path) -> None:
    samples = table(log(tmp_path, [stamped(1), stamped(2) + " tj@50.5C", stamped(3)]))
    assert samples.column("tj_celsius") == [None, 50.5, None]


def test_a_sampler_without_root_is_told(tmp_path: Path) -> None:
    assert [fault.code for fault in log(tmp_path, [ORIN_USER]).faults] == ["unprivileged-read"]


def test_a_torn_last_line_is_no_line_and_strangers_are_named(tmp_path: Path) -> None:
    found = log(tmp_path, [stamped(1), "something else", stamped(2), stamped(3)[:-8]], end="")
    assert [(fault.code, fault.where) for fault in found.faults] == [
        ("malformed-file", "t.log:2"),
        ("torn-line", "t.log:4"),
    ]
    assert table(found).rows == 2


def test_collected_lines_of_several_boards_are_kept_apart(tmp_path: Path) -> None:
    lines = [json.dumps({"board": board, "line": text}) for board, text in (("Nano", NANO), ("Orin NX", ORIN))]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    assert [samples.board for samples in read(tmp_path / "t.jsonl").parsed.samples] == ["Nano", "Orin-NX"]
