"""Operators on two or three tensors, broadcast as in numpy.

Integers: `divide` truncates towards zero, as C and ONNX do; `floor_divide` rounds down. Dividing
an integer by zero gives zero, and never traps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.families import (
    ANY,
    BOOL,
    FLOAT,
    Binary,
    Comparison,
    broadcast_extents,
    broadcast_shapes,
    elementwise,
    intrinsic,
    kind,
    read_broadcast,
    require_kind,
    require_one_dtype,
)
from minitvm.tir import ir
from minitvm.tir.ir import Expr

# --- arithmetic ---------------------------------------------------------------------------------


@register
@dataclass(frozen=True, slots=True)
class Add(Binary):
    """x + y."""

    name = "add"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.add(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return x + y


@register
@dataclass(frozen=True, slots=True)
class Subtract(Binary):
    """x - y."""

    name = "subtract"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.subtract(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return x - y


@register
@dataclass(frozen=True, slots=True)
class Multiply(Binary):
    """x * y."""

    name = "multiply"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.multiply(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return x * y


@register
@dataclass(frozen=True, slots=True)
class Maximum(Binary):
    """The greater of x and y; NaN if either is NaN."""

    name = "maximum"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.maximum(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.maximum(x, y)


@register
@dataclass(frozen=True, slots=True)
class Minimum(Binary):
    """The lesser of x and y; NaN if either is NaN."""

    name = "minimum"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.minimum(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.minimum(x, y)


@register
@dataclass(frozen=True, slots=True)
class Power(Binary):
    """x to the power y, of floats."""

    name = "power"
    kinds = FLOAT

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.power(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return intrinsic("pow", x, y)


# --- division -----------------------------------------------------------------------------------


def _guarded(
    x: Expr, y: Expr, divide: Callable[[Expr, Expr], Expr], by_minus_one: Expr
) -> Expr:
    """`divide(x, y)` where no divisor is 0 (which gives 0) or -1 (given apart: the least integer
    by -1 overflows)."""
    zero, one = ir.convert(0, y.dtype), ir.convert(1, y.dtype)
    is_zero = ir.equal(y, zero)
    if dtypes.is_unsigned(y.dtype):
        return te.select(is_zero, zero, divide(x, te.select(is_zero, one, y)))
    is_minus_one = ir.equal(y, ir.convert(-1, y.dtype))
    safe = te.select(ir.disjunction(is_zero, is_minus_one), one, y)
    return te.select(is_zero, zero, te.select(is_minus_one, by_minus_one, divide(x, safe)))


def _truncated_quotient(x: Expr, y: Expr) -> Expr:
    quotient = x // y
    if dtypes.is_unsigned(x.dtype):
        return quotient
    zero, one = ir.convert(0, x.dtype), ir.convert(1, x.dtype)
    inexact = ir.not_equal(x % y, zero)
    signs_differ = ir.not_equal(x < zero, y < zero)
    return quotient + te.select(ir.conjunction(inexact, signs_differ), one, zero)


def _truncate_integers(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y of integers, rounded towards zero."""
    quotient: np.ndarray = np.floor_divide(x, y)
    inexact = (np.mod(x, y) != 0) & ((x < 0) != (y < 0))
    return np.asarray(quotient + inexact.astype(quotient.dtype))


@register
@dataclass(frozen=True, slots=True)
class Divide(Binary):
    """x / y; integers truncate towards zero."""

    name = "divide"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.true_divide(x, y) if kind(x.dtype.name) == "float" else _truncate_integers(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        if dtypes.is_float(x.dtype):
            return x / y
        return _guarded(x, y, _truncated_quotient, by_minus_one=ir.convert(0, x.dtype) - x)


@register
@dataclass(frozen=True, slots=True)
class FloorDivide(Binary):
    """The greatest integer not above x / y."""

    name = "floor_divide"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.floor_divide(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        if dtypes.is_float(x.dtype):
            return x // y
        minus = ir.convert(0, x.dtype) - x
        return _guarded(x, y, lambda a, b: a // b, by_minus_one=minus)


@register
@dataclass(frozen=True, slots=True)
class Mod(Binary):
    """The remainder of the truncated quotient, with the sign of x."""

    name = "mod"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.fmod(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        if dtypes.is_float(x.dtype):
            rest = intrinsic("abs", x) % intrinsic("abs", y)
            return te.select(x < 0, -rest, rest)

        def remainder(a: Expr, b: Expr) -> Expr:
            return a - _truncated_quotient(a, b) * b

        return _guarded(x, y, remainder, by_minus_one=ir.convert(0, x.dtype))


@register
@dataclass(frozen=True, slots=True)
class FloorMod(Binary):
    """The remainder of the quotient rounded down, with the sign of y."""

    name = "floor_mod"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.mod(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        if dtypes.is_float(x.dtype):
            return x % y
        return _guarded(x, y, lambda a, b: a % b, by_minus_one=ir.convert(0, x.dtype))


# --- comparisons --------------------------------------------------------------------------------


@register
@dataclass(frozen=True, slots=True)
class Equal(Comparison):
    """Whether x is y."""

    name = "equal"
    kinds = ANY

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.equal(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.equal(x, y)


@register
@dataclass(frozen=True, slots=True)
class NotEqual(Comparison):
    """Whether x is not y; true if either is NaN."""

    name = "not_equal"
    kinds = ANY

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.not_equal(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.not_equal(x, y)


@register
@dataclass(frozen=True, slots=True)
class Less(Comparison):
    """x < y."""

    name = "less"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.less(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return x < y


@register
@dataclass(frozen=True, slots=True)
class LessEqual(Comparison):
    """x <= y."""

    name = "less_equal"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.less_equal(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return x <= y


@register
@dataclass(frozen=True, slots=True)
class Greater(Comparison):
    """x > y."""

    name = "greater"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.greater(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return x > y


@register
@dataclass(frozen=True, slots=True)
class GreaterEqual(Comparison):
    """x >= y."""

    name = "greater_equal"

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.greater_equal(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return x >= y


@register
@dataclass(frozen=True, slots=True)
class Where(Op):
    """x where the condition holds, y elsewhere; all three broadcast."""

    name = "where"
    pattern = Pattern.BROADCAST
    arity = 3

    def infer(self, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        require_kind(self, (condition,), BOOL)
        dtype = require_one_dtype(self, (x, y))
        return TensorType(broadcast_shapes(self, (condition, x, y)), dtype)

    def evaluate(self, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(condition, x, y)

    def compute(self, condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        def body(*i: Expr) -> Expr:
            chosen = (read_broadcast(x, i), read_broadcast(y, i))
            return te.select(read_broadcast(condition, i), *chosen)

        return elementwise(self, broadcast_extents(condition, x, y), body)
