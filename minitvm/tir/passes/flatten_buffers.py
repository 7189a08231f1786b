"""FlattenBuffers: nested -> flat. Every buffer becomes one row of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minitvm import dtypes
from minitvm.tir import ir, walk
from minitvm.tir.ir import (
    Address,
    Allocate,
    Broadcast,
    Buffer,
    Const,
    Expr,
    Load,
    PrimFunc,
    Ramp,
    Stmt,
    Store,
)
from minitvm.tir.passes.copying import with_body
from minitvm.transform import make_pass


@make_pass("FlattenBuffers")
def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """Replaces buffers of any rank by buffers of rank 1, row-major. Nested -> flat.

    Before:
        def f(A: Buffer((4, 16), "float32"), B: Buffer((), "float32")):
            for i in range(4):
                A[i, 3] = B[()]
                A[i, ramp(0, 1, 8)] = broadcast(1.0, 8)
    After:
        def f(A: Buffer((64,), "float32"), B: Buffer((1,), "float32")):
            for i in range(4):
                A[i * 16 + 3] = B[0]
                A[ramp(i * 16, 1, 8)] = broadcast(1.0, 8)
    """
    flattener = _Flattener()
    params = tuple(
        flattener.buffer(param) if isinstance(param, Buffer) else param for param in func.params
    )
    body = walk.rewrite_statement(func.body, flattener.statement, flattener.expr)
    if all(new is old for new, old in zip(params, func.params, strict=True)):
        return with_body(func, body)
    return PrimFunc(func.name, params, body, func.attrs)


class _Flattener:
    """The flat buffer of each buffer met so far."""

    def __init__(self) -> None:
        self.flat: dict[Buffer, Buffer] = {}

    def buffer(self, buffer: Buffer) -> Buffer:
        if len(buffer.shape) == 1:
            return buffer
        found = self.flat.get(buffer)
        if found is None:
            found = Buffer(buffer.name, (_product(buffer.shape),), buffer.dtype, buffer.scope)
            self.flat[buffer] = found
        return found

    def statement(self, statement: Stmt) -> Stmt:
        match statement:
            case Store(buffer, indices, value, origin) if len(buffer.shape) != 1:
                place = row_major(buffer.shape, indices)
                return Store(self.buffer(buffer), (place,), value, origin)
            case Allocate(buffer, body, origin) if len(buffer.shape) != 1:
                return Allocate(self.buffer(buffer), body, origin)
        return statement

    def expr(self, expr: Expr) -> Expr:
        return walk.rewrite(expr, self.node)

    def node(self, expr: Expr) -> Expr:
        if isinstance(expr, Load) and len(expr.buffer.shape) != 1:
            return Load(self.buffer(expr.buffer), (row_major(expr.buffer.shape, expr.indices),))
        if isinstance(expr, Address) and len(expr.buffer.shape) != 1:
            return Address(self.buffer(expr.buffer), expr.offset)
        return expr


def _product(shape: Sequence[Expr]) -> Expr:
    """The number of elements, an int64 where int32 is too narrow."""
    if all(isinstance(extent, Const) for extent in shape):
        count = math.prod(int(extent.value) for extent in shape if isinstance(extent, Const))
        widest = max((extent.dtype for extent in shape), key=dtypes.bits, default=ir.INDEX)
        return Const(count, widest if count <= dtypes.integer_range(widest)[1] else "int64")
    product: Expr = Const(1)
    for extent in shape:
        dtype = _widest(product, extent)
        product = _as(extent, dtype) * _as(product, dtype)
    return product


def row_major(shape: Sequence[Expr], indices: Sequence[Expr]) -> Expr:
    """The offset of an element, or of lanes: (i * extent_j + j) * extent_k + k ..., spread out."""
    if not indices:
        return Const(0)
    offset, stride = indices[-1], None
    for extent, index in zip(reversed(shape[1:]), reversed(indices[:-1]), strict=True):
        extent = _as(extent, index.dtype)
        stride = extent if stride is None else stride * extent
        offset = _plus(index * stride, offset)
    return offset


def _plus(scalar: Expr, offset: Expr) -> Expr:
    match offset:
        case Ramp(base, stride, lanes):
            return Ramp(scalar + base, stride, lanes)
        case Broadcast(value, lanes):
            return Broadcast(scalar + value, lanes)
    return scalar + offset


def _as(expr: Expr, dtype: str) -> Expr:
    if isinstance(expr, Const):
        return Const(expr.value, dtype)
    return ir.cast(expr, dtype)


def _widest(a: Expr, b: Expr) -> str:
    return max(a.dtype, b.dtype, key=dtypes.bits)
