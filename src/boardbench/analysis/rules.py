"""Decision rules: a small closed grammar, written before the first run, and said in words.

A rule compares one figure of one arm with a threshold (`value`), or with the same figure of a named baseline
(`ratio`, `difference`). `aggregate` says how repetitions become one number, `over_boards` how boards do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "min": min, "max": max}
COMPARES = ("ratio", "difference", "value")
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
}  # fmt: skip
OVER_BOARDS = ("each", "min", "max", "median")
_ON = {
    "each": "on each board",
    "min": "on the board where it is least",
    "max": "on the board where it is greatest",
    "median": "in the median over boards",
}


@dataclass(frozen=True)
class MinimumEffect:
    """Below this, a difference ranks nothing. `percent` is of the baseline (of the threshold for `value`)."""

    percent: float | None
    absolute: float | None

    def margin(self, compare: str, reference: float) -> float:
        """The effect in the units of the comparison; `reference`: the baseline's number, or the threshold."""
        if self.absolute is not None:
            return self.absolute
        share = (self.percent or 0.0) / 100.0
        return share if compare == "ratio" else share * abs(reference)

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.percent:g} %" if self.percent is not None else f"{self.absolute:g}"

    def body(self) -> dict[str, object]:
        """The size as the plan locks it."""
        return {"percent": self.percent} if self.percent is not None else {"absolute": self.absolute}

    @staticmethod
    def of(data: Mapping[str, Any]) -> MinimumEffect:
        """The size of a matrix file or of plan.json."""
        percent, absolute = data.get("percent"), data.get("absolute")
        return MinimumEffect(None if percent is None else float(percent), None if absolute is None else float(absolute))


@dataclass(frozen=True)
class AssumedNoise:
    """A noise floor that this campaign does not measure, and why it may be believed. Used only where none is known."""

    size: MinimumEffect
    because: str

    @staticmethod
    def of(data: Mapping[str, Any] | None) -> AssumedNoise | None:
        """The assumption of a matrix file or of plan.json, if there is one."""
        return None if data is None else AssumedNoise(MinimumEffect.of(data), str(data["because"]))


@dataclass(frozen=True)
class Rule:
    """One decision. `arms`: the arm, and its baseline unless `compare` is `value`."""

    name: str
    metric: str
    aggregate: str
    arms: tuple[str, ...]
    compare: str
    op: str
    threshold: float
    minimum_effect: MinimumEffect
    over_boards: str
    assumed_noise: AssumedNoise | None = None

    @property
    def arm(self) -> str:
        """The arm that is judged."""
        return self.arms[0]

    @property
    def baseline(self) -> str | None:
        """The arm that it is compared with."""
        return self.arms[1] if len(self.arms) > 1 else None

    @property
    def null(self) -> float | None:
        """What the comparison gives when the arms do not differ; None where nothing is compared."""
        return {"ratio": 1.0, "difference": 0.0}.get(self.compare)

    def holds(self, effect: float) -> bool:
        """Whether an effect is on the rule's side of the threshold."""
        return OPERATORS[self.op](effect, self.threshold)

    @property
    def text(self) -> str:
        """The rule as one phrase."""
        sign = {"ratio": " / ", "difference": " - ", "value": ""}[self.compare]
        arms = sign.join(self.arms)
        return (
            f"{self.metric} ({self.aggregate} over repetitions) of {arms} {self.op} {self.threshold:g}, "
            f"{_ON[self.over_boards]}; differences under {self.minimum_effect.text} rank nothing"
        )

    def body(self) -> dict[str, object]:
        """The rule as the plan locks it."""
        assumed = self.assumed_noise
        return {
            "name": self.name,
            "metric": self.metric,
            "aggregate": self.aggregate,
            "arms": list(self.arms),
            "compare": self.compare,
            "op": self.op,
            "threshold": self.threshold,
            "minimum_effect": self.minimum_effect.body(),
            "over_boards": self.over_boards,
            "assumed_noise": None if assumed is None else {**assumed.size.body(), "because": assumed.because},
        }

    @staticmethod
    def of(data: Mapping[str, Any]) -> Rule:
        """The rule of a matrix file or of plan.json, both already checked against their schema."""
        return Rule(
            name=data["name"],
            metric=data["metric"],
            aggregate=data.get("aggregate", "median"),
            arms=tuple(str(arm) for arm in data["arms"]),
            compare=data["compare"],
            op=data["op"],
            threshold=float(data["threshold"]),
            minimum_effect=MinimumEffect.of(data["minimum_effect"]),
            over_boards=data.get("over_boards", "each"),
            assumed_noise=AssumedNoise.of(data.get("assumed_noise")),
        )


@dataclass(frozen=True)
class Prediction:
    """What was expected of a rule, and which effect would refute it; between the two nothing is said."""

    says: str
    rule: str
    refuted_op: str
    refuted_threshold: float

    def refuted_by(self, effect: float) -> bool:
        """Whether the effect is one that refutes the prediction."""
        return OPERATORS[self.refuted_op](effect, self.refuted_threshold)

    def overlaps(self, rule: Rule) -> bool:
        """Whether an effect could keep the rule and refute the prediction at once: then it is no prediction."""
        up = self.refuted_op in (">", ">=")
        if up == (rule.op in (">", ">=")):
            return True
        if self.refuted_threshold == rule.threshold:
            return "=" in self.refuted_op and "=" in rule.op
        return self.refuted_threshold < rule.threshold if up else self.refuted_threshold > rule.threshold

    def body(self) -> dict[str, object]:
        """The prediction as the plan locks it."""
        return {
            "says": self.says,
            "rule": self.rule,
            "refuted_if": {"op": self.refuted_op, "threshold": self.refuted_threshold},
        }

    @staticmethod
    def of(data: Mapping[str, Any]) -> Prediction:
        """The prediction of a matrix file or of plan.json."""
        refuted = data["refuted_if"]
        return Prediction(data["says"], data["rule"], refuted["op"], float(refuted["threshold"]))
