"""NarrowDataType: one dtype for the indices of a function, as narrow as its buffers allow.

Loop variables and indices are int32 where every index that can occur fits, whatever dtype they came
with; a function with a buffer of 2**31 elements or more has int64 indices. A variable of a let, or
a parameter, keeps its dtype and is converted where it is part of an index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from minitvm import dtypes
from minitvm.remarks import remark
from minitvm.tir import walk
from minitvm.tir.ir import (
    Address,
    Allocate,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    Let,
    Load,
    PrimFunc,
    Ramp,
    Select,
    Stmt,
    Store,
    Var,
    binary,
    cast,
    compare,
)
from minitvm.tir.passes.copying import with_body
from minitvm.tir.simplify import Analyzer
from minitvm.tir.text import print_expr
from minitvm.tir.walk import walk_statements
from minitvm.transform import make_pass

INT32_ELEMENTS = 2**31 - 1
"""The most elements of a buffer with int32 indices."""


@make_pass("NarrowDataType")
def narrow_data_type(func: PrimFunc) -> PrimFunc:
    """Decides the dtype of indices. Any spec.

    Before:
        def f(A: Buffer((64,), "float32"), B: Buffer((8,), "float32")):
            for i in range(int64(8)):
                if i * 3 < 20:
                    B[i] = A[i * 8] + cast(i, "float32")
    After:
        def f(A: Buffer((64,), "float32"), B: Buffer((8,), "float32")):
            for i in range(8):
                if i * 3 < 20:
                    B[i] = A[i * 8] + cast(i, "float32")
    """
    now = index_dtype(func)
    if now is None:
        return func
    wide = any(_elements(buffer) > INT32_ELEMENTS for buffer in _buffers(func))
    if wide and now == "int32":
        return with_index_dtype(func, "int64")
    if now == "int64" and not wide:
        misfit = _Fit().statement(func.body)
        if misfit is None:
            return with_index_dtype(func, "int32")
        remark("NarrowDataType", f"{func.name} keeps int64 indices: {print_expr(misfit)} may not "
               "fit into int32")
    return func


def with_index_dtype(func: PrimFunc, dtype: str) -> PrimFunc:
    """The function with indices of `dtype`, which must hold all of them."""
    return with_body(func, _Converter(dtype).statement(func.body))


def index_dtype(func: PrimFunc) -> str | None:
    """The dtype of the first loop variable or index; None if there is none."""
    for item in walk_statements(func.body):
        if isinstance(item, For):
            return item.var.dtype
        if isinstance(item, Store) and item.indices:
            return dtypes.element(item.indices[0].dtype)
    return None


def _buffers(func: PrimFunc) -> list[Buffer]:
    params = [param for param in func.params if isinstance(param, Buffer)]
    return params + [item.buffer for item in walk_statements(func.body)
                     if isinstance(item, Allocate)]


def _elements(buffer: Buffer) -> int:
    """The number of elements, as far as it is known."""
    return math.prod(int(extent.value) for extent in buffer.shape if isinstance(extent, Const))


class _Fit:
    """Looks for an index that may not fit into int32."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.loops: set[Var] = set()

    def statement(self, statement: Stmt) -> Expr | None:
        """The first misfit."""
        indices: tuple[Expr, ...] = ()
        if isinstance(statement, For | Store):
            indices = walk.expressions(statement)[: 2 if isinstance(statement, For) else -1]
        misfit = _first(map(self.arithmetic, indices))
        if misfit is None:
            misfit = _first(map(self.value, walk.expressions(statement)))
        if misfit is not None:
            return misfit
        match statement:
            case For(var, start, extent):
                self.analyzer.bind(var, start, extent)
                self.loops.add(var)
            case Let(var, value, _) if var.dtype == "int64":
                low, high = self.analyzer.interval(value)
                self.analyzer.bind(var, Const(low, "int64"), Const(high - low + 1, "int64"))
        return _first(map(self.statement, walk.bodies(statement)))

    def value(self, expr: Expr) -> Expr | None:
        """The first misfit among the indices, and comparisons of indices, in a value."""
        for node in walk.walk(expr):
            parts: tuple[Expr, ...] = ()
            match node:
                case Load(_, indices):
                    parts = indices
                case Compare(_, a, b) if _is_index(a, self.loops) and _is_index(b, self.loops):
                    parts = (a, b)
            misfit = _first(map(self.arithmetic, parts))
            if misfit is not None:
                return misfit
        return None

    def arithmetic(self, expr: Expr) -> Expr | None:
        low, high = dtypes.integer_range("int32")
        if not self.analyzer.interval(expr).within(low, high):
            return expr
        match expr:
            case Binary(_, a, b) | Select(_, a, b) | Call("if_then_else", (_, a, b)):
                return _first(map(self.arithmetic, (a, b)))
            case Ramp(base, stride, lanes):
                last = base + stride * Const(lanes - 1, stride.dtype)
                return _first(map(self.arithmetic, (base, last)))
            case Broadcast(value, _):
                return self.arithmetic(value)
        return None


