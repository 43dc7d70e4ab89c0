"""validate: trust nothing, check every file."""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from boardbench.errors import ExitCode
from tasks._verb import emit, note, verb


@verb(help={"path": "campaign folder or a folder of campaigns (default: results)"})
def validate(c: Context, path: str = "", json: bool = False) -> int:
    """Check results: schemas, hashes, missing files, NaN, zeros in place of missing values."""
    from boardbench.results.validate import validate as check
    from tasks._files import results_dir

    folder = Path(path) if path else results_dir()
    problems = check(folder)
    if json:
        emit({"path": str(folder), "valid": not problems, "problems": [problem.as_dict() for problem in problems]})
    else:
        for problem in problems:
            print(problem)
        note(
            f"{folder}: "
            + (f"{len(problems)} problems" if problems else "valid: every file has its hash and fits its schema")
        )
    return ExitCode.OUTCOME if problems else ExitCode.OK


VERBS = (validate,)
