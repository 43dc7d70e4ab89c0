"""What a check found wrong: the file, the line if there is one, and one sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with stored results. `file` is relative to the folder that was checked."""

    file: str
    line: int | None
    what: str

    def as_dict(self) -> dict[str, object]:
        """The problem as `validate --json` prints it."""
        return {"file": self.file, "line": self.line, "what": self.what}

    def __lt__(self, other: Problem) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[str, int, str]:
        return self.file, self.line or 0, self.what

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.what}"


@dataclass(frozen=True, order=True)
class Reason:
    """Why a run does not count: a word of the closed vocabulary `REASON_CODES`, and what was seen."""

    code: str
    detail: str

    def as_dict(self) -> dict[str, str]:
        """The reason as `run.json` holds it."""
        return {"code": self.code, "detail": self.detail}


REASON_CODES = (
    "arm-did-not-take-effect",
    "boards-differ",
    "boot-id-unknown",
    "cache-warm",
    "clock-jump",
    "clock-unsynced",
    "cool-gate-not-met",
    "cooling-not-as-planned",
    "counts-do-not-add-up",
    "disk-full",
    "end-stamped-start",
    "failed-read",
    "foreign-load",
    "gate-failed",
    "gate-not-run",
    "hash-mismatch",
    "host-key-shared",
    "input-volts-low",
    "instruments-disagree",
    "leftovers-not-restored",
    "limit-not-in-force",
    "link-not-as-declared",
    "littles-law-broken",
    "load-not-running",
    "logger-gap",
    "logger-short",
    "malformed-file",
    "missing-file",
    "no-temperature",
    "nodes-unanswered",
    "not-finite",
    "not-writable",
    "outputs-differ",
    "overheated",
    "overload-quoted",
    "perplexity-differs",
    "rebooted",
    "repeated-key",
    "repeated-run-id",
    "secret-found",
    "setting-not-applied",
    "strays-present",
    "text-differs",
    "throttled-before",
    "torn-line",
    "unprivileged-read",
    "window-not-of-load",
    "workload-failed",
    "workload-short",
    "wrong-board",
)
"""Every word that `invalid_reasons` may use; the schema of `run.json` holds the same list (a test compares them)."""
