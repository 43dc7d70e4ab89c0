"""Make a campaign of what was read: its documents, its samples, the files as they came, and their hashes."""

from __future__ import annotations

import getpass
import platform
import shutil
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.imports import columns, documents
from boardbench.imports.documents import Told
from boardbench.imports.registry import Imported
from boardbench.results import manifest, store

LARGEST_COPY_BYTES = 64 * 1024 * 1024
"""A larger source is not copied: its size and hash stay, and the campaign says so."""
SOURCE = "source"


def write(imported: Imported, name: str, results_dir: Path, told: Told) -> Path:
    """Write the campaign and give its folder; `name`: of the file or folder that was given. Raises InputError."""
    campaign = store.campaign_name()
    matrix = f"imported-{imported.format}"
    draft = store.draft_campaign_folder(results_dir, matrix, campaign)
    try:
        _fill(draft, imported, name, matrix, campaign, told)
    except OSError as error:
        store.drop_draft(draft)
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(draft)) from error
    except BaseException:
        store.drop_draft(draft)
        raise
    return store.publish(draft)


def _fill(draft: Path, imported: Imported, name: str, matrix: str, campaign: str, told: Told) -> None:
    parsed = imported.parsed
    files = _copied(draft, imported)
    if parsed.samples:
        (draft / "samples").mkdir()
        for number, table in enumerate(parsed.samples, start=1):
            columns.write(table, draft / documents.sample_file(number, table))
    now = round(time.time(), 3)
    question = told.question or f"What does {name} say?"
    runs = documents.runs(parsed, campaign, imported.format, told)
    _keep(draft / "runs.json", runs)
    _keep(draft / "faults.json", documents.faults(parsed, campaign))
    _keep(draft / "facts.json", documents.facts(parsed, campaign))
    domain = f"imported from {name} ({imported.format}); not run by this bench"
    store.write_json(draft / "verdict.json", documents.verdict(runs, campaign, question, domain, now))
    boards = {board for run in runs["runs"] for board in run["boards"]}
    boards |= {str(entry["board"]) for entry in documents.samples(parsed.samples) if entry["board"]}
    document: dict[str, Any] = {
        "schema_version": documents.SCHEMA_VERSION,
        "campaign": campaign,
        "matrix": matrix,
        "question": question,
        "created_wall_unix_s": now,
        "virtual": False,
        "time_scale": 1.0,
        "controller": _controller(),
        "boards": [{"name": board} for board in sorted(boards)],
        "imported": {
            "format": imported.format,
            "chosen": imported.chosen,
            "source": name,
            "files": files,
            "told": told.as_dict(),
            "not_known": list(parsed.not_known) + (_never_known(told) if parsed.runs or parsed.samples else []),
        },
        "samples": documents.samples(parsed.samples),
    }
    store.write_json(draft / "campaign.json", document)
    manifest.write(draft)


def _keep(path: Path, document: dict[str, Any]) -> None:
    data = store.to_bytes(document)
    if len(data) > store.JSON_LIMIT_BYTES:
        raise InputError(
            f"it says too much for one campaign: {path.name} would have {len(data):,} bytes",
            advice="import it in parts",
        )
    store.write_bytes(path, data)


def _never_known(told: Told) -> list[str]:
    texts = [
        "whether the boards were real or virtual: the files do not say it",
        "gates: none was asked before, during or after",
    ]
    return texts if told.phase else [*texts, "cooling: the files do not say whether a fan ran (--phase tells it)"]


def _copied(draft: Path, imported: Imported) -> list[dict[str, object]]:
    """Copy the sources and note what they are; a file that changes while it is copied is refused."""
    listed: list[dict[str, object]] = []
    for source in imported.files:
        size = source.path.stat().st_size
        copied = size <= LARGEST_COPY_BYTES and imported.format != "gguf"
        digest = store.sha256_file(source.path)
        if copied:
            target = draft / SOURCE / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source.path, target)
            if store.sha256_file(target) != digest:
                raise InputError(
                    "changed while it was read", where=str(source.path), advice="import it when it is whole"
                )
        listed.append({"name": source.name, "size": size, "sha256": digest, "copied": copied})
    return listed


def _controller() -> dict[str, str]:
    return {
        "owner": getpass.getuser(),
        "host": platform.node() or "unknown",
        "boardbench": metadata.version("boardbench"),
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
    }