def _first(found: Iterable[Expr | None]) -> Expr | None:
    return next((item for item in found if item is not None), None)


def _is_index(expr: Expr, loops: set[Var]) -> bool:
    """Whether an expression is arithmetic of loop variables and constants."""
    match expr:
        case Var():
            return expr in loops
        case Const():
            return dtypes.is_int(expr.dtype)
        case Binary(_, a, b):
            return _is_index(a, loops) and _is_index(b, loops)
    return False


class _Converter:
    """Gives loop variables a new dtype, and indices with them."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.loops: dict[Var, Var] = {}
        self.known: set[Var] = set()

    def statement(self, statement: Stmt) -> Stmt:
        match statement:
            case For(var, start, extent, kind, body, origin):
                first, count = self.index(start), self.index(extent)
                self.loops[var] = Var(var.name, self.dtype)
                self.known.add(var)
                return For(self.loops[var], first, count, kind, self.statement(body), origin)
            case Store(buffer, indices, value, origin):
                return Store(buffer, tuple(map(self.index, indices)), self.value(value), origin)
        inner = tuple(map(self.statement, walk.bodies(statement)))
        return walk.with_parts(statement, tuple(map(self.value, walk.expressions(statement))),
                               inner)

    def index(self, expr: Expr) -> Expr:
        """An index in the new dtype."""
        lanes = dtypes.lanes(expr.dtype)
        match expr:
            case Var() if expr in self.loops:
                return self.loops[expr]
            case Const(value):
                return Const(value, self.dtype)
            case Binary(op, a, b):
                return binary(op, self.index(a), self.index(b))
            case Ramp(base, stride, _):
                return Ramp(self.index(base), self.index(stride), lanes)
            case Broadcast(value, _):
                return Broadcast(self.index(value), lanes)
            case Select(condition, a, b):
                return Select(self.value(condition), self.index(a), self.index(b))
            case Call("if_then_else", (condition, a, b)):
                arguments = (self.value(condition), self.index(a), self.index(b))
                return Call("if_then_else", arguments, dtypes.vector(self.dtype, lanes))
            case Cast(_, value) if dtypes.element(value.dtype) == self.dtype:
                return self.value(value)
        return cast(self.value(expr), dtypes.vector(self.dtype, lanes))

    def value(self, expr: Expr) -> Expr:
        """A value of the dtype that it has, with the indices in it converted."""
        match expr:
            case Var() if expr in self.loops:
                return cast(self.loops[expr], expr.dtype)
            case Cast(dtype, Var() as var) if var in self.loops:
                return cast(self.loops[var], dtype)
            case Load(buffer, indices):
                return Load(buffer, tuple(map(self.index, indices)))
            case Address(buffer, offset):
                return Address(buffer, self.index(offset))
            case Compare(op, a, b) if _is_index(a, self.known) and _is_index(b, self.known):
                return compare(op, self.index(a), self.index(b))
        return walk.with_children(expr, tuple(map(self.value, walk.children(expr))))
