"""The passes over tir: `lower` runs `LOWERING`, from what te gives to what codegen takes."""

from __future__ import annotations

from minitvm.tir.ir import PrimFunc
from minitvm.tir.passes.flatten_buffers import flatten_buffers
from minitvm.tir.passes.loop_partition import loop_partition
from minitvm.tir.passes.simplify import simplify
from minitvm.tir.passes.unroll_loop import unroll_fully, unroll_loop
from minitvm.tir.passes.vectorize_loop import vectorize_loop
from minitvm.transform import Pass, Sequential

__all__ = ["ALL", "LOWERING", "flatten_buffers", "loop_partition", "lower", "simplify",
           "unroll_fully", "unroll_loop", "vectorize_loop"]

ALL: tuple[Pass[PrimFunc], ...] = (simplify, loop_partition, flatten_buffers, vectorize_loop,
                                  unroll_loop)
"""Every pass over tir."""

LOWERING: Sequential[PrimFunc] = Sequential([
    loop_partition,
    flatten_buffers,
    simplify,
    vectorize_loop,
    unroll_loop,
])
"""From the nested spec to the machine spec."""


def lower(func: PrimFunc) -> PrimFunc:
    """The function in the machine spec, under the current PassContext."""
    return LOWERING(func)
