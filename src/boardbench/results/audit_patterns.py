"""What a secret looks like in prose, code, logs and command lines; and the patterns that a user adds.

A pattern finds the span of the secret itself, so that it can be masked. What stands for a secret without being one
(`<password>`, `$TOKEN`, `***`) is no finding.
"""

from __future__ import annotations

import bisect
import math
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from boardbench.errors import InputError

MIN_LITERAL = 4
"""A user's pattern that is shorter would find itself everywhere."""

_PASS = r"pass(?:word|wd|phrase|code)?|pwd|psk"
_KEY = r"secret|api[_-]?key|access[_-]?key|auth[_-]?token|token"
_PASS_HINTS, _KEY_HINTS = "pass pwd psk", "secret key token"
_QUOTES = "\"'`"
_VALUE = r"""(?P<secret>"[^"\n]{3,200}"|'[^'\n]{3,200}'|`[^`\n]{3,200}`|[^\s"'`,;)\]}]{3,200})"""
# Stands for a secret and is none: `<password>`, `$TOKEN`, `***`, a type, a setting.
_STAND_IN = re.compile(
    r"""(?x)
    [<\[{(].* | [$%\\].* | .*\$[({].* | [*x.X_\u2026\u2022-]+ |
    (?i: none | null | nil | true | false | yes | no | optional | required | missing | redacted | masked | hidden |
         str | int | bool | bytes | string | text | self | args? | kwargs | value | example | placeholder |
         files(?:\\.*)? |
         your[-_ ]?(?:password|token|secret|key)? | (?:the|my|a|an)[-_](?:password|token|secret|key) |
         password | passwd | token | secret | key | file | prompt | ask | env(?:ironment)?)
    """
)
_GRAMMAR = (
    "a an and any are as at be been but by can does else few for from had has have here how if in into is it its just"
    " may more must never not now of off on once only or our own says see so some still than that the their them then"
    " there these they this those to too up use was we were what when where which who why will with would you your"
    " always wrong right correct needed asked given empty unknown changed same different kept stored set"
)
_FUNCTION_WORDS = frozenset(_GRAMMAR.split())
# What boards and distributions ship with, and what people set in a hurry: plain words that are passwords.
_SHIPPED_WORDS = (
    "raspberry nvidia jetson ubuntu debian orangepi odroid radxa khadas linaro friendlyelec admin toor root alpine"
    " changeme changeit letmein welcome qwerty default guest"
)
_SHIPPED = frozenset(_SHIPPED_WORDS.split())
# A value of code, not of a text: a call, an attribute, an index, a name_in_snake_case; a line of /etc/passwd.
_CODE = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:[(\[].*|\.[A-Za-z_]\w*)|_?[a-z]+(?:_[a-z0-9]+)+|[a-z_][\w-]*:[x*!]?:.*"
)


@dataclass(frozen=True)
class Hit:
    """Where a secret stands in a text, by which pattern it is known, and where what gives it away begins."""

    kind: str
    begin: int
    start: int
    end: int


@dataclass(frozen=True)
class Pattern:
    """`find` matches with a group `secret`; `counts` says whether that text is one. Without one of the `hints` in the
    text (in small letters) there is no search, which makes an audit of large logs quick.
    `sure`: its form alone gives it away, so that it is looked for in binary files and over line ends as well.
    """

    kind: str
    find: re.Pattern[str]
    counts: Callable[[str], bool]
    hints: tuple[str, ...] = ()
    sure: bool = False

    def may_be_in(self, small: str) -> bool:
        """Whether a search is worth it; `small` is the text in small letters."""
        return not self.hints or any(hint in small for hint in self.hints)

    def hits(self, text: str, small: str) -> Iterator[Hit]:
        """Every secret of this kind in the text."""
        if not self.may_be_in(small):
            return
        for match in self.find.finditer(text):
            if self.counts(match["secret"]):
                yield Hit(self.kind, match.start(), match.start("secret"), match.end("secret"))


