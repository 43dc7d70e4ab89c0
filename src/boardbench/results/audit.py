"""Passwords, tokens and keys in files that are to be committed or handed on. Findings are shown masked.

Every file is looked at as text (UTF-8, UTF-16 by its mark, or the printable runs of a binary file), within lines, over
line ends, and with what is spelled out in codes decoded.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from boardbench.errors import BugError, InputError
from boardbench.results import audit_decode
from boardbench.results.audit_patterns import BROKEN, BUILT_IN, Hit, Pattern, find

CHUNK_BYTES = 4 * 1024 * 1024
OVERLAP_BYTES = 16 * 1024
LOOK_BYTES = 8192
CODE = "secret-found"
PLANTED = {
    "password assignment": "{word}: {value}",
    "password in prose": "the {word} is {value}",
    "password fed to sudo": "echo {value} | sudo -S reboot",
    "credentials in a URL": "https://user:{value}@host/",
    "cloud access key": "{cloud}Q3EXAMPLEQ3EXAMP",
    "private key": "-----BEGIN {key}-----\nQUJDREVGR0hJSktMTU5P\n",
}
COMPRESSED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
_RUN = re.compile(rb"[\t\x20-\x7e]{6,4096}")
_WIDE_RUN = re.compile(rb"(?:[\t\x20-\x7e]\x00){6,2048}")
# A line end with what a comment, a quotation or a list puts before the next line.
_LINE_END = re.compile(r"[ \t]{0,20}\r?\n[ \t]{0,80}(?:(?:#{1,6}|/{2,4}|--|;|>|\*|\||-)[ \t]{1,20})?")


@dataclass(frozen=True, order=True)
class Finding:
    """A secret in a file. `shown` says how long it is, and nothing of it."""

    file: str
    line: int
    kind: str
    shown: str

    def as_dict(self) -> dict[str, object]:
        """The finding as `audit --json` prints it."""
        return {"file": self.file, "line": self.line, "kind": self.kind, "shown": self.shown}

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.shown}"


@dataclass(frozen=True)
class Audit:
    """What was found in how many files and bytes, and what was not looked into, with the reason."""

    findings: tuple[Finding, ...]
    files: int
    size_bytes: int
    skipped: tuple[tuple[str, str], ...]


def audit(files: Iterable[tuple[str, Path]], patterns: Sequence[Pattern]) -> Audit:
    """Look through files (shown name, path). Raises InputError without a pattern, BugError when the self-test fails.

    A file that cannot be read, or is compressed, is in `skipped`; it is never counted as clean.
    """
    self_test(patterns)
    findings: set[Finding] = set()
    skipped: list[tuple[str, str]] = []
    count = size = 0
    for name, path in files:
        if path.is_symlink() or not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                head = file.read(LOOK_BYTES)
                file.seek(0)
                if head.startswith(COMPRESSED):
                    skipped.append((name, "compressed"))
                    continue
                findings.update(audit_file(name, file, patterns))
            size += path.stat().st_size
        except OSError as error:
            skipped.append((name, error.strerror or type(error).__name__))
        else:
            count += 1
    return Audit(tuple(sorted(findings)), count, size, tuple(sorted(skipped)))


def self_test(patterns: Sequence[Pattern]) -> None:
    """Prove that the audit can fail: planted secrets must be found, else its silence means nothing.

    Raises InputError when there is no pattern at all, BugError when a built-in one does not work any more.
    """
    if not patterns:
        raise InputError("no pattern is loaded, so this audit would find nothing", advice="load patterns")
    if not set(BUILT_IN) <= set(patterns):
        return
    # Filled in here only, so that this file itself is clean.
    for kind, form in PLANTED.items():
        text = form.format(word="password", value="Kq7-planted", cloud="AKIA", key="PRIVATE KEY")
        if kind not in {hit.kind for hit in find(text, patterns)}:
            raise BugError(f"the audit does not find a planted secret any more ({kind})")


def audit_file(name: str, file: BinaryIO, patterns: Sequence[Pattern]) -> Iterator[Finding]:
    """The findings in one file, read in pieces; never raises because of what is in it."""
    tail = b""
    line = 1
    binary: bool | None = None
    codec = "utf-8"
    while piece := file.read(CHUNK_BYTES):
        if binary is None:
            codec, binary = _form(piece[:LOOK_BYTES])
        data = tail + piece
        text = printable(data) if binary else data.decode(codec, "replace")
        known = 0 if not tail else len(printable(tail) if binary else tail.decode(codec, "replace"))
        sure = [pattern for pattern in patterns if pattern.sure] if binary else patterns
        counted = passed = 0
        for at, kind, shown in audit_text(text, sure, plain=not binary):
            if at[1] > known:
                passed += text.count("\n", counted, at[0])
                counted = at[0]
                yield Finding(name, 0 if binary else line + passed, kind, shown)
        keep = OVERLAP_BYTES if len(data) > OVERLAP_BYTES else 0
        keep -= (len(data) - keep) % 2 if codec.startswith("utf-16") else 0
        tail = data[len(data) - keep :] if keep else b""
        line += text.count("\n") - (tail.decode(codec, "replace").count("\n") if not binary else 0)


def _form(head: bytes) -> tuple[str, bool]:
    """The codec, and whether the file is binary."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ("utf-16-le" if head[:2] == b"\xff\xfe" else "utf-16-be"), False
    return "utf-8", b"\0" in head


