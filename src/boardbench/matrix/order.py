"""In which order the waves of a matrix run. A pure function of arms, repeats, blocks, kind of order and seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

Wave = tuple[int, int]
"""Index of the arm, repetition (from 1)."""
ORDERS = ("blocked", "interleaved", "balanced", "random")


def order_waves(
    arms: int, repeats: int, kind: str, seed: int, blocks: Sequence[Sequence[int]] | None = None
) -> tuple[Wave, ...]:
    """Every (arm, repetition) once.

    - `blocked`: all repetitions of an arm, then the next arm: the fewest switches, but arm and time are one;
    - `interleaved`: all arms once, then again, the direction reversed each time, so that a slow drift of the
      surroundings does not favour the same arm each time;
    - `balanced`: each repetition is a row of a Williams design, so that over all its rows each arm stands equally
      often in each place and follows each other arm equally often;
    - `random`: the arms of each repetition in an order drawn from `seed`.

    `blocks`: arms that stay together within a repetition, since a change between blocks needs a hand or a restart.
    The order of the blocks is a Williams design over the repetitions, whatever the order within them.
    """
    groups = [list(block) for block in blocks] if blocks else [list(range(arms))]
    if kind == "blocked":
        return tuple((arm, rep) for block in groups for arm in block for rep in range(1, repeats + 1))
    draw = random.Random(seed)  # seeded: an order that can be drawn again is the point
    over_blocks = design(len(groups), draw)
    within = [design(len(block), draw) for block in groups]
    waves: list[Wave] = []
    for index in range(repeats):
        for place in over_blocks[index % len(over_blocks)]:
            block = groups[place]
            if kind == "balanced":
                rows = within[place]
                this = [block[at] for at in rows[index % len(rows)]]
            elif kind == "random":
                this = draw.sample(block, len(block))
            else:
                this = block[::-1] if index % 2 else block
            waves += [(arm, index + 1) for arm in this]
    return tuple(waves)


def williams(count: int) -> tuple[tuple[int, ...], ...]:
    """Rows in which each of `count` items is in each place, and right before each other item, equally often.

    `count` rows when it is even; an odd one needs 2 x `count`: a Latin square, and the same one mirrored.
    """
    zigzag = [0]
    for step in range(1, count):
        zigzag.append((step + 1) // 2 if step % 2 else count - step // 2)
    rows = [tuple((item + shift) % count for item in zigzag) for shift in range(count)]
    if count % 2 and count > 1:
        rows += [row[::-1] for row in rows]
    return tuple(rows)


def design(count: int, draw: random.Random) -> tuple[tuple[int, ...], ...]:
    """A Williams design with names and rows drawn at random; the first `count` rows stay a Latin square."""
    names = draw.sample(range(count), count)
    rows = [tuple(names[item] for item in row) for row in williams(count)]
    squares = [rows[start : start + count] for start in range(0, len(rows), count)]
    return tuple(row for square in squares for row in draw.sample(square, len(square)))


def caveat(repeats: int, kind: str, blocks: Sequence[Sequence[int]]) -> str:
    """What this order leaves open, for people; empty when there is nothing to say."""
    arms = sum(len(block) for block in blocks)
    if arms > 1 and kind == "blocked":
        return "blocked: a drift of the surroundings looks like an effect of the arm that ran last"
    needs = [len(williams(len(block))) for block in blocks] if kind == "balanced" else []
    needs += [len(williams(len(blocks)))] if len(blocks) > 1 else []
    uneven = sorted({need for need in needs if repeats % need})
    if uneven:
        return f"the order is balanced as a whole only when repeats is a multiple of {uneven[-1]}; it is {repeats}"
    return ""