def entropy_bits(text: str) -> float:
    """Shannon entropy per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def _always(_: str) -> bool:
    return True


def _bare(value: str) -> str:
    return value.strip(_QUOTES + " \t,;:.)?!")


def _assigned(value: str) -> bool:
    """A value after `password:` or `token =`: anything but a stand-in, code, a word of grammar, or nothing."""
    bare = _bare(value)
    if len(bare) < 3 or bare.lower() in _FUNCTION_WORDS or _STAND_IN.fullmatch(bare):
        return False
    return (value[:1] in _QUOTES and ":" not in bare) or _CODE.fullmatch(bare) is None


def _spoken(value: str) -> bool:
    """A value in a sentence: a plain word there is language, unless it is quoted, looks made up, or is well known."""
    bare = _bare(value)
    # Capitals inside, a digit, or a mark that no word has; a path or a pair of words is no password.
    made_up = re.search(r"[0-9]|[a-z][A-Z]|[^\w'/.()<>-]", bare) is not None and not bare.startswith(("/", "./", "~"))
    return _assigned(value) and (made_up or value[:1] in _QUOTES[:2] or bare.lower() in _SHIPPED)


def _keyed(value: str) -> bool:
    """A value after `token:` or `key =`: long, and no plain number or word (models have tokens too)."""
    bare = _bare(value)
    mixed = re.search(r"[A-Za-z]", bare) is not None and re.search(r"[0-9]|[a-z][A-Z]", bare) is not None
    return len(bare) >= 8 and mixed and _assigned(value)


def _spoken_key(value: str) -> bool:
    """A value after `the token is`: as `_keyed`, and no file name."""
    return _keyed(value) and not re.search(r"[/.]", _bare(value))


def _plain_word(value: str) -> bool:
    """The last word of `the password is ...`: a word that is not said of passwords."""
    return _assigned(value) and not value.lower().endswith(("ed", "en", "ing", "able", "ible", "less", "ly"))


def _random(value: str) -> bool:
    return entropy_bits(value) > 3.0


def _p(kind: str, find: str, counts: Callable[[str], bool], hints: str, sure: bool = False) -> Pattern:
    return Pattern(kind, re.compile(find), counts, tuple(hints.split()), sure)


# In braces that are doubled: these are formats.
_ASSIGNED = (
    r"(?i)(?<![A-Za-z/])(?:[A-Za-z0-9]{{1,40}}[_-]){{0,6}}(?:{word})[\"'`*]{{0,3}}[ \t]{{0,3}}"
    r"(?::=|=>|[:=])(?![=:])[*]{{0,2}}[ \t]{{0,3}}"
)
_SPOKEN = (
    r"(?i)(?<![/\w])(?:{word})\b"
    r"(?:[ \t]{{1,20}}(?:for|of|on|to)[ \t]{{1,20}}[\w@.-]{{1,40}}(?:[ \t]{{1,20}}[\w@.-]{{1,40}})?)?"
    r"[ \t,]{{0,20}}(?:[ \t](?:is|was|are|still|now|to)[ \t]{{1,20}}|[ \t]{{1,20}})"
)
_SUDO = r"sudo[ \t]{1,20}(?:-\S+[ \t]{1,20})*-\w*S"
_ARGUMENT = r"""(?P<secret>"[^"\n]+"|'[^'\n]+'|[^\s|;&]+)"""

BUILT_IN: tuple[Pattern, ...] = (
    _p(
        "private key",
        # Headers may stand before the key, line ends may be written as \n.
        r"(?P<secret>-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----(?:\\[nr]|\s){0,4}(?:[^\n]{0,80}\n){0,6}?"
        r"[A-Za-z0-9+/=]{16,}(?:\\[nr]|[A-Za-z0-9+/=\s]){0,16384}(?:-----END)?)",
        _always,
        "private",
        sure=True,
    ),
    _p("password assignment", _ASSIGNED.format(word=_PASS) + _VALUE, _assigned, _PASS_HINTS),
    _p("token assignment", _ASSIGNED.format(word=_KEY) + _VALUE, _keyed, _KEY_HINTS),
    _p("password in prose", _SPOKEN.format(word="password|passwd|passphrase|passcode") + _VALUE, _spoken, "pass"),
    _p("token in prose", _SPOKEN.format(word="token|secret|api key|access key") + _VALUE, _spoken_key, _KEY_HINTS),
    _p(
        "password in prose",
        r"(?im)\b(?:password|passphrase|passcode)[ \t]{1,20}"
        r"(?:(?:for|of|on)[ \t]{1,20}[\w@.-]{1,40}[ \t]{1,20}){0,2}(?:is|was)[ \t]{0,20}:?[ \t]{0,20}"
        r"(?P<secret>[A-Za-z]{4,40})(?=[.,;)!]*[ \t]{0,20}$|[.;])",
        _plain_word,
        "pass",
    ),
    _p(
        "password fed to sudo",
        rf"(?:echo|printf)[ \t]{{1,20}}(?:-n[ \t]{{1,20}})?{_ARGUMENT}[ \t]{{0,20}}\|[ \t]{{0,20}}{_SUDO}",
        _assigned,
        "sudo",
    ),
    _p("password fed to sudo", rf"{_SUDO}[^\n<]{{0,200}}<<<[ \t]{{0,20}}{_ARGUMENT}", _assigned, "sudo"),
    _p("password on a command line", rf"sshpass[ \t]{{1,20}}-p[ \t]{{0,20}}{_ARGUMENT}", _assigned, "sshpass"),
    _p(
        "password on a command line",
        r"(?i)(?<![\w-])--?(?:pass(?:word|wd|phrase)?|token|secret|api-?key)(?:[ \t]{1,20}|=)(?![-|])" + _VALUE,
        _spoken,
        "-pass -token -secret -api",
    ),
    _p(
        "credentials in a URL",
        r"""(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@"'<>]{0,64}:(?P<secret>[^\s/@"'<>]{2,200})@[\w.\[-]""",
        _assigned,
        "://",
    ),
    _p(
        "cloud access key",
        r"(?<![A-Z0-9])(?P<secret>(?:AKIA|ASIA)[A-Z0-9]{16})(?![A-Z0-9])",
        _always,
        "akia asia",
        sure=True,
    ),
    _p(
        "service token",
        r"(?<![A-Za-z0-9])(?P<secret>gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{40,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
        r"|hf_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{32,}|AIza[\w-]{35})",
        _random,
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox hf_ sk- aiza",
        sure=True,
    ),
    _p(
        "signed web token",
        r"(?P<secret>eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})",
        _always,
        "eyj",
        sure=True,
    ),
    _p(
        "authorization header",
        r"""(?i)\bauthorization["']?[ \t]{0,20}[:=][ \t]{0,20}["']?(?:basic|bearer|token)[ \t]{1,20}"""
        r"(?P<secret>[A-Za-z0-9+/=._~-]{8,})",
        _random,
        "authorization",
    ),
    _p(
        "password hash",
        r"""(?P<secret>\$(?:1|5|6|y|2[aby])\$[./A-Za-z0-9$=,]{20,})""",
        _always,
        "$1$ $5$ $6$ $y$ $2a$ $2b$ $2y$",
        sure=True,
    ),
)


