"""What an arm's levels set on one board: a pure function of the plan's factors and of the board's facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boardbench.errors import RigError
from boardbench.matrix.arms import Arm
from boardbench.matrix.factors import NO_CAP, Factor, Setting

POLICY_FILE = "/sys/devices/system/cpu/cpufreq/{policy}/scaling_max_freq"


def level_settings(
    factors: Sequence[Factor], arm: Arm, board: str, facts: Mapping[str, Any] | None, where: str
) -> tuple[Setting, ...]:
    """Settings that the arm wants on `board`, beside those of every run. Applied and read back like any other.

    Raises RigError when a cap is wanted and the board's clocks are not known.
    """
    found: list[Setting] = []
    for factor in factors:
        level = arm.levels[factor.name]
        found += factor.settings.get(level, ())
        if factor.kind == "cap" and (not factor.boards or board in factor.boards):
            found += _caps(factor, level, board, facts, where)
    return tuple(found)


def _caps(factor: Factor, level: str, board: str, facts: Mapping[str, Any] | None, where: str) -> list[Setting]:
    policies = list((facts or {}).get("cpu_policies") or ())
    names = [_policy(entry) for entry in policies]
    wanted = factor.policies or tuple(names)
    if not names or not set(wanted) <= set(names):
        raise RigError(
            f"the clocks to cap are not known: the board has {', '.join(names) or 'no CPU policy'}",
            where=board,
            advice=f"see the policies of factor {factor.name}",
        )
    return [
        Setting(
            "sysfs", {"path": POLICY_FILE.format(policy=name), "value": str(capped_khz(level, entry, board))}, where
        )
        for name, entry in zip(names, policies, strict=True)
        if name in wanted
    ]


def capped_khz(level: str, policy: Mapping[str, Any], board: str) -> int:
    """The cap for one policy in kHz: the level, but never above the policy's maximum, and a step that it really has."""
    top = policy.get("hw_max_khz")
    if not isinstance(top, int | float):
        raise RigError(f"the highest clock of {_policy(policy)} was not read", where=board)
    if level == NO_CAP:
        return int(top)
    asked = min(float(level) * 1000.0, float(top))
    steps = sorted(khz for khz in policy.get("available_khz") or () if isinstance(khz, int | float))
    below = [khz for khz in steps if khz <= asked]
    return int(below[-1] if below else steps[0] if steps else asked)


def _policy(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("policy"))
    return name if name.startswith("policy") else f"policy{name}"
