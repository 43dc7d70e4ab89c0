"""In which order the waves of a matrix run. A pure function of arms, repeats, kind of order and seed."""

from __future__ import annotations

import random

Wave = tuple[int, int]
"""Index of the arm, repetition (from 1)."""


def order_waves(arms: int, repeats: int, kind: str, seed: int) -> tuple[Wave, ...]:
    """Every (arm, repetition) once.

    - `blocked`: all repetitions of an arm, then the next arm (few switches of a fan);
    - `interleaved`: all arms once, then again, the direction reversed each time, so that a slow drift of the
      surroundings does not favour the same arm each time;
    - `shuffled`: like interleaved, the arms of each repetition in an order drawn from `seed`.
    """
    if kind == "blocked":
        return tuple((arm, repetition) for arm in range(arms) for repetition in range(1, repeats + 1))
    draw = random.Random(seed)  # seeded: an order that can be drawn again is the point
    waves: list[Wave] = []
    for repetition in range(1, repeats + 1):
        this = list(range(arms))
        if kind == "shuffled":
            draw.shuffle(this)
        elif repetition % 2 == 0:
            this.reverse()
        waves += [(arm, repetition) for arm in this]
    return tuple(waves)
