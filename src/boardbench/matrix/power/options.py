"""From what the inventory says to a switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boardbench.errors import InputError
from boardbench.inventory import Board
from boardbench.matrix.power import web
from boardbench.matrix.power.command import CommandSwitch
from boardbench.matrix.power.shelly import Shelly
from boardbench.matrix.power.switch import Switch
from boardbench.matrix.power.tasmota import Tasmota
from boardbench.yamlfile import did_you_mean

DEVICES = ("shelly", "tasmota")


def words(options: Mapping[str, Any], name: str, driver: str, where: str) -> tuple[str, ...]:
    """A command line of the inventory. Raises InputError."""
    value = options.get(name)
    if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        raise InputError(f"{driver} needs '{name}', a list of words", where=where)
    return tuple(value)


def http_switch(options: Mapping[str, Any], driver: str, where: str) -> Switch:
    """The socket that `device`, `address`, `channel` and `timeout_s` name. Raises InputError."""
    device = options.get("device")
    if device not in DEVICES:
        raise InputError(
            f"{driver} needs 'device', and '{device}' is none that it knows",
            where=where,
            advice=did_you_mean(str(device), DEVICES, kind="devices"),
        )
    address = web.check_address(options.get("address"), where)
    timeout_s = float(options.get("timeout_s", web.DEFAULT_TIMEOUT_S))
    if device == "shelly":
        return Shelly(address, int(options.get("channel", 0)), timeout_s, where)
    return Tasmota(address, int(options.get("channel", 1)), timeout_s, where)


def power_of(board: Board) -> Switch | None:
    """The switch of a board's power; None when the inventory gives it none. Raises InputError."""
    if board.power is None:
        return None
    name, options = board.power.driver, board.power.options
    if name == "http":
        return http_switch(options, "power driver http", board.where)
    if name == "command":
        on, off, read = (words(options, key, "power driver command", board.where) for key in ("on", "off", "read"))
        return CommandSwitch(on, off, read, board.name)
    if name == "virtual":
        raise InputError(
            "the power of a virtual board is switched through its fleet, and there is none", where=board.where
        )
    raise InputError(
        f"unknown power driver '{name}'",
        where=board.where,
        advice=did_you_mean(name, ["command", "http"], kind="drivers"),
    )
