"""Quotients, remainders and digits of small sums, at every value of their variables."""

from __future__ import annotations

import itertools

import pytest
from expressions import evaluate

from minitvm.tir.ir import Compare, Const, Expr, Var
from minitvm.tir.simplify import Analyzer

i, j, x = Var("i"), Var("j"), Var("x")
I_RANGE, J_RANGE = range(8, 17), range(-3, 2)
"""Ranges whose ends are not 0, and of which some divisors just miss an end."""
DIVISORS = (2, 3, 4, 6, 8)


def analyzer() -> Analyzer:
    result = Analyzer()
    for var, values in ((i, I_RANGE), (j, J_RANGE)):
        result.bind(var, values.start, len(values))
    return result


@pytest.mark.parametrize("divisor", [2, 3, 4, 8, 16, -4])
def test_quotients_and_remainders_of_sums(divisor: int) -> None:
    known = analyzer()
    for a, b, constant in itertools.product((1, 2, 4, -1), (0, 1, 2, 4, 16), (0, 1, -2, 3, 7)):
        total = i * a + j * b + constant
        before: tuple[Expr, ...] = (total // divisor, total % divisor,
                                    Compare("lt", total, Const(divisor)))
        after = [known.simplify(expr) for expr in before]
        for p, q in itertools.product(I_RANGE, J_RANGE):
            exact = p * a + q * b + constant
            values = {i: p, j: q}
            assert evaluate(after[0], values) == exact // divisor, (total, after[0], values)
            assert evaluate(after[1], values) == exact % divisor, (total, after[1], values)
            assert evaluate(after[2], values) == (exact < divisor), (total, after[2], values)


@pytest.mark.parametrize("modulus", [0, 2, 3, 4, 8])
def test_two_digits_of_one_source(modulus: int) -> None:
    known = Analyzer()
    cases = itertools.product((1, 2, 4), (1, 2, 4, 8), (0, 2, 4), (1, -1, 2, -2, 4, -4, 8))
    for low, high, other, factor in cases:
        first = x // low % modulus if modulus else x // low
        second = x // high % other if other else x // high
        expr = first + second * factor
        after = known.simplify(expr)
        for value in range(-17, 18):
            assert evaluate(after, {x: value}) == evaluate(expr, {x: value}), (expr, after, value)


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in DIVISORS for b in DIVISORS])
def test_divisions_of_divisions(first: int, second: int) -> None:
    known = Analyzer()
    for a, b in itertools.product((x // first, x % first), repeat=2):
        for expr in (a // second, a % second, (a + b) // second, (a * 2 + 1) % second,
                     a // second % first):
            after = known.simplify(expr)
            for value in range(-25, 26):
                assert evaluate(after, {x: value}) == evaluate(expr, {x: value}), (expr, after)
