"""Texts that are spelled out so that a search does not find them: character codes, escapes, pieces put together.

Each finding is the decoded text and the place in the original where it was spelled. All regular expressions here are
linear: the input is any file.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass

_CHR_RUN = re.compile(
    r"(?i)(?:chr|unichr|chrw)\s{0,3}\(\s{0,3}(?:0x[0-9a-f]{1,4}|[0-9]{1,5})\s{0,3}\)"
    r"(?:\s{0,8}[+.&,]\s{0,8}(?:chr|unichr|chrw)\s{0,3}\(\s{0,3}(?:0x[0-9a-f]{1,4}|[0-9]{1,5})\s{0,3}\)){2,255}"
)
_CODE_LIST = re.compile(
    r"(?i)(?:(?:fromcharcode|fromcodepoint|char|bytes|bytearray)\s{0,3}\(\s{0,3}\[?|\[)\s{0,8}"
    r"(?:(?:0x[0-9a-f]{1,2}|[0-9]{2,3})\s{0,8},\s{0,8}){4,255}(?:0x[0-9a-f]{1,2}|[0-9]{2,3})"
)
_NUMBER = re.compile(r"(?i)0x[0-9a-f]{1,4}|[0-9]{1,5}")
_ESCAPES = re.compile(r"(?:\\x[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|\\[0-3][0-7]{2}){3,512}")
_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u00([0-9A-Fa-f]{2})|\\([0-3][0-7]{2})")
_QUOTED = r"""(?:"[^"\\\n]{0,64}"|'[^'\\\n]{0,64}')"""
_PIECES = re.compile(rf"{_QUOTED}(?:[ \t]{{0,4}}[+.]?\s{{0,8}}{_QUOTED}){{1,64}}")
_PIECE = re.compile(r"""\"([^"\\\n]{0,64})\"|'([^'\\\n]{0,64})'""")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{16,400}={0,2}(?![A-Za-z0-9+/=_-])")
_CONTEXT = 80
SINGLE_CODES = "character codes"


@dataclass(frozen=True)
class Spelled:
    """A text that was spelled out: what it says, and where the spelling begins and ends."""

    text: str
    start: int
    end: int
    how: str


def spelled(text: str) -> Iterator[Spelled]:
    """Every spelled-out text of three printable characters or more."""
    if "chr" in text.lower():
        for match in _CHR_RUN.finditer(text):
            yield from _codes(match, SINGLE_CODES)
    if "[" in text or "(" in text:
        for match in _CODE_LIST.finditer(text):
            yield from _codes(match, "a list of character codes")
    if "\\" in text:
        for match in _ESCAPES.finditer(text):
            digits = [(int(x or u, 16) if x or u else int(o, 8)) for x, u, o in _ESCAPE.findall(match[0])]
            yield from _printable(digits, match, "escapes")
    for match in _PIECES.finditer(text):
        joined = "".join(a or b for a, b in _PIECE.findall(match[0]))
        if joined:
            yield Spelled(joined, match.start(), match.end(), "pieces put together")
    for match in _BASE64.finditer(text):
        yield from _decoded(match)


def _codes(match: re.Match[str], how: str) -> Iterator[Spelled]:
    words = _NUMBER.findall(match[0])
    yield from _printable([int(word, 16) if word[:2].lower() == "0x" else int(word) for word in words], match, how)


def _printable(codes: list[int], match: re.Match[str], how: str) -> Iterator[Spelled]:
    if all(32 <= code < 127 or code in (9, 10, 13) for code in codes):
        yield Spelled("".join(map(chr, codes)), match.start(), match.end(), how)


def _decoded(match: re.Match[str]) -> Iterator[Spelled]:
    word = match[0]
    if len(word) % 4:
        return
    try:
        codes = list(base64.b64decode(word, validate=True))
    except (binascii.Error, ValueError):
        return
    yield from _printable(codes, match, "base64")


def before(text: str, found: Spelled) -> str:
    """What stands on the line before the spelling, so that `password = chr(..)+..` reads as an assignment."""
    return text[max(0, found.start - _CONTEXT) : found.start].rpartition("\n")[2]
