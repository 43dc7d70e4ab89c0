"""Are the boards as they were? Compares what they say after a campaign with what they said before it.

This does not ask the journal of changes: a restore that forgets a board forgets it there too. What load and heat
change by themselves (clocks, temperatures, free space) is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.results import store

CODE = "leftovers-not-restored"
HOT_CELSIUS = 65.0
"""Above it the kernel itself may hold the highest clock down, so that a lower one is no proof."""
_CPU = (("governor", ""), ("min_khz", " kHz"))
_DEVICE = (("governor", ""), ("min_hz", " Hz"))


def warnings(campaign: Path) -> list[dict[str, str]]:
    """What a campaign's boards did not get back, as verdict.json warns. A board without both facts is not judged."""
    said: list[dict[str, str]] = []
    for folder in sorted(campaign.glob("boards/*")):
        try:
            before = store.read_object(folder / "facts-before.json")
            after = store.read_object(folder / "facts-after.json")
        except InputError:
            continue
        said += [{"board": folder.name, "code": CODE, "what": what} for what in differences(before, after)]
    return said


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings that a board had before and has no more; nothing when it rebooted (they go with a reboot)."""
    if before.get("boot_id") != after.get("boot_id"):
        return ()
    return tuple(_all(before, after))


def _all(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    cool = not _hot(before) and not _hot(after)
    yield from _settings(before, after, "cpu_policies", "policy", (*_CPU, ("max_khz", " kHz")) if cool else _CPU)
    yield from _settings(before, after, "devfreq", "name", (*_DEVICE, ("max_hz", " Hz")) if cool else _DEVICE)
    old, new = before.get("nvpmodel"), after.get("nvpmodel")
    if old != new:
        yield f"not put back: nvpmodel is {new}, it was {old} before the campaign"


def _settings(
    before: Mapping[str, Any], after: Mapping[str, Any], room: str, key: str, names: tuple[tuple[str, str], ...]
) -> Iterator[str]:
    now = {entry.get(key): entry for entry in after.get(room, [])}
    for entry in before.get(room, []):
        for name, unit in names:
            old, new = entry.get(name), now.get(entry.get(key), {}).get(name)
            known = not isinstance(old, Mapping) and not isinstance(new, Mapping) and old is not None
            if known and new is not None and old != new:
                yield f"not put back: {entry.get(key)} {name} is {new}{unit}, it was {old}{unit} before the campaign"


def _hot(facts: Mapping[str, Any]) -> bool:
    """Also when no zone can be read: then nothing speaks against heat."""
    celsius = [zone.get("celsius") for zone in facts.get("thermal", [])]
    known = [value for value in celsius if isinstance(value, int | float)]
    return not known or max(known) > HOT_CELSIUS
