"""The JSON documents of an imported campaign, made from what was read. Pure: the same input gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boardbench.imports.model import Fact, FactValue, Missing, Parsed, Reading, Run, Samples
from boardbench.imports.text import slug

SCHEMA_VERSION = 1
UNNAMED_BOARD = "unknown"
"""Stands where a schema wants a board and the source names none."""


@dataclass(frozen=True)
class Told:
    """What the person who imports says, because the files do not: the phase of cooling, the board, the question."""

    phase: str | None = None
    board: str | None = None
    question: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """As campaign.json holds it."""
        return {"phase": self.phase, "board": self.board, "question": self.question}


_UNPRINTABLE = re.compile(r"[^\t\n -~\u00a0-\ud7ff\ue000-\U0010ffff]")


def clean(value: dict[str, Any]) -> dict[str, Any]:
    """The document without half characters, which are no UTF-8, and control characters, which steer terminals."""
    result: dict[str, Any] = _clean(value)
    return result


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(key): _clean(entry) for key, entry in value.items()}
    return [_clean(entry) for entry in value] if isinstance(value, list) else value


def reading(value: Reading) -> float | dict[str, str]:
    """A reading in JSON: a number, or why there is none."""
    return {"missing": value.why} if isinstance(value, Missing) else value


def _fact_value(value: FactValue) -> object:
    if isinstance(value, Missing):
        return {"missing": value.why or "not told"}
    return [_whole(entry) for entry in value] if isinstance(value, tuple) else _whole(value)


def _whole(value: object) -> object:
    """A whole number without a point: facts are often counts."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return value


def cell_name(number: int, run: Run) -> str:
    """`003-c12-conn2`: its number in the source's order and its arm, as a word."""
    levels = "-".join(slug(level) for level in run.arm.values())
    return f"{number:03d}-{levels}"[:80].rstrip("-._") if levels else f"{number:03d}"


def boards_of(run: Run, told: Told) -> list[str]:
    """The boards of a run as words; what the source says, else what was told."""
    return [slug(board) for board in run.boards] or ([told.board] if told.board else [])


def runs(parsed: Parsed, campaign: str, format_name: str, told: Told) -> dict[str, Any]:
    """runs.json."""
    short = campaign.rpartition("-")[2]
    result = []
    for number, run in enumerate(parsed.runs, start=1):
        cell = cell_name(number, run)
        window = run.window_unix_s
        result.append(
            {
                "run": f"{short}-{cell}",
                "cell": cell,
                "boards": boards_of(run, told),
                "arm": {key: level or "-" for key, level in run.arm.items()} or {"what": format_name},
                "phase": run.phase or told.phase,
                "repetition": run.repetition,
                "window_unix_s": {"missing": window.why} if isinstance(window, Missing) else list(window),
                "metrics": {name: reading(value) for name, value in run.metrics.items()},
                "notes": list(run.notes),
                "extra": dict(run.extra),
                "source": run.source,
                "valid": not run.reasons,
                "invalid_reasons": [{"code": code, "detail": detail} for code, detail in run.reasons],
            }
        )
    return clean({"schema_version": SCHEMA_VERSION, "campaign": campaign, "runs": result})


def faults(parsed: Parsed, campaign: str) -> dict[str, Any]:
    """faults.json."""
    entries = [{"code": one.code, "where": one.where, "detail": one.detail} for one in parsed.faults]
    return clean({"schema_version": SCHEMA_VERSION, "campaign": campaign, "faults": entries})


def facts(parsed: Parsed, campaign: str) -> dict[str, Any]:
    """facts.json."""
    entries = [_fact(fact) for fact in parsed.facts]
    return clean({"schema_version": SCHEMA_VERSION, "campaign": campaign, "facts": entries})


def _fact(fact: Fact) -> dict[str, object]:
    return {"name": fact.name, "value": _fact_value(fact.value), "source": fact.source}


def sample_file(number: int, table: Samples) -> str:
    """Where a table of samples lies inside the campaign."""
    return f"samples/{number:02d}-{slug(table.board or table.name.rpartition('/')[2])}.parquet"


def samples(tables: Sequence[Samples]) -> list[dict[str, Any]]:
    """The list of sample files in campaign.json."""
    return [
        {
            "file": sample_file(number, table),
            "source": table.name,
            "what": table.what,
            "board": slug(table.board) if table.board else None,
            "clock": table.clock,
            "columns": list(table.values),
            "rows": table.rows,
            "breaks_s": list(table.breaks),
        }
        for number, table in enumerate(tables, start=1)
    ]


def verdict(stored_runs: Mapping[str, Any], campaign: str, question: str, domain: str, now: float) -> dict[str, Any]:
    """verdict.json: each run a cell; nothing was decided, since nothing was promised before it."""
    cells = [
        {
            "cell": run["cell"],
            "boards": run["boards"] or [UNNAMED_BOARD],
            "state": "valid" if run["valid"] else "invalid",
            "attempts": [{"attempt": 1, "valid": run["valid"], "invalid_reasons": run["invalid_reasons"]}],
        }
        for run in stored_runs["runs"]
    ]
    valid = sum(1 for run in stored_runs["runs"] if run["valid"])
    return {
        "schema_version": SCHEMA_VERSION,
        "campaign": campaign,
        "ended_wall_unix_s": now,
        "interrupted": False,
        "counts": {
            "cells": len(cells),
            "valid": valid,
            "invalid": len(cells) - valid,
            "missing": 0,
            "not_selected": 0,
        },
        "cells": cells,
        "decisions": {"question": question, "domain": domain, "virtual": False, "rules": [], "prediction": None},
        "missing": [],
        "warnings": [],
        "not_restored": [],
    }
