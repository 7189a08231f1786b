"""The weights of a model -> an object file.

LLVM makes an object with a section of zeros of the right size, and the bytes are written over it
in the file: as IR text, half a gigabyte would take minutes. The array stands in a module of its
own, where no code sees it: loads from an array of zeros would be folded away.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from minitvm.codegen.interface import WEIGHTS
from minitvm.codegen.machine import emit_object
from minitvm.errors import CodegenError
from minitvm.runtime import abi, elf
from minitvm.target import Target

SECTION = ".rodata.weights"


def write_weights_object(weights: np.ndarray, target: Target, path: Path) -> None:
    """Writes the object file that defines the symbol of the weights."""
    size = max(weights.nbytes, 1)
    data = emit_object(
        f'target triple = "{target.triple}"\n'
        f'@{WEIGHTS} = constant [{size} x i8] zeroinitializer, section "{SECTION}", '
        f"align {abi.WORKSPACE_ALIGNMENT}\n", target, optimize=False)
    section = next((s for s in elf.read_sections(data) if s.name == SECTION), None)
    if section is None or section.size != size:
        raise CodegenError(f"the object for the weights has no section {SECTION} of {size} bytes")
    path.write_bytes(data)
    with path.open("r+b") as file:
        file.seek(section.offset)
        file.write(weights.data)
