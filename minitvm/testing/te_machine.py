"""What a schedule computes, by the interpreter and by machine code.

    run_interpreter(schedule, program, inputs)      the nested function, checked and interpreted
    run_machine(schedule, program, inputs)          lowered, compiled and run in this process

Both give the outputs as arrays. `sizes` are the values of the symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minitvm import te
from minitvm.codegen.jit import build_kernel
from minitvm.te.schedule import Schedule
from minitvm.te.tensor import Tensor
from minitvm.testing.te_oracle import Program, extents_of
from minitvm.tir import passes
from minitvm.tir.interpret import run
from minitvm.tir.ir import PrimFunc, Var
from minitvm.tir.text import print_func
from minitvm.tir.verify import verify

Arrays = Sequence[np.ndarray[Any, Any]]
Sizes = Mapping[Var, int]


def run_interpreter(
    schedule: Schedule, program: Program, inputs: Arrays, sizes: Sizes | None = None
) -> list[np.ndarray[Any, Any]]:
    """The outputs; an error gets a note with the function."""
    func = te.lower(schedule, program.args)
    verify(func, "nested", require_origins=True)
    outputs = empty_outputs(program, sizes or {})
    try:
        run(func, [*scalars(func, sizes or {}), *inputs, *outputs])
    except Exception as error:
        error.add_note(f"{schedule}\n{print_func(func)}")
        raise
    return outputs


def run_machine(
    schedule: Schedule, program: Program, inputs: Arrays, sizes: Sizes | None = None
) -> list[np.ndarray[Any, Any]]:
    """The outputs of the compiled kernel."""
    func = passes.lower(te.lower(schedule, program.args))
    verify(func, "machine")
    outputs = empty_outputs(program, sizes or {})
    build_kernel(func)(*scalars(func, sizes or {}), *map(np.ascontiguousarray, inputs), *outputs)
    return outputs


def empty_outputs(program: Program, sizes: Sizes) -> list[np.ndarray[Any, Any]]:
    """An array for each output, with values that no computation gives."""
    return [np.full(extents_of(tensor, sizes), 77, tensor.dtype) for tensor in program.outputs]


def scalars(func: PrimFunc, sizes: Sizes) -> list[int]:
    """The values of the scalar parameters, which come first."""
    return [sizes[param] for param in func.params if isinstance(param, Var)]


def shapes(tensors: Sequence[Tensor], sizes: Sizes) -> list[tuple[int, ...]]:
    """The shapes for given sizes."""
    return [extents_of(tensor, sizes) for tensor in tensors]
