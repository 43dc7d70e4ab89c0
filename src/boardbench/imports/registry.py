"""All formats, and the one way in: a path and perhaps a format, out comes what it says, with its provenance."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from boardbench.errors import InputError
from boardbench.imports import (
    kernel_files,
    llama_bench,
    llama_bench_md,
    llama_log,
    llama_server,
    moe_files,
    node_info,
    npu_bench,
    npu_csv,
    npu_folder,
    npu_thermal,
    rknpu,
    tegra_log,
)
from boardbench.imports.guess import HEAD_BYTES, Guess, guess
from boardbench.imports.model import Fact, Parsed, joined
from boardbench.imports.text import Faults, lines_of
from boardbench.results.store import JSON_LIMIT_BYTES

FORMATS: Mapping[str, str] = {
    "npu-rig": "a result folder of the NPU rig, or one of its tables, bench reports, thermal logs",
    "llama-bench": "llama-bench -o json, jsonl, csv, md or sql, of any version",
    "llama-server": "responses of llama-server (JSON, JSON lines), or its log",
    "llama-perplexity": "the log of llama-perplexity",
    "tegrastats": "a log of tegrastats, of any JetPack",
    "sysfs": "a dump of kernel files: path TAB value, grep -r, or ==> path <== blocks",
    "rknpu": "texts of the RKNPU driver's debugfs",
    "node-info": "an inventory of a board as key=value in sections",
    "router-trace": "a trace of which experts a model used",
    "gguf": "a model file: facts of its head",
}
MOST_FILES = 2000
_RIG_BESIDE = ("node-info", "rknpu", "sysfs")


@dataclass(frozen=True)
class Source:
    """A file to be read: where it lies and its name inside what was given. `board`: who it is of, if that was told."""

    path: Path
    name: str
    board: str | None = None


@dataclass(frozen=True)
class Imported:
    """What a path says: its format, how that was found, its files, and everything in them."""

    format: str
    chosen: str
    files: tuple[Source, ...]
    parsed: Parsed


def read(path: Path, format_name: str = "", board: str | None = None) -> Imported:
    """Everything that the file or folder `path` says.

    Raises InputError: no such path, an unknown format, a file that is of none, or one in which nothing can be used.
    """
    if format_name and format_name not in FORMATS:
        raise InputError(f"no format '{format_name}'", advice=f"there are: {', '.join(FORMATS)}")
    sources = _sources(path, board)
    guesses = {source: _guess(source) for source in sources}
    chosen, how = _choose(path, format_name, guesses)
    used = tuple(source for source in sources if _belongs(guesses[source], chosen, format_name, len(sources)))
    if chosen == "npu-rig":
        parsed = _rig(used, guesses)
    else:
        parsed = joined([_one(source, chosen, guesses[source]) for source in used])
    left = [source.name for source in sources if source not in used]
    for names, why in ((left, "of no format that belongs here"), (_links(path), "links to elsewhere")):
        if names:
            text = f"not read, {why}: {', '.join(names[:20])}" + (" ..." if len(names) > 20 else "")
            parsed = replace(parsed, not_known=(*parsed.not_known, text))
    if parsed.empty:
        first = "; ".join(f"{fault.where}: {fault.detail}" for fault in parsed.faults[:3]) or "it says nothing"
        raise InputError(f"nothing in it can be used as {chosen}: {first}", where=str(path))
    return Imported(chosen, how, used, parsed)


def read_again(folder: Path, names: Sequence[str], format_name: str, board: str | None) -> Parsed:
    """The kept sources of a campaign, read as they were when it was made. Raises InputError."""
    if format_name not in FORMATS:
        raise InputError(f"no format '{format_name}'")
    sources = tuple(Source(folder / name, name, board) for name in names)
    guesses = {source: _guess(source) for source in sources}
    if format_name == "npu-rig":
        return _rig(sources, guesses)
    return joined([_one(source, format_name, guesses[source]) for source in sources])


def _sources(path: Path, board: str | None) -> tuple[Source, ...]:
    if path.is_file():
        if not _nameable(path.name):
            raise InputError(f"the file's name cannot be kept: {path.name!a}", advice="rename it")
        return (Source(path, path.name, board),)
    if not path.is_dir():
        raise InputError("there is no such file or folder", where=str(path))
    found = []
    for folder, names, files in os.walk(path):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            file = Path(folder) / name
            if not name.startswith(".") and file.is_file() and not file.is_symlink():
                inside = file.relative_to(path).as_posix()
                if not _nameable(inside):
                    raise InputError(f"a file's name cannot be kept: {inside!a}", where=str(path), advice="rename it")
                found.append(Source(file, inside, board))
        if len(found) > MOST_FILES:
            raise InputError(f"holds more than {MOST_FILES} files", where=str(path), advice="give one result folder")
    if not found:
        raise InputError("the folder holds no file", where=str(path))
    return tuple(found)


def _links(path: Path) -> list[str]:
    """Links in a given folder: they are not followed, so that nothing from outside it gets into a campaign."""
    if not path.is_dir():
        return []
    return sorted(ascii(found.relative_to(path).as_posix()) for found in path.rglob("*") if found.is_symlink())


def _nameable(name: str) -> bool:
    """Whether a manifest can hold the name: printable, no backslash, real UTF-8."""
    return name.isprintable() and "\\" not in name and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _guess(source: Source) -> Guess | None:
    try:
        with source.path.open("rb") as file:
            return guess(file.read(HEAD_BYTES), source.name)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(source.path)) from error


def _choose(path: Path, given: str, guesses: Mapping[Source, Guess | None]) -> tuple[str, str]:
    if given:
        return given, "given by who imported it"
    found = [(source, one) for source, one in guesses.items() if one is not None]
    formats = sorted({one.format for _, one in found})
    if not formats:
        raise InputError(
            "cannot tell which format it is", where=str(path), advice=f"give --format: {', '.join(FORMATS)}"
        )
    if "npu-rig" in formats and set(formats) <= {"npu-rig", *_RIG_BESIDE}:
        formats = ["npu-rig"]
    if len(formats) > 1:
        raise InputError(
            f"holds files of several formats: {', '.join(formats)}",
            where=str(path),
            advice="give one file, or --format to take only those of one",
        )
    source, one = next((source, one) for source, one in found if one.format == formats[0])
    return formats[0], f"guessed: {source.name}: {one.why}"


def _belongs(one: Guess | None, chosen: str, given: str, count: int) -> bool:
    if count == 1 and given:
        return True
    if one is None:
        return False
    return one.format == chosen or (chosen == "npu-rig" and one.format in _RIG_BESIDE)


def _text(source: Source) -> str:
    """A whole text, for formats that are one document. Raises InputError: too large, not UTF-8."""
    if source.path.stat().st_size > JSON_LIMIT_BYTES:
        raise InputError(f"is larger than {JSON_LIMIT_BYTES} bytes", where=str(source.path))
    try:
        return source.path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 at byte {error.start}", where=str(source.path)) from error


def _one(source: Source, format_name: str, one: Guess | None) -> Parsed:
    """One file as `format_name`. Raises InputError for a document that is none."""
    dialect = one.dialect if one is not None and one.format == format_name else ""
    readers: Mapping[str, Callable[[Source, str], Parsed]] = {
        "npu-rig": lambda alone, _: _rig((alone,), {alone: one}),
        "llama-bench": _llama_bench,
        "llama-server": _llama_server,
        "llama-perplexity": partial(_by_lines, llama_log.parse),
        "tegrastats": _of_board(tegra_log.parse),
        "sysfs": _of_board(kernel_files.parse),
        "rknpu": _of_board(rknpu.parse),
        "node-info": partial(_by_lines, node_info.parse),
        "router-trace": lambda alone, _: moe_files.parse_trace(alone.path, alone.name),
        "gguf": lambda alone, _: moe_files.parse_gguf(alone.path, alone.name),
    }
    try:
        return readers[format_name](source, dialect)
    except ValueError as error:
        raise InputError(f"is no {format_name}: {error}", where=str(source.path)) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(source.path)) from error


def _by_lines(parse: Callable[..., Parsed], source: Source, _: str) -> Parsed:
    with source.path.open("rb") as file:
        return parse(lines_of(file), source.name)


def _of_board(parse: Callable[..., Parsed]) -> Callable[[Source, str], Parsed]:
    def reader(source: Source, _: str) -> Parsed:
        with source.path.open("rb") as file:
            return parse(lines_of(file), source.name, source.board)

    return reader


def _llama_bench(source: Source, dialect: str) -> Parsed:
    if dialect in ("json", ""):
        return llama_bench.parse_json(_text(source), source.name)
    if dialect == "sql":
        return llama_bench.parse_sql(_text(source), source.name)
    parsers = {"jsonl": llama_bench.parse_jsonl, "csv": llama_bench.parse_csv, "md": llama_bench_md.parse}
    return _by_lines(parsers[dialect], source, dialect)


def _llama_server(source: Source, dialect: str) -> Parsed:
    if dialect == "json":
        return llama_server.parse_json(_text(source), source.name)
    return _by_lines(llama_server.parse_jsonl if dialect == "jsonl" else llama_log.parse, source, dialect)


def _rig(sources: tuple[Source, ...], guesses: Mapping[Source, Guess | None]) -> Parsed:
    folder = npu_folder.Folder()
    homes = set()
    for source in sources:
        one = guesses[source]
        dialect = one.dialect if one is not None and one.format == "npu-rig" else ""
        if one is not None and one.format in _RIG_BESIDE:
            folder.others.append(_one(source, one.format, one))
            continue
        if dialect == "csv":
            homes.add(source.name.rpartition("/")[0])
        _rig_file(source, dialect, folder)
    if len(folder.logs) > 1 and any(source.board for source in sources):
        raise InputError(f"one board is named, but there are logs of {len(folder.logs)}", advice="leave --board out")
    if len(homes) > 1:
        raise InputError(
            f"holds tables of {len(homes)} experiments: {', '.join(sorted(home or '.' for home in homes))}",
            advice="import one result folder at a time",
        )
    return npu_folder.put_together(folder)


def _rig_file(source: Source, dialect: str, folder: npu_folder.Folder) -> None:
    stem = source.path.stem
    if dialect == "bench":
        try:
            run, parsed = npu_bench.parse(_text(source), source.name)
        except ValueError as error:
            raise InputError(f"is no JSON: {error}", where=str(source.path)) from error
        folder.others.append(replace(parsed, runs=()))
        if run is not None:
            stamp = None if not isinstance(run.window_unix_s, tuple) else run.window_unix_s[1]
            folder.benches.append(npu_folder.Bench(source.name, run, stamp))
        return
    with source.path.open("rb") as file:
        if dialect == "thermal":
            parsed = npu_thermal.parse(lines_of(file), source.name, source.board or stem)
            folder.logs += parsed.samples
            folder.others.append(replace(parsed, samples=()))
        elif dialect == "csv":
            table = npu_csv.parse(lines_of(file), source.name)
            if table is not None:
                folder.tables.append(table)
        elif dialect == "meta":
            faults = Faults(source.name)
            pairs = node_info.pairs_of(lines_of(file), faults)
            facts = npu_folder.meta_facts({key: value for key, (value, _) in pairs.items()}, source.name)
            folder.others.append(Parsed(facts=tuple(facts), faults=faults.done()))
        else:
            faults = Faults(source.name)
            faults.add("malformed-file", "is no table, bench report or thermal log of the rig")
            folder.others.append(Parsed(faults=faults.done()))


__all__ = ["FORMATS", "Fact", "Imported", "Source", "read"]
