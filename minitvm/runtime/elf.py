"""A shared library file -> what it exports and needs, without loading it.

Reading a file is safe where loading it is not: a library's constructors run when it is loaded, and
a truncated one ends the process. Every offset that the file states is checked against its size.
Knows 64-bit little-endian ELF, which is what all targets use.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}
"""`e_machine` by architecture."""
LOAD = 1
"""The kind of a segment that is loaded."""

_SHARED, _DYNAMIC, _DYNSYM, _NOBITS, _NEEDED = 3, 6, 11, 8, 1


class ElfError(ValueError):
    """The file is not a sound ELF shared library; the message says why, to follow its name."""


@dataclass(frozen=True, slots=True)
class Section:
    """One section: where its bytes are."""

    name: str
    kind: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment: what of the file goes where in memory."""

    kind: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    alignment: int


@dataclass(frozen=True, slots=True)
class SharedLibrary:
    """What a library says of itself."""

    machine: int
    exported: frozenset[str]
    undefined: frozenset[str]
    needed: tuple[str, ...]


def architecture(machine: int) -> str:
    """The name of an `e_machine`."""
    return next((name for name, number in MACHINES.items() if number == machine),
                f"machine {machine}")


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of an ELF file. A table that points outside of them is an `ElfError`, too; raises
    `OSError` if the file can't be opened."""
    with path.open("rb") as file:
        if file.seek(0, 2) < 64:
            raise ElfError("is too short to be a shared library")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                yield data
            except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
                raise ElfError("is damaged: its tables point outside the file") from error


def check_shared(data: mmap.mmap) -> int:
    """The machine of a shared library; raises `ElfError` for anything else."""
    kind, machine = header(data)
    if kind != _SHARED:
        raise ElfError("is an ELF file, but not a shared library")
    return machine


def read_library(path: Path) -> SharedLibrary:
    """Reads a shared library; raises `ElfError`, or `OSError` if it can't be opened."""
    with mapped(path) as data:
        return _read(data)


def _read(data: mmap.mmap) -> SharedLibrary:
    machine = check_shared(data)
    read_segments(data)
    sections = read_sections(data)
    exported: set[str] = set()
    undefined: set[str] = set()
    needed: list[str] = []
    for section in sections:
        if section.kind == _DYNSYM:
            strings = sections[section.link]
            for start in range(section.offset + 24, section.offset + section.size, 24):
                name, info, _, index = struct.unpack_from("<IBBH", data, start)
                if info >> 4:  # global or weak
                    (exported if index else undefined).add(_string(data, strings, name))
        elif section.kind == _DYNAMIC:
            strings = sections[section.link]
            for start in range(section.offset, section.offset + section.size, 16):
                tag, value = struct.unpack_from("<QQ", data, start)
                if tag == _NEEDED:
                    needed.append(_string(data, strings, value))
    return SharedLibrary(machine, frozenset(exported), frozenset(undefined), tuple(needed))


def header(data: bytes | bytearray | mmap.mmap) -> tuple[int, int]:
    """The type and the machine of an ELF file."""
    if bytes(data[:4]) != b"\x7fELF":
        raise ElfError("is not an ELF shared library")
    if data[4] != 2 or data[5] != 1:
        raise ElfError("is an ELF file of 32 bits or of big-endian byte order")
    kind, machine = struct.unpack_from("<HH", data, 16)
    return int(kind), int(machine)


def program_headers(data: mmap.mmap) -> tuple[int, int, int]:
    """Where the table of segments starts, the size of a row, and how many there are."""
    start, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    return start, size, count


def read_segments(data: mmap.mmap) -> list[Segment]:
    """The segments of a library; refuses a file that ends before what it says is to be loaded."""
    start, size, count = program_headers(data)
    segments = []
    for number in range(count):
        kind, flags, offset, address, _, file_size, memory_size, alignment = struct.unpack_from(
            "<IIQQQQQQ", data, start + number * size)
        if kind == LOAD and offset + file_size > len(data):
            raise ElfError("is truncated")
        segments.append(Segment(kind, flags, offset, address, file_size, memory_size, alignment))
    sections, = struct.unpack_from("<Q", data, 40)
    row_bytes, rows = struct.unpack_from("<HH", data, 58)
    if sections + row_bytes * rows > len(data):  # nothing that is loaded, but it comes last
        raise ElfError("is truncated")
    return segments


def read_sections(data: bytes | bytearray | mmap.mmap) -> list[Section]:
    """The sections of an ELF file, those outside of it refused."""
    start, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    raw = [struct.unpack_from("<IIQQQQII", data, start + number * size) for number in range(count)]
    for _, kind, _, _, offset, length, _, _ in raw:
        if kind != _NOBITS and offset + length > len(data):
            raise ElfError("is truncated")
    sections = [Section("", kind, offset, length, link)
                for _, kind, _, _, offset, length, link, _ in raw]
    return [Section(_string(data, sections[names], row[0]), s.kind, s.offset, s.size, s.link)
            for row, s in zip(raw, sections)]


def _string(data: bytes | bytearray | mmap.mmap, section: Section, offset: int) -> str:
    start = section.offset + offset
    end = data.find(b"\0", start, section.offset + section.size)
    if offset >= section.size or end < 0:
        raise ElfError("is damaged: a name lies outside its table")
    return bytes(data[start:end]).decode()
