"""From the runs of a campaign to a verdict per rule. Pure: numbers in, words with their numbers out.

Verdicts:
- `supported`, `refuted`: the effect is on one side of the threshold by more than the noise and the minimum effect;
- `null`: the rule claims an effect, and what was seen is not beyond the noise or the minimum effect;
- `undecided`: too near to the threshold, or arms are compared and their noise is neither known nor assumed by the rule,
  or cells were left out on purpose;
- `invalid`: a run that the rule needs (of an arm, or of its A/A control) does not count or is missing, or there is a
  doubt about an arm: it did not take effect, its control is impossible, its number is one of overload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from boardbench.analysis.noise import UNKNOWN, Noise, noise_of
from boardbench.analysis.rules import AGGREGATES, Prediction, Rule

SUPPORTED, REFUTED, UNDECIDED, NULL, INVALID = "supported", "refuted", "undecided", "null", "invalid"
VERDICTS = (SUPPORTED, REFUTED, UNDECIDED, NULL, INVALID)
HIT, MISSED = "hit", "missed"
VALID, NOT_SELECTED = "valid", "not-selected"


@dataclass(frozen=True)
class Reading:
    """What one cell gave for one metric. `value` is None when the run has no such figure; `why` says so."""

    board: str
    arm: str
    repetition: int
    state: str
    value: float | None
    why: str = ""


@dataclass(frozen=True)
class Effect:
    """What a rule came to on one board (`board` is None: over all boards)."""

    board: str | None
    verdict: str
    effect: float | None
    arm_value: float | None
    arm_n: int
    baseline_value: float | None
    baseline_n: int
    noise: Noise
    why: str


@dataclass(frozen=True)
class Decision:
    """A rule and what it came to: as a whole, and on each board."""

    rule: Rule
    whole: Effect
    boards: tuple[Effect, ...]

    @property
    def verdict(self) -> str:
        """The word for the rule."""
        return self.whole.verdict


@dataclass(frozen=True)
class Foretold:
    """What became of the prediction: `hit`, `missed`, `undecided` or `invalid`."""

    prediction: Prediction
    verdict: str
    why: str


def decide(
    rule: Rule,
    readings: Sequence[Reading],
    controls: Mapping[str, str],
    doubts: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> Decision:
    """The verdict of one rule from the readings of its metric. `controls`: control arm -> the arm that it repeats.

    `doubts`: (board, arm) -> why no decision may rest on what this arm gave there. The numbers stay beside the word.
    """
    boards = tuple(
        _doubted(
            rule,
            _on_board(rule, board, [reading for reading in readings if reading.board == board], controls),
            controls,
            doubts,
        )
        for board in dict.fromkeys(reading.board for reading in readings)
    )
    return Decision(rule, _whole(rule, boards), boards)


def _doubted(rule: Rule, found: Effect, controls: Mapping[str, str], doubts: Mapping[tuple[str, str], str]) -> Effect:
    """The effect, or `invalid` with the doubt: an arm that is no arm supports nothing, and refutes nothing."""
    arms = [*rule.arms, *(control for control, of in controls.items() if of in rule.arms)]
    why = [doubts[found.board or "", arm] for arm in arms if (found.board or "", arm) in doubts]
    if not why or found.verdict == INVALID:
        return found
    return replace(found, verdict=INVALID, why="; ".join(dict.fromkeys(why)))


def foretold(prediction: Prediction, decision: Decision) -> Foretold:
    """Whether the prediction came true. A prediction that missed is said to have missed, whatever else was found."""
    if decision.verdict == INVALID:
        return Foretold(prediction, INVALID, decision.whole.why)
    if decision.verdict == SUPPORTED:
        return Foretold(prediction, HIT, "")
    parts = decision.boards if decision.rule.over_boards == "each" else (decision.whole,)
    against = [
        part
        for part in parts
        if part.verdict in (REFUTED, NULL) and part.effect is not None and prediction.refuted_by(part.effect)
    ]
    if against:
        worst = against[0]
        on = f" on {worst.board}" if worst.board else ""
        limit = f"{prediction.refuted_op} {prediction.refuted_threshold:g}"
        return Foretold(prediction, MISSED, f"{decision.rule.compare} {worst.effect:.4g}{on} is {limit}")
    why = f"the rule is {decision.verdict}, and what would refute the prediction was not seen"
    return Foretold(prediction, UNDECIDED, why)


def _on_board(rule: Rule, board: str, readings: Sequence[Reading], controls: Mapping[str, str]) -> Effect:
    sides = [[reading for reading in readings if reading.arm == arm] for arm in rule.arms]
    repeated = [r for r in readings if controls.get(r.arm) in rule.arms and r.state != NOT_SELECTED]
    if stopped := _unusable(rule, board, sides, repeated):
        return stopped
    values = [[reading.value for reading in side if reading.value is not None] for side in sides]
    numbers = [AGGREGATES[rule.aggregate](side) for side in values]
    arm = numbers[0]
    baseline = numbers[1] if len(numbers) > 1 else None
    if rule.compare == "ratio" and baseline == 0:
        return _nothing(board, UNDECIDED, f"the baseline {rule.baseline} is 0: there is no ratio", sides)
    if baseline is None:
        effect = arm
    else:
        effect = arm / baseline if rule.compare == "ratio" else arm - baseline
    reference = rule.threshold if baseline is None else baseline
    pairs = [_pairs(arm, readings, controls) for arm in rule.arms]
    noise = noise_of(rule, effect, pairs, values, _couples(sides), reference)
    margin = rule.minimum_effect.margin(rule.compare, reference)
    verdict, why = _judge(rule, effect, noise, margin)
    count = len(values[1]) if len(values) > 1 else 0
    return Effect(board, verdict, effect, arm, len(values[0]), baseline, count, noise, why)


def _unusable(rule: Rule, board: str, sides: Sequence[Sequence[Reading]], repeated: Sequence[Reading]) -> Effect | None:
    """Why there is no number, if so. `repeated`: the readings of the arms' controls, which tell the noise."""
    for arm, side in zip(rule.arms, sides, strict=True):
        if not side or any(reading.state == NOT_SELECTED for reading in side):
            return _nothing(board, UNDECIDED, f"not all cells of {arm} were selected", sides)
    bad = [reading for side in (*sides, repeated) for reading in side if reading.state != VALID]
    if bad:
        first = bad[0]
        needed = sum(len(side) for side in (*sides, repeated))
        why = f"needed runs that do not count: {len(bad)} of {needed}; {first.arm}#{first.repetition}: {first.state}"
        return _nothing(board, INVALID, why, sides)
    without = [reading for side in sides for reading in side if reading.value is None]
    if without:
        first = without[0]
        return _nothing(board, UNDECIDED, f"{rule.metric} of {first.arm}#{first.repetition}: {first.why}", sides)
    return None


