"""A payload: what is pushed to boards. One folder with `payload.yml`, read and hashed into a frozen value."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.yamlfile import Document, did_you_mean, load

FILE_NAME = "payload.yml"
ROOT = "/opt/boardbench/payloads"
# The board writes a payload's settings here, beside its files.
SETTINGS = "settings.json"
# In a unit that is filled, `@name@` stands for a setting. systemd has words of its own for `$`, `%` and quotes.
_SETTING = re.compile(r"@([A-Za-z_][A-Za-z0-9_]*)@")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=+, -]*\Z")


@dataclass(frozen=True)
class PayloadFile:
    """A file of the payload: where it lies here, where it goes (relative to the payload's root), and its contents."""

    source: Path
    path: str
    mode: str
    size: int
    sha256: str


@dataclass(frozen=True)
class BuiltFiles:
    """Files that a build makes: all of the variant `built`, put under `path` of the payload's root."""

    built: str
    path: str


@dataclass(frozen=True)
class PayloadUnit:
    """A unit file of the payload and the state that the unit is to be in.

    `content`: the text with the settings filled in, None for a unit that goes as it lies in `source`.
    """

    name: str
    source: Path
    enabled: bool
    active: bool
    size: int
    sha256: str
    content: bytes | None = None


@dataclass(frozen=True)
class Harness:
    """What belongs to a payload when it runs: absolute paths of executables and scripts, and unit names."""

    executables: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, list[str]]:
        """HARNESS of the wire."""
        return {"executables": list(self.executables), "scripts": list(self.scripts), "units": list(self.units)}


@dataclass(frozen=True)
class Payload:
    """A payload with every file hashed; `version_sha256` changes exactly when what a board gets changes.

    `built`, `python` (pinned libraries): what it lacks until `with_built` gives it; a board can only get a payload that
    lacks nothing. `libraries`: which ones it was given, for whom; the board keeps it with what it installed.
    """

    folder: Path
    name: str
    summary: str
    kinds: tuple[str, ...]
    files: tuple[PayloadFile, ...]
    built: tuple[BuiltFiles, ...]
    units: tuple[PayloadUnit, ...]
    settings: Mapping[str, object] | None
    health: tuple[str, ...] | None
    conflicts: tuple[str, ...]
    harness: Harness
    build: Mapping[str, object] | None
    run: Mapping[str, object] | None
    version_sha256: str
    python: tuple[str, ...] = ()
    libraries: Mapping[str, object] | None = None

    @property
    def root(self) -> str:
        """The payload's folder on a board."""
        return f"{ROOT}/{self.name}"

    def blobs(self) -> dict[str, Path | bytes]:
        """The contents, or where they are, that `as_args` refers to, by SHA-256."""
        found: dict[str, Path | bytes] = {file.sha256: file.source for file in self.files}
        found.update({unit.sha256: unit.source if unit.content is None else unit.content for unit in self.units})
        return found

    def with_settings(self, settings: Mapping[str, object]) -> Payload:
        """The same payload with other settings, which make another version of it. Those not named stay as they are."""
        merged = {**(self.settings or {}), **settings}
        units = tuple(unit if unit.content is None else _filled(unit, merged) for unit in self.units)
        return _versioned(replace(self, settings=merged, units=units))

    def with_built(self, files: Sequence[PayloadFile], libraries: Mapping[str, object] | None = None) -> Payload:
        """The same payload with files that were made or fetched for a board; it lacks nothing then."""
        return _versioned(replace(self, files=(*self.files, *files), built=(), python=(), libraries=libraries))

    @property
    def lacks(self) -> bool:
        """Whether something must be built or fetched before a board can get it."""
        return bool(self.built or self.python)

    def as_args(self) -> dict[str, object]:
        """The arguments of the `payload` resource."""
        return {"name": self.name, "version_sha256": self.version_sha256, **_content(self)}


def load_payload(folder: Path) -> Payload:
    """Read `folder/payload.yml` and hash what it names; `InputError` with file:line for everything that is wrong."""
    document = load(folder / FILE_NAME, "payload")
    data = document.data
    if data["name"] != folder.resolve().name:
        raise document.error(
            "name", what=f"payload '{data['name']}' lies in folder '{folder.name}'", advice="use one name for both"
        )
    _check_build(document)
    built = tuple(BuiltFiles(entry["built"], entry["path"]) for entry in data["files"] if "built" in entry)
    files = tuple(_file(document, index) for index, entry in enumerate(data["files"]) if "built" not in entry)
    units = tuple(_unit(document, index) for index in range(len(data.get("units", []))))
    _refuse_twice(document, "files", [entry["path"] for entry in data["files"]], "path")
    _refuse_twice(document, "units", [unit.name for unit in units], "name")
    harness = data.get("harness", {})
    health = data.get("health")
    payload = Payload(
        folder=folder,
        name=data["name"],
        summary=data["summary"],
        kinds=tuple(data["boards"]["kinds"]),
        files=files,
        built=built,
        units=units,
        settings=data.get("settings"),
        health=None if health is None else tuple(health),
        conflicts=tuple(data.get("conflicts", [])),
        harness=Harness(**{key: tuple(values) for key, values in harness.items()}),
        build=data.get("build"),
        run=data.get("run"),
        version_sha256="",
        python=tuple(data.get("python", [])),
    )
    _refuse_missing_scripts(document, payload)
    _refuse_settings_twice(document, payload)
    return _versioned(payload)


def _versioned(payload: Payload) -> Payload:
    canonical = json.dumps(_content(payload), sort_keys=True, separators=(",", ":")).encode()
    return replace(payload, version_sha256=hashlib.sha256(canonical).hexdigest())


