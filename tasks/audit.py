"""audit: no password, token or key in what is committed or handed on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from invoke import Context

from boardbench.errors import ExitCode, InputError, RigError
from tasks._verb import emit, note, verb

LEFT_OUT = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}


def files_below(folder: Path, shown: str = "") -> Iterator[tuple[str, Path]]:
    """Every file of a folder, but for git's own and caches."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(names):
            path = Path(root) / name
            yield (f"{shown}{path.relative_to(folder).as_posix()}" if shown else str(path)), path


def files_of_checkout(project: Path) -> Iterator[tuple[str, Path]]:
    """What git has or would take: tracked files, and new ones that it does not ignore. Without git: every file."""
    if not (project / ".git").exists():
        yield from files_below(project)
        return
    argv = ["git", "-C", str(project), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(argv, capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise RigError(f"git does not list its files: {error}", where=str(project)) from error
    for name in sorted(set(filter(None, done.stdout.split(b"\0")))):
        text = os.fsdecode(name)
        yield text, project / text


def chosen_files(paths: list[str]) -> Iterator[tuple[str, Path]]:
    """The files that the user named; without a name the checkout and the results."""
    from boardbench.locations import project_dir
    from tasks._files import results_dir

    if not paths:
        yield from files_of_checkout(project_dir())
        yield from files_below(results_dir())
    for name in paths:
        path = Path(name)
        if path.is_dir():
            yield from files_below(path)
        elif path.is_file():
            yield name, path
        else:
            raise InputError("is no file and no folder", where=name)


def learn_inventories(given: str) -> None:
    """The secrets of one inventory; without a name those of every inventory of the checkout that can be read."""
    from boardbench.inventory import load_inventory
    from boardbench.locations import project_dir

    if given:
        load_inventory(Path(given))
        return
    for path in sorted((project_dir() / "inventory").glob("*.yml")):
        try:
            load_inventory(path)
        except InputError as error:
            note(f"its secrets are not known here: {error}")


@verb(
    iterable=["path"],
    help={
        "path": "file or folder to look through (may be repeated; default: the checkout and the results)",
        "inventory": "inventory whose secrets are looked for (default: every one in inventory/)",
        "patterns": "file of your own secrets, one a line (re: begins an expression); mode 600, never committed",
    },
)
def audit(
    c: Context, path: list[str] | None = None, patterns: str = "", inventory: str = "", json: bool = False
) -> int:
    """Look for passwords, tokens and keys in what would be committed or handed on."""
    from boardbench.results import audit as audits
    from boardbench.results.audit_patterns import BUILT_IN, known_patterns, load_user_patterns
    from boardbench.secretwords import REGISTRY

    learn_inventories(inventory)
    used = (*known_patterns(REGISTRY.values), *BUILT_IN)
    if patterns:
        used = (*load_user_patterns(Path(patterns)), *used)
    own = Path(patterns).resolve() if patterns else None
    files = [(name, at) for name, at in chosen_files(path or []) if at.resolve() != own]
    done = audits.audit(files, used)
    if json:
        emit(
            {
                "findings": [finding.as_dict() for finding in done.findings],
                "files": done.files,
                "size_bytes": done.size_bytes,
                "patterns": len(used),
                "skipped": [{"file": name, "why": why} for name, why in done.skipped],
            }
        )
    else:
        for finding in done.findings:
            print(finding)
    for name, why in done.skipped:
        note(f"not looked into: {name}: {why}")
    note(f"{len(done.findings)} findings in {done.files} files ({done.size_bytes:,} bytes), {len(used)} patterns")
    if not done.files:
        raise InputError("there was no file to look through", where=", ".join(path or ["."]))
    return ExitCode.OUTCOME if done.findings else ExitCode.OK


VERBS = (audit,)
