"""The only way results get on disk and back: atomic, strict, and never over what is there.

Writing: a temporary file in the same folder, fsync, rename, fsync of the folder; JSON sorted, without NaN, with a
final newline. Reading: NaN, infinities and repeated keys are refused (the JSON module would let them through), a
byte-order mark is tolerated.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from boardbench.errors import InputError
from boardbench.secretwords import REGISTRY

JSON_LIMIT_BYTES = 64 * 1024 * 1024
"""A JSON file of ours is never this big: reading stops with an error instead of filling memory."""


def to_bytes(value: object) -> bytes:
    """The one JSON form of `value`: sorted keys, two spaces, UTF-8, final newline, no known secret.

    Raises ValueError on NaN.
    """
    text = json.dumps(REGISTRY.hide_in(value), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def canonical_sha256(value: object) -> str:
    """Hash of the shortest sorted JSON form, so that layout does not matter; of the value as it is written."""
    shown = REGISTRY.hide_in(value)
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_file(path: Path) -> str:
    """Hash of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable (a rename is not until its folder is on disk)."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write `path` whole or not at all. Refuses to overwrite unless `replace`.

    Raises FileExistsError, OSError.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            partial.replace(path)
        else:
            os.link(partial, path)  # unlike rename, a link fails when the name is taken
            partial.unlink()
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
    sync_folder(path.parent)


def write_json(path: Path, value: object, *, replace: bool = False) -> None:
    """`write_bytes` of the one JSON form."""
    write_bytes(path, to_bytes(value), replace=replace)


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is not a number that results may hold")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def _no_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} occurs twice")
        result[key] = value
    return result


def parse_json(text: str) -> object:
    """Strict JSON: no NaN or infinity, no number beyond floats, no key twice. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_no_repeats)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > JSON_LIMIT_BYTES:
            raise InputError(f"larger than {JSON_LIMIT_BYTES} bytes", where=str(path))
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 at byte {error.start}", where=str(path)) from error


def read_json(path: Path) -> object:
    """The value in a JSON file, read strictly. Raises InputError naming the file (and the line)."""
    text = _text(path)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error.msg}", where=f"{path}:{error.lineno}") from error
    except ValueError as error:
        raise InputError(str(error), where=str(path)) from error


def read_object(path: Path) -> dict[str, object]:
    """`read_json` for a file whose top is an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError("is not a JSON object", where=str(path))
    return value


def read_lines(path: Path) -> Iterator[tuple[int, object]]:
    """Each line of a JSON-lines file as (line number, value). Raises InputError naming file and line.

    A last line without its newline is an error too, raised after the whole lines: its writer was cut off in it.
    """
    *lines, rest = _text(path).split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            yield number, parse_json(line)
        except ValueError as error:
            raise InputError(f"is not strict JSON: {error}", where=f"{path}:{number}") from error
    if rest:
        raise InputError("the last line is cut off", where=f"{path}:{len(lines) + 1}")


JOURNAL = "journal.jsonl"


def campaign_name(*, now_unix_s: float | None = None) -> str:
    """A campaign's id, `<utc>-<id8>`: never used before, for all that matters."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_unix_s))}-{secrets.token_hex(4)}"


def draft_campaign_folder(results_dir: Path, matrix_name: str, campaign: str) -> Path:
    """Make the hidden folder that `publish` turns into `<results>/<matrix>/<campaign>/`. Raises InputError."""
    parent = results_dir / matrix_name
    folder = parent / f".{campaign}.partial"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except OSError as error:
        raise InputError(
            f"cannot make a folder for the results: {error.strerror}",
            where=str(parent),
            advice="choose another results folder",
        ) from error
    return folder


def publish(draft: Path) -> Path:
    """Give a whole draft its name: from now on there is a campaign. What is in it is on disk already.

    Raises InputError when the name is taken: no campaign is ever put into the place of another.
    """
    final = draft.with_name(draft.name.removeprefix(".").removesuffix(".partial"))
    sync_folder(draft)
    try:
        if final.exists():  # a rename would take the place of an empty folder
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        draft.rename(final)
    except FileExistsError as error:
        raise InputError(f"there is a campaign {final.name} already", where=str(final), advice="try again") from error
    sync_folder(final.parent)
    return final


def drop_draft(draft: Path) -> None:
    """There will be no campaign: nothing of it stays."""
    shutil.rmtree(draft, ignore_errors=True)


def new_campaign_folder(results_dir: Path, matrix_name: str, *, now_unix_s: float | None = None) -> Path:
    """Make an empty `<results>/<matrix>/<utc>-<id8>/` at once. The folder's name is the campaign's id."""
    return publish(draft_campaign_folder(results_dir, matrix_name, campaign_name(now_unix_s=now_unix_s)))


def lock_journal(handle: int, campaign: Path) -> None:
    """One process at a time works on a campaign; the lock ends with the process. Raises InputError."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(
            f"campaign {campaign.name} is being run by another process on this machine",
            where=str(campaign),
            advice="wait for it, or stop that one first",
        ) from error


@contextlib.contextmanager
def locked(campaign: Path) -> Iterator[None]:
    """Hold the campaign's lock. Raises InputError when a living process has it."""
    handle = os.open(campaign / JOURNAL, os.O_RDONLY)
    try:
        lock_journal(handle, campaign)
        yield
    finally:
        os.close(handle)


def journal_events(campaign: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Event and fields of each line of a campaign's journal. Half a line at the end (a killed controller) is no line.

    No journal: no events. Raises InputError for any other line that cannot be read.
    """
    path = campaign / JOURNAL
    if not path.exists():
        return
    try:
        for _, line in read_lines(path):
            if isinstance(line, dict) and isinstance(line.get("fields"), dict):
                yield str(line.get("event")), line["fields"]
    except InputError as error:
        if "cut off" not in error.what:
            raise


def remove_debris(campaign: Path, keep: frozenset[Path] = frozenset()) -> list[str]:
    """Remove what a killed process left half-written: hidden temporary files, half-fetched attempts; their names.

    For the holder of the campaign's lock only.
    """
    removed: list[str] = []
    for path in sorted([*campaign.rglob(".*.partial"), *campaign.glob("cells/*/attempt-*.partial")]):
        if path in keep or not path.exists():
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        removed.append(path.relative_to(campaign).as_posix())
    return removed
