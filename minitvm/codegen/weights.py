"""The weights of a model -> an object file, for a library that holds them.

LLVM makes an object with a section of a few zeros. The weights are then appended to the file, and
the section's header and the symbol say that they are what the section holds. So they are written
once, from where they lie: as IR text, half a gigabyte would take minutes, and an object of that
size would be built in memory, twice. The array stands in a module of its own, where no code sees
it: loads from an array of zeros would be folded away.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from minitvm.codegen.interface import WEIGHTS
from minitvm.codegen.machine import emit_object
from minitvm.errors import CodegenError
from minitvm.runtime import abi, elf
from minitvm.target import Target

SECTION = ".rodata.weights"
MAXIMUM_BYTES = 2**31 - 2**24
"""The small code model reaches 2 GiB; some room is left for code."""
_ALIGNMENT = abi.WORKSPACE_ALIGNMENT
_SYMBOLS = 2
"""The kind of the section that is the table of symbols."""


def write_weights_object(weights: np.ndarray, target: Target, path: Path) -> None:
    """Writes the object file that defines the symbol of the weights."""
    data = bytearray(emit_object(
        f'target triple = "{target.triple}"\n'
        f'@{WEIGHTS} = constant [{_ALIGNMENT} x i8] zeroinitializer, section "{SECTION}", '
        f"align {_ALIGNMENT}\n", target, optimize=False))
    size = max(weights.nbytes, 1)
    start = -(-len(data) // _ALIGNMENT) * _ALIGNMENT
    _resize_symbol(data, size)
    _move_section(data, start, size)
    with path.open("wb") as file:
        file.write(data)
        file.write(bytes(start - len(data)))
        file.write(weights.data)
        file.write(bytes(size - weights.nbytes))


def _move_section(data: bytearray, offset: int, size: int) -> None:
    """Says in its header that the section of the weights lies elsewhere."""
    table, = struct.unpack_from("<Q", data, 40)
    row_bytes, = struct.unpack_from("<H", data, 58)
    names = [section.name for section in elf.read_sections(data)]
    if names.count(SECTION) != 1:
        raise CodegenError(f"the object for the weights has {names.count(SECTION)} sections "
                           f"{SECTION}, not one")
    struct.pack_into("<QQ", data, table + names.index(SECTION) * row_bytes + 24, offset, size)


def _resize_symbol(data: bytearray, size: int) -> None:
    """Gives the only symbol that other objects see its size."""
    for section in elf.read_sections(data):
        if section.kind == _SYMBOLS:
            for row in range(section.offset, section.offset + section.size, 24):
                if data[row + 4] >> 4:
                    struct.pack_into("<Q", data, row + 16, size)
