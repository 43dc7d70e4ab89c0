"""What the GPU floor service writes to the clock, against the virtual Jetson's own devfreq device."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from boardbench.virtual.clocks import Devfreq
from boardbench.virtual.jetson import GPU_HZ
from boardbench.virtual.tree import File, Tree

from .floor_parts import faults, floor, node, record

LOWEST, HIGHEST = GPU_HZ[0], GPU_HZ[-1]
NODE = node.Node("gpu")


class Board:
    """The device, its files in memory, and what was written to them."""

    def __init__(self) -> None:
        self.device = Devfreq("17000000.gpu", GPU_HZ, "nvhost_podgov", ("nvhost_podgov",))
        self.tree = Tree()
        self.device.add_to(self.tree, "gpu", lambda: self.device.min_hz)
        self.written: list[tuple[str, str]] = []
        self.broken = ""

    def _file(self, path: str) -> File:
        entry = self.tree.find(path)
        assert isinstance(entry, File)
        return entry

    def read(self, paths: list[str]) -> list[str]:
        texts = []
        for path in paths:
            entry = self._file(path)
            texts.append((entry.fixed.decode() if entry.fixed is not None else entry.read()).strip())  # type: ignore[misc]
        return texts

    def write(self, path: str, text: str) -> None:
        if self.broken == "refuses":
            raise faults.BoardError("it is broken")
        self.written.append((path, text))
        if self.broken != "ignores":
            self._file(path).write(text)  # type: ignore[misc]


@dataclass
class Memory:
    """The record, without a file."""

    hz: int | None = None

    def get(self, node: str) -> int | None:
        return self.hz

    def put(self, node: str, hz: int) -> None:
        self.hz = hz

    def clear(self) -> None:
        self.hz = None


@dataclass
class Rig:
    board: Board = field(default_factory=Board)
    memory: Memory = field(default_factory=Memory)
    said: list[str] = field(default_factory=list)

    def floor(self, wanted_hz: int | None = None) -> floor.Floor:
        return floor.Floor(NODE, self.board, self.memory, wanted_hz, self.said.append)

    @property
    def min_hz(self) -> int:
        return self.board.device.min_hz


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_it_raises_to_the_highest_frequency_and_back_to_the_lowest(rig: Rig) -> None:
    one = rig.floor()
    assert one.keep_up("pid 7 inference")
    assert (rig.min_hz, rig.memory.hz) == (HIGHEST, HIGHEST)
    one.lower("idle")
    assert (rig.min_hz, rig.memory.hz) == (LOWEST, None)
    assert rig.said == ["floor 1020 MHz (pid 7 inference)", "floor 306 MHz (idle)"]
    assert rig.board.written == [("gpu/min_freq", str(HIGHEST)), ("gpu/min_freq", str(LOWEST))]


def test_a_floor_that_is_raised_is_not_written_again(rig: Rig) -> None:
    one = rig.floor()
    for _ in range(5):
        one.keep_up("x")
    assert len(rig.board.written) == 1


def test_an_explicit_floor_is_one_of_the_table(rig: Rig) -> None:
    one = rig.floor(612_000_000)
    one.keep_up("x")
    assert rig.min_hz == 612_000_000
    with pytest.raises(faults.UserError, match=r"1000 MHz is not among .*\(306 408 .* 1020 MHz\)"):
        rig.floor(1_000_000_000)


def test_on_firmware_without_the_fast_clocks_an_explicit_floor_above_them_is_refused(rig: Rig) -> None:
    rig.board.device.table_end_hz = 624_750_000
    with pytest.raises(faults.UserError, match=r"1020 MHz is not among the GPU's frequencies .*624\.75 MHz"):
        rig.floor(HIGHEST)
    one = rig.floor()
    one.keep_up("x")
    assert rig.min_hz == 624_750_000


def test_the_floor_yields_to_a_ceiling_and_follows_it(rig: Rig) -> None:
    device = rig.board.device
    device.asked_max_khz = 650_000
    one = rig.floor()
    assert one.keep_up("x")
    assert rig.min_hz == 612_000_000
    assert any("ceiling max_freq is 650 MHz: below the floor of 1020 MHz" in line for line in rig.said)
    device.asked_max_khz = 0
    assert one.keep_up("x")
    assert rig.min_hz == HIGHEST
    device.thermal_max_hz = 408_000_000
    assert one.keep_up("x")
    assert one.foreign_hz is None
    device.thermal_max_hz = None
    assert one.keep_up("x")
    assert rig.min_hz == HIGHEST
    one.lower("idle")
    assert rig.min_hz == LOWEST
    assert all(path == "gpu/min_freq" for path, _ in rig.board.written)


def test_the_value_of_another_writer_is_reported_once_and_left_alone_until_it_goes(rig: Rig) -> None:
    one = rig.floor()
    rig.board.device.asked_min_khz = 714_000
    before = list(rig.board.written)
    for _ in range(3):
        assert not one.keep_up("x")
        one.lower("idle")
        one.watch_idle()
    assert rig.board.written == before
    assert one.foreign_hz == 714_000_000
    assert len([line for line in rig.said if "another program writes it" in line]) == 1
    rig.board.device.asked_min_khz = 0
    assert one.keep_up("x")
    assert one.foreign_hz is None
    assert rig.min_hz == HIGHEST


def test_a_writer_that_comes_while_the_floor_is_raised_keeps_its_value(rig: Rig) -> None:
    one = rig.floor()
    one.keep_up("x")
    rig.board.device.asked_min_khz = 510_000
    assert not one.keep_up("x")
    one.lower("idle")
    assert rig.min_hz == 510_000_000
    assert rig.memory.hz is None


def test_a_floor_that_a_crash_left_is_taken_back_and_somebody_elses_is_not(rig: Rig) -> None:
    rig.floor().keep_up("x")
    rig.floor()
    assert (rig.min_hz, rig.memory.hz) == (LOWEST, None)
    assert any("was left by a service that did not end well" in line for line in rig.said)
    rig.floor().keep_up("x")
    rig.board.device.asked_min_khz = 510_000
    assert rig.floor().foreign_hz == 510_000_000
    assert rig.min_hz == 510_000_000


def test_a_write_that_is_not_in_force_afterwards_is_an_error(rig: Rig) -> None:
    one = rig.floor()
    rig.board.broken = "ignores"
    with pytest.raises(faults.BoardError, match="1020 MHz was written to min_freq and 306 MHz is in force"):
        one.keep_up("x")
    rig.board.broken = ""
    assert one.keep_up("x")
    assert one.foreign_hz is None
    rig.board.broken = "refuses"
    with pytest.raises(faults.BoardError, match="it is broken"):
        one.lower("idle")
    rig.board.broken = ""
    one.lower("idle")
    assert rig.min_hz == LOWEST
    assert not [line for line in rig.said if "another program" in line]


@pytest.mark.parametrize("text", ["", "fast slow", "-1 2", "306000000,408000000"])
def test_a_table_that_is_none_is_said(text: str) -> None:
    with pytest.raises(faults.BoardError, match="no list of frequencies"):
        floor.parse_table(text)


def test_the_record_counts_only_in_the_boot_that_it_was_written_in(tmp_path: Path) -> None:
    kept = record.RecordFile(str(tmp_path))
    assert kept.get("gpu") is None
    kept.put("gpu", HIGHEST)
    assert record.RecordFile(str(tmp_path)).get("gpu") == HIGHEST
    assert kept.get("other") is None
    (tmp_path / "floor.json").write_text('{"node": "gpu", "hz": 1, "boot_id": "another"}')
    assert kept.get("gpu") is None
    (tmp_path / "floor.json").write_text("{")
    assert kept.get("gpu") is None
    kept.clear()
    kept.clear()


_DEED = st.one_of(
    st.sampled_from(["keep_up", "lower", "look", "crash", "refuses", "ignores", "works"]),
    st.tuples(st.just("min"), st.sampled_from([0, 306_000, 510_000, 999_999])),
    st.tuples(st.just("max"), st.sampled_from([0, 408_000, 650_000, 1_020_000])),
)


@settings_of(deadline=None)
@given(st.lists(_DEED, max_size=25))
def test_whatever_happens_only_own_values_are_taken_back_and_all_of_them(deeds: list) -> None:  # type: ignore[type-arg]
    rig = Rig()
    device, one = rig.board.device, rig.floor()
    foreign = False
    for deed in deeds:
        if isinstance(deed, tuple):
            if deed[0] == "min":
                device.asked_min_khz = deed[1]
                foreign = True
            else:
                device.asked_max_khz = deed[1]
        elif deed in ("refuses", "ignores", "works"):
            rig.board.broken = "" if deed == "works" else deed
        else:
            try:
                if deed == "crash":
                    one = rig.floor()
                elif deed == "keep_up":
                    one.keep_up("x")
                elif deed == "lower":
                    one.lower("idle")
                else:
                    one.watch_idle()
            except faults.BoardError:
                assert rig.board.broken
    assert all(path == "gpu/min_freq" for path, _ in rig.board.written)
    assert all(int(text) in GPU_HZ for _, text in rig.board.written)
    rig.board.broken, device.asked_max_khz = "", 0
    before = device.min_hz
    one.lower("idle")
    if not foreign:
        assert device.min_hz == LOWEST
    else:
        assert device.min_hz in (LOWEST, before)
    assert rig.memory.hz is None
