"""What is known of an integer without knowing its value: an interval, and a residue.

    Interval(low, high)            low <= value <= high
    Modular(coefficient, base)     value = coefficient * k + base for some k

Bounds are plain integers, of which those beyond `LIMIT` mean infinite: `INFINITY` and its negation
absorb what is added to or multiplied with them, so that no operation here treats them apart. All
operations are those of exact integers; `wrapped` takes a result into a dtype. Ideas: abstract
interpretation (Cousot), and the congruence domain (Granger).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from minitvm import dtypes

INFINITY = 1 << 200
"""The bound of what has none."""
LIMIT = 1 << 128
"""A bound from here on is infinite."""


class Interval(NamedTuple):
    """The integers from `low` to `high`, both included; see `has_low` and `has_high`."""

    low: int
    high: int

    @property
    def has_low(self) -> bool:
        """Whether there is a least value."""
        return self.low > -LIMIT

    @property
    def has_high(self) -> bool:
        """Whether there is a greatest value."""
        return self.high < LIMIT

    @property
    def is_finite(self) -> bool:
        """Whether both bounds are finite."""
        return self.low > -LIMIT and self.high < LIMIT

    @property
    def is_point(self) -> bool:
        """Whether it is one value."""
        return self.low == self.high

    def within(self, low: int, high: int) -> bool:
        """Whether every value is in [low, high]."""
        return low <= self.low and self.high <= high


EVERYTHING = Interval(-INFINITY, INFINITY)


def interval(low: int, high: int) -> Interval:
    """An interval whose bounds beyond `LIMIT` are infinite."""
    if low <= -LIMIT:
        low = -INFINITY
    if high >= LIMIT:
        high = INFINITY
    return Interval(low, high)


def of_dtype(dtype: str) -> Interval:
    """All values of an integer or bool dtype (of one lane)."""
    return Interval(*dtypes.integer_range(dtype))


def wrapped(value: Interval, dtype: str) -> Interval:
    """The interval after wrapping to `dtype`: all of the dtype where a value may lie outside it."""
    low, high = dtypes.integer_range(dtype)
    return value if low <= value.low and value.high <= high else Interval(low, high)


def union(a: Interval, b: Interval) -> Interval:
    """The least interval that holds both."""
    return Interval(min(a.low, b.low), max(a.high, b.high))


def intersection(a: Interval, b: Interval) -> Interval:
    """What is in both. Facts that contradict each other describe dead code; then `b` stands."""
    low, high = max(a.low, b.low), min(a.high, b.high)
    return Interval(low, high) if low <= high else b


def add(a: Interval, b: Interval) -> Interval:
    """The interval of a + b."""
    return interval(a.low + b.low, a.high + b.high)


def subtract(a: Interval, b: Interval) -> Interval:
    """The interval of a - b."""
    return interval(a.low - b.high, a.high - b.low)


def multiply(a: Interval, b: Interval) -> Interval:
    """The interval of a * b."""
    corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    return interval(min(corners), max(corners))


def floor_divide(a: Interval, b: Interval) -> Interval:
    """The interval of a // b, b not zero."""
    parts = [part for part in (_below(b, -1), _above(b, 1)) if part is not None]
    if not parts:
        return EVERYTHING
    corners = [n // d for part in parts for n in a for d in part]
    return interval(min(corners), max(corners))


def floor_modulo(a: Interval, b: Interval) -> Interval:
    """The interval of a % b, b not zero: a's own where no value of it changes."""
    last = b.high - 1 if b.has_high else INFINITY
    if b.low <= 0:
        first = b.low + 1 if b.has_low else -INFINITY
        return Interval(min(first, 0), max(last, 0))
    if b.low == b.high and a.is_finite and a.low // b.low == a.high // b.low:
        return Interval(a.low % b.low, a.high % b.low)
    if a.low >= 0:
        return Interval(a.low if a.high < b.low else 0, min(a.high, last))
    return Interval(0, last)


def _above(value: Interval, least: int) -> Interval | None:
    return Interval(max(value.low, least), value.high) if value.high >= least else None


def _below(value: Interval, greatest: int) -> Interval | None:
    return Interval(value.low, min(value.high, greatest)) if value.low <= greatest else None


def minimum(a: Interval, b: Interval) -> Interval:
    """The interval of min(a, b)."""
    return Interval(min(a.low, b.low), min(a.high, b.high))


def maximum(a: Interval, b: Interval) -> Interval:
    """The interval of max(a, b)."""
    return Interval(max(a.low, b.low), max(a.high, b.high))


def bit_and(a: Interval, b: Interval) -> Interval:
    """The interval of a & b: at most either where that is not negative."""
    bounds = [side.high for side in (a, b) if side.low >= 0]
    return Interval(0, min(bounds)) if bounds else EVERYTHING


def bit_or(a: Interval, b: Interval) -> Interval:
    """The interval of a | b and of a ^ b: no bit above those of a and b."""
    if a.low < 0 or b.low < 0 or not (a.has_high and b.has_high):
        return EVERYTHING
    return Interval(0, (1 << max(a.high, b.high).bit_length()) - 1)


def shift_left(a: Interval, b: Interval) -> Interval:
    """The interval of a << b, b a legal shift."""
    if b.low < 0 or b.high > 64:
        return EVERYTHING
    return multiply(a, Interval(1 << b.low, 1 << b.high))


def shift_right(a: Interval, b: Interval) -> Interval:
    """The interval of a >> b, b a legal shift."""
    if b.low < 0 or b.high > 64:
        return EVERYTHING
    return floor_divide(a, Interval(1 << b.low, 1 << b.high))


OPERATIONS = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "floordiv": floor_divide,
    "floormod": floor_modulo,
    "min": minimum,
    "max": maximum,
    "bitand": bit_and,
    "bitor": bit_or,
    "bitxor": bit_or,
    "shl": shift_left,
    "shr": shift_right,
}
"""The interval of each operation of `ir.BINARY_OPS` on integers, from those of its operands."""


