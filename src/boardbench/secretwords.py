"""The secrets that this process knows, kept out of every text that leaves it: terminal, journal, results, reports.

One registry for the whole process, because a secret may turn up in any text: a command's error, a board's answer, a
difference of a file. It learns from the inventory and from the environment. What it was never told it cannot hide:
`./inv audit` looks for secrets by their form as well.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

MIN_LENGTH = 4
"""A shorter word would be found in everything, and hidden there."""
SHOWN = "***"
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_.-])(?:pass|passwd|password|passphrase|passcode|psk|pin|token|secret|api_?key|access_?key|auth_?key"
    r"|private_?key|credentials?)(?:$|[_.-])|(?:password|passwd|token|secret|apikey)$"
)
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?:=(?P<value>.*))?")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.+)")
_USER_OPTIONS = ("-u", "--user")
_STAND_INS = frozenset({"none", "null", "true", "false", "yes", "no", "ask", "prompt", "env"})


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret: `SUDO_PASSWORD`, `wifi_psk`, `token`, and not `PWD` or `key_file`."""
    return _SECRET_NAME.search(name) is not None


class Registry:
    """Secret values, and texts without them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, str] = {}
        self._find: re.Pattern[str] | None = None

    def add(self, value: object, source: str) -> None:
        """From now on this value is hidden, also as it stands in a URL and in JSON. `source`: whose it is."""
        text = str(value).strip()
        if len(text) < MIN_LENGTH or text.casefold() in _STAND_INS:
            return
        with self._lock:
            self._values.setdefault(text, source)
            forms = {form for known in self._values for form in _forms(known)}
            self._find = re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))

    def learn_environment(self, environment: Mapping[str, str], named: Iterable[str] = ()) -> None:
        """Every variable whose name says that it is a secret, and those that are `named` so."""
        names = set(named)
        for name, value in environment.items():
            if name in names or is_secret_name(name):
                self.add(value, f"environment variable {name}")

    def learn(self, value: object, source: str, named: Iterable[str] = ()) -> None:
        """All secrets in a mapping of options: by name, in URLs, and in command lines."""
        names = frozenset(named)
        for found in _in_options(value, names):
            self.add(found, source)

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """Each secret with its source, for the audit."""
        with self._lock:
            return tuple(self._values.items())

    def hide(self, text: str) -> str:
        """The text with `***` in the place of every known secret."""
        return text if self._find is None else self._find.sub(SHOWN, text)

    def hide_in(self, value: Any) -> Any:
        """The same for every text in a JSON value; keys are names, and stay."""
        if self._find is None:
            return value
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {key: self.hide_in(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide_in(entry) for entry in value]
        return value

    def forget(self) -> None:
        """Knows nothing again."""
        with self._lock:
            self._values.clear()
            self._find = None


REGISTRY = Registry()
"""That of this process."""


class Veil:
    """A text stream that hides what the registry knows; everything else is the stream's own."""

    def __init__(self, stream: IO[str], registry: Registry = REGISTRY) -> None:
        self._stream = stream
        self._registry = registry

    def write(self, text: str) -> int:
        """Writes the text without secrets; says that all of it was taken."""
        self._stream.write(self._registry.hide(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Each of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _forms(value: str) -> Iterator[str]:
    yield value
    yield urllib.parse.quote(value, safe="")
    yield urllib.parse.quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]


def _in_options(value: object, named: frozenset[str], name: str = "") -> Iterator[object]:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _in_options(entry, named, str(key))
    elif isinstance(value, list | tuple):
        yield from _in_words([str(word) for word in value])
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        if name in named or is_secret_name(name):
            yield value
        elif isinstance(value, str):
            yield from _in_url(value)


def _in_words(words: Sequence[str]) -> Iterator[str]:
    """Secrets in a command line: `--password X`, `--token=X`, `KEY=X`, `-u user:X`, URLs."""
    awaited = False
    for index, word in enumerate(words):
        option, assigned = _OPTION.fullmatch(word), _ASSIGNMENT.fullmatch(word)
        if awaited and option is None:
            yield word
        awaited = option is not None and option["value"] is None and is_secret_name(option["name"])
        if option is not None and option["value"] and is_secret_name(option["name"]):
            yield option["value"]
        if assigned is not None and is_secret_name(assigned["name"]):
            yield assigned["value"]
        if index and words[index - 1] in _USER_OPTIONS and ":" in word:
            yield word.partition(":")[2]
        yield from _in_url(word)


def _in_url(text: str) -> Iterator[str]:
    if "://" not in text:
        return
    try:
        parts = urllib.parse.urlsplit(text)
        if parts.password:
            yield urllib.parse.unquote(parts.password)
        for name, value in urllib.parse.parse_qsl(parts.query):
            if is_secret_name(name):
                yield value
    except ValueError:
        return
