"""Evidence says what was seen, and why it is not good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import gates

HEADER = "wall_unix_s,monotonic_s,boottime_s,lateness_s,soc_celsius,npu_celsius,missing\n"
WINDOW = gates.Window(10.0, 20.0)


def rows(*times: float, temperatures: int = 1) -> list[gates.Row]:
    return [gates.Row(time, temperatures) for time in times]


def every_second(first: int, last: int) -> list[gates.Row]:
    return rows(*(float(second) for second in range(first, last + 1)))


def test_rows_are_read_with_their_missing_temperatures(tmp_path: Path) -> None:
    path = tmp_path / "thermal.csv"
    path.write_text(HEADER + "1,5.0,5,0,61.2,,npu_celsius=EAGAIN\n2,6.0,6,0,,,a=b;c=d\n3,7.0,7,0,1,2,\n4,8.0,8,0,6")
    assert gates.thermal_rows(str(path)) == [gates.Row(5.0, 1), gates.Row(6.0, 0), gates.Row(7.0, 2)]


@pytest.mark.parametrize("content", ["", "wall_unix_s,monotonic_s", "a,b\n1,2\n"])
def test_a_log_without_whole_rows_has_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "thermal.csv"
    assert gates.thermal_rows(str(path)) == []
    path.write_text(content)
    assert gates.thermal_rows(str(path)) == []


def test_a_log_that_covers_the_load_is_good() -> None:
    found = gates.logger(every_second(8, 21), 1.0, WINDOW)
    assert found["ok"], found
    assert found["saw"]["biggest_gap_periods"] == 1.0
    assert found["saw"]["rows_in_window"] == 11


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([], "no rows"),
        (every_second(11, 21), "begins 1.0 s after the load"),
        (every_second(8, 19), "ends 1.0 s before the load"),
        (every_second(8, 13) + every_second(16, 21), "gap of 3.0 s"),
        (rows(9, 10, 12, 11, 20, 21), "goes backwards"),
        (rows(*range(8, 22), temperatures=0), "not one temperature"),
    ],
)
def test_a_log_that_does_not_prove_the_load_is_not_good(seen: list[gates.Row], why: str) -> None:
    found = gates.logger(seen, 1.0, WINDOW)
    assert not found["ok"]
    assert why in found["why"]


def test_a_gap_of_two_periods_is_no_loss_and_one_outside_the_load_does_not_matter() -> None:
    assert gates.logger(every_second(8, 13) + every_second(15, 21), 1.0, WINDOW)["ok"]
    assert gates.logger(rows(1.0, 2.0) + every_second(9, 21), 1.0, WINDOW)["ok"]


def tenths(*late: tuple[float, float], until_s: float = 21.0) -> list[gates.Row]:
    """Ten rows a second from 9 s on; `late`: (due, how late it was woken); deadlines that were slept over are lost."""
    seen = []
    asleep_s = 0.0
    for number in range(90, round(until_s * 10) + 1):
        due_s = number / 10
        lateness_s = dict(late).get(due_s, 0.0)
        if due_s > asleep_s:
            seen.append(gates.Row(due_s + lateness_s, 1, lateness_s))
            asleep_s = due_s + lateness_s
    return seen


def test_where_time_is_scaled_a_logger_that_was_woken_late_has_no_gap_up_to_a_second() -> None:
    woken_late = tenths((15.0, 0.8))
    found = gates.logger(woken_late, 0.1, WINDOW, scaled=True)
    assert found["ok"], found
    assert found["saw"]["late_gaps"] == 1
    assert found["saw"]["biggest_gap_s"] == pytest.approx(0.9)
    assert not gates.logger(tenths((15.0, 1.0)), 0.1, WINDOW, scaled=True)["ok"]
    # The same on a real board, however short its period is.
    assert not gates.logger(woken_late, 0.1, WINDOW)["ok"]


def test_where_time_is_scaled_rows_that_are_not_there_are_still_a_gap() -> None:
    """Nobody was late: a sensor hung, or somebody took rows out."""
    missing = [row for row in tenths() if not 15.0 < row.monotonic_s < 15.65]
    found = gates.logger(missing, 0.1, WINDOW, scaled=True)
    assert not found["ok"]
    assert found["saw"]["late_gaps"] == 0
    assert gates.logger([row for row in tenths() if not 15.0 < row.monotonic_s < 15.35], 0.1, WINDOW, scaled=True)["ok"]


def test_a_second_late_is_no_excuse_for_a_logger_of_a_real_board() -> None:
    late = [gates.Row(16.0, 1, 2.9) if row.monotonic_s == 16.0 else row for row in every_second(8, 21)]
    late = [row for row in late if row.monotonic_s not in (14.0, 15.0)]
    assert not gates.logger(late, 1.0, WINDOW)["ok"]


def test_without_a_load_there_is_nothing_to_cover() -> None:
    assert not gates.logger(every_second(8, 21), 1.0, None)["ok"]


def test_another_boot_id_is_a_reboot() -> None:
    assert gates.boot("a", "a")["ok"]
    assert gates.boot("a", "b") == {
        "gate": "boot-id",
        "ok": False,
        "saw": {"before": "a", "after": "b"},
        "why": "the board rebooted",
    }


@pytest.mark.parametrize(("in_force", "ok"), [(1 << 30, True), (None, False), (1 << 40, False)])
def test_a_memory_limit_counts_only_when_it_is_in_force(in_force: int | None, ok: bool) -> None:
    found = gates.limits({"memory_max_bytes": (1 << 30) + 5}, {"memory_limit_bytes": in_force})
    assert found["ok"] is ok
    assert bool(found["why"]) is not ok


STARTED = {"started": {"monotonic_s": 1.0}}


@pytest.mark.parametrize(
    ("ended", "exit_", "why"),
    [
        ({"ended_by": "itself"}, {"code": 0}, ""),
        ({"ended_by": "itself"}, {"code": 3}, "exit code 3"),
        ({"ended_by": "itself"}, {"signal": 11}, "signal 11"),
        ({"ended_by": "deadline"}, {"code": 0}, "not done at its deadline"),
        ({"ended_by": "stopped"}, {"code": 0}, "stopped before it ended"),
        ({"ended_by": "itself", "out_of_memory_kills": 1}, {"code": 0}, "out of memory"),
        ({"failed": "cannot start x"}, {"missing": "cannot start x"}, "cannot start x"),
        (None, {"missing": "the board rebooted while it ran"}, "the board rebooted"),
    ],
)
def test_only_a_load_that_ended_by_itself_with_code_0_is_good(
    ended: dict[str, Any] | None, exit_: dict[str, Any], why: str
) -> None:
    found = gates.load(STARTED, dict(ended, ended={"monotonic_s": 2.0}) if ended else None, exit_)
    assert found["ok"] is (why == "")
    assert why in found["why"]