def _content(payload: Payload) -> dict[str, Any]:
    return {
        "root": payload.root,
        "files": [
            {"path": file.path, "blob": file.sha256, "size": file.size, "mode": file.mode} for file in payload.files
        ],
        "units": [
            {
                "name": unit.name,
                "blob": unit.sha256,
                "size": unit.size,
                "enabled": unit.enabled,
                "active": unit.active,
            }
            for unit in payload.units
        ],
        "settings": payload.settings,
        "health": None if payload.health is None else list(payload.health),
        "conflicts": list(payload.conflicts),
        "harness": payload.harness.as_dict(),
        **({} if payload.libraries is None else {"libraries": dict(payload.libraries)}),
    }


def _file(document: Document, index: int) -> PayloadFile:
    entry = document.data["files"][index]
    source, size, sha256 = _hashed(document, "files", index)
    return PayloadFile(source, entry["path"], entry.get("mode", "0644"), size, sha256)


def _unit(document: Document, index: int) -> PayloadUnit:
    entry = document.data["units"][index]
    source, size, sha256 = _hashed(document, "units", index)
    unit = PayloadUnit(entry["name"], source, entry.get("enabled", False), entry.get("active", False), size, sha256)
    return _filled(unit, document.data.get("settings") or {}) if entry.get("fill") else unit


def _filled(unit: PayloadUnit, settings: Mapping[str, object]) -> PayloadUnit:
    """The unit with its settings put in. A setting becomes part of a line, so it may only have plain characters."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in settings:
            raise InputError(
                f"'{match.group(0)}' is no setting", where=str(unit.source), advice=did_you_mean(name, settings)
            )
        text = str(settings[name])
        if not _PLAIN.match(text):
            raise InputError(
                f"setting '{name}' is {text[:60]!r}, which cannot stand in a unit",
                where=str(unit.source),
                advice="letters, digits, blanks and _ . / : = + , - can",
            )
        return text

    try:
        content = _SETTING.sub(value, unit.source.read_text(encoding="utf-8")).encode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the unit cannot be read: {error}", where=str(unit.source)) from None
    return replace(unit, size=len(content), sha256=hashlib.sha256(content).hexdigest(), content=content)


def _check_build(document: Document) -> None:
    """Rules between the entries of a build, and between it and the files that come from it."""
    build = document.data.get("build") or {}
    kinds = [key for key in ("variants", "model") if key in build]
    if document.data.get("build") is not None and len(kinds) != 1:
        raise document.error("build", what="a build has either 'variants' or a 'model'", advice="give it one of them")
    lacking = [key for key in ("source", "targets", "cmake", "places") if "variants" in build and key not in build]
    if lacking:
        raise document.error("build", what=f"'build' has no '{lacking[0]}'", advice=f"add '{lacking[0]}:'")
    made = list(build.get("variants", kinds))
    for index, entry in enumerate(document.data["files"]):
        if ("source" in entry) == ("built" in entry):
            raise document.error(
                "files", index, what="a file has either 'source' or 'built'", advice="give it one of them"
            )
        if entry.get("built", None) not in (None, *made):
            raise document.error(
                "files", index, "built",
                what=f"no build makes '{entry['built']}'",
                advice=did_you_mean(entry["built"], made, kind="builds"),
            )  # fmt: skip


def _hashed(document: Document, section: str, index: int) -> tuple[Path, int, str]:
    folder = document.path.parent
    name = document.data[section][index]["source"]
    source = folder / name
    if not _real(source).is_relative_to(_real(folder)):
        # A payload is self-contained: what its hash covers is what its folder holds.
        raise document.error(section, index, "source", what=f"'{name}' leads out of the payload", advice="copy it in")
    if not source.is_file():
        what = "is a folder" if source.is_dir() else "does not exist"
        raise document.error(section, index, "source", what=f"'{source}' {what}", advice="name a file of the payload")
    try:
        size, sha256 = hash_file(source)
    except OSError as error:
        raise document.error(section, index, "source", what=f"'{source}' cannot be read: {error.strerror}") from None
    return source, size, sha256


def _real(path: Path) -> Path:
    # Path.resolve() raises RuntimeError for a loop of links; such a path simply leads nowhere.
    return Path(os.path.realpath(path))


def hash_file(path: Path) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a file; OSError as it comes."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _refuse_twice(document: Document, section: str, names: list[str], key: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise document.error(section, index, key, what=f"'{name}' is here twice", advice="remove one")


def _refuse_settings_twice(document: Document, payload: Payload) -> None:
    for index, file in enumerate(payload.files):
        if file.path == SETTINGS and payload.settings:
            raise document.error(
                "files", index, "path",
                what=f"'{SETTINGS}' is where the settings are written to", advice="install this file elsewhere",
            )  # fmt: skip


def _refuse_missing_scripts(document: Document, payload: Payload) -> None:
    """A script of the harness that the payload does not install would never be found on a board as a stray."""
    installed = {f"{payload.root}/{file.path}" for file in payload.files}
    for index, script in enumerate(payload.harness.scripts):
        if script.startswith(f"{payload.root}/") and script not in installed:
            raise document.error(
                "harness", "scripts", index,
                what=f"'{script}' is not a file of this payload",
                advice=f"it installs {', '.join(sorted(installed))}",
            )  # fmt: skip


def find_payload(folder: Path, name: str, error: Callable[[str, str], InputError]) -> Payload:
    """The payload of this name under a folder of payloads; `error(what, advice)` makes the error for an unknown one."""
    try:
        known = sorted(entry.name for entry in folder.iterdir() if (entry / FILE_NAME).exists())
    except OSError as fault:
        raise InputError(f"the payloads cannot be listed: {fault.strerror}", where=str(folder)) from None
    if name not in known:
        raise error(f"unknown payload '{name}'", did_you_mean(name, known, kind="payloads"))
    return load_payload(folder / name)
