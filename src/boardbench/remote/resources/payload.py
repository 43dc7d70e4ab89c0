"""`payload`: a folder of files with units and settings, installed whole, known by a record, gone without a trace."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Iterator

from ..failures import BAD_INPUT, RIG, Failure
from ..plans import Change, Plan
from ..system import System
from ..things import paths
from . import absent, absolute, access, check
from . import unit as unit_resource

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")
_HEALTH_DEADLINE_S = 60.0
_SPARE_BYTES = 16 * 1024 * 1024
SETTINGS = "settings.json"


def _checked(args: dict[str, Any]) -> dict[str, Any]:
    check(
        args,
        ["name", "root"],
        ["version_sha256", "files", "units", "settings", "health", "conflicts", "harness", "libraries"],
    )
    if not isinstance(args["name"], str) or not _NAME.match(args["name"]):
        raise Failure(BAD_INPUT, f"{str(args['name'])[:80]!r} is not the name of a payload", "args")
    if not absent(args) and not isinstance(args.get("version_sha256"), str):
        raise Failure(BAD_INPUT, "argument version_sha256 is missing", "args")
    for file in args.get("files") or []:
        path = str(file.get("path", ""))
        if not path or path.startswith("/") or ".." in path.split("/") or os.path.normpath(path) != path:
            raise Failure(BAD_INPUT, f"file {path!r} is not a plain path inside the payload", "args")
    absolute(args, "root")
    return args


def record_path(name: str, system: System) -> str:
    """Where the record of an installed payload lies, as the board names it."""
    return system.places.on_board(os.path.join(system.places.payload_records, name + ".json"))


def read_record(name: str, system: System) -> dict[str, Any] | None:
    """What was installed under this name; None when nothing was, or its record is damaged (then it is made again)."""
    try:
        with open(system.places.at(record_path(name, system)), encoding="utf-8") as file:
            record = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _wanted(args: dict[str, Any]) -> Iterator[tuple[str, str | None, str, bytes | None]]:
    """Every file as (path, hash, mode, content): `content` only for what is made here."""
    for file in args.get("files") or []:
        yield os.path.join(args["root"], file["path"]), str(file["blob"]), str(file.get("mode", "0644")), None
    if args.get("settings"):
        content = (json.dumps(args["settings"], sort_keys=True, indent=2, allow_nan=False) + "\n").encode()
        yield os.path.join(args["root"], SETTINGS), None, "0644", content


def _file_changes(args: dict[str, Any], system: System) -> list[Change]:
    import hashlib

    changes = []
    for path, sha, mode, content in _wanted(args):
        want = sha or hashlib.sha256(content or b"").hexdigest()
        state = paths.current(path, system)
        if state["type"] != "file" or state["sha256"] != want:
            changes.append(Change(path, paths.describe(state), f"file {want[:12]} {mode}"))
        else:
            changes += access.differences(path, state, access.Access(int(mode, 8), -1, -1))
    return changes


def _obsolete(args: dict[str, Any], system: System) -> list[str]:
    """Files of the version before that this one does not have any more."""
    record = read_record(args["name"], system)
    wanted = {path for path, _, _, _ in _wanted(args)}
    old = [os.path.join(record["root"], name) for name in record.get("files", {})] if record else []
    return [path for path in old if path not in wanted and os.path.lexists(system.places.at(path))]


def _unit_args(entry: dict[str, Any]) -> dict[str, Any]:
    # `active: false` means `not started by the installation`: a run may have started it meanwhile.
    wanted = {key: entry[key] for key in ("name", "blob", "size", "content", "enabled") if entry.get(key) is not None}
    return dict(wanted, active=True) if entry.get("active") else wanted


def _active_conflicts(args: dict[str, Any], system: System) -> list[str]:
    return [str(name) for name in args.get("conflicts") or [] if system.services.state(str(name)).active]


def plan(args: dict[str, Any], system: System) -> Plan:
    """The files, units and the record that differ."""
    _checked(args)
    record = read_record(args["name"], system)
    root = absolute(args, "root")
    if absent(args):
        if record is None and not os.path.lexists(system.places.at(root)):
            return Plan()
        return Plan((Change(f"payload {args['name']}", (record or {}).get("version_sha256", "?")[:12], "absent"),))
    changes = _file_changes(args, system)
    changes += [Change(path, "file", "absent") for path in _obsolete(args, system)]
    for entry in args.get("units") or []:
        changes += unit_resource.plan(_unit_args(entry), system).changes
    if record != _record(args):
        before = (record or {}).get("version_sha256", "absent")[:12]
        changes.append(Change(f"payload {args['name']} version", before, args["version_sha256"][:12]))
    message = ""
    if changes and args.get("conflicts"):
        active = _active_conflicts(args, system)
        message = f"conflicting units are active now: {', '.join(active)}" if active else ""
    return Plan(tuple(changes), message=message)


def _record(args: dict[str, Any]) -> dict[str, Any]:
    record = {
        "name": args["name"],
        "version_sha256": args["version_sha256"],
        "root": args["root"],
        "files": {os.path.relpath(path, args["root"]): sha for path, sha, _, _ in _wanted(args)},
        "units": [entry["name"] for entry in args.get("units") or []],
        "settings": args.get("settings"),
        "conflicts": args.get("conflicts") or [],
        "harness": args.get("harness") or {"executables": [], "scripts": [], "units": []},
    }
    # Which Python libraries these files are, and for which Python: `look` says so before a campaign.
    return dict(record, libraries=args["libraries"]) if args.get("libraries") else record


def blobs(args: dict[str, Any], system: System) -> list[str]:
    """The contents that are not on the board yet. Failure `rig` when the disk has no room for them."""
    if absent(args):
        return []
    lacking = [str(sha) for path, sha, _, _ in _wanted(args) if sha and _hash(path, system) != sha]
    for entry in args.get("units") or []:
        lacking += unit_resource.blobs(_unit_args(entry), system)
    _check_room(args, set(lacking), system)
    return lacking


def _hash(path: str, system: System) -> str | None:
    found: str | None = paths.current(path, system).get("sha256")
    return found


def _check_room(args: dict[str, Any], lacking: set[str], system: System) -> None:
    root = absolute(args, "root")
    existing = system.places.at(root)
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    found = os.statvfs(existing)
    free = found.f_bavail * found.f_frsize
    # Once as a blob that arrives, once in its place.
    size = 2 * sum(int(file.get("size", 0)) for file in args.get("files") or [] if file["blob"] in lacking)
    if lacking and free < size + _SPARE_BYTES:
        raise Failure(RIG, f"{size} bytes are to be installed and {free} are free", root, "make room on the board")


def apply(args: dict[str, Any], system: System) -> None:
    """Installs what differs; refuses while a conflicting unit runs or the disk has no room."""
    _checked(args)
    if absent(args):
        return _remove(args, system)
    active = _active_conflicts(args, system)
    if active:
        raise Failure(
            RIG, f"{', '.join(active)} is active and conflicts with it", str(args["name"]), "stop that unit first"
        )
    files_changed = bool(_file_changes(args, system)) or bool(_obsolete(args, system))
    _make_root(args, system)
    _install_files(args, system)
    for entry in args.get("units") or []:
        _install_unit(entry, files_changed, system)
    record = record_path(args["name"], system)
    access.make_parents(record, system)
    system.note("path", record)
    content = json.dumps(_record(args), sort_keys=True, indent=2).encode() + b"\n"
    paths.write(system.places.at(record), content, 0o644, 0 if os.geteuid() == 0 else -1, -1)
    return None


def _make_root(args: dict[str, Any], system: System) -> None:
    root = absolute(args, "root")
    here = system.places.at(root)
    access.make_parents(root, system)
    if not os.path.lexists(here):
        system.note("tree", root)
        os.mkdir(here, 0o755)
        os.chmod(here, 0o755)
    if not os.path.isdir(here):
        raise Failure(RIG, "there is a file where the payload's folder should be", root, "move it away")


def _install_files(args: dict[str, Any], system: System) -> None:
    ours = system.noted("tree", absolute(args, "root"))
    wanted = list(_wanted(args))
    lacking = [sha for path, sha, _, _ in wanted if sha and _hash(path, system) != sha]
    blob_of = dict(zip(lacking, system.blobs(lacking))) if lacking else {}
    for path, sha, mode, content in wanted:
        if not ours:
            access.make_parents(path, system)
            system.note("path", path)
        here = system.places.at(path)
        os.makedirs(os.path.dirname(here), mode=0o755, exist_ok=True)
        if content is not None or sha in blob_of:
            new = content if content is not None else blob_of[str(sha)]
            paths.write(here, new, int(mode, 8), 0 if os.geteuid() == 0 else -1, -1)
        else:
            paths.own(here, int(mode, 8), -1, -1)
    for path in _obsolete(args, system):
        if not ours:
            system.note("path", path)
        os.unlink(system.places.at(path))


def _install_unit(entry: dict[str, Any], files_changed: bool, system: System) -> None:
    wanted = _unit_args(entry)
    was_active = system.services.state(str(entry["name"])).active
    changes = unit_resource.plan(wanted, system).changes
    if changes:
        unit_resource.apply(wanted, system)
    elif files_changed and was_active:
        # The unit is as wanted, but it still runs the files of the version before.
        system.note("unit", str(entry["name"]))
        system.services.restart(str(entry["name"]))
        unit_resource.settle(str(entry["name"]), system)


def _remove(args: dict[str, Any], system: System) -> None:
    record = read_record(args["name"], system)
    names = {str(entry["name"]) for entry in args.get("units") or []} | set((record or {}).get("units", []))
    for name in sorted(names):
        removal = {"name": name, "state": "absent"}
        if unit_resource.plan(removal, system).changes:
            unit_resource.apply(removal, system)
    _remove_root(absolute(args, "root"), system)
    path = record_path(args["name"], system)
    if record is not None:
        system.note("path", path)
        os.unlink(system.places.at(path))


def _remove_root(root: str, system: System) -> None:
    here = system.places.at(root)
    if not os.path.lexists(here):
        return
    if not system.noted("tree", root):
        # Not made in this scope: each path is noted, folders before what is in them.
        system.note("path", root)
        for folder, folders, files in os.walk(here):
            for name in sorted(folders) + sorted(files):
                system.note("path", system.places.on_board(os.path.join(folder, name)))
    import shutil

    shutil.rmtree(here)


def finish(args: dict[str, Any], system: System) -> None:
    """The payload says itself whether it is well: `health` must end with 0 within a minute."""
    if absent(args) or not args.get("health"):
        return
    root = system.places.at(absolute(args, "root"))
    argv = [str(word) for word in args["health"]]
    if "/" in argv[0] and not argv[0].startswith("/"):
        argv[0] = os.path.normpath(os.path.join(root, argv[0]))
    answer = system.run(argv, deadline_s=_HEALTH_DEADLINE_S, cwd=root)
    if answer.code != 0:
        raise Failure(RIG, f"its health check ended with {answer.code}: {answer.last_lines()}", str(args["name"]))
