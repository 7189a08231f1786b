"""Index arithmetic and constants under the names that TVM's users write: `tir.indexmod(j, 32)`.

Division in tir is floor division, so `indexdiv` is `//` and `indexmod` is `%`.
"""

from __future__ import annotations

from minitvm.tir.ir import INDEX, Expr, ExprLike, convert, select


def const(value: int | float | bool, dtype: str = INDEX) -> Expr:
    """A constant."""
    return convert(value, dtype)


def indexdiv(a: Expr, b: ExprLike) -> Expr:
    """a // b."""
    return a // b


def indexmod(a: Expr, b: ExprLike) -> Expr:
    """a % b."""
    return a % b


floordiv = indexdiv
floormod = indexmod
Select = select
