"""A package of the distribution, as dpkg knows it."""

from __future__ import annotations

import os
import re
from typing import Any

from ..failures import RIG, Failure
from ..programs import Answer
from ..system import System
from . import Restored

_LOCK_TIMEOUT_S = 60
_APT = ["/usr/bin/apt-get", "-y", "-q", "-o", f"DPkg::Lock::Timeout={_LOCK_TIMEOUT_S}", "-o", "Dpkg::Use-Pty=0"]
_ENV = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l", "APT_LISTCHANGES_FRONTEND": "none"}
_SIMULATED = re.compile(r"^(Inst|Remv|Purg) (\S+)", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?\Z")
_OFFLINE = (
    ("Temporary failure resolving", "the board has no name resolution: is it offline?"),
    ("Could not connect", "the board does not reach the package server: is it offline?"),
    ("Failed to fetch", "the board cannot fetch from the package server: is it offline?"),
)
_HINTS = (
    *_OFFLINE,
    ("Unable to locate package", "is its source listed?"),
    ("Could not get lock", "another package manager runs on the board"),
    ("No space left", "make room on the board"),
    ("has no installation candidate", "no listed source has it"),
)


def check_name(name: object) -> str:
    """The name itself, or Failure `bad-input`: it becomes an argument."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise Failure("bad-input", f"{str(name)[:80]!r} is not the name of a package", "package")
    return name


def parse_query(output: str) -> str | None:
    """The version in `dpkg-query -W -f '${db:Status-Status} ${Version}\\n'`; None unless it is fully installed."""
    for line in output.splitlines():
        status, _, version = line.strip().partition(" ")
        if status == "installed" and version:
            return version
    return None


def installed(name: str, system: System) -> str | None:
    """The installed version, or None."""
    answer = system.run(["/usr/bin/dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}\\n", check_name(name)])
    return parse_query(answer.output) if answer.code == 0 else None


def apt(arguments: list[str], system: System) -> Answer:
    """One run of apt-get. Failure `rig` with its last words and what they usually mean."""
    answer = system.run([*_APT, *arguments], deadline_s=1800.0, env=_ENV)
    if answer.code != 0:
        hint = next((advice for word, advice in _HINTS if word in answer.output), "see the board's apt log")
        verb = next(word for word in arguments if not word.startswith("-"))
        raise Failure(RIG, f"apt-get {verb} ended with {answer.code}: {answer.last_lines()}", "package", hint)
    return answer


def update_lists(system: System) -> None:
    """Updates the package lists. Failure `rig` also when apt shrugs a server off that it could not reach (exit 0)."""
    answer = apt(["update"], system)
    for word, advice in _OFFLINE:
        if word in answer.output:
            raise Failure(RIG, f"the package lists could not be updated: {answer.last_lines(2)}", "package", advice)


def parse_simulation(output: str) -> list[tuple[str, str]]:
    """What `apt-get -s` says that it would do: (`Inst` | `Remv` | `Purg`, package), in its order."""
    return [(match.group(1), match.group(2)) for match in _SIMULATED.finditer(output)]


def snapshot(name: str, system: System) -> dict[str, Any]:
    """The version that is installed, or null; and whether dpkg still holds configuration of it."""
    version = installed(name, system)
    known = os.path.exists(system.places.at(f"/var/lib/dpkg/info/{name.partition(':')[0]}.list"))
    return {"version": version, "configuration": known and version is None}


def restore(name: str, state: dict[str, Any], system: System, _files: str) -> Restored:
    """Purges a package that was not there, unless others need it by now; brings one back that was there."""
    now = installed(name, system)
    before = now or "absent"
    wanted = state["version"]
    if now == wanted:
        return Restored(before, before, True)
    try:
        if wanted is None:
            verb = "remove" if state.get("configuration") else "purge"
            planned = parse_simulation(apt(["-s", verb, name], system).output)
            others = [package for _, package in planned if package != name.partition(":")[0]]
            if others:
                return Restored(before, before, False, f"it stays, these need it: {', '.join(others[:5])}")
            apt([verb, name], system)
        else:
            apt(["install", "--no-install-recommends", "--allow-downgrades", f"{name}={wanted}"], system)
    except Failure as failure:
        return Restored(before, installed(name, system) or "absent", False, str(failure))
    after = installed(name, system)
    good = after == wanted
    return Restored(before, after or "absent", good, "" if good else f"it should read {wanted or 'absent'}")
