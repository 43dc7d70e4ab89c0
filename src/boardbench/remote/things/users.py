"""A user of the board, as /etc/passwd and /etc/group name it."""

from __future__ import annotations

import os
import re
from typing import Any

from ..failures import BAD_INPUT, RIG, Failure
from ..system import System
from . import Restored

_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")


def check_name(name: object) -> str:
    """The name itself, or Failure `bad-input`: it becomes an argument."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise Failure(BAD_INPUT, f"{str(name)[:80]!r} is not the name of a user or group", "user")
    return name


def parse_passwd(text: str, name: str) -> dict[str, Any] | None:
    """The user's line in /etc/passwd: uid, gid, home, shell; None without one."""
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[0] == name:
            return {"uid": int(fields[2]), "gid": int(fields[3]), "home": fields[5], "shell": fields[6]}
    return None


def parse_groups(text: str, name: str) -> list[str]:
    """The groups in /etc/group that list the user as a member, sorted."""
    found = []
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 4 and name in fields[3].split(","):
            found.append(fields[0])
    return sorted(found)


def read(name: str, system: System) -> dict[str, Any] | None:
    """The user as it is now, with its groups; None when there is none."""
    found = parse_passwd(_text(system, "passwd"), check_name(name))
    return dict(found, groups=parse_groups(_text(system, "group"), name)) if found else None


def _text(system: System, name: str) -> str:
    with open(os.path.join(system.places.etc, name), encoding="utf-8", errors="replace") as file:
        return file.read()


def run(argv: list[str], system: System) -> None:
    """Runs a tool of the user database; Failure `rig` with its words."""
    answer = system.run(argv, deadline_s=60.0)
    if answer.code != 0:
        raise Failure(RIG, f"{os.path.basename(argv[0])} ended with {answer.code}: {answer.last_lines()}", "user")


def snapshot(name: str, system: System) -> dict[str, Any]:
    """The user or null, and whether the home folder that it would get is there already."""
    user = read(name, system)
    home = user["home"] if user else f"/home/{name}"
    return {"user": user, "home_existed": os.path.lexists(system.places.at(home))}


def describe(user: dict[str, Any] | None) -> str:
    """A user in words."""
    if user is None:
        return "absent"
    return f"uid {user['uid']}, home {user['home']}, shell {user['shell']}, groups {','.join(user['groups']) or 'none'}"


def restore(name: str, state: dict[str, Any], system: System, _files: str) -> Restored:
    """Removes a user that we made (with the home that came with it), or gives one its old shell and groups."""
    now, wanted = read(name, system), state["user"]
    before = describe(now)
    if now == wanted:
        return Restored(before, before, True)
    try:
        if wanted is None:
            remove_home = [] if state["home_existed"] else ["--remove"]
            run(["/usr/sbin/userdel", *remove_home, name], system)
        elif now is None:
            return Restored(before, before, False, f"the user is gone; it was {describe(wanted)}")
        else:
            groups = ",".join(wanted["groups"])
            run(["/usr/sbin/usermod", "-d", wanted["home"], "-s", wanted["shell"], "-G", groups, name], system)
    except Failure as failure:
        return Restored(before, describe(read(name, system)), False, str(failure))
    now = read(name, system)
    good = now == wanted
    return Restored(before, describe(now), good, "" if good else f"it should be {describe(wanted)}")
