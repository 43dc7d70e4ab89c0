"""The board's side as one zipapp, and the constant that starts it there."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "boardbench_remote"
_SOURCE = Path(__file__).parent / "remote"
_MAIN = f"""from {PACKAGE}.main import main

raise SystemExit(main())
"""


@dataclass(frozen=True)
class Program:
    """The zipapp: its bytes, and their SHA-256 in hexadecimal, which is its name on the board."""

    sha256: str
    data: bytes


@cache
def build(source: Path = _SOURCE) -> Program:
    """The zipapp of `source` (the package `boardbench/remote`), with its folder renamed to `boardbench_remote`.

    The same source gives the same bytes on every machine: sorted, without times, modes or compression.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for path in sorted(source.rglob("*.py")):
            _add(archive, f"{PACKAGE}/{path.relative_to(source).as_posix()}", path.read_bytes())
    data = out.getvalue()
    return Program(hashlib.sha256(data).hexdigest(), data)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.create_system = 3
    entry.external_attr = 0o100644 << 16
    archive.writestr(entry, data)


# Runs on the board as `python3 -IS -c STUB`. Python 3.8. It must hold no single quote (it is quoted with them for the
# login shell), no backslash and no exclamation mark (fish and csh read those even in single quotes). It reads the
# first line byte by byte because what follows belongs to the program, which runs in this same process.
# A folder is complete exactly when it has its final name: files are synced before the rename.
STUB = """
import json, os, sys
def say(**message):
    data = (json.dumps(message) + chr(10)).encode()
    while data:
        data = data[os.write(1, data):]
def fail(what, advice="", fault="rig"):
    say(event="error", fault=fault, transient=False, what=what, where="start", advice=advice)
    sys.exit(3)
def line():
    got = bytearray()
    while len(got) < 65536:
        c = os.read(0, 1)
        if not c:
            sys.exit(0)
        if c[0] == 10:
            break
        got += c
    return json.loads(got.decode())
def exactly(count):
    got = bytearray()
    while len(got) < count:
        piece = os.read(0, min(count - len(got), 1 << 20))
        if not piece:
            sys.exit(0)
        got += piece
    return bytes(got)
def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
def install(home, data):
    import io, shutil, zipfile
    part = "%s.partial-%d" % (home, os.getpid())
    shutil.rmtree(part, ignore_errors=True)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            for name in z.namelist():
                put(os.path.join(part, name), z.read(name))
        os.rename(part, home)
    except OSError as e:
        shutil.rmtree(part, ignore_errors=True)
        if not os.path.isdir(home):
            raise e
def start():
    if sys.version_info < (3, 8):
        fail("python3 is %d.%d" % sys.version_info[:2], "boardbench needs Python 3.8 or later on the board")
    os.umask(0o022)
    try:
        first = line()
        sha, size, root = str(first["program"]), int(first["size"]), first.get("root")
    except (ValueError, KeyError, TypeError) as e:
        fail("the first line names no program: %r" % e, fault="bug")
    if not (len(sha) == 64 and set(sha) <= set("0123456789abcdef")):
        fail("not a SHA-256: %.80r" % sha, fault="bug")
    home = (root or "") + "/var/lib/boardbench/programs/" + sha
    have = os.path.isdir(home)
    say(event="program", have=have)
    if not have:
        import errno, hashlib
        data = exactly(size)
        if not hashlib.sha256(data).hexdigest() == sha:
            fail("the program arrived with another hash", "try again")
        try:
            install(home, data)
        except OSError as e:
            advice = "make room" if e.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            fail("cannot store the program in %s: %s" % (os.path.dirname(home), e.strerror), advice)
    sys.path.insert(0, home)
    try:
        from boardbench_remote.main import main
    except Exception as e:
        fail("the program does not start: %s: %s" % (type(e).__name__, e), "remove " + home, "bug")
    sys.exit(main(["--root", root] if root else []))
start()
"""
