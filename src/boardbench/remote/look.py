"""The `look` verb: what the gates before a run judge, read in one call. It changes nothing on the board.

Here nothing is judged: a reading is a number or text, or `{"missing": why}`. The controller judges.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

from . import facts, journal, look_load, pings, reading, sensors, services, strays
from .failures import BAD_INPUT, Failure
from .places import Places
from .reading import Missing
from .wire import Call

ARGUMENTS = {"path", "harness", "except_runs", "hashes", "probe", "sample_s", "round_trips"}
MAX_ROUND_TRIPS = 20
MAX_SAMPLE_S = 10.0
PROBE_BYTES = 4096
RUNTIME_LIBRARIES = ("/usr/lib/librknnrt.so", "/usr/lib/aarch64-linux-gnu/librknnrt.so")
FIRMWARE_WORD = "androidboot.fwver="


def look(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: `{"look": LOOK}`.

    `path`: where runs are staged. `hashes`: also hash payloads and runtime, which brings them into the page cache.
    `sample_s`: how long other people's load is watched (0: not). `round_trips`: how often the clock is asked for.
    `probe`: write, sync and drop a nameless file to prove that the file system takes data.
    """
    wanted = _arguments(args)
    places = call.places
    manager = services.detect(places)
    excepted = frozenset(wanted["except_runs"])
    harness = strays.parse_harness(args.get("harness")).merged(strays.installed_harness(places))
    found = {
        "board": _identity(places),
        "image": _image(places),
        "runtime": _runtime(places) if wanted["hashes"] else None,
        **(_payloads(places) if wanted["hashes"] else {"payloads": None, "libraries": None}),
        "cpu_policies": _policies(places),
        "thermal": sensors.thermal(places),
        "input_volts": sensors.input_volts(places, sensors.power_rails(places)),
        "links": sensors.links(places),
        "disk": _disk(places, wanted["path"], wanted["probe"]),
        "drop_caches": _drop_caches(places),
        "strays": [_stray(stray, manager) for stray in strays.find(places, manager, harness, excepted)],
        "load": look_load.watch(places, manager, wanted["sample_s"]) if wanted["sample_s"] else None,
        "virtual": facts.virtual(places),
    }
    # Last: then the offset belongs to the moment in which the answer leaves.
    found["clock"] = pings.clock(call, wanted["round_trips"])
    return {"look": found}


def _stray(stray: strays.Stray, manager: services.ServiceManager) -> dict[str, Any]:
    """A stray, and whether it belongs to a service that is meant to run: that one comes back after a campaign."""
    enabled = stray.unit is not None and manager.state(stray.unit).enabled
    return dict(stray.as_dict(), enabled=enabled)


def _arguments(args: dict[str, Any]) -> dict[str, Any]:
    unknown = set(args) - ARGUMENTS
    if unknown:
        raise Failure(BAD_INPUT, f"unknown argument {', '.join(sorted(unknown))}", "look")
    path = args.get("path", "/")
    if not isinstance(path, str) or not path.startswith("/"):
        raise Failure(BAD_INPUT, f"path is {path!r:.80}", "look", "an absolute path")
    sample_s, round_trips = args.get("sample_s", 0.5), args.get("round_trips", 5)
    for name, value, most in (("sample_s", sample_s, MAX_SAMPLE_S), ("round_trips", round_trips, MAX_ROUND_TRIPS)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
            raise Failure(BAD_INPUT, f"{name} is {value!r:.80}", "look", f"a number from 0 to {most:g}")
    runs = args.get("except_runs") or []
    if not isinstance(runs, list):
        raise Failure(BAD_INPUT, f"except_runs is {runs!r:.80}", "look", "a list of names")
    return {
        "path": path,
        "hashes": args.get("hashes") is True,
        "probe": args.get("probe") is True,
        "sample_s": float(sample_s),
        "round_trips": int(round_trips),
        "except_runs": [str(run) for run in runs],
    }


def _identity(places: Places) -> dict[str, Any]:
    read = facts.read_identity(places)
    return {name: read[name] for name in ("hostname", "machine_id", "serial", "boot_id")}


def _text(path: str) -> Any:
    try:
        return reading.text(path)
    except Missing as missing:
        return missing.reading()


def _image(places: Places) -> dict[str, Any]:
    """What the board was flashed with, and what it booted."""
    words = (reading.word(os.path.join(places.proc, "cmdline")) or "").split()
    firmware = [word[len(FIRMWARE_WORD) :] for word in words if word.startswith(FIRMWARE_WORD)]
    return {
        "kernel": _text(os.path.join(places.proc, "sys/kernel/osrelease")),
        "rom_version": _text(os.path.join(places.etc, "rom-version")),
        "l4t_release": _text(os.path.join(places.etc, "nv_tegra_release")),
        "bootloader": firmware[0] if firmware else {"missing": f"no {FIRMWARE_WORD} on the kernel's command line"},
    }


def _runtime(places: Places) -> dict[str, Any]:
    """The libraries and drivers that a workload runs on."""
    library: Any = {"missing": "not there"}
    for path in RUNTIME_LIBRARIES:
        if os.path.isfile(places.at(path)):
            library = _sha256(places.at(path))
            break
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {
        "python": python,
        "librknnrt_sha256": library,
        "rknpu_driver": _text(os.path.join(places.sys, "module/rknpu/version")),
    }


def _sha256(path: str) -> Any:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(1024 * 1024), b""):
                digest.update(piece)
    except OSError as error:
        return {"missing": error.strerror or "cannot be read"}
    return digest.hexdigest()


