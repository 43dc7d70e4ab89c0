"""A payload: what is pushed to boards. One folder with `payload.yml`, read and hashed into a frozen value."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.yamlfile import Document, did_you_mean, load

FILE_NAME = "payload.yml"
ROOT = "/opt/boardbench/payloads"
# The board writes a payload's settings here, beside its files.
SETTINGS = "settings.json"


@dataclass(frozen=True)
class PayloadFile:
    """A file of the payload: where it lies here, where it goes (relative to the payload's root), and its contents."""

    source: Path
    path: str
    mode: str
    size: int
    sha256: str


@dataclass(frozen=True)
class PayloadUnit:
    """A unit file of the payload and the state that the unit is to be in."""

    name: str
    source: Path
    enabled: bool
    active: bool
    size: int
    sha256: str


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
    """A payload with every file hashed; `version_sha256` changes exactly when what a board gets changes."""

    folder: Path
    name: str
    summary: str
    kinds: tuple[str, ...]
    files: tuple[PayloadFile, ...]
    units: tuple[PayloadUnit, ...]
    settings: Mapping[str, object] | None
    health: tuple[str, ...] | None
    conflicts: tuple[str, ...]
    harness: Harness
    build: Mapping[str, object] | None
    run: Mapping[str, object] | None
    version_sha256: str

    @property
    def root(self) -> str:
        """The payload's folder on a board."""
        return f"{ROOT}/{self.name}"

    def blobs(self) -> dict[str, Path]:
        """Where the contents are that `as_args` refers to, by SHA-256."""
        contents: tuple[PayloadFile | PayloadUnit, ...] = (*self.files, *self.units)
        return {item.sha256: item.source for item in contents}

    def with_settings(self, settings: Mapping[str, object]) -> Payload:
        """The same payload with other settings, which make another version of it."""
        return _versioned(replace(self, settings=settings))

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
    files = tuple(_file(document, index) for index in range(len(data["files"])))
    units = tuple(_unit(document, index) for index in range(len(data.get("units", []))))
    _refuse_twice(document, "files", [file.path for file in files], "path")
    _refuse_twice(document, "units", [unit.name for unit in units], "name")
    harness = data.get("harness", {})
    health = data.get("health")
    payload = Payload(
        folder=folder,
        name=data["name"],
        summary=data["summary"],
        kinds=tuple(data["boards"]["kinds"]),
        files=files,
        units=units,
        settings=data.get("settings"),
        health=None if health is None else tuple(health),
        conflicts=tuple(data.get("conflicts", [])),
        harness=Harness(**{key: tuple(values) for key, values in harness.items()}),
        build=data.get("build"),
        run=data.get("run"),
        version_sha256="",
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
    }


def _file(document: Document, index: int) -> PayloadFile:
    entry = document.data["files"][index]
    source, size, sha256 = _hashed(document, "files", index)
    return PayloadFile(source, entry["path"], entry.get("mode", "0644"), size, sha256)


def _unit(document: Document, index: int) -> PayloadUnit:
    entry = document.data["units"][index]
    source, size, sha256 = _hashed(document, "units", index)
    return PayloadUnit(entry["name"], source, entry.get("enabled", False), entry.get("active", False), size, sha256)


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
