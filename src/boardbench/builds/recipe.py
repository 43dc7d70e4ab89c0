"""What the `build` part of a `payload.yml` says: source, variants, targets, options, and where it is built for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError, RigError
from boardbench.payload import FILE_NAME, Payload

CONTROLLER, BOARD = "controller", "board"
PATCHES = "*.patch"


@dataclass(frozen=True)
class Pinned:
    """A source that a Python package carries, by version and hash; `inside` is its folder in the package."""

    package: str
    version: str
    sha256: str
    inside: str
    commit: str


@dataclass(frozen=True)
class Variant:
    """One way to build the source: files laid over it (path in it -> our file), then a folder's patches in order."""

    name: str
    overlay: Mapping[str, Path]
    patches: tuple[Path, ...]
    patch_folder: Path | None = None


@dataclass(frozen=True)
class Place:
    """Who is built for where, and with which further options. `None` and the empty set stand for "any".

    `needs`: files that must exist where it is built; `packages`: Debian packages for a board that builds for itself;
    `jobs`: compilers at once (0: one a core).
    """

    on: str
    arch: str
    kinds: frozenset[str]
    virtual: bool | None
    cmake: Mapping[str, str]
    languages: tuple[str, ...]
    needs: tuple[str, ...]
    packages: tuple[str, ...]
    jobs: int
    deadline_s: float

    def suits(self, kind: str, arch: str, virtual: bool) -> bool:
        """Whether a board of this kind and machine is built for here."""
        return (
            self.arch == arch
            and (not self.kinds or kind in self.kinds)
            and (self.virtual is None or self.virtual == virtual)
        )


@dataclass(frozen=True)
class Recipe:
    """All that a payload says about its programs."""

    payload: str
    where: str
    source: Pinned
    variants: Mapping[str, Variant]
    targets: tuple[str, ...]
    cmake: Mapping[str, str]
    places: tuple[Place, ...]

    def variant(self, name: str) -> Variant:
        """The variant of this name; InputError for an unknown one."""
        if name not in self.variants:
            raise InputError(
                f"there is no variant '{name}'", where=self.where, advice=f"it has {', '.join(self.variants)}"
            )
        variant = self.variants[name]
        if variant.patch_folder is not None and not variant.patches:
            raise InputError(
                f"variant '{name}' has no patch", where=str(variant.patch_folder), advice=f"put {PATCHES} there"
            )
        return variant

    def place(self, kind: str, arch: str, virtual: bool, board: str = "") -> Place:
        """The first place that suits; RigError when the payload is made for no such machine."""
        for place in self.places:
            if place.suits(kind, arch, virtual):
                return place
        known = ", ".join(dict.fromkeys(place.arch for place in self.places))
        raise RigError(
            f"payload '{self.payload}' cannot be built for {kind} on {arch}",
            where=board or self.where,
            advice=f"{self.where} has places for {known}",
        )


def recipe_of(payload: Payload) -> Recipe | None:
    """The programs that a payload has built; None when it has none."""
    build = payload.build
    if build is None or "variants" not in build:
        return None
    data: Mapping[str, Any] = build
    package = data["source"]["package"]
    return Recipe(
        payload=payload.name,
        where=str(payload.folder / FILE_NAME),
        source=Pinned(
            package["name"], package["version"], package["sha256"], package["inside"], data["source"]["commit"]
        ),
        variants={name: _variant(payload.folder, name, variant or {}) for name, variant in data["variants"].items()},
        targets=tuple(data["targets"]),
        cmake=dict(data["cmake"]),
        places=tuple(_place(entry) for entry in data["places"]),
    )


def _variant(folder: Path, name: str, data: Mapping[str, Any]) -> Variant:
    overlay: dict[str, Path] = {}
    for source, target in data.get("overlay", {}).items():
        files = sorted(path for path in _folder(folder, source).rglob("*") if path.is_file())
        overlay.update({f"{target}/{path.relative_to(folder / source)}": path for path in files})
    patches = _folder(folder, data["patches"]) if "patches" in data else None
    return Variant(name, overlay, tuple(sorted(patches.glob(PATCHES))) if patches else (), patches)


def _folder(payload: Path, name: str) -> Path:
    folder = payload / name
    if not folder.is_dir() or folder.is_symlink():
        raise InputError("there is no such folder", where=str(folder), advice=f"see `build` in {payload / FILE_NAME}")
    return folder


def _place(data: Mapping[str, Any]) -> Place:
    return Place(
        on=data["on"],
        arch=data["arch"],
        kinds=frozenset(data.get("kinds", ())),
        virtual=data.get("virtual"),
        cmake=dict(data.get("cmake", {})),
        languages=tuple(data.get("languages", ("C", "CXX"))),
        needs=tuple(data.get("needs", ())),
        packages=tuple(data.get("packages", ())),
        jobs=int(data.get("jobs", 0)),
        deadline_s=float(data.get("deadline_s", 3600)),
    )
