"""The `fan` verb: what a board's fan does now. It only looks; the fan is set by steps, under a scope."""

from __future__ import annotations

import time
from typing import Any

from . import fan_nodes, programs, reading, services
from .failures import BAD_INPUT, Failure
from .wire import Call

ARGUMENTS = {"hwmon", "path", "tachometer", "zone", "units", "apart_s", "read"}
_READ_DEADLINE_S = 60.0


def fan(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """`{"pwm", "rpm": [READING, READING] | null, "policy", "units": [...], "read"}`; what is not asked for is null.

    `apart_s`: seconds between the two looks at the tachometer. `read`: a command of the inventory that prints the
    phase it sees; it must only look.
    """
    unknown = set(args) - ARGUMENTS
    if unknown:
        raise Failure(BAD_INPUT, f"unknown argument {', '.join(sorted(unknown))}", "fan")
    found: dict[str, Any] = {"pwm": None, "rpm": None, "policy": None, "units": [], "read": None}
    if args.get("tachometer") is not None:
        found["rpm"] = _turns(str(args["tachometer"]), args.get("apart_s", 5.0), call)
    if args.get("hwmon") is not None or args.get("path") is not None:
        found["pwm"] = reading.number(call.places.at(fan_nodes.level_node(args, call.places)))
    if args.get("zone") is not None:
        found["policy"] = reading.word(call.places.at(fan_nodes.policy_node(str(args["zone"]), call.places)))
    if args.get("units"):
        found["units"] = _units(args["units"], call)
    if args.get("read") is not None:
        found["read"] = _said(args["read"], call)
    return found


def _turns(tachometer: str, apart_s: Any, call: Call) -> list[Any]:
    """Twice, apart: one look may fall into the seconds in which a fan runs down."""
    if isinstance(apart_s, bool) or not isinstance(apart_s, (int, float)) or not 0 <= apart_s <= 60:
        raise Failure(BAD_INPUT, f"apart_s is {apart_s!r:.80}", "fan", "seconds from 0 to 60")
    node = call.places.at(fan_nodes.turns_node(tachometer, call.places))
    first = reading.number(node)
    time.sleep(apart_s)
    return [first, reading.number(node)]


def _units(names: Any, call: Call) -> list[dict[str, Any]]:
    if not isinstance(names, list):
        raise Failure(BAD_INPUT, f"units is {names!r:.80}", "fan", "a list of names")
    manager = services.detect(call.places)
    states = [(str(name), manager.state(str(name))) for name in names]
    return [{"unit": name, "exists": state.exists, "active": state.active} for name, state in states]


def _said(argv: Any, call: Call) -> str:
    if not isinstance(argv, list) or not argv or not str(argv[0]).startswith("/"):
        raise Failure(BAD_INPUT, f"read is {argv!r:.80}", "fan", "a list that begins with an absolute path")
    words = [str(word) for word in argv]
    answer = programs.run(words, deadline_s=min(_READ_DEADLINE_S, call.remaining_s()))
    if answer.code != 0:
        raise Failure("rig", f"ended with exit code {answer.code}: {answer.last_lines()}", words[0])
    return answer.output.strip()
