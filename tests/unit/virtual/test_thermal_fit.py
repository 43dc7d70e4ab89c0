"""Comparing the model with logs in the rig's format, made here by the model itself."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.virtual.fit import BOARDS, LOG_HEADER, compare, read_log, read_windows, rig_load
from boardbench.virtual.thermal import BoardModel, Controls, Load, NanoPiModel, constants, make

EPOCH, LEAD_S, WINDOWS, RATE = 1_700_000_000, 12, 5, 387.0
PERIOD_S, RUN_S = 64, 60.5


def other_board(name: str, seed: int) -> BoardModel:
    """A board of which every thermal constant is up to 5 % off, each by its own amount."""
    spec, luck = copy.deepcopy(constants()["kinds"]["nanopi-r76s"]), random.Random(seed)
    for mode in spec["modes"]:
        for key in ("resistance", "tau_s"):
            mode[key] *= luck.uniform(0.95, 1.05)
    for key in ("npu", "cpu", "memory"):
        spec["heat"][key] *= luck.uniform(0.95, 1.05)
    return NanoPiModel(spec, name, None)


def write_run(
    folder: Path, *, fan: float = 0.0, idle: float = 41.0, probe: bool = False, windows: int = WINDOWS, seed: int = 0
) -> dict[str, float | None]:
    """A run as the rig's harness leaves it. Returns each board's first throttled second, counted from the load.

    Every board rests at `idle` first; with a `seed` the boards differ from the model's constants.
    """
    thermal = folder / "raw" / "thermal"
    thermal.mkdir(parents=True)
    starts = [EPOCH + LEAD_S + PERIOD_S * n for n in range(windows)]
    header = "run,epoch,elapsed_s,throughput,p50_ms,p95_ms,p99_ms,error_rate,balance_pp,observed_nodes,max_npu_c"
    rows = [f"{n},{s + 61},{s + 62 - starts[0]},{RATE},86.9,142.9,182.8,0.0,0.0,3,0.0" for n, s in enumerate(starts, 1)]
    (folder / "raw" / "throughput.csv").write_text("\n".join([header, *rows]) + "\n")
    throttled: dict[str, float | None] = {}
    for letter, name in BOARDS.items():
        model = other_board(name, seed) if seed else make("nanopi-r76s", name)
        controls = Controls(fan_duty=fan)
        model.settle(Load(), controls)
        model.air_celsius += idle - model.celsius
        if probe:
            model.advance(11.0, rig_load(118.0, 1.0), controls)
            model.advance(1.0, Load(), controls)
        lines, throttled[name] = [" ".join(LOG_HEADER)], None
        for second in range(LEAD_S + PERIOD_S * windows + 8):
            now = EPOCH + second
            zones, mhz = model.zones_celsius, model.cpu_cur_khz["policy4"] // 1000
            temps = [zones[f"{zone}-thermal"] for zone in ("soc", "npu", "ddr", "bigcore")]
            lines.append(
                " ".join([str(now), *(f"{c:.1f}" for c in temps), str(mhz), "950", f"{model.input_volts:.3f}"])
            )
            if mhz < 2208 and throttled[name] is None:
                throttled[name] = float(now - starts[0])
            for quarter in range(4):
                busy = any(start <= now + quarter / 4 < start + RUN_S for start in starts)
                clock = model.cpu_cur_khz["policy4"] / 2_208_000
                model.advance(0.25, rig_load(RATE / 3, clock) if busy else Load(), controls)
        (thermal / f"{letter}.log").write_text("\n".join(lines) + "\n")
    return throttled


def edit(path: Path, line: int, text: str | None) -> None:
    lines = path.read_text().splitlines()
    lines[line - 1 : line] = [] if text is None else [text]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def fanless(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float | None]]:
    folder = tmp_path_factory.mktemp("fanless")
    return folder, write_run(folder, idle=42.0)


@pytest.fixture
def run(tmp_path: Path, fanless: tuple[Path, dict[str, float | None]]) -> Path:
    """A copy of the fanless run that a test may spoil."""
    for source in fanless[0].rglob("*"):
        if source.is_file():
            target = tmp_path / source.relative_to(fanless[0])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    return tmp_path


def test_a_run_of_the_model_itself_is_found_again(fanless: tuple[Path, dict[str, float | None]]) -> None:
    folder, throttled = fanless
    result = compare(folder, "fanless")
    assert throttled["king"] is not None
    for name, board in result["boards"].items():  # type: ignore[attr-defined]
        assert board["rms_celsius"] < 0.8
        assert board["first_throttle_s"]["log"] == throttled[name]
        if throttled[name] is not None:
            assert board["first_throttle_s"]["model"] == pytest.approx(throttled[name], abs=12)
        assert board["max_celsius"]["model"] == pytest.approx(board["max_celsius"]["log"], abs=1.0)
        assert board["median_big_core_mhz"]["model"] == board["median_big_core_mhz"]["log"]
        assert board["idle_celsius"] == pytest.approx(42.0, abs=0.6)
    json.dumps(result, allow_nan=False)


def test_a_cooled_run_never_throttles_and_says_why_the_seconds_are_absent(tmp_path: Path) -> None:
    write_run(tmp_path, fan=1.0)
    for board in compare(tmp_path, "active")["boards"].values():  # type: ignore[attr-defined]
        assert board["rms_celsius"] < 0.8
        assert board["first_throttle_s"] == {"model": None, "log": None}
        assert "no sample below 2208 MHz" in board["reasons"]["first_throttle_s.log"]
        assert board["regulation_celsius"]["model"] is None
        assert "regulation_celsius.model" in board["reasons"]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("cooling", "idle", "windows"),
    [("fanless", 38.5, 9), ("fanless", 43.5, 9), ("fanless", 41.0, 5), ("active", 41.0, 6)],
)
def test_boards_that_differ_from_the_model_by_a_few_percent_still_fit(
    tmp_path: Path, cooling: str, idle: float, windows: int, seed: int
) -> None:
    write_run(tmp_path, fan=1.0 if cooling == "active" else 0.0, idle=idle, windows=windows, seed=seed)
    for board in compare(tmp_path, cooling)["boards"].values():  # type: ignore[attr-defined]
        assert board["rms_celsius"] < 1.5
        plateau = board["plateau_celsius"]
        assert plateau["model"] == pytest.approx(plateau["log"], abs=2.0)
        if cooling == "active":
            assert 55.0 <= plateau["model"] <= 61.5
        assert board["idle_celsius"] == pytest.approx(idle, abs=0.6)


def test_blank_fields_and_zeros_all_over_a_log_change_little(run: Path) -> None:
    path = run / "raw" / "thermal" / "k.log"
    lines = path.read_text().splitlines()
    for number in range(20, len(lines), 7):
        epoch, _, *rest = lines[number].split()
        lines[number] = " ".join([epoch, "0.0" if number % 2 else "", *rest])
    lines[3] = lines[3].rsplit(" ", 1)[0] + " "
    path.write_text("\n".join(lines) + "\n")
    king = compare(run, "fanless")["boards"]["king"]  # type: ignore[index]
    assert king["rms_celsius"] < 0.8
    assert king["samples"] == len(lines) - 1 - len(range(20, len(lines), 7))


def test_the_wrong_cooling_does_not_fit(run: Path) -> None:
    for board in compare(run, "active")["boards"].values():  # type: ignore[attr-defined]
        assert board["rms_celsius"] > 10.0


def test_the_tail_of_a_probe_before_the_log_is_not_taken_for_the_idle_level(tmp_path: Path) -> None:
    write_run(tmp_path, idle=39.5, probe=True)
    for board in compare(tmp_path, "fanless")["boards"].values():  # type: ignore[attr-defined]
        assert board["idle_celsius"] == pytest.approx(39.5, abs=0.8)
        assert board["rms_celsius"] < 1.0
        assert "probe" in board["reasons"]["idle_celsius"]


def test_a_log_that_begins_with_the_load_says_that_the_idle_level_is_a_guess(run: Path) -> None:
    for letter in BOARDS:
        path = run / "raw" / "thermal" / f"{letter}.log"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[0], *lines[1 + LEAD_S :]]) + "\n")
    king = compare(run, "fanless")["boards"]["king"]  # type: ignore[index]
    assert "no sample before the load" in king["reasons"]["idle_celsius"]
    assert king["rms_celsius"] < 1.5


def test_zeros_in_a_log_are_missing_not_cold(run: Path) -> None:
    path = run / "raw" / "thermal" / "k.log"
    edit(path, 150, f"{EPOCH + 148} 0.0 0.0 0.0 0.0 0 950 0.000")
    sample = read_log(path)[148]
    assert (sample.soc_celsius, sample.big_core_mhz) == (None, None)
    king = compare(run, "fanless")["boards"]["king"]  # type: ignore[index]
    assert king["rms_celsius"] < 0.8
    assert king["min_big_core_mhz"]["log"] >= 408


def test_a_blank_throughput_takes_the_rate_of_the_window_before(run: Path) -> None:
    path = run / "raw" / "throughput.csv"
    edit(path, 3, path.read_text().splitlines()[2].replace(f",{RATE},", ",,"))
    windows = read_windows(path)
    assert windows[1].inferences_per_s == windows[0].inferences_per_s == pytest.approx(RATE / 3)


def test_windows_end_at_their_epoch_and_leave_a_gap(fanless: tuple[Path, dict[str, float | None]]) -> None:
    windows = read_windows(fanless[0] / "raw" / "throughput.csv")
    assert len(windows) == WINDOWS
    for number, window in enumerate(windows):
        start = EPOCH + LEAD_S + PERIOD_S * number
        assert window.start_s == pytest.approx(start, abs=1.0)
        assert window.end_s == pytest.approx(start + RUN_S, abs=1.5)


@pytest.mark.parametrize(
    ("name", "line", "text", "where", "what"),
    [
        ("thermal/q.log", 7, "1700000005 40.1 40.1", "q.log:7", "3 fields, 8 are due"),
        ("thermal/q.log", 7, "1700000005 x 40 40 40 2208 950 5.2", "q.log:7", "soc_c is 'x'"),
        ("thermal/q.log", 7, "1700000005 -5 40 40 40 2208 950 5.2", "q.log:7", "soc_c is '-5'"),
        ("thermal/q.log", 7, "1700000000 nan 40 40 40 2208 950 5.2", "q.log:7", "soc_c is 'nan'"),
        ("thermal/q.log", 7, "1600000000 40 40 40 40 2208 950 5.2", "q.log:7", "runs back"),
        ("thermal/q.log", 7, "1800000000 40 40 40 40 2208 950 5.2", "q.log:7", "a gap"),
        ("thermal/q.log", 1, "time soc", "q.log:1", "the header is not"),
        ("throughput.csv", 1, "run,epoch,rate", "throughput.csv:1", "no column 'throughput'"),
        ("throughput.csv", 3, "2,1700000137", "throughput.csv:3", "wrong number of fields"),
        ("throughput.csv", 3, "2,0,1,387,1,1,1,0,0,3,0", "throughput.csv:3", "epoch is missing"),
        ("throughput.csv", 3, "2,1700000137,1,fast,1,1,1,0,0,3,0", "throughput.csv:3", "throughput is 'fast'"),
        ("throughput.csv", 2, "1,1700000073,62,0.0,1,1,1,0,0,3,0", "throughput.csv:2", "first throughput is missing"),
    ],
)
def test_a_garbled_file_is_named_with_its_line(
    run: Path, name: str, line: int, text: str, where: str, what: str
) -> None:
    edit(run / "raw" / name, line, text)
    with pytest.raises(InputError) as caught:
        compare(run, "fanless")
    assert caught.value.where.endswith(where)
    assert what in caught.value.what


@pytest.mark.parametrize("name", ["throughput.csv", "thermal/j.log"])
def test_a_missing_file_is_named(run: Path, name: str) -> None:
    (run / "raw" / name).unlink()
    with pytest.raises(InputError, match="there is no such file") as caught:
        compare(run, "fanless")
    assert caught.value.where.endswith(name)


@pytest.mark.parametrize("name", ["throughput.csv", "thermal/j.log"])
def test_an_empty_or_binary_file_is_a_clear_mistake(run: Path, name: str) -> None:
    for content in (b"", b"\xff\xfe\x00"):
        (run / "raw" / name).write_bytes(content)
        with pytest.raises(InputError) as caught:
            compare(run, "fanless")
        assert name in caught.value.where


def test_logs_of_another_day_than_the_load_are_refused(run: Path) -> None:
    path = run / "raw" / "throughput.csv"
    path.write_text("run,epoch,elapsed_s,throughput\n1,1900000000,62,387\n")
    with pytest.raises(InputError, match="no sample of king lies within the load"):
        compare(run, "fanless")


def test_a_log_that_begins_in_the_middle_is_refused(run: Path) -> None:
    path = run / "raw" / "thermal" / "k.log"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *lines[100:]]) + "\n")
    with pytest.raises(InputError, match=r"the log of king begins 8\d s after the load"):
        compare(run, "fanless")


def test_an_unknown_cooling_is_refused(run: Path) -> None:
    with pytest.raises(InputError, match="cooling 'breeze' is not known"):
        compare(run, "breeze")
