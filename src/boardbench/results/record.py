"""run.json: one attempt, with everything that is needed to judge it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from boardbench.results import store
from boardbench.results.judge import Facts
from boardbench.results.problems import Reason

SCHEMA_VERSION = 1
NAME = "run.json"


@dataclass(frozen=True)
class Attempt:
    """What is known of an attempt when its load has started. The journal keeps it, so that it can be collected late."""

    run: str
    campaign: str
    cell: str
    arm: Mapping[str, str]
    phase: str | None
    repetition: int
    attempt: int
    board: str
    workload: Mapping[str, Any]
    raw_files: tuple[str, ...]
    virtual: bool
    time_scale: float
    logger_period_s: float
    boot_id: str | None
    started: Mapping[str, Any]
    controller_started_unix_s: float
    evidence: tuple[Mapping[str, Any], ...]

    def as_dict(self) -> dict[str, Any]:
        """The attempt as JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(value: Mapping[str, Any]) -> Attempt:
        """The attempt that `as_dict` wrote."""
        return Attempt(**{**value, "raw_files": tuple(value["raw_files"]), "evidence": tuple(value["evidence"])})

    def folder(self, campaign: Path) -> Path:
        """Where the finished attempt lies."""
        return campaign / "cells" / self.cell / f"attempt-{self.attempt}"


def with_answer(attempt: Attempt, answer: Mapping[str, Any]) -> Attempt:
    """An attempt with what the board itself says about its start."""
    boot_id, started = answer.get("boot_id"), answer.get("started")
    return replace(
        attempt,
        boot_id=boot_id if isinstance(boot_id, str) and boot_id else None,
        started=dict(started) if isinstance(started, Mapping) else attempt.started,
    )


@dataclass(frozen=True)
class RawRead:
    """What the workload's own files say: the window of load, the board's stamp at its end, or why they are no use."""

    window_monotonic_s: tuple[float, float] | None
    ended: Mapping[str, Any] | None
    fault: str | None
    evidence: tuple[Mapping[str, Any], ...] = ()


def missing(why: str) -> dict[str, str]:
    """A value that could not be had."""
    return {"missing": why}


def make(
    attempt: Attempt,
    facts: Facts,
    raw: RawRead,
    files: Sequence[Mapping[str, Any]],
    reasons: Sequence[Reason],
    controller_ended_unix_s: float,
) -> dict[str, object]:
    """The contents of run.json."""
    if facts.exit_signal is not None:
        ended_with: dict[str, object] = {"signal": facts.exit_signal}
    elif facts.exit_code is not None:
        ended_with = {"code": facts.exit_code}
    else:
        ended_with = {"missing": "the board did not say how the workload ended"}
    window = facts.window_monotonic_s
    return {
        "schema_version": SCHEMA_VERSION,
        "run": attempt.run,
        "campaign": attempt.campaign,
        "cell": attempt.cell,
        "arm": dict(attempt.arm),
        "phase": attempt.phase,
        "repetition": attempt.repetition,
        "attempt": attempt.attempt,
        "boards": [attempt.board],
        "workload": {**attempt.workload, "raw_files": list(attempt.raw_files)},
        "virtual": attempt.virtual,
        "time_scale": attempt.time_scale,
        "logger_period_s": attempt.logger_period_s,
        "started": {"board": dict(attempt.started), "controller_wall_unix_s": attempt.controller_started_unix_s},
        "ended": {
            "board": dict(raw.ended) if raw.ended is not None else missing("the workload wrote no end"),
            "controller_wall_unix_s": controller_ended_unix_s,
        },
        "boot_ids": {
            "before": facts.boot_before or missing("not read"),
            "after": facts.boot_after or missing("not read"),
        },
        "exit": ended_with,
        "load_window_monotonic_s": list(window) if window else missing(raw.fault or "no interval of load"),
        "page_cache": _page_cache(facts.evidence),
        "evidence": [dict(entry) for entry in facts.evidence],
        "files": sorted((dict(entry) for entry in files), key=lambda entry: str(entry["name"])),
        "valid": not reasons,
        "invalid_reasons": [reason.as_dict() for reason in reasons],
    }


def _page_cache(evidence: Sequence[Mapping[str, Any]]) -> str:
    """`cold` only when the drop was proved; without proof, and when nobody asked for a drop, it was warm."""
    found = [entry for entry in evidence if entry["gate"] == "cache"]
    return "cold" if found and all(entry["ok"] for entry in found) else "warm"


def facts_of(run: Mapping[str, Any]) -> Facts:
    """The facts that a run.json (already checked against its schema) holds."""

    def known(value: object) -> Any:
        return None if isinstance(value, Mapping) and "missing" in value else value

    window = known(run["load_window_monotonic_s"])
    return Facts(
        evidence=tuple(run["evidence"]),
        boot_before=known(run["boot_ids"]["before"]),
        boot_after=known(run["boot_ids"]["after"]),
        exit_code=run["exit"].get("code"),
        exit_signal=run["exit"].get("signal"),
        window_monotonic_s=(window[0], window[1]) if window else None,
    )


def list_files(folder: Path) -> list[dict[str, object]]:
    """Every file of an attempt but run.json, with its size in bytes and its hash."""
    found: list[dict[str, object]] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / NAME:
            found.append(
                {
                    "name": path.relative_to(folder).as_posix(),
                    "size": path.stat().st_size,
                    "sha256": store.sha256_file(path),
                }
            )
    return found
