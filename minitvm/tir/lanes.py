"""Vectors of index arithmetic whose lanes are base + lane * stride: ramps and broadcasts.

    Lanes(base, stride, width)     lane l, 0 <= l < width, is base + l * stride

Sums, differences and multiples of such vectors are such vectors. A quotient or remainder is one
only in the cases that `floor_divide` and `floor_modulo` prove for every lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from minitvm import dtypes
from minitvm.tir import bounds
from minitvm.tir.bounds import Interval
from minitvm.tir.canonical import Sum
from minitvm.tir.ir import Binary, Broadcast, Expr, Ramp
from minitvm.tir.sums import Sums


class Lanes(NamedTuple):
    """base + lane * stride for each lane below `width`."""

    base: Sum
    stride: Sum
    width: int

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes are equal."""
        return not self.stride.terms and self.stride.constant == 0


def of(sums: Sums, sum_of: Callable[[Expr], Sum], expr: Expr) -> Lanes | None:
    """The evenly spaced vector that an expression of an index dtype is, if it is one."""
    match expr:
        case Ramp(base, stride, width):
            return Lanes(sum_of(base), sum_of(stride), width)
        case Broadcast(value, width):
            return Lanes(sum_of(value), sums.constant(0, value.dtype), width)
        case Binary("add" | "sub" | "mul" | "floordiv" | "floormod" as op, left, right):
            a, b = of(sums, sum_of, left), of(sums, sum_of, right)
            return None if a is None or b is None else _combine(sums, op, a, b)
    return None


def _combine(sums: Sums, op: str, a: Lanes, b: Lanes) -> Lanes | None:
    if op in ("add", "sub"):
        return add(sums, a, b, 1 if op == "add" else -1)
    if op == "mul":
        return multiply(sums, a, b)
    divisor = b.base.constant
    if not b.is_uniform or b.base.terms or divisor <= 0 or may_wrap(sums, a):
        return None
    divide = floor_divide if op == "floordiv" else floor_modulo
    return divide(sums, a, divisor)


def add(sums: Sums, a: Lanes, b: Lanes, factor: int = 1) -> Lanes:
    """a + factor * b."""
    return Lanes(sums.add(a.base, b.base, factor), sums.add(a.stride, b.stride, factor), a.width)


def multiply(sums: Sums, a: Lanes, b: Lanes) -> Lanes | None:
    """a * b where one is uniform and the products of sums are small."""
    if not b.is_uniform:
        a, b = b, a
    if not b.is_uniform:
        return None
    base, stride = sums.multiply(a.base, b.base), sums.multiply(a.stride, b.base)
    return None if base is None or stride is None else Lanes(base, stride, a.width)


def interval(sums: Sums, a: Lanes) -> Interval:
    """The interval of all lanes."""
    if a.is_uniform:
        return sums.interval(a.base)
    steps = bounds.multiply(sums.interval(a.stride), Interval(0, a.width - 1))
    return bounds.add(sums.interval(a.base), steps)


def may_wrap(sums: Sums, a: Lanes) -> bool:
    """Whether a lane is of data and may leave its dtype."""
    if any(atom.data for part in (a.base, a.stride) for atom in part.terms):
        return not interval(sums, a).within(*dtypes.integer_range(a.base.dtype))
    return False


def floor_divide(sums: Sums, a: Lanes, divisor: int) -> Lanes | None:
    """a // divisor for a divisor > 0, if its lanes are evenly spaced."""
    if _divides(divisor, a.stride):
        return Lanes(sums.floor_divide(a.base, divisor), sums.floor_divide(a.stride, divisor),
                     a.width)
    block = _block(sums, a, divisor)
    if block is not None:
        quotient = sums.floor_divide(sums.add(a.base, block.base, -1), divisor)
        whole = interval(sums, block).low // divisor
        shifted = Sum(quotient.terms, quotient.constant + whole, quotient.dtype)
        return Lanes(shifted, sums.constant(0, a.base.dtype), a.width)
    factored = _factor(sums, a, divisor)
    return None if factored is None else floor_divide(sums, factored[1], divisor // factored[0])


def floor_modulo(sums: Sums, a: Lanes, divisor: int) -> Lanes | None:
    """a % divisor for a divisor > 0, if its lanes are evenly spaced."""
    if _divides(divisor, a.stride):
        return Lanes(sums.floor_modulo(a.base, divisor), sums.constant(0, a.base.dtype), a.width)
    block = _block(sums, a, divisor)
    if block is not None:
        whole = interval(sums, block).low // divisor * divisor
        base = Sum(block.base.terms, block.base.constant - whole, block.base.dtype)
        return Lanes(base, a.stride, a.width)
    factored = _factor(sums, a, divisor)
    if factored is None:
        return None
    factor, multiple, remainder = factored
    inner = floor_modulo(sums, multiple, divisor // factor)
    if inner is None:
        return None
    return Lanes(sums.add(sums.scale(inner.base, factor), remainder),
                 sums.scale(inner.stride, factor), a.width)


def _divides(divisor: int, a: Sum) -> bool:
    return a.constant % divisor == 0 and all(c % divisor == 0 for c in a.terms.values())


def _block(sums: Sums, a: Lanes, divisor: int) -> Lanes | None:
    """`a` without the multiples of divisor in its base, if no lane crosses a multiple of it."""
    terms = {atom: c for atom, c in a.base.terms.items() if c % divisor}
    rest = Lanes(Sum(terms, a.base.constant % divisor, a.base.dtype), a.stride, a.width)
    low, high = interval(sums, rest)
    return rest if low // divisor == high // divisor else None


def _factor(sums: Sums, a: Lanes, divisor: int) -> tuple[int, Lanes, Sum] | None:
    """(factor, multiple, remainder): a = factor * multiple + remainder, 0 <= remainder < factor."""
    factor = math.gcd(divisor, a.stride.constant, *a.stride.terms.values())
    if factor == 1:
        return None
    factored = sums.factor(a.base, factor)
    if factored is None:
        return None
    stride = sums.floor_divide(a.stride, factor)
    return factor, Lanes(factored.multiple, stride, a.width), factored.remainder


def render(sums: Sums, a: Lanes) -> Expr:
    """The vector as a Broadcast or a Ramp."""
    if a.is_uniform:
        return Broadcast(sums.render(a.base), a.width)
    return Ramp(sums.render(a.base), sums.render(a.stride), a.width)
