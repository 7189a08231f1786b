"""Intervals and residues hold what they say, checked on all small integers."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.tir import bounds
from minitvm.tir.bounds import EVERYTHING, INFINITY, Interval, Modular

MEANING: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "floormod": operator.mod, "min": min, "max": max,
    "bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor,
    "shl": operator.lshift, "shr": operator.rshift,
}
EXACT = ("add", "sub", "min", "max", "mul", "floordiv")
"""Operations whose interval is the least one."""


def small_intervals(low: int = -4, high: int = 4) -> Iterator[Interval]:
    for first in range(low, high + 1):
        for last in range(first, high + 1):
            yield Interval(first, last)


def results(op: str, a: Interval, b: Interval) -> list[int]:
    values = []
    for x, y in itertools.product(range(a.low, a.high + 1), range(b.low, b.high + 1)):
        if (op in ("floordiv", "floormod") and y == 0) or (op in ("shl", "shr") and y < 0):
            continue
        values.append(MEANING[op](x, y))
    return values


@pytest.mark.parametrize("op", sorted(MEANING))
def test_every_small_interval(op: str) -> None:
    for a, b in itertools.product(small_intervals(), small_intervals()):
        values = results(op, a, b)
        if values:
            found = bounds.OPERATIONS[op](a, b)
            assert found.low <= min(values), (a, b)
            assert max(values) <= found.high, (a, b)
            if op in EXACT:
                assert found == Interval(min(values), max(values)), (a, b)


def test_the_table_knows_every_integer_operation() -> None:
    assert bounds.OPERATIONS.keys() == MEANING.keys()


@pytest.mark.parametrize("op", sorted(MEANING))
def test_half_open_intervals(op: str) -> None:
    """An interval without an end holds what the longer and longer ones hold."""
    for a, b in itertools.product(small_intervals(-2, 2), small_intervals(-2, 2)):
        for open_a, open_b in itertools.product(("", "low", "high"), repeat=2):
            wide = (_stretch(a, open_a, INFINITY), _stretch(b, open_b, INFINITY))
            values = results(op, _stretch(a, open_a, 9), _stretch(b, open_b, 9))
            if values:
                found = bounds.OPERATIONS[op](*wide)
                assert found.low <= min(values), wide
                assert max(values) <= found.high, wide
                assert found.is_finite or abs(found.low) == INFINITY or found.high == INFINITY


def _stretch(value: Interval, side: str, end: int) -> Interval:
    if side == "low":
        return Interval(-end, value.high)
    return Interval(value.low, end) if side == "high" else value


def test_infinity_absorbs() -> None:
    up = Interval(3, INFINITY)
    assert bounds.add(up, up) == Interval(6, INFINITY)
    assert bounds.subtract(up, up) == EVERYTHING
    assert bounds.multiply(up, Interval(-2, -2)) == Interval(-INFINITY, -6)
    assert bounds.multiply(up, Interval(0, 0)) == Interval(0, 0)
    assert bounds.floor_divide(up, Interval(2**62, 2**62)) == Interval(0, INFINITY)
    assert bounds.floor_modulo(up, Interval(8, 8)) == Interval(0, 7)
    assert bounds.floor_modulo(Interval(9, 10), Interval(8, 8)) == Interval(1, 2)


def test_what_an_interval_says() -> None:
    assert Interval(2, 5).is_finite and Interval(2, 5).within(2, 5)
    assert not Interval(2, 5).within(3, 5)
    assert Interval(4, 4).is_point and not Interval(4, 5).is_point
    assert not EVERYTHING.has_low and not EVERYTHING.has_high
    assert Interval(0, INFINITY).has_low


def test_unions_intersections_and_dtypes() -> None:
    assert bounds.union(Interval(0, 2), Interval(5, 6)) == Interval(0, 6)
    assert bounds.intersection(Interval(0, 5), Interval(3, 9)) == Interval(3, 5)
    assert bounds.intersection(Interval(0, 2), Interval(5, 6)) == Interval(5, 6)
    assert bounds.of_dtype("int8") == Interval(-128, 127)
    assert bounds.of_dtype("bool") == Interval(0, 1)
    assert bounds.wrapped(Interval(0, 200), "uint8") == Interval(0, 200)
    assert bounds.wrapped(Interval(0, 200), "int8") == Interval(-128, 127)


RESIDUES = [Modular(c, b) for c in range(1, 7) for b in range(c)]
RESIDUES += [Modular(0, b) for b in range(-3, 4)]


def members(residue: Modular) -> list[int]:
    if residue.coefficient == 0:
        return [residue.base]
    return [value for value in range(-13, 14) if not residue.excludes(value)]


@pytest.mark.parametrize(("rule", "meaning"), [
    (bounds.modular_add, operator.add),
    (bounds.modular_multiply, operator.mul),
])
def test_residues_of_sums_and_products(
    rule: Callable[[Modular, Modular], Modular], meaning: Callable[[int, int], int]
) -> None:
    for a, b in itertools.product(RESIDUES, RESIDUES):
        found = rule(a, b)
        assert not any(found.excludes(meaning(x, y)) for x in members(a) for y in members(b))


def test_residues_of_quotients_remainders_and_choices() -> None:
    for residue, divisor in itertools.product(RESIDUES, range(1, 9)):
        quotient = bounds.modular_divide(residue, divisor)
        remainder = bounds.modular_modulo(residue, divisor)
        for value in members(residue):
            assert not quotient.excludes(value // divisor)
            assert not remainder.excludes(value % divisor)
    for a, b in itertools.product(RESIDUES, RESIDUES):
        joined = bounds.modular_union(a, b)
        assert not any(joined.excludes(value) for value in members(a) + members(b))
    assert bounds.modular_add(Modular(8, 3), Modular(12, 2)) == Modular(4, 1)
    assert bounds.modular_multiply(Modular(4, 0), Modular(1, 0)) == Modular(4, 0)
    assert bounds.modular_modulo(Modular(8, 3), 4) == Modular(0, 3)


LARGE = st.one_of(st.integers(-(2**63), 2**63), st.integers(-9, 9))


@given(st.sampled_from(sorted(set(MEANING) - {"shl", "shr"})), st.lists(LARGE, min_size=4,
                                                                        max_size=4))
def test_large_intervals(op: str, ends: list[int]) -> None:
    a, b = Interval(*sorted(ends[:2])), Interval(*sorted(ends[2:]))
    found = bounds.OPERATIONS[op](a, b)
    for x, y in itertools.product((*a, sum(a) // 2), (*b, sum(b) // 2)):
        if y != 0 or op not in ("floordiv", "floormod"):
            assert found.low <= MEANING[op](x, y) <= found.high
