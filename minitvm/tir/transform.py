"""The passes over tir by the names that TVM's users know: functions that give a pass.

    mod = tir.transform.Simplify()(func)
    with PassContext(config={"tir.unroll_max_step": 16}):
        func = Sequential([tir.transform.LoopPartition(), tir.transform.UnrollLoop()])(func)

Where TVM has two passes for what is one here, both names give it. `tir.lower` runs all in order.
"""

from __future__ import annotations

from minitvm.errors import OptionError
from minitvm.tir import passes
from minitvm.tir.ir import PrimFunc
from minitvm.transform import Pass

TirPass = Pass[PrimFunc]


def CommonSubexprElimTIR() -> TirPass:
    """What neighbouring statements compute twice becomes a let."""
    return passes.common_subexpr_elim


def FlattenBuffer() -> TirPass:
    """Buffers of any rank become buffers of rank 1."""
    return passes.flatten_buffers


def HoistIfThenElse() -> TirPass:
    """Guards, and index divisions, move out of the loops that don't change them."""
    return passes.hoist_invariants


def HoistExpression() -> TirPass:
    """The pass of `HoistIfThenElse`, which does both."""
    return passes.hoist_invariants


def InstrumentBoundCheckers() -> TirPass:
    """Accesses are checked at run time, if the key `tir.bound_checks` of the context says so."""
    return passes.inject_bound_checks


def LoopPartition() -> TirPass:
    """Loops are split where their guards change."""
    return passes.loop_partition


def NarrowDataType(target_bits: int = 32) -> TirPass:
    """Indices of 32 bits where they fit."""
    if target_bits != 32:
        raise OptionError(f"indices can be narrowed to 32 bits, not to {target_bits!r}")
    return passes.narrow_data_type


def NarrowDeepExpressions() -> TirPass:
    """Expressions that are too deep for recursion become lets."""
    return passes.narrow_deep_expressions


def RemoveNoOp() -> TirPass:
    """What has no effect goes."""
    return passes.remove_no_op


def Simplify() -> TirPass:
    """Index arithmetic is simplified, guards are decided."""
    return passes.simplify


def StorageFlatten(cache_line_size: int = 64) -> TirPass:
    """The pass of `FlattenBuffer`; the size of cache lines changes nothing."""
    return passes.flatten_buffers


def StorageFolding() -> TirPass:
    """Memory of which a loop uses a sliding window shrinks to the window."""
    return passes.storage_folding


def StorageRewrite() -> TirPass:
    """Scratch buffers of disjoint lifetimes share memory."""
    return passes.storage_rewrite


def UnrollLoop() -> TirPass:
    """Loops are unrolled as the `tir.unroll_...` keys of the context say."""
    return passes.unroll_loop


def VectorizeLoop(enable_vectorize: bool = True) -> TirPass:
    """Vectorized loops become vector statements; serial loops, if not enabled."""
    if enable_vectorize:
        return passes.vectorize_loop
    return passes.serialize_vectorized
