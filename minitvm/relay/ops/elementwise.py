"""Operators on single elements: arithmetic, rounding, tests and casts.

Float results are numpy's, NaN and signed zero included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.op import Pattern, register
from minitvm.relay.ops.families import ANY, BOOL, INTEGER, NUMBER, Predicate, Unary, intrinsic
from minitvm.tir import ir
from minitvm.tir.ir import Expr


@register
@dataclass(frozen=True, slots=True)
class Negative(Unary):
    """-x; integers wrap."""

    name = "negative"
    kinds = NUMBER

    def meaning(self, x: np.ndarray) -> Any:
        return np.negative(x)

    def element(self, x: Expr) -> Expr:
        return -x


@register
@dataclass(frozen=True, slots=True)
class Abs(Unary):
    """|x|; the least integer stays as it is."""

    name = "abs"
    kinds = NUMBER

    def meaning(self, x: np.ndarray) -> Any:
        return np.abs(x)

    def element(self, x: Expr) -> Expr:
        if dtypes.is_float(x.dtype):
            return intrinsic("abs", x)
        return x if dtypes.is_unsigned(x.dtype) else te.select(x < 0, -x, x)


@register
@dataclass(frozen=True, slots=True)
class Sign(Unary):
    """-1, 0 or 1; NaN for NaN."""

    name = "sign"
    kinds = NUMBER

    def meaning(self, x: np.ndarray) -> Any:
        return np.sign(x)

    def element(self, x: Expr) -> Expr:
        if dtypes.is_unsigned(x.dtype):
            return te.select(x > 0, ir.convert(1, x.dtype), ir.convert(0, x.dtype))
        rest = te.select(x < 0, ir.convert(-1, x.dtype), x)
        return te.select(x > 0, ir.convert(1, x.dtype), rest)


@register
@dataclass(frozen=True, slots=True)
class Reciprocal(Unary):
    """1 / x."""

    name = "reciprocal"

    def meaning(self, x: np.ndarray) -> Any:
        return 1 / x

    def element(self, x: Expr) -> Expr:
        return ir.convert(1, x.dtype) / x


@register
@dataclass(frozen=True, slots=True)
class Sqrt(Unary):
    """The square root; NaN below zero."""

    name = "sqrt"

    def meaning(self, x: np.ndarray) -> Any:
        return np.sqrt(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("sqrt", x)


@register
@dataclass(frozen=True, slots=True)
class Rsqrt(Unary):
    """1 / sqrt(x)."""

    name = "rsqrt"

    def meaning(self, x: np.ndarray) -> Any:
        return 1 / np.sqrt(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("rsqrt", x)


# --- rounding -----------------------------------------------------------------------------------


@register
@dataclass(frozen=True, slots=True)
class Floor(Unary):
    """The greatest integer not above x."""

    name = "floor"

    def meaning(self, x: np.ndarray) -> Any:
        return np.floor(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("floor", x)


@register
@dataclass(frozen=True, slots=True)
class Ceil(Unary):
    """The least integer not below x."""

    name = "ceil"

    def meaning(self, x: np.ndarray) -> Any:
        return np.ceil(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("ceil", x)


@register
@dataclass(frozen=True, slots=True)
class Trunc(Unary):
    """x without its fraction."""

    name = "trunc"

    def meaning(self, x: np.ndarray) -> Any:
        return np.trunc(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("trunc", x)


@register
@dataclass(frozen=True, slots=True)
class Round(Unary):
    """The nearest integer, halves to even."""

    name = "round"

    def meaning(self, x: np.ndarray) -> Any:
        return np.rint(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("round", x)


# --- tests and bits -----------------------------------------------------------------------------


@register
@dataclass(frozen=True, slots=True)
class IsNan(Predicate):
    """Whether x is NaN."""

    name = "isnan"

    def meaning(self, x: np.ndarray) -> Any:
        return np.isnan(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("isnan", x, dtype="bool")


@register
@dataclass(frozen=True, slots=True)
class IsInf(Predicate):
    """Whether x is infinite, of either sign."""

    name = "isinf"

    def meaning(self, x: np.ndarray) -> Any:
        return np.isinf(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("isinf", x, dtype="bool")


@register
@dataclass(frozen=True, slots=True)
class IsFinite(Predicate):
    """Whether x is neither infinite nor NaN."""

    name = "isfinite"

    def meaning(self, x: np.ndarray) -> Any:
        return np.isfinite(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("abs", x) < ir.convert(float("inf"), x.dtype)


@register
@dataclass(frozen=True, slots=True)
class LogicalNot(Predicate):
    """Not x."""

    name = "logical_not"
    kinds = BOOL

    def meaning(self, x: np.ndarray) -> Any:
        return np.logical_not(x)

    def element(self, x: Expr) -> Expr:
        return ir.Not(x)


@register
@dataclass(frozen=True, slots=True)
class BitwiseNot(Unary):
    """All bits flipped."""

    name = "bitwise_not"
    kinds = INTEGER

    def meaning(self, x: np.ndarray) -> Any:
        return np.bitwise_not(x)

    def element(self, x: Expr) -> Expr:
        ones = dtypes.integer_range(x.dtype)[1] if dtypes.is_unsigned(x.dtype) else -1
        return ir.binary("bitxor", x, ir.convert(ones, x.dtype))


# --- conversions --------------------------------------------------------------------------------


@register
@dataclass(frozen=True, slots=True)
class Copy(Unary):
    """x itself, in memory of its own."""

    name = "copy"
    kinds = ANY

    def meaning(self, x: np.ndarray) -> Any:
        return x.copy()

    def element(self, x: Expr) -> Expr:
        return x


@register
@dataclass(frozen=True, slots=True)
class Cast(Unary):
    """x as another dtype: floats truncate towards zero, integers wrap, bools are x != 0."""

    dtype: str
    name = "cast"
    kinds = ANY

    def result_dtype(self, dtype: str) -> str:
        return self.dtype

    def meaning(self, x: np.ndarray) -> Any:
        return x.astype(self.dtype)

    def element(self, x: Expr) -> Expr:
        if dtypes.is_bool(self.dtype) and not dtypes.is_bool(x.dtype):
            return ir.not_equal(x, ir.convert(0, x.dtype))
        return ir.cast(x, self.dtype)


@register
@dataclass(frozen=True, slots=True)
class Clip(Unary):
    """x held between `a_min` and `a_max`, each optional; `a_max` wins where they cross."""

    a_min: float | None = None
    a_max: float | None = None
    name = "clip"
    kinds = NUMBER
    pattern = Pattern.ELEMWISE

    def meaning(self, x: np.ndarray) -> Any:
        low = x if self.a_min is None else np.maximum(x, x.dtype.type(self.a_min))
        return low if self.a_max is None else np.minimum(low, x.dtype.type(self.a_max))

    def element(self, x: Expr) -> Expr:
        low = x if self.a_min is None else ir.maximum(x, ir.convert(self.a_min, x.dtype))
        return low if self.a_max is None else ir.minimum(low, ir.convert(self.a_max, x.dtype))
