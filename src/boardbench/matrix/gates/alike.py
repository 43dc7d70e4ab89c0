"""Are the boards of a kind equal? Each difference is listed; which of them count, the matrix's gates say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boardbench.matrix.gates.before import Look, fastest_link
from boardbench.matrix.gates.evidence import Evidence, failed, passed

ASPECTS = ("kernel", "firmware", "runtime", "payload", "governor", "link")


def aspect(look: Look, name: str) -> dict[str, Any]:
    """What is compared, by its own name. A value is text, a number, or `{"missing": why}`."""
    image = look["image"]
    if name == "kernel":
        return {"kernel": image["kernel"]}
    if name == "firmware":
        return {key: image[key] for key in ("rom_version", "l4t_release", "bootloader")}
    if name == "runtime":
        return dict(look["runtime"] or {"runtime": {"missing": "not asked for"}})
    if name == "payload":
        return dict(look["payloads"] if look["payloads"] is not None else {"payloads": {"missing": "not asked for"}})
    if name == "governor":
        return {policy["policy"]: policy["governor"] or {"missing": "not read"} for policy in look["cpu_policies"]}
    speed = fastest_link(look)[1]
    return {"mbit_per_s": {"missing": "no link says its speed"} if speed is None else speed}


def judge(board: str, looks: Mapping[str, Look], name: str) -> Evidence:
    """`board` against the others of `looks` (boards of its kind, itself among them).

    Two values that could not be read are not equal, they are unknown.
    """
    gate = f"alike-{name}"
    own = aspect(looks[board], name)
    others = {other: aspect(look, name) for other, look in looks.items() if other != board}
    if not others:
        return passed(gate, {"own": own, "compared_with": []})
    differences: list[str] = []
    unknown: list[str] = []
    for key in sorted({*own, *(key for values in others.values() for key in values)}):
        mine = own.get(key, {"missing": "not there"})
        for other, values in others.items():
            theirs = values.get(key, {"missing": "not there"})
            both_missing = _missing(mine) and _missing(theirs)
            if both_missing:
                unknown.append(key)
            elif mine != theirs:
                differences.append(f"{key}: {_shown(mine)}, {other} has {_shown(theirs)}")
    saw = {"own": own, "compared_with": sorted(others), "differences": differences}
    if differences:
        return failed(gate, saw, "; ".join(differences))
    return passed(gate, saw, f"not known on any board: {', '.join(dict.fromkeys(unknown))}" if unknown else "")


def _missing(value: object) -> bool:
    return isinstance(value, Mapping)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return f"not known ({value.get('missing')})"
    text = str(value)
    return text[:12] if len(text) == 64 else text
