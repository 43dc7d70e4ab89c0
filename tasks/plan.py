"""plan: what a matrix will do, before it does anything."""

from __future__ import annotations

from invoke import Context

from boardbench.errors import ExitCode
from tasks._verb import emit, note, verb


@verb(
    help={
        "matrix": "name of a file in playbooks/matrices, or a path",
        "set_": "only these levels: factor=level,level (may be given again for another factor)",
        "lock": "write the plan, hashed, to results/plans; bench --plan FILE runs exactly it",
    },
    iterable=["set_"],
)
def plan(
    c: Context,
    matrix: str = "",
    inventory: str = "",
    limit: str = "",
    set_: list[str] | None = None,
    lock: bool = False,
    json: bool = False,
) -> int:
    """Show what a matrix will run: arms, cells in order, gates, rules, prediction, time; --lock writes it down."""
    from boardbench import program
    from boardbench.matrix import lock as locking
    from boardbench.report.plan_text import print_plan
    from tasks._files import results_dir
    from tasks._plans import asked, offline_plan, payload_bytes

    made = offline_plan(asked(matrix, set_ or (), ""), inventory, limit)
    size, side = payload_bytes(made), len(program.build().data) * len(made.boards)
    path = locking.lock(made, results_dir()) if lock else None
    if json:
        emit(
            {
                "plan": made.document(),
                "caveat": made.caveat,
                "estimated_s": made.estimated_s,
                "payload_bytes_at_most": size,
                "program_bytes_at_most": side,
                "locked": None if path is None else str(path),
            }
        )
        return ExitCode.OK
    print_plan(made, size, side)
    if path is not None:
        note(f"locked: {path}")
    return ExitCode.OK


VERBS = (plan,)
