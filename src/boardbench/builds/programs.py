"""The programs of a payload for one kind of machine: which build that is, and the build itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from boardbench.errors import BugError, InputError
from boardbench.locations import cache_dir
from boardbench.payload import Payload

from . import builder, source, toolchain
from .builder import Wanted
from .recipe import Recipe, recipe_of
from .store import Built, Store
from .voice import Voice

PINNED = "pinned"
"""The word that stands for the source that the payload itself pins."""


def wanted(
    payload: Payload,
    variant: str,
    *,
    kind: str,
    arch: str,
    virtual: bool,
    given: str = PINNED,
    board: str = "",
    cache: Path | None = None,
    voice: Voice | None = None,
) -> Wanted:
    """Which build a board of this kind needs. `given`: the path of another source than the payload's own.

    InputError for an unknown variant or a bad source, RigError when the payload is made for no such machine.
    """
    recipe = _recipe(payload)
    place = recipe.place(kind, arch, virtual, board)
    if given == PINNED:
        chosen = source.pinned(recipe.source, cache or cache_dir(), voice or Voice())
    else:
        path = Path(given).expanduser()
        if not path.is_absolute():
            raise InputError(f"the source '{given}' is not an absolute path", advice=f"or write '{PINNED}'")
        chosen = source.named(path, recipe.source.inside)
    return Wanted(recipe, recipe.variant(variant), place, chosen)


def built_here(
    payload: Payload,
    variant: str,
    *,
    targets: Sequence[str] = (),
    given: str = PINNED,
    cache: Path | None = None,
    voice: Voice | None = None,
) -> Built:
    """The programs for this machine, built first when they are not in the store. `targets`: only these."""
    cache, voice = cache or cache_dir(), voice or Voice()
    arch = toolchain.controller_arch()
    build = wanted(payload, variant, kind="host", arch=arch, virtual=False, given=given, cache=cache, voice=voice)
    return builder.ensure(build.with_targets(*targets) if targets else build, Store(cache), voice)


def _recipe(payload: Payload) -> Recipe:
    recipe = recipe_of(payload)
    if recipe is None:
        raise BugError(f"payload '{payload.name}' builds no programs")
    return recipe
