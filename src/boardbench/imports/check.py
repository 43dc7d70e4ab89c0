"""Does an imported campaign hold what its sources say? Hashes and schemas are checked, and the sources read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.imports import columns, documents, registry
from boardbench.imports.campaign import SOURCE
from boardbench.imports.documents import Told
from boardbench.results import manifest, schema, store
from boardbench.results.problems import Problem

DOCUMENTS = {
    "campaign.json": "imported.campaign",
    "runs.json": "imported.runs",
    "faults.json": "imported.faults",
    "facts.json": "imported.facts",
    "verdict.json": "verdict",
}
ROOM = {*DOCUMENTS, manifest.NAME, SOURCE, "samples"}


def check(folder: Path) -> Iterator[Problem]:
    """Everything that is wrong with the campaign as it lies there. Faults of its sources are no problem of it."""
    yield from manifest.check(folder)
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            yield Problem(path.relative_to(folder).as_posix(), None, "is a link")
        elif path.parent == folder and path.name not in ROOM:
            yield Problem(path.name, None, "does not belong into an imported campaign's folder")
    found: dict[str, dict[str, Any]] = {}
    for name, schema_name in DOCUMENTS.items():
        try:
            value = store.read_object(folder / name)
        except InputError as error:
            yield Problem(name, None, error.what)
            continue
        wrong = [Problem(name, None, fault) for fault in schema.faults(value, schema_name)]
        yield from wrong
        if not wrong:
            found[name] = value
    if len(found) == len(DOCUMENTS):
        yield from _agree(folder, found)
        yield from _again(folder, found)


def _agree(folder: Path, found: Mapping[str, dict[str, Any]]) -> Iterator[Problem]:
    """One campaign throughout, and a verdict that follows from its runs."""
    campaign = found["campaign.json"]
    for name, value in found.items():
        if value["campaign"] != folder.resolve().name:
            yield Problem(name, None, f"is of campaign {value['campaign']}, the folder has another name")
    names = [run["run"] for run in found["runs.json"]["runs"]]
    for name in sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
        yield Problem("runs.json", None, f"run {name} is there more than once")
    stored = found["verdict.json"]
    again = documents.verdict(
        found["runs.json"],
        campaign["campaign"],
        campaign["question"],
        stored["decisions"]["domain"],
        stored["ended_wall_unix_s"],
    )
    if again != stored:
        yield Problem("verdict.json", None, "is not what the runs say")
    for entry in campaign["samples"]:
        if not (folder / entry["file"]).is_file():
            yield Problem(entry["file"], None, "is missing; campaign.json lists it")


def _again(folder: Path, found: Mapping[str, dict[str, Any]]) -> Iterator[Problem]:
    """Read the kept sources once more: the documents and the samples must come out the same."""
    campaign = found["campaign.json"]
    said = campaign["imported"]
    for entry in said["files"]:
        path = folder / SOURCE / entry["name"]
        if entry["copied"] and (not path.is_file() or store.sha256_file(path) != entry["sha256"]):
            yield Problem(f"{SOURCE}/{entry['name']}", None, "is not the file that was imported")
            return
    if not all(entry["copied"] for entry in said["files"]):
        return  # too large to be kept: the hash is all there is
    told = Told(**said["told"])
    try:
        parsed = registry.read_again(
            folder / SOURCE, [entry["name"] for entry in said["files"]], said["format"], told.board
        )
    except InputError as error:
        yield Problem(SOURCE, None, f"cannot be read again: {error}")
        return
    made = {
        "runs.json": documents.runs(parsed, campaign["campaign"], said["format"], told),
        "faults.json": documents.faults(parsed, campaign["campaign"]),
        "facts.json": documents.facts(parsed, campaign["campaign"]),
    }
    for name, value in made.items():
        if store.to_bytes(value) != store.to_bytes(found[name]):
            yield Problem(name, None, "is not what the sources say when this version of boardbench reads them")
    if documents.samples(parsed.samples) != campaign["samples"]:
        yield Problem("campaign.json", None, "does not list the samples that the sources hold")
        return
    for number, table in enumerate(parsed.samples, start=1):
        name = documents.sample_file(number, table)
        try:
            if not columns.same(table, folder / name):
                yield Problem(name, None, "does not hold the readings of its source")
        except InputError as error:
            yield Problem(name, None, error.what)
