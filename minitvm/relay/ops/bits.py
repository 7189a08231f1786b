"""Logic on bools and on the bits of integers, broadcast as in numpy.

A shift by the width of the dtype or more gives zero, or all sign bits to the right of a negative
number: the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.op import register
from minitvm.relay.ops.families import BOOL, INTEGER, Binary
from minitvm.tir import ir
from minitvm.tir.ir import Expr


@register
@dataclass(frozen=True, slots=True)
class LogicalAnd(Binary):
    """x and y."""

    name = "logical_and"
    kinds = BOOL

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.logical_and(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.conjunction(x, y)


@register
@dataclass(frozen=True, slots=True)
class LogicalOr(Binary):
    """x or y."""

    name = "logical_or"
    kinds = BOOL

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.logical_or(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.disjunction(x, y)


@register
@dataclass(frozen=True, slots=True)
class LogicalXor(Binary):
    """Either x or y and not both."""

    name = "logical_xor"
    kinds = BOOL

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.logical_xor(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.not_equal(x, y)


@register
@dataclass(frozen=True, slots=True)
class BitwiseAnd(Binary):
    """The bits that x and y both have."""

    name = "bitwise_and"
    kinds = INTEGER

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.bitwise_and(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.binary("bitand", x, y)


@register
@dataclass(frozen=True, slots=True)
class BitwiseOr(Binary):
    """The bits that x or y has."""

    name = "bitwise_or"
    kinds = INTEGER

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.bitwise_or(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.binary("bitor", x, y)


@register
@dataclass(frozen=True, slots=True)
class BitwiseXor(Binary):
    """The bits that x or y has and not both."""

    name = "bitwise_xor"
    kinds = INTEGER

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        return np.bitwise_xor(x, y)

    def element(self, x: Expr, y: Expr) -> Expr:
        return ir.binary("bitxor", x, y)


def _within_width(count: Expr) -> tuple[Expr, Expr]:
    """Whether a shift count is below the width, and the count held below it."""
    width = dtypes.bits(count.dtype)
    in_range = count < ir.convert(width, count.dtype)
    if not dtypes.is_unsigned(count.dtype):
        in_range = ir.conjunction(ir.convert(0, count.dtype) <= count, in_range)
    return in_range, te.select(in_range, count, ir.convert(width - 1, count.dtype))


@register
@dataclass(frozen=True, slots=True)
class LeftShift(Binary):
    """The bits of x moved up by y, zeros coming in."""

    name = "left_shift"
    kinds = INTEGER

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        width = dtypes.bits(x.dtype.name)
        in_range = (y >= 0) & (y < width)
        return np.where(in_range, np.left_shift(x, np.where(in_range, y, 0)), 0)

    def element(self, x: Expr, y: Expr) -> Expr:
        in_range, count = _within_width(y)
        return te.select(in_range, ir.binary("shl", x, count), ir.convert(0, x.dtype))


@register
@dataclass(frozen=True, slots=True)
class RightShift(Binary):
    """The bits of x moved down by y, zeros (for signed x, the sign) coming in."""

    name = "right_shift"
    kinds = INTEGER

    def meaning(self, x: np.ndarray, y: np.ndarray) -> Any:
        width = dtypes.bits(x.dtype.name)
        in_range = (y >= 0) & (y < width)
        last = np.right_shift(x, np.asarray(width - 1, x.dtype))
        rest = last if not dtypes.is_unsigned(x.dtype.name) else np.zeros_like(last)
        return np.where(in_range, np.right_shift(x, np.where(in_range, y, 0)), rest)

    def element(self, x: Expr, y: Expr) -> Expr:
        in_range, count = _within_width(y)
        shifted = ir.binary("shr", x, count)
        if dtypes.is_unsigned(x.dtype):
            return te.select(in_range, shifted, ir.convert(0, x.dtype))
        return shifted