def _payloads(places: Places) -> dict[str, Any]:
    """`payloads`: per installed payload one hash over names, modes and contents of its files, read where they act.

    `libraries`: per payload that was recorded with Python libraries which ones these are, and which of its files are
    not as recorded (`changed`: changed, missing or added).
    """
    hashes, libraries = {}, {}
    for name in reading.entries(places.payloads):
        folder = os.path.join(places.payloads, name)
        if os.path.isdir(folder):
            contents: dict[str, str] = {}
            hashes[name] = _tree_hash(folder, contents)
            record = _record(places, name)
            if isinstance(record.get("libraries"), dict):
                libraries[name] = dict(record["libraries"], changed=_changed(record.get("files"), contents))
    return {"payloads": hashes, "libraries": libraries}


def _record(places: Places, name: str) -> dict[str, Any]:
    """What was noted when the payload was installed; nothing for one without a record, or with a damaged one."""
    try:
        with open(os.path.join(places.payload_records, name + ".json"), encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _changed(recorded: Any, contents: dict[str, str]) -> list[str]:
    """Files that are not as recorded. A hash that is null is of a file that the board made itself (settings)."""
    known = recorded if isinstance(recorded, dict) else {}
    return sorted(
        path
        for path in set(known) | set(contents)
        if path not in known or path not in contents or known[path] not in (None, contents[path])
    )


def _tree_hash(folder: str, contents: dict[str, str]) -> Any:
    """The hash of a folder; `contents` gets the hash of each of its files."""
    digest = hashlib.sha256()
    for base, folders, files in os.walk(folder):
        # Byte code is the board's own doing.
        folders[:] = sorted(entry for entry in folders if entry != "__pycache__")
        for name in sorted(files):
            path = os.path.join(base, name)
            content = _sha256(path)
            if reading.is_missing(content):
                return {"missing": f"{os.path.relpath(path, folder)}: {content['missing']}"}
            mode = os.stat(path).st_mode & 0o7777
            contents[os.path.relpath(path, folder)] = content
            digest.update(f"{os.path.relpath(path, folder)}\0{mode:o}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _policies(places: Places) -> list[dict[str, Any]]:
    """CPU clocks, and for each cap the scopes whose journal says that it is ours."""
    ours = _noted_paths(places)
    base = os.path.join(places.sys, "devices/system/cpu/cpufreq")
    found = []
    for policy in sensors.cpu_policies(places):
        path = places.on_board(os.path.join(base, policy["policy"], "scaling_max_freq"))
        found.append(dict(policy, capped_by=ours.get(path, [])))
    return found


def _noted_paths(places: Places) -> dict[str, list[str]]:
    """Kernel file -> the scopes that changed it. A journal that is being written may have a torn last line."""
    found: dict[str, list[str]] = {}
    for scope in journal.scope_names(places):
        try:
            with open(os.path.join(places.journal, scope + ".jsonl"), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            try:
                note = json.loads(line)
                found.setdefault(str(note["name"]), []).append(scope)
            except (ValueError, KeyError, TypeError):
                continue
    return found


def _disk(places: Places, path: str, probe: bool) -> dict[str, Any]:
    found = facts.disk(places, path)
    found["probe"] = _probe(places.at(path)) if probe else None
    return found


def _probe(path: str) -> dict[str, Any]:
    """Really writes and syncs. The file has no name, so that not even its folder changes."""
    folder = path
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    try:
        fd = _probe_file(folder)
        try:
            written = os.write(fd, b"\xa5" * PROBE_BYTES)
            os.fsync(fd)
            whole = os.pread(fd, PROBE_BYTES, 0) == b"\xa5" * PROBE_BYTES
        finally:
            os.close(fd)
    except OSError as error:
        return {"ok": False, "why": f"{folder}: {error.strerror}"}
    ok = written == PROBE_BYTES and whole
    return {"ok": ok, "why": "" if ok else f"{folder}: what was read back is not what was written"}


def _probe_file(folder: str) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        import errno

        # Some overlays know no nameless files.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    path = os.path.join(folder, f".boardbench-probe-{os.getpid()}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return fd


def _drop_caches(places: Places) -> dict[str, Any]:
    """Whether the page cache could be dropped; it is not."""
    path = os.path.join(places.proc, "sys/vm/drop_caches")
    if not os.path.exists(path):
        return {"ok": False, "why": "the kernel has no such file"}
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        return {"ok": False, "why": error.strerror or "cannot be opened"}
    return {"ok": True, "why": ""}