def printable(data: bytes) -> str:
    """The printable runs of binary data, a run a line, those of two-byte characters too."""
    runs = [match[0].decode("ascii") for match in _RUN.finditer(data)]
    runs += [match[0].replace(b"\0", b"").decode("ascii") for match in _WIDE_RUN.finditer(data)]
    return "\n".join(runs)


def audit_text(text: str, patterns: Sequence[Pattern], *, plain: bool = True) -> list[tuple[tuple[int, int], str, str]]:
    """Each secret as ((start, end) in the text, kind, shown). `plain`: also over line ends and spelled out."""
    found = [((hit.start, hit.end), hit.kind, _shown(hit)) for hit in find(text, patterns)]
    if not plain:
        return found
    for place in (*_over_line_ends(text, patterns), *_spelled(text, patterns)):
        at = bisect.bisect_left(found, place[0][0], key=lambda other: other[0][1] - 1)
        if at == len(found) or found[at][0][0] >= place[0][1]:
            found.insert(at, place)
    return found


def _shown(hit: Hit) -> str:
    # Nothing of the text: what stands before a secret may be another one.
    return f"*** ({hit.end - hit.start} characters)"


def _over_line_ends(text: str, patterns: Sequence[Pattern]) -> Iterator[tuple[tuple[int, int], str, str]]:
    """Secrets that a line end parts from what gives them away, or in two."""
    user = [pattern for pattern in patterns if pattern.sure and pattern not in BUILT_IN]
    spoken = list(BROKEN) if set(BUILT_IN) <= set(patterns) else []
    small = text.lower()
    for glue, wanted in ((" ", [*spoken, *user]), ("", user)):
        used = [pattern for pattern in wanted if pattern.may_be_in(small)]
        if not used:
            continue
        flat, starts, origins = _flatten(text, glue)
        for hit in find(flat, used):
            if bisect.bisect_right(starts, hit.begin) != bisect.bisect_right(starts, hit.end - 1):
                begin, end = (_origin(at, starts, origins) for at in (hit.start, hit.end - 1))
                yield (begin, end + 1), hit.kind, _shown(hit)


def _flatten(text: str, glue: str) -> tuple[str, list[int], list[int]]:
    """The text without line ends, where each line begins in it, and where that is in the text."""
    parts: list[str] = []
    starts, origins = [0], [0]
    at = length = 0
    for match in _LINE_END.finditer(text):
        part = text[at : match.start()] + glue
        parts.append(part)
        length += len(part)
        at = match.end()
        starts.append(length)
        origins.append(at)
    parts.append(text[at:])
    return "".join(parts), starts, origins


def _origin(at: int, starts: list[int], origins: list[int]) -> int:
    line = bisect.bisect_right(starts, at) - 1
    return origins[line] + at - starts[line]


def _spelled(text: str, patterns: Sequence[Pattern]) -> Iterator[tuple[tuple[int, int], str, str]]:
    """Secrets that are spelled out. A string that is put together from single character codes is one by itself."""
    for one in audit_decode.spelled(text):
        lead = audit_decode.before(text, one).removesuffix('"').removesuffix("'")
        read = f'{lead}"{one.text}"'
        hits = [hit for hit in find(read, patterns) if hit.end > len(lead)]
        hits = hits or find(one.text, patterns)
        if hits:
            yield (one.start, one.end), f"{hits[0].kind}, spelled in {one.how}", f"*** ({len(one.text)} characters)"
        elif one.how == audit_decode.SINGLE_CODES:
            yield (one.start, one.end), f"a string spelled in {one.how}", f"*** ({len(one.text)} characters)"


def warnings(campaign: Path, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Secrets in what was collected from boards, as `verdict.json` warns of them. `cells`: those of the plan.

    Only by the built-in patterns, so that everybody who makes the verdict again finds the same.
    """
    said: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        folder = campaign / "cells" / str(cell["name"])
        files = [(path.relative_to(campaign).as_posix(), path) for path in sorted(folder.rglob("*"))]
        for finding in audit(files, BUILT_IN).findings:
            said.setdefault((str(cell["boards"][0]), finding.file), set()).add(finding.kind)
    return [
        {
            "board": board,
            "code": CODE,
            "what": f"{file} holds what looks like a secret ({', '.join(sorted(kinds))}): see ./inv audit",
        }
        for (board, file), kinds in sorted(said.items())
    ]
