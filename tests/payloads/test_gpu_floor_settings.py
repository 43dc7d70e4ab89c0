"""The settings of the GPU floor service: what is taken, and that a mistake is named with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from .floor_parts import faults, settings
from .sensors import ROOT

DEFAULT = ROOT / "payloads/gpu-floor/gpu-floor.default"


def test_every_setting_is_read() -> None:
    text = """
# a comment
GPU_FLOOR_MHZ=624.75
GPU_FLOOR_HOLD_S=0.5   # with a comment
GPU_FLOOR_SEARCH_S=5
GPU_FLOOR_LIBRARIES="/a/libllama.so /b/*/libllama.so"
GPU_FLOOR_FLAGS='--cpu-moe --mine'
GPU_FLOOR_OVERRIDE_TENSOR=no
GPU_FLOOR_NODE=/sys/class/devfreq/x
GPU_FLOOR_BPFTRACE=/opt/bpftrace
"""
    assert settings.parse(text, "f") == settings.Settings(
        floor_hz=624_750_000,
        hold_s=0.5,
        search_s=5.0,
        libraries=("/a/libllama.so", "/b/*/libllama.so"),
        flags=("--cpu-moe", "--mine"),
        override_tensor=False,
        node="/sys/class/devfreq/x",
        bpftrace="/opt/bpftrace",
    )


def test_the_file_that_is_installed_says_the_defaults() -> None:
    assert settings.load(str(DEFAULT)) == settings.Settings()
    shown = [line[1:] for line in DEFAULT.read_text().splitlines() if line.startswith("#GPU_FLOOR_")]
    assert sorted(line.partition("=")[0] for line in shown) == sorted(settings.NAMES)
    without_example = "\n".join(line for line in shown if "LIBRARIES" not in line)
    assert settings.parse(without_example, "f") == settings.Settings()


def test_without_a_file_the_defaults_count(tmp_path: Path) -> None:
    assert settings.load(str(tmp_path / "none")) == settings.Settings()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("GPU_FLOOR_MHZ=fast", "GPU_FLOOR_MHZ is 'fast'; give 'highest' or a number of MHz such as 1020"),
        ("GPU_FLOOR_MHZ=1020000000", "give 'highest' or a number of MHz"),
        ("GPU_FLOOR_HOLD_S=nan", "GPU_FLOOR_HOLD_S is 'nan'; give seconds from 0 to 3600"),
        ("GPU_FLOOR_HOLD_S=-1", "give seconds from 0 to 3600"),
        ("GPU_FLOOR_SEARCH_S=0", "give seconds from 0.2 to 60"),
        ("GPU_FLOOR_LIBRARIES=libllama.so", "'libllama.so' is no absolute path"),
        ("GPU_FLOOR_FLAGS=cpu-moe", "'cpu-moe' is no command line flag"),
        ("GPU_FLOOR_FLAGS=", "give at least one flag"),
        ("GPU_FLOOR_OVERRIDE_TENSOR=true", "give 'yes' or 'no'"),
        ("GPU_FLOOR_NODE=17000000.gpu", "give 'auto' or the absolute path"),
        ("GPU_FLOOR_BPFTRACE=", "give the name or the path of bpftrace"),
        ("GPU_FLOOR_MHZ", "write NAME=value"),
        ("GPU_FLOOR_MHZ = 1020", "write NAME=value without spaces"),
        ("GPU_FLOOR_MZH=1020", "unknown setting 'GPU_FLOOR_MZH'; did you mean GPU_FLOOR_MHZ?"),
        ("colour=red", "the settings are GPU_FLOOR_MHZ"),
        ('GPU_FLOOR_FLAGS="--cpu-moe', "close its quotes"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(line: str, said: str) -> None:
    with pytest.raises(faults.UserError) as caught:
        settings.parse(f"\n# comment\n{line}\n", "/etc/default/gpu-floor")
    assert str(caught.value).startswith("/etc/default/gpu-floor:3: ")
    assert said in str(caught.value)


def test_a_setting_that_is_given_twice_is_refused() -> None:
    with pytest.raises(faults.UserError, match=r"f:2: GPU_FLOOR_MHZ was given already in line 1"):
        settings.parse("GPU_FLOOR_MHZ=306\nGPU_FLOOR_MHZ=1020\n", "f")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(faults.UserError, match="it is no UTF-8 text"):
        settings.load(str(tmp_path / "f"))


@settings_of(deadline=None)
@given(st.text())
def test_any_text_is_settings_or_a_mistake_with_its_line(text: str) -> None:
    said = ""
    try:
        settings.parse(text, "f")
    except faults.UserError as error:
        said = str(error)
    assert not said or said.startswith("f:")
