"""What the kernel's sysfs says now, found by type and name and never by number: numbers move between boots."""

from __future__ import annotations

import os
from typing import Any

from . import parsers, reading
from .places import Places
from .reading import Missing, Reading

_DEVFREQ_DEADLINE_S = 2.0
_SHUNT_SUM = "sum of shunt voltages"  # an ina3221 channel that is no rail


def thermal(places: Places) -> list[dict[str, Any]]:
    """Every thermal zone, unknown types too; one bad zone costs only its own reading."""
    base = os.path.join(places.sys, "class/thermal")
    zones = [name for name in reading.entries(base) if name.startswith("thermal_zone")]
    types = [reading.word(os.path.join(base, zone, "type")) or "unknown" for zone in zones]
    return [
        {"zone": zone, "type": kind, "name": name, "celsius": _zone_celsius(os.path.join(base, zone))}
        for zone, kind, name in zip(zones, types, parsers.numbered(types))
    ]


def _zone_celsius(zone: str) -> Reading:
    if reading.word(os.path.join(zone, "mode")) == "disabled":
        return {"missing": "zone disabled"}
    return reading.attempt(lambda: parsers.celsius(reading.text(os.path.join(zone, "temp"))))


def cpu_policies(places: Places) -> list[dict[str, Any]]:
    """Every cpufreq policy with its ladder."""
    base = os.path.join(places.sys, "devices/system/cpu/cpufreq")
    return [_policy(os.path.join(base, name), name) for name in reading.entries(base) if name.startswith("policy")]


def _policy(folder: str, name: str) -> dict[str, Any]:
    def value(file: str) -> Reading:
        return reading.number(os.path.join(folder, file))

    cpus = reading.word(os.path.join(folder, "related_cpus")) or reading.word(os.path.join(folder, "affected_cpus"))
    try:
        members = parsers.cpu_list(cpus or "")
    except Missing:
        members = []
    return {
        "policy": name,
        "cpus": members,
        "governor": reading.word(os.path.join(folder, "scaling_governor")),
        "cur_khz": value("scaling_cur_freq"),
        "min_khz": value("scaling_min_freq"),
        "max_khz": value("scaling_max_freq"),
        "hw_max_khz": value("cpuinfo_max_freq"),
        "available_khz": parsers.frequencies(reading.word(os.path.join(folder, "scaling_available_frequencies")) or ""),
    }


def devfreq(places: Places) -> list[dict[str, Any]]:
    """Every devfreq device; its reads happen apart, because some hang behind a stuck driver."""
    base = os.path.join(places.sys, "class/devfreq")
    names = reading.entries(base)
    if not names:
        return []
    files = ("governor", "cur_freq", "min_freq", "max_freq", "available_frequencies")
    found = reading.texts_apart([os.path.join(base, n, f) for n in names for f in files], _DEVFREQ_DEADLINE_S)
    devices = []
    for name in names:
        governor, cur, low, high, ladder = (found[os.path.join(base, name, file)] for file in files)
        node = reading.word(os.path.join(base, name, "device/of_node/name"))
        devices.append(
            {
                "name": name,
                "kind": parsers.devfreq_kind(name, node.strip("\0") if node else None),
                "governor": governor if isinstance(governor, str) else None,
                "cur_hz": reading.number_of(cur),
                "min_hz": reading.number_of(low),
                "max_hz": reading.number_of(high),
                "available_hz": parsers.frequencies(ladder) if isinstance(ladder, str) else [],
            }
        )
    return devices


def _hwmons(places: Places) -> list[tuple[str, str]]:
    base = os.path.join(places.sys, "class/hwmon")
    folders = [os.path.join(base, name) for name in reading.entries(base)]
    return [(folder, reading.word(os.path.join(folder, "name")) or os.path.basename(folder)) for folder in folders]


def fans(places: Places) -> list[dict[str, Any]]:
    """Every hwmon that steers a fan (`pwm1`) or counts its turns (`fan1_input`, or `rpm` as one driver names it)."""
    found = []
    for folder, name in _hwmons(places):
        pwm = os.path.join(folder, "pwm1")
        turns = [p for p in (os.path.join(folder, f) for f in ("fan1_input", "rpm")) if os.path.exists(p)]
        if not turns and not os.path.exists(pwm):
            continue
        rpm: Reading = reading.number(turns[0]) if turns else {"missing": "no tachometer here"}
        level: Reading = reading.number(pwm) if os.path.exists(pwm) else {"missing": "no pwm here"}
        found.append({"name": name, "pwm": level, "rpm": rpm})
    return found


def power_rails(places: Places) -> list[dict[str, Any]]:
    """The rails of every ina3221: it measures volts and amperes, the watts are their product."""
    rails = []
    for folder, name in _hwmons(places):
        if name != "ina3221":
            continue
        for channel in range(1, 8):
            label = reading.word(os.path.join(folder, f"in{channel}_label"))
            current = os.path.join(folder, f"curr{channel}_input")
            if not label or label == _SHUNT_SUM or not os.path.exists(current):
                continue
            volts = reading.number(os.path.join(folder, f"in{channel}_input"), 1e-3)
            amperes = reading.number(current, 1e-3)
            watts = parsers.watts(volts, amperes)
            rails.append({"label": label, "volts": volts, "amperes": amperes, "watts": watts})
    return rails


def input_volts(places: Places, rails: list[dict[str, Any]]) -> Reading:
    """The board's supply: a power supply that is no battery, else the rail that a Jetson calls VDD_IN."""
    base = os.path.join(places.sys, "class/power_supply")
    for name in sorted(reading.entries(base), key=lambda n: (n != "simple-vin", n)):
        path = os.path.join(base, name, "voltage_now")
        if reading.word(os.path.join(base, name, "type")) != "Battery" and os.path.exists(path):
            return reading.number(path, 1e-6)
    for rail in rails:
        if rail["label"] == "VDD_IN":
            volts: Reading = rail["volts"]
            return volts
    return {"missing": "no sensor for the input voltage"}


def links(places: Places) -> list[dict[str, Any]]:
    """Every network link but the loopback."""
    base = os.path.join(places.sys, "class/net")
    found = []
    for name in reading.entries(base):
        folder = os.path.join(base, name)
        if name == "lo" or not os.path.isdir(folder):
            continue
        speed = reading.attempt(lambda f=folder: parsers.link_speed(reading.text(os.path.join(f, "speed"))))  # type: ignore[misc]
        found.append(
            {
                "name": name,
                "speed_mbit_per_s": speed,
                "state": reading.word(os.path.join(folder, "operstate")) or "unknown",
            }
        )
    return found