def _nothing(board: str | None, verdict: str, why: str, sides: Sequence[Sequence[Reading]] = ()) -> Effect:
    counts = [sum(reading.value is not None for reading in side) for side in sides] + [0, 0]
    return Effect(board, verdict, None, None, counts[0], None, counts[1], UNKNOWN, why)


def _pairs(arm: str, readings: Sequence[Reading], controls: Mapping[str, str]) -> list[tuple[float, float]]:
    """(arm, its control) of the same repetition, where both count."""
    known = {(r.arm, r.repetition): r.value for r in readings if r.state == VALID and r.value is not None}
    return [
        (value, control)
        for (name, repetition), value in known.items()
        if name == arm
        for control_arm, of in controls.items()
        if of == arm and (control := known.get((control_arm, repetition))) is not None
    ]


def _couples(sides: Sequence[Sequence[Reading]]) -> list[tuple[float, float]]:
    """(arm, baseline) of each repetition; nothing where no arms are compared, or a repetition lacks one of them."""
    by_repetition = [{r.repetition: r.value for r in side if r.value is not None} for side in sides]
    if len(by_repetition) != 2 or by_repetition[0].keys() != by_repetition[1].keys():
        return []
    arm, baseline = by_repetition
    return [(arm[repetition], baseline[repetition]) for repetition in sorted(arm)]


def _judge(rule: Rule, effect: float, noise: Noise, margin: float) -> tuple[str, str]:
    """The word for one effect, and what to say when it is not a plain yes or no."""
    bar = max(noise.value or 0.0, margin)
    null = rule.null
    if null is not None and noise.value is None:
        return UNDECIDED, "the noise is not known: no control, one repetition, and the rule assumes none"
    if null is not None and not rule.holds(null) and abs(effect - null) <= bar:
        return NULL, f"no effect beyond {'the noise' if bar > margin else 'the minimum effect'} ({bar:.3g})"
    if abs(effect - rule.threshold) <= bar and bar > 0:
        return UNDECIDED, f"nearer to the threshold than {bar:.3g}"
    return (SUPPORTED if rule.holds(effect) else REFUTED), ""


def _whole(rule: Rule, boards: Sequence[Effect]) -> Effect:
    if not boards:
        return _nothing(None, INVALID, "there is no run")
    # Where each board is asked, one that has no effect does not hide another that refutes.
    for word in (INVALID,) if rule.over_boards == "each" else (INVALID, UNDECIDED):
        stopped = [board for board in boards if board.verdict == word and (board.effect is None or word == INVALID)]
        if stopped:
            return _nothing(None, word, f"{stopped[0].board}: {stopped[0].why}")
    if rule.over_boards == "each":
        return _each(boards)
    effects = [board.effect for board in boards if board.effect is not None]
    if rule.over_boards in ("min", "max"):
        wanted = min(effects) if rule.over_boards == "min" else max(effects)
        found = next(board for board in boards if board.effect == wanted)
        why = f"{found.board}: {found.why}" if found.why else f"{found.board} decides"
        return replace(found, board=None, why=why)
    return _median(rule, boards, median(effects))


def _each(boards: Sequence[Effect]) -> Effect:
    """On every board: one board against it is enough to refute, all are needed to support."""
    words = {board.verdict for board in boards}
    word = next(w for w in (REFUTED, NULL, UNDECIDED, SUPPORTED) if w in words)
    of = [str(board.board) for board in boards if board.verdict == word]
    why = "" if words == {SUPPORTED} else f"{word} on {len(of)} of {len(boards)} boards ({', '.join(of)})"
    return Effect(None, word, None, None, sum(board.arm_n for board in boards), None,
                  sum(board.baseline_n for board in boards), UNKNOWN, why)  # fmt: skip


def _median(rule: Rule, boards: Sequence[Effect], effect: float) -> Effect:
    noises = [board.noise for board in boards]
    known = [noise for noise in noises if noise.value is not None]
    # One board whose noise is not known leaves the noise of the median unknown; else the noisiest speaks for it.
    noise = max(known, key=lambda entry: entry.value or 0.0) if len(known) == len(noises) else UNKNOWN
    bases = [board.baseline_value for board in boards if board.baseline_value is not None]
    margin = rule.minimum_effect.margin(rule.compare, median(bases) if bases else rule.threshold)
    verdict, why = _judge(rule, effect, noise, margin)
    return Effect(None, verdict, effect, None, sum(board.arm_n for board in boards), None,
                  sum(board.baseline_n for board in boards), noise, why)  # fmt: skip
