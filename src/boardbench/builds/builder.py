"""Makes a variant of a payload's programs on the controller, or takes it from the store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from boardbench.errors import RigError
from boardbench.payload import hash_file

from . import patching, steps, toolchain
from .recipe import CONTROLLER, Place, Recipe, Variant
from .source import Source
from .store import FILES, Built, Store, key_of
from .voice import Voice

NEEDS_BYTES = 1_500_000_000
"""Room for source, objects and result while a build is made."""
COMMON = {
    # Found beside the program, wherever that lies.
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
}


@dataclass(frozen=True)
class Wanted:
    """One build: which variant of which source, for whom."""

    recipe: Recipe
    variant: Variant
    place: Place
    source: Source

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.recipe.payload} {self.variant.name} for {self.place.arch}"

    def with_targets(self, *targets: str) -> Wanted:
        """The same with fewer programs (another build)."""
        return replace(self, recipe=replace(self.recipe, targets=targets))

    def options(self) -> dict[str, str]:
        """All cmake options but those that name the compiler; `@commit@` in one stands for the source's commit."""
        options = {**COMMON, **self.recipe.cmake, **self.place.cmake}
        return {name: value.replace("@commit@", self.source.commit[:9]) for name, value in options.items()}

    def inputs(self, compiler: str) -> dict[str, object]:
        """Everything that decides the bytes of the result."""
        return {
            "source": self.source.id,
            "overlay": {name: hash_file(path)[1] for name, path in sorted(self.variant.overlay.items())},
            "patches": [hash_file(path)[1] for path in self.variant.patches],
            "cmake": self.options(),
            "targets": sorted(self.recipe.targets),
            "arch": self.place.arch,
            "on": self.place.on,
            "compiler": compiler,
        }


class Waiting:
    """Tells that somebody else is making a build, then how far they are, as their log says it."""

    def __init__(self, title: str, voice: Voice, log: Path | None = None) -> None:
        self._title = title
        self._voice = voice
        self._log = log
        self._said = False

    def __call__(self) -> None:
        """To be called while there is nothing else to do."""
        if not self._said:
            self._voice.say(f"somebody else is building {self._title}: waiting")
            self._said = True
        elif self._log is not None and (at := steps.progress_of(self._log)) is not None:
            self._voice.step(f"{self._title}, by somebody else,", *at)


def look(wanted: Wanted, store: Store) -> Built | None:
    """The build when it is in the store; nothing is installed or made."""
    try:
        tools = toolchain.find(wanted.place.arch, Voice(), may=False)
    except RigError:
        return None
    return store.find(key_of(wanted.inputs(tools.version)))


def ensure(wanted: Wanted, store: Store, voice: Voice) -> Built:
    """The build, made first when the store does not have it.

    Errors: InputError when a patch does not fit, RigError for a missing tool, a failed download, a failed compile or a
    full disk; each names its log where there is one.
    """
    if wanted.place.on != CONTROLLER:
        raise ValueError(f"{wanted.title} is not built on the controller")
    tools = toolchain.find(wanted.place.arch, voice)
    inputs = wanted.inputs(tools.version)
    key = key_of(inputs)
    if (found := store.find(key)) is not None:
        return found

    def produce(work: Path) -> Mapping[str, object]:
        began = time.monotonic()
        prepare(wanted, work / "source", voice)
        voice.say(f"building {wanted.title} ({tools.version.splitlines()[0]})")
        needs = _compile(wanted, tools, store, key, work, voice)
        return {"needs": needs, "seconds": round(time.monotonic() - began, 1)}

    facts = {"inputs": inputs, "title": wanted.title, "source": wanted.source.label, "commit": wanted.source.commit}
    return store.make(key, facts, NEEDS_BYTES, Waiting(wanted.title, voice, store.log(key)), produce)


def prepare(wanted: Wanted, folder: Path, voice: Voice) -> None:
    """The patched source in a new folder."""
    folder.mkdir(parents=True)
    wanted.source.unpack(folder)
    for name, path in wanted.variant.overlay.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    patching.apply(folder, wanted.variant.patches)
    if wanted.variant.patches:
        voice.say(f"{len(wanted.variant.patches)} patches fit {wanted.source.label}")


def _compile(
    wanted: Wanted, tools: toolchain.Toolchain, store: Store, key: str, work: Path, voice: Voice
) -> Mapping[str, object]:
    for need in wanted.place.needs:
        if not Path(need).exists():
            raise RigError(f"building {wanted.title} needs {need} on this machine")
    log = store.log(key)
    log.unlink(missing_ok=True)
    job = {
        "cmake": {**wanted.options(), **dict(tools.cmake)},
        "targets": list(wanted.recipe.targets),
        "languages": list(wanted.place.languages),
        "jobs": wanted.place.jobs or toolchain.cores(),
        "ccache": str(store.cache / "ccache"),
    }
    try:
        steps.build(job, str(work), str(log), lambda done, total: voice.step(wanted.title, done, total))
        needs = steps.gather(str(work / "build"), wanted.recipe.targets, tools.cxx, tools.readelf, str(work / FILES))
    except steps.BuildFailed as failed:
        raise failure(wanted.title, failed) from None
    log.unlink(missing_ok=True)
    return needs


def failure(title: str, failed: steps.BuildFailed) -> RigError:
    """A failed build as one sentence."""
    if "No space left" in failed.what:
        return RigError(
            f"building {title} ran out of disk", where=failed.log, advice="make room, or set XDG_CACHE_HOME elsewhere"
        )
    if "Killed signal" in failed.what:
        return RigError(
            f"building {title}: the compiler was killed", where=failed.log, advice="is there enough memory?"
        )
    return RigError(f"building {title} failed: {failed.what}", where=failed.log)
