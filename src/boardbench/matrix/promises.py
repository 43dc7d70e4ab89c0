"""What a matrix promises before it runs: metrics, named baselines, decision rules, a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boardbench.analysis.metrics import SOURCES, unit_fits
from boardbench.analysis.rules import Prediction, Rule
from boardbench.workloads.registry import traits_of
from boardbench.yamlfile import Document, did_you_mean


@dataclass(frozen=True)
class Metric:
    """What will be reported; `source`: the figure of a run that it is."""

    name: str
    unit: str
    direction: str
    source: str


@dataclass(frozen=True)
class Baseline:
    """An arm that others are compared with, and what it is, so that no ratio stands without it."""

    arm: str
    describes: str


@dataclass(frozen=True)
class Promises:
    """All that the decisions are made by."""

    metrics: tuple[Metric, ...]
    baselines: tuple[Baseline, ...]
    rules: tuple[Rule, ...]
    prediction: Prediction | None


def promises_of(document: Document, arms: Sequence[str]) -> Promises:
    """The promises of a matrix file whose arms are known. Raises InputError with file and line."""
    metrics = _metrics(document)
    baselines = _baselines(document, arms)
    rules = _rules(document, arms, [metric.name for metric in metrics], [baseline.arm for baseline in baselines])
    return Promises(metrics, baselines, rules, _prediction(document, rules))


def _metrics(document: Document) -> tuple[Metric, ...]:
    found: list[Metric] = []
    own = traits_of(document.data["workload"]["name"]).figures
    for index, data in enumerate(document.data["metrics"]):
        source = data.get("from", data["name"])
        if source not in {*SOURCES, *own}:
            advice = did_you_mean(source, [*SOURCES, *own], kind="sources")
            raise document.error("metrics", index, what=f"no figure is called '{source}'", advice=f"{advice} ('from')")
        if not (data["unit"] in own[source] if source in own else unit_fits(source, data["unit"])):
            units = ", ".join(own.get(source) or SOURCES[source].units) or "something per second, e.g. operations/s"
            raise document.error(
                "metrics", index, "unit", what=f"{source} is not given in {data['unit']}", advice=f"use {units}"
            )
        if data["name"] in (metric.name for metric in found):
            raise document.error("metrics", index, "name", what=f"metric '{data['name']}' is there twice")
        found.append(Metric(data["name"], data["unit"], data["direction"], source))
    return tuple(found)


def _baselines(document: Document, arms: Sequence[str]) -> tuple[Baseline, ...]:
    given = document.data.get("baseline", [])
    found: list[Baseline] = []
    for index, data in enumerate([given] if isinstance(given, dict) else given):
        at = ("baseline", "arm") if isinstance(given, dict) else ("baseline", index, "arm")
        _known(document, at, data["arm"], arms, "arm")
        found.append(Baseline(data["arm"], data["is"]))
    return tuple(found)


def _rules(
    document: Document, arms: Sequence[str], metrics: Sequence[str], baselines: Sequence[str]
) -> tuple[Rule, ...]:
    found: list[Rule] = []
    for index, data in enumerate(document.data.get("rules", ())):
        at = ("rules", index)
        _known(document, (*at, "metric"), data["metric"], metrics, "metric")
        for place, arm in enumerate(data["arms"]):
            _known(document, (*at, "arms", place), arm, arms, "arm")
        wanted = 1 if data["compare"] == "value" else 2
        if len(data["arms"]) != wanted:
            raise document.error(
                *at, "arms", what=f"compare: {data['compare']} needs {wanted} arm{'s' if wanted > 1 else ''}",
                advice="the arm, then its baseline" if wanted > 1 else "the arm alone",
            )  # fmt: skip
        if wanted == 2 and data["arms"][1] not in baselines:
            raise document.error(
                *at, "arms", 1, what=f"'{data['arms'][1]}' is not a named baseline",
                advice="say what it is under 'baseline': a comparison never stands without it",
            )  # fmt: skip
        if data["name"] in (rule.name for rule in found):
            raise document.error(*at, "name", what=f"rule '{data['name']}' is there twice")
        found.append(Rule.of(data))
    return tuple(found)


def _prediction(document: Document, rules: Sequence[Rule]) -> Prediction | None:
    data = document.data.get("prediction")
    if data is None:
        return None
    _known(document, ("prediction", "rule"), data["rule"], [rule.name for rule in rules], "rule")
    prediction = Prediction.of(data)
    rule = next(rule for rule in rules if rule.name == prediction.rule)
    if prediction.overlaps(rule):
        raise document.error(
            "prediction", "refuted_if",
            what=f"an effect could fulfil rule '{rule.name}' ({rule.op} {rule.threshold:g}) and refute it at once",
            advice="refute it on the other side of the rule's threshold",
        )  # fmt: skip
    return prediction


def _known(document: Document, at: tuple[str | int, ...], word: str, words: Sequence[str], kind: str) -> None:
    if word not in words:
        advice = did_you_mean(word, words, kind=f"{kind}s")
        raise document.error(*at, what=f"no {kind} is called '{word}'", advice=advice)
