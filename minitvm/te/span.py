"""Spans: an index expression over moving loop variables -> the interval it stays in.

    relax(oh * 2 + kh, moving kh in [0, 3)) -> [oh * 2, oh * 2 + 2]

The low end is an expression in the variables that stand still, the width a number, since what is
stored at that span needs memory of constant size. Exact for affine expressions; a bound for
floordiv, floormod, min and max; None (anything) for the rest, such as an index read from a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minitvm.te.extent import Extent
from minitvm.tir import ir
from minitvm.tir.ir import Binary, Call, Cast, Const, Expr, Select, Var
from minitvm.tir.simplify import Analyzer


@dataclass(frozen=True, slots=True)
class Span:
    """The integers from `low` to `low + width`, both included."""

    low: Expr
    width: int


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a region: [low, low + extent)."""

    low: Expr
    extent: Extent


def relax(expr: Expr, moving: Mapping[Var, Extent], analyzer: Analyzer) -> Span | None:
    """A span that holds `expr` while each variable v of `moving` runs over [0, moving[v])."""
    match expr:
        case Const():
            return Span(expr, 0)
        case Var():
            extent = moving.get(expr)
            if extent is None:
                return Span(expr, 0)
            if not isinstance(extent, int):
                return None
            return Span(Const(0, expr.dtype), max(extent - 1, 0))
        case Binary(op, a, b):
            first, second = relax(a, moving, analyzer), relax(b, moving, analyzer)
            if first is None or second is None:
                return _constant_span(expr, moving, analyzer)
            return _binary(op, first, second, analyzer) or _constant_span(expr, moving, analyzer)
        case Cast("int32" | "int64" as dtype, value) if value.dtype in ("int32", "int64"):
            span = relax(value, moving, analyzer)
            return None if span is None else Span(ir.cast(span.low, dtype), span.width)
        case Select(_, a, b) | Call("if_then_else", (_, a, b)):
            first, second = relax(a, moving, analyzer), relax(b, moving, analyzer)
            if first is None or second is None:
                return None
            return unite(first, second, analyzer)
    return None


def _binary(op: str, a: Span, b: Span, analyzer: Analyzer) -> Span | None:
    if a.width == 0 and b.width == 0:
        return Span(ir.binary(op, a.low, b.low), 0)
    match op:
        case "add":
            return Span(a.low + b.low, a.width + b.width)
        case "sub":
            return Span(a.low - b.low - b.width, a.width + b.width)
        case "min" | "max":
            return Span(ir.binary(op, a.low, b.low), max(a.width, b.width))
        case "mul" if _is_constant(b):
            return _scale(a, int(b.low.value))  # type: ignore[attr-defined]
        case "mul" if _is_constant(a):
            return _scale(b, int(a.low.value))  # type: ignore[attr-defined]
        case "floordiv" if _is_constant(b):
            return _divide(a, int(b.low.value), analyzer)  # type: ignore[attr-defined]
        case "floormod" if _is_constant(b):
            return _modulo(a, int(b.low.value), analyzer)  # type: ignore[attr-defined]
    return None


def _is_constant(span: Span) -> bool:
    return span.width == 0 and isinstance(span.low, Const)


def _scale(span: Span, factor: int) -> Span:
    if factor < 0:
        return Span(span.low * factor + span.width * factor, span.width * -factor)
    return Span(span.low * factor, span.width * factor)


def _divide(span: Span, divisor: int, analyzer: Analyzer) -> Span | None:
    if divisor <= 0:
        return None
    remainder = _remainder(span.low, divisor, analyzer)
    most = divisor - 1 if remainder is None else remainder
    return Span(analyzer.simplify(span.low // divisor), (most + span.width) // divisor)


def _modulo(span: Span, divisor: int, analyzer: Analyzer) -> Span | None:
    if divisor <= 0:
        return None
    remainder = _remainder(span.low, divisor, analyzer)
    if remainder is not None and remainder + span.width < divisor:
        return Span(Const(remainder, span.low.dtype), span.width)
    return Span(Const(0, span.low.dtype), divisor - 1)


def _remainder(expr: Expr, divisor: int, analyzer: Analyzer) -> int | None:
    """expr % divisor where it is one number for all values of the variables."""
    remainder = analyzer.simplify(expr % divisor)
    return int(remainder.value) if isinstance(remainder, Const) else None


def unite(a: Span, b: Span, analyzer: Analyzer) -> Span | None:
    """A span that holds both; None where the distance between them has no constant bound."""
    if a.low == b.low:
        return Span(a.low, max(a.width, b.width))
    distance = analyzer.simplify(b.low - a.low)
    if isinstance(distance, Const):
        step = int(distance.value)
        if step >= 0:
            return Span(a.low, max(a.width, step + b.width))
        return Span(b.low, max(b.width, a.width - step))
    bounds = constant_bounds(distance, analyzer)
    if bounds is None:
        return None
    width = max(a.width, b.width, bounds[1] + b.width, a.width - bounds[0])
    return Span(ir.minimum(a.low, b.low), width)


def _constant_span(
    expr: Expr, moving: Mapping[Var, Extent], analyzer: Analyzer
) -> Span | None:
    """The constant interval of an expression, where it has one."""
    bounds = constant_bounds(expr, analyzer)
    return None if bounds is None else Span(Const(bounds[0], expr.dtype), bounds[1] - bounds[0])


def constant_bounds(expr: Expr, analyzer: Analyzer) -> tuple[int, int] | None:
    """The least and greatest value, if both are finite."""
    interval = analyzer.interval(expr)
    return (interval.low, interval.high) if interval.is_finite else None