def load_user_patterns(path: Path) -> tuple[Pattern, ...]:
    """Patterns of the user's own: a secret a line as it is, or `re:` and a regular expression; `#` begins a comment.

    The file holds secrets, so nobody but its owner may read it. Raises InputError for a file that is not there, that
    others can read, or that has no pattern: an audit must never pass because it looked for nothing.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError("is not a file", where=str(path))
        if found.st_mode & 0o077:
            raise InputError("others may read this file of secrets", where=str(path), advice=f"chmod 600 {path}")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"the patterns cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8", where=str(path)) from error
    patterns = [_user_pattern(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if _wanted(line)]
    if not patterns:
        raise InputError("there is no pattern in it", where=str(path), advice="write one secret a line")
    return tuple(patterns)


def known_patterns(values: Iterable[tuple[str, str]]) -> tuple[Pattern, ...]:
    """A pattern for each secret that this process knows: (value, whose it is)."""
    return tuple(
        Pattern(f"the secret of {source}", re.compile(f"(?P<secret>{_literal(value)})"), _always, sure=True)
        for value, source in values
    )


def _literal(text: str) -> str:
    # A secret that is broken over lines is still found: white space counts as any white space.
    return r"\s+".join(re.escape(word) for word in text.split())


def _wanted(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _user_pattern(line: str, where: str) -> Pattern:
    text = line.strip()
    if not text.startswith("re:"):
        if len(text) < MIN_LITERAL:
            raise InputError(f"a pattern of fewer than {MIN_LITERAL} characters fits everywhere", where=where)
        return Pattern("a secret of the pattern file", re.compile(f"(?P<secret>{_literal(text)})"), _always, sure=True)
    try:
        find = re.compile(f"(?P<secret>{text[3:].strip()})")
    except re.error as error:
        # The expression itself may be the secret: only its fault is told.
        raise InputError(f"is not a regular expression: {error.msg}", where=where) from error
    if find.search("") is not None:
        raise InputError("this expression fits everywhere", where=where)
    return Pattern("a pattern of the pattern file", find, _always, sure=True)


_BEFORE_END = r"(?i)(?<![A-Za-z/])(?:{word})[\"'`*]{{0,3}}[ \t]{{0,20}}(?:[:=]|[ \t](?:is|was|are)\b)[ \t]{{0,20}}"
BROKEN = (
    _p("password over a line end", _BEFORE_END.format(word=_PASS) + _VALUE, _spoken, _PASS_HINTS),
    _p("token over a line end", _BEFORE_END.format(word=_KEY) + _VALUE, _spoken_key, _KEY_HINTS),
)
"""Patterns for a text whose line ends were made spaces: a plain word after a line end is language."""


def find(text: str, patterns: Sequence[Pattern]) -> list[Hit]:
    """Every secret in the text; where patterns overlap, the first of them counts."""
    hits: list[Hit] = []
    small = text.lower()
    for pattern in patterns:
        for hit in pattern.hits(text, small):
            at = bisect.bisect_left(hits, hit.start, key=lambda other: other.end - 1)
            if at == len(hits) or hits[at].start >= hit.end:
                hits.insert(at, hit)
    return hits


def mask(text: str, patterns: Sequence[Pattern] = BUILT_IN) -> str:
    """The text with `***` in the place of every secret that the patterns know."""
    for hit in reversed(find(text, patterns)):
        text = f"{text[: hit.start]}***{text[hit.end :]}"
    return text
