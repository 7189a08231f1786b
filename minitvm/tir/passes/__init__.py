"""The passes over tir: `lower` runs `LOWERING`, from what te gives to what codegen takes."""

from __future__ import annotations

from minitvm.tir.ir import PrimFunc
from minitvm.tir.passes.common_subexpr_elim import common_subexpr_elim
from minitvm.tir.passes.flatten_buffers import flatten_buffers
from minitvm.tir.passes.hoist_invariants import hoist_invariants
from minitvm.tir.passes.inject_bound_checks import inject_bound_checks
from minitvm.tir.passes.loop_partition import loop_partition
from minitvm.tir.passes.narrow_data_type import narrow_data_type
from minitvm.tir.passes.narrow_deep_expressions import narrow_deep_expressions
from minitvm.tir.passes.partition_symbolic_loops import partition_symbolic_loops
from minitvm.tir.passes.remove_no_op import remove_no_op
from minitvm.tir.passes.simplify import simplify
from minitvm.tir.passes.storage_folding import storage_folding
from minitvm.tir.passes.storage_rewrite import storage_rewrite
from minitvm.tir.passes.unroll_loop import unroll_fully, unroll_loop
from minitvm.tir.passes.vectorize_loop import serialize_vectorized, vectorize_loop
from minitvm.transform import Pass, Sequential

__all__ = [
    "ALL", "LOWERING", "common_subexpr_elim", "flatten_buffers", "hoist_invariants",
    "inject_bound_checks", "loop_partition", "lower", "narrow_data_type",
    "narrow_deep_expressions", "partition_symbolic_loops", "remove_no_op",
    "serialize_vectorized", "simplify",
    "storage_folding", "storage_rewrite", "unroll_fully", "unroll_loop", "vectorize_loop",
]  # fmt: skip

LOWERING: Sequential[PrimFunc] = Sequential(
    [
        narrow_deep_expressions,  # first: the others recurse over expressions
        narrow_data_type,  # before indices are multiplied to offsets
        inject_bound_checks,  # on request; while indices are those that people know
        storage_folding,  # while the loop that a window moves with is one
        partition_symbolic_loops,  # first, as it leaves loops between constants in its pieces
        loop_partition,  # on buffers of any rank, so that its result can be read
        flatten_buffers,
        simplify,  # the indices that flattening made, and what partition decided
        vectorize_loop,
        unroll_loop,
        hoist_invariants,  # last of those that move code: guards stand where partition left them
        common_subexpr_elim,
        remove_no_op,
        storage_rewrite,
    ]
)
"""From the nested spec to the machine spec."""

ALL: tuple[Pass[PrimFunc], ...] = tuple(LOWERING)
"""Every pass over tir."""


def lower(func: PrimFunc) -> PrimFunc:
    """The function in the machine spec, under the current PassContext."""
    return LOWERING(func)
