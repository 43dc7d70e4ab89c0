"""Which functions an ELF file defines, read from its symbol tables. Nothing is run and nothing is loaded."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import BinaryIO, Iterable

_SYMTAB, _DYNSYM, _NOBITS = 2, 11, 8
_FUNCTION, _INDIRECT = 2, 10
_MAX_TABLE_BYTES = 256 * 1024 * 1024


class ElfError(Exception):
    """The file is no ELF file, or a damaged one; says which."""


@dataclass(frozen=True)
class _Layout:
    """The shapes of one ELF class and byte order."""

    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    wide: bool


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    entry_size: int


def _layout(ident: bytes) -> _Layout:
    if len(ident) < 16 or ident[:4] != b"\x7fELF":
        raise ElfError("it is no ELF file")
    order = {1: "<", 2: ">"}.get(ident[5])
    if ident[4] not in (1, 2) or order is None:
        raise ElfError("its ELF header names an unknown class or byte order")
    if ident[4] == 2:
        shapes = ("HHIQQQIHHHHHH", "IIQQQQIIQQ", "IBBHQQ")
    else:
        shapes = ("HHIIIIIHHHHHH", "IIIIIIIIII", "IIIBBH")
    header, section, symbol = (struct.Struct(order + shape) for shape in shapes)
    return _Layout(header, section, symbol, ident[4] == 2)


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    if size > _MAX_TABLE_BYTES:
        raise ElfError(f"a table of {size} bytes is too large to be true")
    end = file.seek(0, os.SEEK_END)
    if offset + size > end:
        raise ElfError("it is cut off")
    file.seek(offset)
    return file.read(size)


def _sections(file: BinaryIO, layout: _Layout) -> list[_Section]:
    fields = layout.header.unpack(_read(file, 16, layout.header.size))
    offset, entry_size, count = fields[5], fields[10], fields[11]
    if offset == 0:
        raise ElfError("it has no section headers")
    if entry_size < layout.section.size:
        raise ElfError("its section headers are too small")
    if count == 0:
        # More sections than fit into the header: the first one's size counts them.
        count = layout.section.unpack(_read(file, offset, layout.section.size))[5]
    raw = _read(file, offset, entry_size * count)
    found = []
    for index in range(count):
        words = layout.section.unpack_from(raw, index * entry_size)
        found.append(_Section(words[1], words[4], words[5], words[6], words[9]))
    return found


def _defined(
    file: BinaryIO, layout: _Layout, sections: list[_Section], table: _Section, wanted: set[bytes]
) -> set[str]:
    if table.link >= len(sections) or table.kind == _NOBITS:
        return set()
    names = sections[table.link]
    text, raw = _read(file, names.offset, names.size), _read(file, table.offset, table.size)
    found = set()
    for start in range(0, len(raw) - layout.symbol.size + 1, max(table.entry_size, layout.symbol.size)):
        words = layout.symbol.unpack_from(raw, start)
        name_at, info, home, value = (
            (words[0], words[1], words[3], words[4]) if layout.wide else (words[0], words[3], words[5], words[1])
        )
        if home == 0 or value == 0 or info & 15 not in (_FUNCTION, _INDIRECT) or name_at >= len(text):
            continue
        name = text[name_at : text.find(b"\0", name_at)]
        if name in wanted:
            found.add(name.decode())
    return found


def functions(path: str, wanted: Iterable[str]) -> set[str]:
    """Which of the wanted functions the file defines, in its dynamic or its full symbol table.

    ElfError when it is no whole ELF file; OSError when it cannot be read.
    """
    names = {name.encode() for name in wanted}
    with open(path, "rb") as file:
        layout = _layout(file.read(16))
        try:
            sections = _sections(file, layout)
            found: set[str] = set()
            for section in sections:
                if section.kind in (_DYNSYM, _SYMTAB):
                    found |= _defined(file, layout, sections, section, names)
        except struct.error:
            raise ElfError("its tables are damaged") from None
    return found
