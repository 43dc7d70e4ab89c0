#!/usr/bin/env python3
"""nvpmodel of a virtual Jetson: -q shows the power mode, -m ID sets it by /etc/nvpmodel.conf."""

from __future__ import annotations

import os
import re
import sys
from typing import Dict, Iterator, List, NamedTuple, NoReturn, Tuple  # noqa: UP035  boards run old Pythons, too

CONF = os.environ.get("NVPMODEL_CONF", "/etc/nvpmodel.conf")
ROOT = os.environ.get("NVPMODEL_ROOT", "")
STATUS = ROOT + "/var/lib/nvpmodel/status"
# The kit as it is set up for measuring; without the status file its tool would fall back to PM_CONFIG DEFAULT.
AT_POWER_ON = 2


class Mode(NamedTuple):
    """A power mode and its settings: (parameter, argument, value), in file order."""

    name: str
    settings: List[Tuple[str, str, str]]  # noqa: UP006


Paths = Dict[str, Dict[str, str]]  # noqa: UP006


def fail(message: str, code: int = 255) -> NoReturn:
    """End as the tool does."""
    print(f"NVPM ERROR: {message}", file=sys.stderr)
    sys.exit(code)


def read_conf(path: str) -> tuple[Paths, dict[int, Mode], int]:
    """Paths by parameter and argument, modes by id, and the default id."""
    paths: Paths = {}
    modes: dict[int, Mode] = {}
    default = 0
    place: dict[str, str] = {}
    settings: list[tuple[str, str, str]] = []
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        fail(f"Error opening {path}: {error.errno}")
    for raw in lines:
        line = raw.split("#", 1)[0].strip()
        head = re.match(r"<\s*(PARAM|POWER_MODEL|PM_CONFIG)\s+(.*?)\s*>$", line)
        words = line.split()
        if head:
            about = dict(word.split("=", 1) for word in head.group(2).split())
            if head.group(1) == "PARAM":
                place = paths.setdefault(about["NAME"], {})
            elif head.group(1) == "POWER_MODEL":
                settings = []
                modes[int(about["ID"])] = Mode(about["NAME"], settings)
            else:
                default = int(about["DEFAULT"])
        elif len(words) == 2:
            place[words[0]] = words[1]
        elif len(words) == 3:
            settings.append((words[0], words[1], words[2]))
        elif words:
            fail(f"bad line in {path}: {line}")
    return paths, modes, default


def current(modes: dict[int, Mode], default: int) -> int:
    """The mode that was set last, else the one at power-on."""
    try:
        with open(STATUS, encoding="ascii") as file:
            found = re.search(r"pmode:(\d+)", file.read())
    except OSError:
        found = None
    number = int(found.group(1)) if found else AT_POWER_ON
    return number if number in modes else default


def read_value(path: str) -> str | None:
    """A kernel file's text, or None."""
    try:
        with open(ROOT + path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def write_value(path: str, value: str) -> None:
    """Write a kernel file."""
    try:
        with open(ROOT + path, "w", encoding="ascii") as file:
            file.write(value)
    except FileNotFoundError:
        # Not every sandbox can show every folder of the kernel.
        print(f"NVPM WARN: Error opening {path}: 2", file=sys.stderr)
    except OSError as error:
        fail(f"Error writing {value} to {path}: {error.errno}")


def values(paths: Paths, mode: Mode) -> Iterator[tuple[str, str]]:
    """(path, text) in file order; -1 stands for the end of the table."""
    for parameter, argument, value in mode.settings:
        places = paths.get(parameter, {})
        if argument not in places:
            fail(f"unknown parameter {parameter} {argument}")
        if value == "-1":
            table = read_value(places["FREQ_TABLE"]) if "FREQ_TABLE" in places else None
            value = table.split()[-1] if table else "0"
        yield places[argument], value


def show(paths: Paths, modes: dict[int, Mode], number: int, verbose: bool) -> None:
    """Print what -q prints."""
    print(f"NV Power Mode: {modes[number].name}")
    print(number)
    if not verbose:
        return
    print(f"NVPM VERB: Config file: {CONF}")
    for parameter, argument, value in modes[number].settings:
        path = paths.get(parameter, {}).get(argument, "")
        wanted = "9223372036854775807" if value == "-1" else value
        print(
            f"NVPM VERB: PARAM {parameter}: ARG {argument}: PATH {path}: "
            f"REAL_VAL: {read_value(path)} CONF_VAL: {wanted}"
        )


def cores(mode: Mode) -> list[str]:
    """Which cores a mode has on; a change of them needs a reboot."""
    return [value for parameter, _, value in mode.settings if parameter == "CPU_ONLINE"]


def ask_reboot(number: int) -> None:
    """Return when the user wants the reboot; end the program otherwise."""
    print("NVPM WARN: Golden image context is already created")
    print(f"NVPM WARN: Reboot required for changing to this power mode: {number}")
    print("NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:", flush=True)
    answer = sys.stdin.readline()
    if not answer:
        fail("bad input!", 234)
    if answer.strip() not in ("YES", "yes"):
        fail("optMask is 1, no request for power mode", 234)


def remember(number: int) -> None:
    """Keep the mode for the next -q."""
    os.makedirs(os.path.dirname(STATUS), exist_ok=True)
    with open(STATUS + ".new", "w", encoding="ascii") as file:
        file.write(f"pmode:{number:04d}\n")
    os.replace(STATUS + ".new", STATUS)


def main(argv: list[str]) -> int:
    """The command line."""
    paths, modes, default = read_conf(CONF)
    verbose = "--verbose" in argv
    words = [word for word in argv if word != "--verbose"]
    now = current(modes, default)
    if words in (["-q"], ["--query"]):
        show(paths, modes, now, verbose)
        return 0
    if len(words) != 2 or words[0] not in ("-m", "--mode") or not words[1].isdigit():
        print("usage: nvpmodel -q [--verbose] | -m ID", file=sys.stderr)
        return 1
    number = int(words[1])
    if number not in modes:
        fail(f"Invalid power mode: {number}")
    if os.geteuid() != 0:
        fail(f"Error opening {STATUS}: 13")
    if cores(modes[now]) != cores(modes[number]):
        ask_reboot(number)
    for path, value in values(paths, modes[number]):
        write_value(path, value)
    remember(number)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
