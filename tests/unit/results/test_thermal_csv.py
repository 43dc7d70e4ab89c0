"""What the reader of thermal logs accepts and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from boardbench.results.raw import read_thermal

HEADER = "wall_unix_s,monotonic_s,boottime_s,lateness_s,soc-thermal_celsius,input_volts,missing"
GOOD = f"{HEADER}\n1.5,10.0,20.0,0.001,46.1,5.2,\n2.5,11.0,21.0,0.001,,5.2,soc-thermal_celsius=EAGAIN\n"


def faults(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "thermal.csv"
    path.write_bytes(text.encode())
    return [str(problem) for problem in read_thermal(path)[1]]


def test_a_missing_reading_is_none_and_never_a_number(tmp_path: Path) -> None:
    path = tmp_path / "thermal.csv"
    path.write_text(GOOD)
    log, problems = read_thermal(path)
    assert problems == []
    assert log is not None
    assert log.column("soc-thermal_celsius") == [46.1, None]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("soc-thermal_celsius,input", "soc-thermal,input", "without a unit"),
        ("lateness_s,", "late,", "first columns"),
        (",missing", ",lost", "last column"),
        ("input_volts,missing", "soc-thermal_celsius,missing", "twice"),
        ("0.001,46.1,5.2,", "0.001,46.1,", "has 6 fields"),
        ("46.1", "nan", "not a finite number"),
        ("46.1", "1e999", "not a finite number"),
        ("46.1", "46,1", "has 8 fields"),
        ("46.1,5.2,", ",5.2,", "'missing' names"),
        ("soc-thermal_celsius=EAGAIN", "", "'missing' names"),
        ("soc-thermal_celsius=EAGAIN", "soc-thermal_celsius=", "no reason"),
        ("soc-thermal_celsius=EAGAIN", "input_volts=EAGAIN", "'missing' names"),
        ("2.5,11.0", "2.5,10.0", "monotonic_s goes"),
        ("\n2.5", "\r\n2.5", "line ends"),
        ("=EAGAIN\n", "=EAGAIN", "cut off"),
    ],
)
def test_a_log_with_one_fault_is_refused_with_its_reason(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert GOOD.count(old) >= 1
    found = faults(tmp_path, GOOD.replace(old, new, 1))
    assert any(said in fault for fault in found), found


def test_one_zero_is_a_temperature_and_a_column_of_zeros_is_not(tmp_path: Path) -> None:
    zeros = GOOD.replace("46.1", "0.0").replace(",,5.2,soc-thermal_celsius=EAGAIN", ",0.0,5.2,")
    assert any("0.0 in all rows" in fault for fault in faults(tmp_path, zeros))
    assert faults(tmp_path, zeros.replace("0.0,5.2", "1.0,5.2", 1)) == []
