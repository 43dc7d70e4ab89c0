"""How many nodes took part: counted by the answers that they gave, never by who is registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boardbench.results.problems import Reason

CODE = "nodes-unanswered"


def reasons(planned: Sequence[str], answers: Mapping[str, int]) -> tuple[Reason, ...]:
    """Why a run on the nodes `planned` is not one on these nodes. `answers`: node -> samples that came from it.

    A planned node without an answer takes the run out, and so does an answer from a node that the cell does not have.
    """
    silent = sorted(node for node in planned if answers.get(node, 0) <= 0)
    strange = sorted(node for node, count in answers.items() if count > 0 and node not in planned)
    found: list[Reason] = []
    if silent:
        answered = len(set(planned)) - len(set(silent))
        found.append(Reason(CODE, f"{answered} of {len(set(planned))} nodes answered, none from {', '.join(silent)}"))
    if strange:
        found.append(Reason(CODE, f"answers from {', '.join(strange)}, which the cell does not have"))
    return tuple(found)
