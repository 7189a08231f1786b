"""A shared library -> whether what a process would load of it is what was exported.

The compiler leaves room for a digest in a note, a section that is loaded with the rest; `seal`
fills it once the library is linked. The digest covers what decides how a library behaves: its
header, the table of its segments, and the bytes of those that are loaded. What is not loaded is
left out: tools such as `strip` write tables of symbols and sections anew, move bytes in the file,
and append to it.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minitvm.runtime.elf import (
    LOAD,
    ElfError,
    Segment,
    check_shared,
    mapped,
    program_headers,
    read_segments,
)

SECTION = ".note.minitvm"
"""The section of the object file that holds the note."""
_OWNER = b"minitvm\0"
_DIGEST_BYTES, _TYPE, _NOTE = 32, 1, 4
_HEADER_BYTES = 64
_BLOCK_BYTES = 1 << 24
EMPTY_NOTE = struct.pack("<III", len(_OWNER), _DIGEST_BYTES, _TYPE) + _OWNER + bytes(_DIGEST_BYTES)
"""The note before the library is sealed: sizes of name and content, type, name, content."""
_BEFORE_DIGEST = len(EMPTY_NOTE) - _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class SealedLibrary:
    """What a library says of itself: its machine; whether it has the note, and the right digest."""

    machine: int
    has_note: bool
    intact: bool


def read_seal(path: Path) -> SealedLibrary:
    """Reads and checks a library; raises `ElfError` if it is none, `OSError` if it can't be read.
    """
    with mapped(path) as data:
        machine = check_shared(data)
        segments = read_segments(data)
        place = _digest_place(data, segments)
        if place is None:
            return SealedLibrary(machine, False, False)
        stored = data[place:place + _DIGEST_BYTES]
        return SealedLibrary(machine, True, stored == _digest(data, segments, place))


def seal(path: Path) -> None:
    """Writes the digest of a library to its note; raises `ElfError` if it has none."""
    with mapped(path) as data:
        check_shared(data)
        segments = read_segments(data)
        place = _digest_place(data, segments)
        if place is None:
            raise ElfError(f"has no section {SECTION}: the linker left it out")
        digest = _digest(data, segments, place)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(digest)


def _digest_place(data: mmap.mmap, segments: list[Segment]) -> int | None:
    """The offset of the digest in the file: in a note that is loaded, so that it covers itself."""
    start = EMPTY_NOTE[:_BEFORE_DIGEST]
    for segment in segments:
        if segment.kind == _NOTE:
            end = segment.offset + segment.file_size
            found = data.find(start, segment.offset, end)
            if found >= 0 and found + len(EMPTY_NOTE) <= end:
                return found + _BEFORE_DIGEST
    return None


def _digest(data: mmap.mmap, segments: list[Segment], place: int) -> bytes:
    """The SHA-256 of what is loaded, but for the offsets in the file and for the digest itself."""
    header = bytearray(data[:_HEADER_BYTES])
    header[40:48], header[58:64] = bytes(8), bytes(6)  # where the sections are, and how many
    digest = hashlib.sha256(header)
    for s in segments:
        digest.update(struct.pack("<IIQQQQ", s.kind, s.flags, s.address, s.file_size,
                                  s.memory_size, s.alignment))
    start, size, count = program_headers(data)
    left_out = sorted([(0, _HEADER_BYTES), (start, start + size * count),
                       (place, place + _DIGEST_BYTES)])
    with memoryview(data) as view:
        for segment in segments:
            if segment.kind == LOAD:
                for first, end in _kept(segment, left_out):
                    digest.update(view[first:end])
    return digest.digest()


def _kept(segment: Segment, left_out: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The ranges of the file that a segment loads, without those left out, in small pieces."""
    first, end = segment.offset, segment.offset + segment.file_size
    for without, resumed in [*left_out, (end, end)]:
        for start in range(first, min(without, end), _BLOCK_BYTES):
            yield start, min(start + _BLOCK_BYTES, without, end)
        first = max(first, min(resumed, end))
