"""import: raw files of other benches and tools become a campaign, with everything that is wrong with them."""

from __future__ import annotations

import re
from pathlib import Path

from invoke import Context

from boardbench.errors import ExitCode, InputError
from tasks._verb import emit, verb

PHASES = ("active", "fanless")


@verb(
    name="import",
    positional=["path"],
    help={
        "path": "a file, or a result folder",
        "format": "npu-rig, llama-bench, llama-server, llama-perplexity, tegrastats, sysfs, rknpu, node-info,"
        " router-trace or gguf (default: told by the files themselves)",
        "board": "whose the files are, where they do not say it",
        "phase": "active or fanless, where you know it (the files never prove it)",
        "question": "what was asked (default: what the files say)",
        "dry_run": "read and print, keep nothing",
    },
)
def import_(
    c: Context,
    path: str,
    format: str = "",
    board: str = "",
    phase: str = "",
    question: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> int:
    """Make a campaign of raw files: results of other benches, llama.cpp, tegrastats, kernel files, models."""
    import tempfile

    from boardbench.imports.campaign import write
    from boardbench.imports.documents import Told
    from boardbench.imports.registry import read
    from tasks._files import results_dir

    if phase and phase not in PHASES:
        raise InputError(f"no phase '{phase}'", advice=f"there are: {', '.join(PHASES)}")
    if board and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", board):
        raise InputError(f"'{board}' is no name of a board", advice="use letters, digits, dot, dash, underscore")
    given = Path(path)
    imported = read(given, format, board or None)
    told = Told(phase or None, board or None, question.strip() or None)
    name = given.resolve().name
    if dry_run:
        with tempfile.TemporaryDirectory() as folder:
            return _show(write(imported, name, Path(folder), told), json, kept=False)
    return _show(write(imported, name, results_dir(), told), json, kept=True)


def _show(folder: Path, json: bool, *, kept: bool) -> int:
    from boardbench.imports.stored import load
    from boardbench.report.import_table import import_figures, print_import

    stored = load(folder)
    if json:
        emit(
            {
                "campaign": str(folder) if kept else None,
                "format": stored.provenance["format"],
                "chosen": stored.provenance["chosen"],
                "counts": {
                    "runs": len(stored.runs),
                    "valid": sum(1 for run in stored.measured if run.valid),
                    "samples": sum(log.rows for log in stored.logs),
                    "facts": len(stored.facts),
                },
                "figures": import_figures(stored),
                "faults": list(stored.faults),
                "not_known": list(stored.provenance["not_known"]),
            }
        )
    else:
        print_import(stored)
        print(f"{'kept in ' + str(folder) if kept else 'nothing was kept (--dry-run)'}")
    return ExitCode.OK if all(run.valid for run in stored.measured) and not stored.faults else ExitCode.OUTCOME


VERBS = (import_,)
