"""compare: one campaign against another, cell by cell."""

from __future__ import annotations

from invoke import Context

from boardbench.errors import ExitCode, InputError
from tasks._verb import emit, verb


@verb(
    positional=["a", "b"],
    help={
        "a": "the baseline: campaign folder or part of its name",
        "b": "what is held against it",
        "metric": "only this metric (default: all that both have)",
        "despite": "unlike conditions that you accept, joined by commas (virtual, time-scale, cooling, clocks, "
        "payload, workload, model, scheduler-host, boards)",
        "minimum-effect": "differences below so many percent count as none (default 1)",
    },
)
def compare(
    c: Context, a: str, b: str, metric: str = "", despite: str = "", minimum_effect: str = "1", json: bool = False
) -> int:
    """Hold campaign B against campaign A, cell by cell; refuses unlike conditions unless they are named."""
    from boardbench.report.comparison import compare as held_against
    from tasks._files import campaign_dir

    names = [name.strip() for name in despite.split(",") if name.strip()]
    found = held_against(campaign_dir(a), campaign_dir(b), metric, names, _share(minimum_effect))
    if json:
        emit(found.as_json())
    else:
        from boardbench.report.comparison_table import print_comparison

        print_comparison(found)
    return ExitCode.OK


def _share(given: str) -> float:
    try:
        percent = float(given)
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 100:
        raise InputError(f"'{given}' is no percentage from 0 to 100", where="--minimum-effect")
    return percent / 100


VERBS = (compare,)
