"""Which format a file is of, told by its first bytes; and why it was taken for that."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

from boardbench.imports import (
    kernel_files,
    llama_bench,
    llama_bench_md,
    llama_log,
    npu_csv,
    npu_thermal,
    rknpu,
    tegrastats,
)
from boardbench.imports.table import fields_of
from boardbench.imports.text import lines_of

HEAD_BYTES = 1 << 16
_FEW = 40
_LONGEST = 4096
_SECTION = re.compile(r"#\s*---\s.*\s---\s*")
_KEY_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*=.*")


@dataclass(frozen=True)
class Guess:
    """A format, the dialect inside it (`csv`, `json`, ...), and what spoke for it."""

    format: str
    dialect: str
    why: str


def guess(head: bytes, name: str = "") -> Guess | None:
    """The format of a file that begins with `head` (up to 64 KiB); None when nothing speaks for one."""
    if head.startswith(b"GGUF"):
        return Guess("gguf", "", "it begins with GGUF")
    if head.startswith(b"BBROUTE1"):
        return Guess("router-trace", "", "it begins with the mark of a router trace")
    lines = [line.text[:_LONGEST] for line in lines_of(io.BytesIO(head))]
    texts = [text for text in lines if text.strip()][: 20 * _FEW]
    if not texts:
        return None
    first = texts[0]
    return (
        _json(first, head)
        or _tables(first, texts)
        or _lines(texts)
        or _llama_text(texts, head)
        or (Guess("npu-rig", "meta", "its name is meta.txt") if name.rpartition("/")[2] == "meta.txt" else None)
    )


def _json(first: str, head: bytes) -> Guess | None:
    start = first.lstrip()
    if not start.startswith(("{", "[")) and not start.startswith("data:"):
        return None
    # A JSON line is an object that closes on its own line.
    dialect = "jsonl" if start.startswith("data:") or (start[0] == "{" and first.rstrip().endswith("}")) else "json"
    if b"boardbench-router-trace" in head[:4096]:
        return Guess("router-trace", "", "its first line names a router trace")
    if all(key in head for key in (b'"run_id"', b'"conditions"')):
        return Guess("npu-rig", "bench", "it has the keys of the rig's bench report")
    for key, format_name in ((b'"avg_ts"', "llama-bench"), (b'"timings"', "llama-server")):
        if key in head:
            return Guess(format_name, dialect, f"it is JSON with the key {key.decode()}")
    if b'"line"' in head and re.search(rb'"line"\s*:\s*"[^"]*RAM \d+/\d+', head):
        return Guess("tegrastats", "", "it is JSON lines that hold lines of tegrastats")
    return None


def _tables(first: str, texts: list[str]) -> Guess | None:
    if npu_thermal.is_header(first):
        return Guess("npu-rig", "thermal", "its first line is the header of the rig's thermal log")
    try:
        header = [name.strip() for name in fields_of(first)]
    except ValueError:
        header = []
    if (kind := npu_csv.kind_of(header)) is not None:
        return Guess("npu-rig", "csv", f"its header is that of the rig's {kind.name} table")
    if set(llama_bench.REQUIRED) <= set(header):
        return Guess("llama-bench", "csv", "its header has n_prompt, n_gen and avg_ts")
    if any(llama_bench_md.is_header(text) for text in texts):
        return Guess("llama-bench", "md", "it has a table with the columns test and t/s")
    if any("INSERT INTO" in text.upper() and "avg_ts" in text for text in texts):
        return Guess("llama-bench", "sql", "it inserts n_prompt, n_gen and avg_ts")
    return None


def _lines(texts: list[str]) -> Guess | None:
    few = texts[:_FEW]
    if any(tegrastats.looks_like(text) for text in few):
        return Guess("tegrastats", "", "it has lines that begin with RAM used/total")
    if _SECTION.fullmatch(few[0].strip()) and any(_KEY_VALUE.fullmatch(text) for text in few[1:]):
        return Guess("node-info", "", "it has sections of key=value")
    if any(rknpu.looks_like(text) for text in few):
        return Guess("rknpu", "", "it has texts of the RKNPU driver")
    told = [text for text in few if not text.startswith("#")]
    if told and kernel_files.looks_like(told[0]):
        return Guess("sysfs", "", "its lines are paths of kernel files with values")
    return None


def _llama_text(texts: list[str], head: bytes) -> Guess | None:
    if any(llama_log.TIMING.search(text) for text in texts):
        return Guess("llama-server", "log", "it has timing lines of llama.cpp")
    if any("Final estimate: PPL" in text or re.match(r"\[1\]\S+,\[2\]", text) for text in texts):
        return Guess("llama-perplexity", "log", "it has perplexities")
    if b'"avg_ts"' in head:
        return Guess("llama-bench", "json", "it has the key avg_ts behind other text")
    return None
