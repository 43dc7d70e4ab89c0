"""Values of kernel files that somebody dumped: `path<TAB>value`, `path:value` (grep -r) or `==> path <==` blocks.

A value gets a unit only where the file is known to have one; all others stay text. A read that failed is missing, with
its reason, and costs nothing but itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from boardbench.imports.model import Fact, FactValue, Missing, Parsed
from boardbench.imports.text import Faults, Line

_GREP = re.compile(r"(/(?:sys|proc|etc|dev)/[^:\t]*):(.*)")
_HEAD = re.compile(r"==> (.+) <==")
_ERROR = re.compile(
    r"(?:EAGAIN|EINVAL|ENODATA|EIO|EACCES|ENOENT|Resource temporarily unavailable|Invalid argument|No data available"
    r"|Input/output error|Permission denied|No such file or directory|Operation not permitted)"
)
_INTEGER = re.compile(r"-?[0-9]{1,18}")
ZONES = re.compile(
    r"(package|soc\d*|cpu\d*|gpu|npu|ddr|bigcore\d*|big-core|little-?core|center|cv\d|tj|tboard|tdiode|aux|ao|pll|pmic"
    r"|mcpu|bcpu)-(?:thermal|therm)"
)
"""Types of zones whose `temp` is a temperature in milli-degrees; some boards put voltages into zones."""


def looks_like(text: str) -> bool:
    """Whether a line can be one of a dump of kernel files."""
    return bool(_HEAD.fullmatch(text.strip()) or _GREP.fullmatch(text) or ("\t" in text and text.startswith("/")))


def pairs_of(lines: Iterable[Line], faults: Faults) -> Iterator[tuple[str, str, int]]:
    """Path (or what stands for it), value, line."""
    block: tuple[str, int] | None = None
    kept: list[str] = []
    for line in faults.records(lines):
        head = _HEAD.fullmatch(line.text.strip())
        if head is not None:
            if block is not None:
                yield block[0], "\n".join(kept).strip(), block[1]
            block, kept = (head[1], line.number), []
        elif block is not None:
            kept.append(line.text)
        elif not line.text.strip() or line.text.startswith("#"):
            continue
        elif "\t" in line.text:
            path, _, value = line.text.partition("\t")
            yield path.strip(), value.replace("\\n", "\n").strip(), line.number
        elif (grep := _GREP.fullmatch(line.text)) is not None:
            yield grep[1], grep[2].strip(), line.number
        else:
            faults.add("malformed-file", "is no path with a value", line.number)
    if block is not None:
        yield block[0], "\n".join(kept).strip(), block[1]


def parse(lines: Iterable[Line], name: str, board: str | None) -> Parsed:
    """The facts of a dump."""
    faults = Faults(name)
    found: dict[str, tuple[str, int]] = {}
    twice: set[str] = set()
    for path, given, line in pairs_of(lines, faults):
        if path in found:
            twice.add(path)
            faults.add("repeated-key", f"{path[:80]} is there twice: neither value is taken", line)
        found[path] = (given, line)
    texts = {path: text for path, (text, _) in found.items() if path not in twice}
    facts = []
    for path, text in texts.items():
        value: FactValue = value_of(path, text, texts)
        if isinstance(value, Missing):
            code = "unprivileged-read" if "ermission denied" in text or "EACCES" in text else "failed-read"
            if value.why != "the zone is disabled":
                faults.add(code, f"{path[:80]}: {value.why}", found[path][1])
        facts.append(Fact(f"{board}.{path}" if board else path, value, f"{name}:{found[path][1]}"))
    return Parsed(facts=tuple(facts), faults=faults.done())


def value_of(path: str, text: str, others: Mapping[str, str]) -> FactValue:
    """What a file's text means: missing, a number in the unit of its kind of file (see `unit_of`), a list, or text."""
    if not text:
        return Missing("empty: the read failed")
    if _mode(path, others) == "disabled":
        return Missing("the zone is disabled")
    if (error := _ERROR.search(text)) is not None:
        return Missing(f"the read failed: {error[0]}")
    words = text.split()
    if len(words) > 1 and all(_INTEGER.fullmatch(word) for word in words):
        return tuple(float(word) for word in words)
    if not _INTEGER.fullmatch(text):
        return text
    value = float(text)
    if re.search(r"thermal_zone[^/]*/temp$", path):
        kind = others.get(path.removesuffix("temp") + "type")
        if kind is not None and ZONES.fullmatch(kind):
            if value == -256000.0:
                return Missing("sensor off (-256)")
            return value / 1000.0
        return text
    return value


def _mode(path: str, others: Mapping[str, str]) -> str:
    if not re.search(r"thermal_zone[^/]*/temp$", path):
        return ""
    return others.get(path.removesuffix("temp") + "mode", "").strip()
