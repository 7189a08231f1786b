"""Extents of loops and regions: an integer where it is constant, else an expression in sizes.

    4, 10, n, (n + 3) // 4      n a variable: a scalar parameter of the lowered function

`int` and `Expr` share the arithmetic operators; what differs is here. An extent of zero or less
means that nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from minitvm.tir import ir
from minitvm.tir.ir import Const, Expr
from minitvm.tir.simplify import Analyzer
from minitvm.tir.text import print_expr

Extent = int | Expr


def extent_of(expr: Expr) -> Extent:
    """The extent that an expression is: an integer if it is constant."""
    return int(expr.value) if isinstance(expr, Const) else expr


def as_index(extent: Extent, dtype: str) -> Expr:
    """The extent as an expression of an index dtype."""
    return Const(extent, dtype) if isinstance(extent, int) else ir.cast(extent, dtype)


def ceil_div(extent: Extent, divisor: int) -> Extent:
    """How many steps of `divisor` cover the extent."""
    if isinstance(extent, int):
        return -(-extent // divisor)
    return extent_of((extent + (divisor - 1)) // divisor)


def product(extents: Iterable[Extent]) -> Extent:
    """The product, an integer where all are."""
    result: Extent = 1
    for extent in extents:
        result = result * extent
    return result


def at_least_one(extent: Extent) -> Extent:
    """The extent, or 1: a divisor for code that runs only where the extent is positive."""
    return max(extent, 1) if isinstance(extent, int) else ir.maximum(extent, 1)


def simplified(extent: Extent, analyzer: Analyzer) -> Extent:
    """The extent in its simplest form."""
    return extent if isinstance(extent, int) else extent_of(analyzer.simplify(extent))


def extent_text(extent: Extent) -> str:
    """The extent as it stands in messages."""
    return str(extent) if isinstance(extent, int) else print_expr(extent)