class Modular(NamedTuple):
    """The integers coefficient * k + base, 0 <= base < coefficient; coefficient 0: base alone."""

    coefficient: int
    base: int

    def excludes(self, value: int) -> bool:
        """Whether it certainly isn't `value`."""
        if self.coefficient == 0:
            return self.base != value
        return (value - self.base) % self.coefficient != 0


ANY_RESIDUE = Modular(1, 0)


def modular(coefficient: int, base: int) -> Modular:
    """A residue with its base reduced."""
    coefficient = abs(coefficient)
    return Modular(coefficient, base % coefficient if coefficient else base)


def modular_add(a: Modular, b: Modular) -> Modular:
    """The residue of a + b."""
    return modular(math.gcd(a.coefficient, b.coefficient), a.base + b.base)


def modular_multiply(a: Modular, b: Modular) -> Modular:
    """The residue of a * b."""
    coefficient = math.gcd(a.coefficient * b.coefficient, a.coefficient * b.base,
                           b.coefficient * a.base)
    return modular(coefficient, a.base * b.base)


def modular_union(a: Modular, b: Modular) -> Modular:
    """The residue of what is `a` or `b`."""
    return modular(math.gcd(a.coefficient, b.coefficient, a.base - b.base), a.base)


def modular_divide(a: Modular, divisor: int) -> Modular:
    """The residue of a // divisor, divisor > 0."""
    if a.coefficient == 0:
        return Modular(0, a.base // divisor)
    if a.coefficient % divisor:
        return ANY_RESIDUE
    return modular(a.coefficient // divisor, a.base // divisor)


def modular_modulo(a: Modular, divisor: int) -> Modular:
    """The residue of a % divisor, divisor > 0."""
    if a.coefficient == 0 or a.coefficient % divisor == 0:
        return Modular(0, a.base % divisor)
    return modular(math.gcd(a.coefficient, divisor), a.base)
