"""Golden outputs: before the load, every node made the same of one image, twice. A rate of wrong answers is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from boardbench.results.problems import Reason
from boardbench.workloads.base import Golden

CODE = "outputs-differ"
TIMES = 2


def reasons(asked: Sequence[str], golden: Golden) -> tuple[Reason, ...]:
    """Why the outputs of the nodes `asked` cannot be trusted; none: they can.

    Each must have given an output twice, and the same one; and so must all nodes that should agree.
    """
    if not golden.outputs:
        return (Reason(CODE, golden.why or "the nodes' outputs were not compared before the load"),)
    names = sorted({*asked, *golden.outputs})
    found = [reason for name in names for reason in _unrest(name, golden)]
    found += [reason for group in golden.alike or (tuple(golden.outputs),) for reason in _odd(group, golden.outputs)]
    return tuple(found)


def _unrest(name: str, golden: Golden) -> Iterator[Reason]:
    seen = golden.outputs.get(name, ())
    if len(seen) < TIMES:
        told = f" ({golden.why})" if golden.why else ""
        yield Reason(CODE, f"{name}: {len(seen)} of {TIMES} outputs of the image came{told}")
    if len(set(seen)) > 1:
        yield Reason(CODE, f"{name}: one image gave {len(set(seen))} outputs")


def _odd(group: Sequence[str], outputs: Mapping[str, Sequence[str]]) -> Iterator[Reason]:
    """Who gives another output than most; where no output is that of most, all of them."""
    first = {name: outputs[name][0] for name in group if len(set(outputs.get(name, ()))) == 1}
    counts = Counter(first.values())
    if len(counts) < 2:
        return
    common, count = counts.most_common(1)[0]
    same = sorted(name for name, output in first.items() if output == common)
    if 2 * count <= len(first):
        yield Reason(CODE, f"{', '.join(sorted(first))}: their outputs for one image differ")
        return
    for name in sorted(set(first) - set(same)):
        yield Reason(CODE, f"{name}: its output is not that of {', '.join(same)} for the same image")
