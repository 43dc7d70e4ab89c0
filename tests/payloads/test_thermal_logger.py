"""The thermal logger, run as on a board, on sensor trees of its own."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import socket
from itertools import pairwise
from pathlib import Path

import pytest

from boardbench.payload import load_payload
from boardbench.results.raw import read_thermal

from .sensors import LOGGER, orin, plant, rk3576, start, until, whole_lines

Row = dict[str, str]


def _log(out: Path, sys_root: Path, rows: int = 3, period_s: float = 0.05) -> list[Row]:
    """Runs the logger until it has some rows, stops it politely, and gives its table."""
    process = start(LOGGER, "--out", out, "--period-s", period_s, "--sys", sys_root, "--virtual-dir", out / "none")
    until(lambda: process.poll() is not None or len(whole_lines(out / "thermal.csv")) > rows)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 0, said
    with (out / "thermal.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_every_sensor_of_an_rk3576_in_the_order_of_the_contract(tmp_path: Path) -> None:
    rows = _log(tmp_path / "out", rk3576(tmp_path / "sys"))
    assert list(rows[0]) == [
        *("wall_unix_s", "monotonic_s", "boottime_s", "lateness_s"),
        *("soc-thermal_celsius", "bigcore-thermal_celsius", "npu-thermal_celsius"),
        *("policy0_cur_khz", "policy0_max_khz", "policy4_cur_khz", "policy4_max_khz"),
        *("npu_cur_hz", "gpu_cur_hz", "input_volts", "fan_pwm", "fan_rpm", "missing"),
    ]
    for row in rows:
        assert row["soc-thermal_celsius"] == "40"
        assert row["npu-thermal_celsius"] == "42"
        assert row["policy4_max_khz"] == "2208000"
        assert row["npu_cur_hz"] == "950000000"
        assert row["input_volts"] == "5.0465"
        assert row["fan_rpm"] == ""
        assert row["missing"] == "fan_pwm=no fan control;fan_rpm=no tachometer"


def test_rails_fan_and_gpu_of_an_orin_are_found_by_name(tmp_path: Path) -> None:
    row = _log(tmp_path / "out", orin(tmp_path / "sys"))[0]
    assert row["VDD_IN_watts"] == "7.56"
    assert row["VDD_CPU_GPU_CV_watts"] == "2.0128"
    assert not [name for name in row if "shunt" in name]
    assert (row["fan_pwm"], row["fan_rpm"]) == ("77", "1720")
    assert row["gpu_cur_hz"] == "612000000"
    assert row["input_volts"] == "5.04"
    assert row["missing"] == ""


def test_zones_are_known_by_type_whatever_their_number(tmp_path: Path) -> None:
    rk3576(tmp_path / "sys", ("npu-thermal", "soc-thermal"))
    row = _log(tmp_path / "out", tmp_path / "sys")[0]
    assert (row["npu-thermal_celsius"], row["soc-thermal_celsius"]) == ("40", "41")


def test_two_zones_of_one_type_and_zone_10_after_zone_2(tmp_path: Path) -> None:
    zones = (*(f"z{n}-thermal" for n in range(10)), "z2-thermal")
    rows = _log(tmp_path / "out", rk3576(tmp_path / "sys", zones))
    names = [name for name in rows[0] if name.endswith("_celsius")]
    assert names == [*(f"z{n}-thermal_celsius" for n in range(10)), "z2-thermal_2_celsius"]
    assert rows[0]["z2-thermal_2_celsius"] == "50"


def test_the_table_is_what_our_strict_reader_accepts(tmp_path: Path) -> None:
    rk3576(tmp_path / "sys")
    (tmp_path / "sys/class/thermal/thermal_zone1/temp").write_text('12, "34"\n')
    _log(tmp_path / "out", tmp_path / "sys", rows=5)
    log, problems = read_thermal(tmp_path / "out/thermal.csv")
    assert problems == []
    assert log is not None
    assert len(log.rows) >= 5
    assert set(log.column("bigcore-thermal_celsius")) == {None}


def test_a_zone_that_has_nothing_to_say_is_missing_with_its_reason_and_costs_no_other(tmp_path: Path) -> None:
    sys_root = rk3576(tmp_path / "sys", ("pipe", "empty", "words", "gone", "off", "cold", "good"))
    zones = sys_root / "class/thermal"
    (zones / "thermal_zone0/temp").unlink()
    os.mkfifo(zones / "thermal_zone0/temp")
    writer = os.open(zones / "thermal_zone0/temp", os.O_RDWR | os.O_NONBLOCK)  # a writer that is silent: EAGAIN
    (zones / "thermal_zone1/temp").write_text("")
    (zones / "thermal_zone2/temp").write_text("<unknown>; 7\n")
    (zones / "thermal_zone3/temp").unlink()
    (zones / "thermal_zone4/mode").write_text("disabled\n")
    (zones / "thermal_zone5/temp").write_text("-274000\n")
    try:
        row = _log(tmp_path / "out", sys_root)[0]
    finally:
        os.close(writer)
    assert row["good_celsius"] == "46"
    reasons = dict(entry.split("=", 1) for entry in row["missing"].split(";"))
    assert reasons["pipe_celsius"] == "resource temporarily unavailable (EAGAIN)"
    assert reasons["empty_celsius"] == "empty"
    assert reasons["words_celsius"] == "not a number: <unknown>? 7"
    assert reasons["gone_celsius"] == "no such file or directory (ENOENT)"
    assert reasons["off_celsius"] == "zone disabled"
    assert reasons["cold_celsius"] == "sensor off or not a temperature: -274"
    for name in ("pipe", "empty", "words", "gone", "off", "cold"):
        assert row[f"{name}_celsius"] == ""


def test_a_sensor_that_comes_back_is_read_again_and_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    sys_root, out = rk3576(tmp_path / "sys"), tmp_path / "out"
    temp = sys_root / "class/thermal/thermal_zone0/temp"
    process = start(LOGGER, "--out", out, "--period-s", 0.05, "--sys", sys_root)
    table = out / "thermal.csv"
    try:
        until(lambda: len(whole_lines(table)) > 2)
        temp.unlink()
        until(lambda: "soc-thermal_celsius=no such file" in whole_lines(table)[-1])
        plant(sys_root, {"class/thermal/thermal_zone0/new": 61230})
        (temp.parent / "new").rename(temp)
        until(lambda: ",61.23," in whole_lines(table)[-1])
        plant(sys_root, {"class/thermal/thermal_zone0/new": 62000})
        (temp.parent / "new").rename(temp)
        until(lambda: ",62," in whole_lines(table)[-1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


_COUNTER = Path("/sys/class/net/lo/statistics/rx_bytes")


@pytest.mark.skipif(not _COUNTER.exists(), reason="needs the kernel's own sysfs with a loopback link")
def test_a_file_of_the_kernel_stays_open_and_gives_fresh_values(tmp_path: Path) -> None:
    sys_root, out = rk3576(tmp_path / "sys"), tmp_path / "out"
    clock = sys_root / "class/devfreq/27700000.npu/cur_freq"
    clock.unlink()
    clock.symlink_to(_COUNTER)
    process = start(LOGGER, "--out", out, "--period-s", 0.05, "--sys", sys_root)
    try:
        until(lambda: len(whole_lines(out / "thermal.csv")) > 2)
        held = [os.readlink(entry) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x" * 1000, ("127.0.0.1", 9))
        seen = len(whole_lines(out / "thermal.csv"))
        until(lambda: len(whole_lines(out / "thermal.csv")) > seen + 2)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert [path for path in held if path.endswith("lo/statistics/rx_bytes")]
    with (out / "thermal.csv").open(newline="") as file:
        values = [int(row["npu_cur_hz"]) for row in csv.DictReader(file)]
    assert values[-1] >= values[0] + 1000


def test_rows_lie_on_a_grid_of_monotonic_time(tmp_path: Path) -> None:
    rows = _log(tmp_path / "out", rk3576(tmp_path / "sys"), rows=20, period_s=0.05)[:-1]
    first = float(rows[0]["monotonic_s"]) - float(rows[0]["lateness_s"])
    for row in rows:
        due = float(row["monotonic_s"]) - float(row["lateness_s"]) - first
        assert abs(due / 0.05 - round(due / 0.05)) < 0.001
    times = [float(row["monotonic_s"]) for row in rows]
    assert times == sorted(set(times))
    assert all(float(row["lateness_s"]) >= 0 for row in rows)


def test_deadlines_missed_while_it_was_stopped_are_skipped_and_said(tmp_path: Path) -> None:
    sys_root, out = rk3576(tmp_path / "sys"), tmp_path / "out"
    process = start(LOGGER, "--out", out, "--period-s", 0.05, "--sys", sys_root)
    until(lambda: len(whole_lines(out / "thermal.csv")) > 3)
    process.send_signal(signal.SIGSTOP)
    before = len(whole_lines(out / "thermal.csv"))
    signal.sigtimedwait(set(), 0.5)
    process.send_signal(signal.SIGCONT)
    until(lambda: len(whole_lines(out / "thermal.csv")) >= before + 3)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=10)
    with (out / "thermal.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    late = max(float(row["lateness_s"]) for row in rows)
    assert late > 0.4
    assert "samples were skipped because the board was too busy" in said
    # No burst of rows to catch up.
    times = [float(row["monotonic_s"]) - float(row["lateness_s"]) for row in rows[:-1]]
    assert min(after - then for then, after in pairwise(times)) > 0.049


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_gives_a_last_row_and_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    process = start(LOGGER, "--out", out, "--period-s", 3600, "--sys", rk3576(tmp_path / "sys"))
    until(lambda: len(whole_lines(out / "thermal.csv")) == 2)
    process.send_signal(number)
    _, said = process.communicate(timeout=5)
    assert (process.returncode, said) == (0, "")
    lines = whole_lines(out / "thermal.csv")
    assert len(lines) == 3
    assert (out / "thermal.csv").read_text().endswith("\n")


def test_a_stop_signal_during_the_start_is_not_lost(tmp_path: Path) -> None:
    process = start(LOGGER, "--out", tmp_path / "out", "--period-s", 3600, "--sys", rk3576(tmp_path / "sys"))
    until(lambda: (tmp_path / "out").exists())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=5)
    assert process.returncode == 0
    assert len(whole_lines(tmp_path / "out/thermal.csv")) >= 2


def test_a_full_disk_ends_it_with_a_clear_line_and_whole_rows(tmp_path: Path) -> None:
    out = tmp_path / "out"
    limit = ("/bin/sh", "-c", 'ulimit -f 4; exec "$@"', "sh")
    process = start(LOGGER, "--out", out, "--period-s", 0.01, "--sys", rk3576(tmp_path / "sys"), command_prefix=limit)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said == f"thermal_logger: cannot write in {out}: File too large\n"
    _, problems = read_thermal(out / "thermal.csv")
    assert problems == []


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs /dev/full")
def test_no_space_left_is_told_as_such(tmp_path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("thermal_logger", LOGGER)
    assert spec is not None
    assert spec.loader is not None
    logger = module_from_spec(spec)
    spec.loader.exec_module(logger)
    table = logger.Table(str(tmp_path / "thermal.csv"))
    os.close(table._fd)
    table._fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match=r"No space left|Invalid argument"):
        table.append(b"x\n")


def test_a_log_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "thermal.csv").write_text("precious\n")
    process = start(LOGGER, "--out", tmp_path, "--sys", rk3576(tmp_path / "sys"))
    _, said = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "File exists" in said
    assert (tmp_path / "thermal.csv").read_text() == "precious\n"


def test_the_meta_file_says_what_the_columns_are(tmp_path: Path) -> None:
    sys_root = rk3576(tmp_path / "sys")
    rows = _log(tmp_path / "out", sys_root, period_s=0.05)
    meta = json.loads((tmp_path / "out/thermal.meta.json").read_text())
    assert list(meta["columns"]) == sorted(
        set(rows[0]) - {"wall_unix_s", "monotonic_s", "boottime_s", "lateness_s", "missing"}
    )
    assert meta["columns"]["npu_cur_hz"] == f"{sys_root}/class/devfreq/27700000.npu/cur_freq"
    assert meta["columns"]["fan_rpm"] == ""
    assert meta["period_s"] == 0.05
    assert meta["virtual"] is False
    assert meta["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    program = b"".join(path.read_bytes() for path in (LOGGER, LOGGER.parent / "board_sensors.py"))
    assert meta["program_sha256"] == hashlib.sha256(program).hexdigest()


def test_a_virtual_board_is_labelled_with_its_time_scale(tmp_path: Path) -> None:
    virtual = tmp_path / "virtual"
    virtual.mkdir()
    (virtual / "status.json").write_text('{"time_scale": 60.0}')
    process = start(
        LOGGER,
        "--out",
        tmp_path / "out",
        "--sys",
        rk3576(tmp_path / "sys"),
        "--virtual-dir",
        virtual,
        "--period-s",
        0.05,
    )
    until(lambda: len(whole_lines(tmp_path / "out/thermal.csv")) > 1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    meta = json.loads((tmp_path / "out/thermal.meta.json").read_text())
    assert (meta["virtual"], meta["time_scale"]) == (True, 60.0)


@pytest.mark.parametrize("arguments", [["--period-s", "0"], ["--period-s", "nan"], []])
def test_a_wrong_command_line_ends_with_2(tmp_path: Path, arguments: list[str]) -> None:
    out = ["--out", str(tmp_path)] if arguments else []
    process = start(LOGGER, *out, *arguments)
    process.communicate(timeout=10)
    assert process.returncode == 2


@pytest.mark.parametrize("folder", [LOGGER.parent, LOGGER.parent.parent / "burn"])
def test_the_payload_can_be_loaded_and_is_python_3_8(folder: Path) -> None:
    import ast

    payload = load_payload(folder)
    assert {file.path for file in payload.files} == {path.name for path in folder.glob("*.py")}
    for file in payload.files:
        ast.parse(file.source.read_text(), feature_version=(3, 8))
        starts = f"{payload.root}/{file.path}" in payload.harness.scripts
        assert starts == (file.mode == "0755")
