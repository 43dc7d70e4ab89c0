"""The settings file: lines of NAME=value, as below /etc/default. Every mistake is named with file and line."""

from __future__ import annotations

import difflib
import math
import os
import shlex
from dataclasses import dataclass, replace
from typing import Callable

from .faults import UserError

PATH = "/etc/default/gpu-floor"
FLAGS = ("--cpu-moe", "-cmoe", "--n-cpu-moe", "-ncmoe")
PREFIX = "GPU_FLOOR_"


@dataclass(frozen=True)
class Settings:
    """What the service does. `floor_hz` None: the highest frequency of the table. Times in seconds."""

    floor_hz: int | None = None
    hold_s: float = 1.0
    search_s: float = 2.0
    libraries: tuple[str, ...] = ()
    flags: tuple[str, ...] = FLAGS
    override_tensor: bool = True
    node: str | None = None
    bpftrace: str = "bpftrace"


def _floor(text: str) -> int | None:
    if text == "highest":
        return None
    return round(_number(text, 1.0, 10000.0, "'highest' or a number of MHz such as 1020") * 1_000_000)


def _number(text: str, low: float, high: float, advice: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:  # also refuses NaN
        raise ValueError(f"give {advice}")
    return value


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _flags(text: str) -> tuple[str, ...]:
    words = _words(text)
    for word in words:
        if not word.startswith("-"):
            raise ValueError(f"'{word}' is no command line flag; give flags such as --cpu-moe, separated by spaces")
    if not words:
        raise ValueError(f"give at least one flag, such as {FLAGS[0]}")
    return words


def _libraries(text: str) -> tuple[str, ...]:
    words = _words(text)
    for word in words:
        if not word.startswith("/"):
            raise ValueError(f"'{word}' is no absolute path; give paths or patterns such as /opt/llama/*/libllama.so")
    return words


def _node(text: str) -> str | None:
    if text == "auto":
        return None
    if not text.startswith("/"):
        raise ValueError("give 'auto' or the absolute path of a devfreq folder")
    return text


def _yes_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("give 'yes' or 'no'")
    return text == "yes"


def _program(text: str) -> str:
    if not text:
        raise ValueError("give the name or the path of bpftrace")
    return text


# Name in the file -> field and how its text is read.
_KEYS: dict[str, tuple[str, Callable[[str], object]]] = {
    "MHZ": ("floor_hz", _floor),
    "HOLD_S": ("hold_s", lambda text: _number(text, 0.0, 3600.0, "seconds from 0 to 3600")),
    "SEARCH_S": ("search_s", lambda text: _number(text, 0.2, 60.0, "seconds from 0.2 to 60")),
    "LIBRARIES": ("libraries", _libraries),
    "FLAGS": ("flags", _flags),
    "OVERRIDE_TENSOR": ("override_tensor", _yes_no),
    "NODE": ("node", _node),
    "BPFTRACE": ("bpftrace", _program),
}
NAMES = tuple(PREFIX + key for key in _KEYS)


def parse(text: str, where: str) -> Settings:
    """The settings in `text`; UserError with `where`:line for the first mistake."""
    found: dict[str, object] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        at = f"{where}:{number}"
        name, sign, raw = stripped.partition("=")
        if not sign or name != name.strip():
            raise UserError(f"{at}: '{stripped[:60]}' is no setting; write NAME=value without spaces around '='")
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1, 0.5)
            known = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(NAMES)}"
            raise UserError(f"{at}: unknown setting '{name[:60]}'; {known}")
        if name in lines:
            raise UserError(f"{at}: {name} was given already in line {lines[name]}; remove one of them")
        lines[name] = number
        field, read = _KEYS[name[len(PREFIX) :]]
        value = _unquoted(raw, at, name)
        try:
            found[field] = read(value)
        except ValueError as error:
            raise UserError(f"{at}: {name} is '{value[:60]}'; {error}") from None
    return replace(Settings(), **found)  # type: ignore[arg-type]


def _unquoted(raw: str, at: str, name: str) -> str:
    try:
        return " ".join(shlex.split(raw, comments=True))
    except ValueError as error:
        raise UserError(f"{at}: the value of {name} cannot be read ({error}); close its quotes") from None


def load(path: str) -> Settings:
    """The settings of a file; the defaults when there is no such file. UserError when it cannot be read or is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read(), path)
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UserError(f"{path}: the settings cannot be read: {why}") from None


def stamp(path: str) -> tuple[int, int, int] | None:
    """Changes when the file does; None without a file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
