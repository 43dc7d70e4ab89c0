"""Logs of llama.cpp programs: the timing lines of every version, and perplexity. A progress line is no result.

Rates are made from counts and times; the printed one is only held against them (`0.00 ms` prints `inf`, which is none).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from boardbench.imports.llama_server import rate
from boardbench.imports.model import Missing, Parsed, Reading, Run
from boardbench.imports.text import LONGEST_TEXT, Faults, Line, number, reading

TIMING = re.compile(
    r"(?P<what>prompt eval|generation eval|eval) time\s*=\s*(?P<ms>\S+) ms\s*/\s*(?P<n>\d{1,12}) (?:tokens|runs)"
    r"\s*\(\s*(?P<per>\S+) ms per token,\s*(?P<rate>\S+) tokens per second\)"
)
_LIKE_TIMING = re.compile(r"eval time\s*=")
_TASK = re.compile(r"(?:id_task=|\btask\s+)(\d{1,18})")
_FINAL = re.compile(
    r"Final estimate: PPL(?: over (?P<chunks>\d{1,9}) chunks for n_ctx=(?P<ctx>\d{1,9}))? = (?P<ppl>\S+)"
    r" \+/- (?P<error>\S+)"
)
_CHUNK = re.compile(r"\[(\d{1,9})\](\S+?),")
_FATAL = re.compile(
    r"error loading model|has invalid ggml type|segmentation fault|GGML_ASSERT|out of memory"
    r"|Unexpected negative standard deviation|failed to (?:load|decode)",
    re.I,
)
PRINTED_NOISE = 0.006


@dataclass
class _Open:
    """Timings of one request that wait for their other half."""

    line: int
    task: str | None
    prompt: tuple[Reading, Reading] | None = None
    made: tuple[Reading, Reading] | None = None
    reasons: list[tuple[str, str]] = field(default_factory=list)


class _Reader:
    """Goes over a log once and keeps what it says."""

    def __init__(self, name: str) -> None:
        self.faults = Faults(name)
        self.name = name
        self.runs: list[Run] = []
        self.open: _Open | None = None
        self.task: str | None = None
        self.chunks = 0
        self.bad_chunks = 0
        self.perplexity: list[Run] = []

    def line(self, line: Line) -> None:
        """Take one line."""
        text = line.text
        if (task := _TASK.search(text)) is not None:
            self.task = task[1]
        if (match := TIMING.search(text)) is not None:
            self._timing(match, line.number)
        elif _LIKE_TIMING.search(text):
            self.faults.add("malformed-file", "looks like a timing but is none that is known", line.number)
        elif (match := _FINAL.search(text)) is not None:
            self._final(match, line.number)
        elif _FATAL.search(text):
            self.faults.add("workload-failed", text.strip()[:160], line.number)
        else:
            for chunk in _CHUNK.finditer(text):
                if chunk[1] == "1":
                    self.unfinished()
                self.chunks += 1
                self.bad_chunks += isinstance(reading(chunk[2]), Missing)

    def _timing(self, match: re.Match[str], line: int) -> None:
        what = "prompt" if match["what"] == "prompt eval" else "made"
        if self.open is not None and (getattr(self.open, what) is not None or self.open.task != self.task):
            self.close()
        if self.open is None:
            self.open = _Open(line, self.task)
        pair = (float(match["n"]), reading(match["ms"]))
        setattr(self.open, what, pair)
        mine, told = rate(*pair, what), reading(match["rate"])
        if isinstance(told, Missing):
            code = "not-finite" if "not finite" in told.why else "malformed-file"
            self.faults.add(code, f"{match['what']}: the rate {told.why}: it is missing", line)
        elif isinstance(mine, float) and abs(mine - told) > max(0.02 * mine, PRINTED_NOISE) and told > 0:
            reason = f"{match['what']}: the log prints {told:g} tokens/s, its counts give {mine:g}"
            self.open.reasons.append(("counts-do-not-add-up", reason))

    def close(self) -> None:
        """The request that is open is whole."""
        if self.open is None:
            return
        none: tuple[Reading, Reading] = (Missing("no line tells it"), Missing("no line tells it"))
        (prompt, prompt_ms), (made, made_ms) = self.open.prompt or none, self.open.made or none
        decode = rate(made, made_ms, "eval")
        reasons = list(self.open.reasons)
        if isinstance(decode, Missing) and self.open.made is not None:
            reasons.append(("workload-failed", f"no decode rate: {decode.why}"))
        self.runs.append(
            Run(
                source=f"{self.name}:{self.open.line}",
                arm={"prompt_cache": "unknown"},
                metrics={
                    "prompt_tokens": prompt,
                    "prefill_ms": prompt_ms,
                    "prefill_tokens_per_s": rate(prompt, prompt_ms, "prompt eval"),
                    "generated_tokens": made,
                    "decode_ms": made_ms,
                    "decode_tokens_per_s": decode,
                },
                extra={} if self.open.task is None else {"task": self.open.task},
                reasons=tuple(reasons),
            )
        )
        self.open = None

    def _final(self, match: re.Match[str], line: int) -> None:
        reasons = []
        values: dict[str, Reading] = {}
        for key, name in (("ppl", "perplexity"), ("error", "perplexity_error")):
            try:
                value = number(match[key])
                values[name] = value if value > 0 else Missing(f"{match[key]} cannot be")
            except ValueError as error:
                values[name] = Missing(str(error))
            missing = values[name]
            if isinstance(missing, Missing):
                reasons.append(("workload-failed", f"{name}: {missing.why}"))
        extra = {key: match[name] for key, name in (("chunks", "chunks"), ("n_ctx", "ctx")) if match[name]}
        self.perplexity.append(
            Run(f"{self.name}:{line}", {"measure": "perplexity"}, values, extra=extra, reasons=tuple(reasons))
        )
        self.chunks = self.bad_chunks = 0

    def unfinished(self) -> None:
        """Running values without a final estimate behind them are a run that failed."""
        if not self.chunks:
            return
        nan = f"; {self.bad_chunks} of {self.chunks} running values are no number" if self.bad_chunks else ""
        why = f"perplexity has no final estimate: the run did not come to its end{nan}"
        self.faults.add("workload-failed", why)
        missing = Missing("no final estimate; a running value is none")
        values: dict[str, Reading] = {"perplexity": missing, "perplexity_error": missing}
        reasons = (("workload-failed", why),)
        self.perplexity.append(Run(self.name, {"measure": "perplexity"}, values, reasons=reasons))
        self.chunks = self.bad_chunks = 0

    def done(self) -> Parsed:
        """All that the log says."""
        self.close()
        self.unfinished()
        numbered = [replace(run, repetition=index) for index, run in enumerate(self.runs, start=1)]
        scored = [replace(run, repetition=index) for index, run in enumerate(self.perplexity, start=1)]
        return Parsed(
            runs=(*numbered, *scored),
            faults=self.faults.done(),
            not_known=(
                "the board, its clocks and temperature",
                "whether prompts came from the cache: the log's lines do not say it",
            ),
        )


def parse(lines: Iterable[Line], name: str) -> Parsed:
    """Requests and perplexities of a log, in order."""
    reader = _Reader(name)
    for line in reader.faults.usable(lines, longest=LONGEST_TEXT):
        reader.line(line)
    return reader.done()
