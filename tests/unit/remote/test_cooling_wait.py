"""A start temperature is waited for, and a board that does not get there says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import cooling_wait
from boardbench.remote.failures import Failure
from boardbench.remote.places import Places


@pytest.fixture
def zones(tmp_path: Path) -> Callable[..., Places]:
    """Writes zones as (type, text of temp)."""

    def write(*entries: tuple[str, str | None]) -> Places:
        for number, (kind, temp) in enumerate(entries):
            folder = tmp_path / f"sys/class/thermal/thermal_zone{number}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "type").write_text(kind + "\n")
            if temp is not None:
                (folder / "temp").write_text(temp)
        return Places(str(tmp_path))

    return write


def cool(**changes: Any) -> cooling_wait.Cool:
    values = {"zone_types": ["soc-thermal", "tj-thermal"], "below_celsius": 50.0, "timeout_s": 0.1}
    return cooling_wait.parse({**values, **changes})


def test_a_cool_board_goes_on_at_once(zones: Callable[..., Places]) -> None:
    told: list[str] = []
    found = cooling_wait.wait(zones(("cpu-thermal", "90000"), ("tj-thermal", "45000")), cool(), told.append, 0.01)
    assert found["ok"], found
    assert found["saw"]["zone_type"] == "tj-thermal"
    assert found["saw"]["last_celsius"] == 45.0
    assert found["saw"]["reads"] == 2


def test_the_first_wanted_type_that_is_there_counts(zones: Callable[..., Places]) -> None:
    found = cooling_wait.wait(
        zones(("tj-thermal", "45000"), ("soc-thermal", "80000")), cool(), lambda _text: None, 0.01
    )
    assert not found["ok"]
    assert found["why"] == "soc-thermal is at 80.0 degC after 0.1 s, below 50 degC was wanted"


def test_the_wait_ends_when_the_board_got_cool(zones: Callable[..., Places], tmp_path: Path) -> None:
    places = zones(("soc-thermal", "61200"))
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        (tmp_path / "sys/class/thermal/thermal_zone0/temp").write_text("49900\n")

    found = cooling_wait.wait(places, cool(timeout_s=10.0), tell, 0.01)
    assert found["ok"]
    assert told == ["61.2 -> 61.2 degC, below 50 wanted"]
    assert found["saw"]["first_celsius"] == found["saw"]["highest_celsius"] == 61.2


def test_the_limit_itself_is_not_below(zones: Callable[..., Places]) -> None:
    assert not cooling_wait.wait(zones(("soc-thermal", "50000")), cool(), lambda _text: None, 0.01)["ok"]


def test_the_hottest_zone_of_a_type_counts(zones: Callable[..., Places]) -> None:
    places = zones(("soc-thermal", "40000"), ("soc-thermal", "70000"))
    assert not cooling_wait.wait(places, cool(), lambda _text: None, 0.01)["ok"]


def test_a_board_without_the_zone_says_what_it_has(zones: Callable[..., Places]) -> None:
    found = cooling_wait.wait(zones(("gpu-thermal", "40000")), cool(), lambda _text: None, 0.01)
    assert not found["ok"]
    assert found["why"] == "the board has no thermal zone of type soc-thermal or tj-thermal"
    assert found["saw"]["zone_types"] == ["gpu-thermal"]


@pytest.mark.parametrize("temp", [None, "", "-256000"])
def test_a_temperature_that_cannot_be_read_is_not_cold(zones: Callable[..., Places], temp: str | None) -> None:
    found = cooling_wait.wait(zones(("soc-thermal", temp)), cool(), lambda _text: None, 0.01)
    assert not found["ok"]
    assert "could not be read" in found["why"]
    assert set(found["saw"]["last_celsius"]) == {"missing"}


@pytest.mark.parametrize("change", [{"zone_types": []}, {"below_celsius": None}, {"timeout_s": "3"}])
def test_a_wait_without_its_limits_is_bad_input(change: dict[str, Any]) -> None:
    with pytest.raises(Failure) as error:
        cool(**change)
    assert error.value.fault == "bad-input"
