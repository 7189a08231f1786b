"""What is known of expressions that are no sums, from what is known of their operands."""

from __future__ import annotations

from collections.abc import Callable

from minitvm import dtypes
from minitvm.tir import bounds
from minitvm.tir.bounds import Interval, Modular
from minitvm.tir.canonical import INDEX_DTYPES, is_index
from minitvm.tir.ir import Binary, Broadcast, Call, Cast, Const, Expr, Ramp, Select, Var


def interval(expr: Expr, of: Callable[[Expr], Interval]) -> Interval:
    """The interval of an expression (of all its lanes), `of` giving those of operands."""
    match expr:
        case Var(_, dtype) if dtype in INDEX_DTYPES:
            return bounds.EVERYTHING
        case Const(value, dtype) if not dtypes.is_float(dtype):
            return Interval(int(value), int(value))
        case Binary(op, a, b) if dtypes.is_int(expr.dtype):
            result = bounds.OPERATIONS[op](of(a), of(b))
            return result if is_index(expr) else bounds.wrapped(result, expr.dtype)
        case Select(_, a, b) | Call("if_then_else", (_, a, b), _):
            return bounds.union(of(a), of(b))
        case Cast(dtype, value) if dtypes.is_int(dtype) and not dtypes.is_float(value.dtype):
            return bounds.wrapped(of(value), dtype)
        case Broadcast(value, _):
            return of(value)
        case Ramp(base, stride, count):
            result = bounds.add(of(base), bounds.multiply(of(stride), Interval(0, count - 1)))
            return result if is_index(expr) else bounds.wrapped(result, expr.dtype)
    element = dtypes.element(expr.dtype)
    if element == "handle" or dtypes.is_float(element):
        return bounds.EVERYTHING
    return bounds.of_dtype(element)


def residue(expr: Expr, of: Callable[[Expr], Modular]) -> Modular:
    """The residue of an expression, `of` giving those of operands."""
    match expr:
        case Binary("min" | "max", a, b) | Select(_, a, b):
            return bounds.modular_union(of(a), of(b))
        case Call("if_then_else", (_, a, b), _):
            return bounds.modular_union(of(a), of(b))
    return bounds.ANY_RESIDUE
