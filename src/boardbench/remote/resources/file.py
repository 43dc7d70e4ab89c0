"""`file`: a file with its content (text or a blob), mode and owner; or its absence."""

from __future__ import annotations

import difflib
import hashlib
import os
from typing import Any

from ..failures import BAD_INPUT, RIG, Failure
from ..plans import Change, Plan
from ..system import System
from ..things import paths
from . import absent, absolute, access, check

DIFF_LINES = 200
_DIFF_BYTES = 256 * 1024


def wanted_hash(args: dict[str, Any]) -> str | None:
    """The SHA-256 that the content should have; None when only mode and owner are asked for."""
    if args.get("content") is not None and args.get("blob") is not None:
        raise Failure(BAD_INPUT, "both content and blob are given", "args", "one of them")
    if args.get("content") is not None:
        return hashlib.sha256(str(args["content"]).encode()).hexdigest()
    blob = args.get("blob")
    return None if blob is None else str(blob)


def plan(args: dict[str, Any], system: System) -> Plan:
    """What differs, with a unified diff when both contents are text and at hand."""
    check(args, ["path"], ["mode", "owner", "group", "content", "blob", "size"])
    path, wanted, sha = absolute(args), access.wanted(args), wanted_hash(args)
    state = paths.current(path, system)
    if absent(args):
        return Plan() if state["type"] == "absent" else Plan((Change(path, paths.describe(state), "absent"),))
    if state["type"] in ("directory", "special"):
        raise Failure(RIG, f"there is a {state['type']} where the file should be", path, "move it away")
    if state["type"] == "absent" and sha is None:
        raise Failure(RIG, "the file does not exist and no content is given for it", path)
    if state["type"] != "file":
        after = f"{access.describe_new('file', wanted, 0o644)} {(sha or '')[:12]}"
        return Plan((Change(path, paths.describe(state), after),), content_diff(args, path, system))
    changes = []
    diff = ""
    if sha not in (None, state["sha256"]):
        changes.append(Change(f"{path} content", state["sha256"][:12], str(sha)[:12]))
        diff = content_diff(args, path, system)
    return Plan((*changes, *access.differences(path, state, wanted)), diff)


def content_diff(args: dict[str, Any], path: str, system: System) -> str:
    """A unified diff from what is to what should be, at most 200 lines; said in words where there can be none."""
    here = system.places.at(path)
    old = b""
    if os.path.isfile(here):
        if os.path.getsize(here) > _DIFF_BYTES:
            return f"{path}: too large to compare line by line\n"
        with open(here, "rb") as file:
            old = file.read()
    if args.get("content") is None:
        return f"{path}: new content {str(args.get('blob'))[:12]}, {args.get('size', '?')} bytes\n"
    return unified(old, str(args["content"]).encode(), path)


def unified(old: bytes, new: bytes, path: str) -> str:
    """The diff of two contents; binary ones are only named."""
    if b"\0" in old or b"\0" in new:
        return f"{path}: binary content differs\n"
    try:
        lines = list(
            difflib.unified_diff(
                old.decode().splitlines(keepends=True), new.decode().splitlines(keepends=True), path, path
            )
        )
    except UnicodeDecodeError:
        return f"{path}: binary content differs\n"
    more = len(lines) - DIFF_LINES
    kept = [line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines[:DIFF_LINES]]
    return "".join(kept) + (f"... {more} more lines\n" if more > 0 else "")


def blobs(args: dict[str, Any], system: System) -> list[str]:
    """The blob, unless the file on the disk has that content already."""
    if absent(args) or args.get("blob") is None:
        return []
    state = paths.current(absolute(args), system)
    return [] if state.get("sha256") == args["blob"] else [str(args["blob"])]


def apply(args: dict[str, Any], system: System) -> None:
    """Notes the path, then writes whole or not at all; an unchanged content is not written again."""
    path, wanted, sha = absolute(args), access.wanted(args), wanted_hash(args)
    here = system.places.at(path)
    state = paths.current(path, system)
    if absent(args):
        if state["type"] not in ("file", "symlink"):
            raise Failure(RIG, f"there is a {state['type']}, not a file", path)
        system.note("path", path)
        os.unlink(here)
        return
    if not os.path.isdir(os.path.dirname(here)):
        raise Failure(RIG, "the folder for it does not exist", path, "add a `directory` step before")
    system.note("path", path)
    if state["type"] == "file" and sha in (None, state["sha256"]):
        access.set_on(path, wanted, system)
        return
    content = str(args["content"]).encode() if args.get("content") is not None else system.blobs([str(sha)])[0]
    install(path, content, wanted, state, system)


def install(path: str, content: bytes | str, wanted: access.Access, state: dict[str, Any], system: System) -> None:
    """Writes a file; where mode or owner is not asked for, an existing file keeps its own."""
    exists = state["type"] == "file"
    mode = wanted.mode if wanted.mode is not None else (state["mode"] if exists else 0o644)
    uid = wanted.uid if wanted.uid != -1 or not exists else state["uid"]
    gid = wanted.gid if wanted.gid != -1 or not exists else state["gid"]
    paths.write(system.places.at(path), content, mode, uid, gid)
