"""`user`: a user of the board, with shell, home and further groups."""

from __future__ import annotations

from typing import Any

from ..plans import Change, Plan
from ..system import System
from ..things import users
from . import absent, absolute, check

_LEFT_BEHIND = (".pwd.lock", "passwd-", "group-", "shadow-", "gshadow-", "subuid-", "subgid-")


def plan(args: dict[str, Any], system: System) -> Plan:
    """What differs. Groups are those that the user must be in; others are left alone."""
    check(args, ["name"], ["system", "home", "shell", "groups"])
    name = users.check_name(args["name"])
    now = users.read(name, system)
    if absent(args):
        return Plan() if now is None else Plan((Change(f"user {name}", users.describe(now), "absent"),))
    if now is None:
        return Plan((Change(f"user {name}", "absent", "system user" if args.get("system") else "user"),))
    changes = [
        Change(f"user {name} {key}", now[key], str(args[key]))
        for key in ("home", "shell")
        if args.get(key) is not None and args[key] != now[key]
    ]
    lacking = _lacking(args, now)
    if lacking:
        after = ",".join(sorted({*now["groups"], *lacking}))
        changes.append(Change(f"user {name} groups", ",".join(now["groups"]) or "none", after))
    return Plan(tuple(changes))


def _lacking(args: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [users.check_name(group) for group in args.get("groups") or [] if group not in now["groups"]]


def apply(args: dict[str, Any], system: System) -> None:
    """Makes, changes or removes the user."""
    name = users.check_name(args["name"])
    now = users.read(name, system)
    for name_left in _LEFT_BEHIND:
        # The tools leave a lock and copies of the user database behind. Noted before the user, so put back after it.
        system.note("path", f"/etc/{name_left}")
    system.note("user", name)
    if absent(args):
        users.run(["/usr/sbin/userdel", name], system)
        return
    options: list[str] = []
    if args.get("home") is not None:
        options += ["-d", absolute(args, "home")]
    if args.get("shell") is not None:
        options += ["-s", absolute(args, "shell")]
    if now is None:
        kind = ["--system"] if args.get("system") else ["--create-home"]
        groups = ",".join(users.check_name(group) for group in args.get("groups") or [])
        users.run(["/usr/sbin/useradd", *kind, *options, *(["-G", groups] if groups else []), name], system)
        return
    lacking = ",".join(_lacking(args, now))
    users.run(["/usr/sbin/usermod", *options, *(["-a", "-G", lacking] if lacking else []), name], system)
