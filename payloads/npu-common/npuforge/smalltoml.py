"""The part of TOML that our config files use, for Python before 3.11: tables, strings, numbers, booleans, lists."""

import re

_TABLE = re.compile(r"\[\s*([A-Za-z0-9_-]+)\s*\]\s*(?:#.*)?\Z")
_PAIR = re.compile(r"([A-Za-z0-9_-]+)\s*=\s*(.+)\Z")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\["\\nt])*)"')
_NUMBER = re.compile(r"[+-]?(?:0|[1-9](?:_?[0-9])*)(\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\t": "\t"}


def loads(text):
    """The text as nested dicts. ValueError, with the line, for what is not understood."""
    data = {}
    table = data
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        head = _TABLE.match(line)
        if head:
            if head.group(1) in data:
                raise ValueError(f"line {number}: the table is here twice")
            table = data[head.group(1)] = {}
            continue
        pair = _PAIR.match(line)
        if not pair or pair.group(1) in table:
            raise ValueError(f"line {number}: not understood, or a key that is here twice")
        value, rest = _value(pair.group(2), number)
        if rest.strip() and not rest.strip().startswith("#"):
            raise ValueError(f"line {number}: something follows the value")
        table[pair.group(1)] = value
    return data


def _value(text, number):
    text = text.strip()
    string = _STRING.match(text)
    if string:
        return re.sub(r"\\.", lambda hit: _ESCAPES[hit.group()], string.group(1)), text[string.end() :]
    for word, value in (("true", True), ("false", False)):
        if re.match(word + r"\b", text):
            return value, text[len(word) :]
    digits = _NUMBER.match(text)
    if digits:
        plain = digits.group().replace("_", "")
        return (int(plain) if re.fullmatch(r"[+-]?\d+", plain) else float(plain)), text[digits.end() :]
    if text.startswith("["):
        return _list(text[1:], number)
    raise ValueError(f"line {number}: a value that is not understood")


def _list(text, number):
    values = []
    while True:
        text = text.strip()
        if text.startswith("]"):
            return values, text[1:]
        value, text = _value(text, number)
        values.append(value)
        text = text.strip()
        if text.startswith(","):
            text = text[1:]
        elif not text.startswith("]"):
            raise ValueError(f"line {number}: the list does not end")
