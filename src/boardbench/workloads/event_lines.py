"""Raw files of event lines, a JSON object a line as a board wrote them, read strictly; and the numbers in them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boardbench.errors import InputError

STAMP = ("wall_unix_s", "monotonic_s", "boottime_s")


def read_events(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Every event with its place (`file:line`). Raises InputError for a file that is missing, and for what is no event.

    What stands after the last newline is a line that a dying writer did not finish: it is no event.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("is missing", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8", where=str(path)) from error
    found: list[tuple[str, dict[str, Any]]] = []
    for at, line in enumerate(text.split("\n")[:-1], start=1):
        where = f"{path}:{at}"
        try:
            event = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"is not JSON: {error.msg}", where=where) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"is not JSON that can be read: {error}", where=where) from error
        if not isinstance(event, dict):
            raise InputError("is not an object", where=where)
        found.append((where, event))
    return found


def finite(value: object, name: str, where: str) -> float:
    """The value as a number. Raises InputError, which calls it `name`, for any other value, NaN and infinity too."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} is not a number", where=where)
    return float(value)


def number(event: Mapping[str, Any], key: str, where: str) -> float:
    """The finite number under a key. Raises InputError."""
    return finite(event.get(key), key, where)


def stamp(event: Mapping[str, Any], where: str) -> dict[str, float]:
    """The event's stamp, in seconds by each of the board's clocks. Raises InputError."""
    found = event.get("stamp")
    if not isinstance(found, dict):
        raise InputError("the event has no stamp", where=where)
    return {key: number(found, key, where) for key in STAMP}
