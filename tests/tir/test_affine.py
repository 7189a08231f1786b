"""`Comparisons`: linear forms, and where a condition holds."""

from __future__ import annotations

import operator

import pytest
from expressions import COMPARES, evaluate
from hypothesis import given
from hypothesis import strategies as st

from minitvm.tir import ir
from minitvm.tir.affine import Comparisons
from minitvm.tir.bounds import Interval
from minitvm.tir.ir import Compare, Const, Expr, Load, Var, buffer, minimum

i, j, k, n = (Var(name) for name in "ijkn")
COUNTS = buffer("counts", (64,), "int32")


@pytest.fixture
def known() -> Comparisons:
    """0 <= i < 100, 0 <= j < 4, -3 <= k < 6; n is unbound."""
    return Comparisons({i: Interval(0, 99), j: Interval(0, 3), k: Interval(-3, 5)})


@pytest.mark.parametrize(("condition", "low", "high"), [
    (i * 4 + j < 30, None, 7),
    (i * -4 + j < 30, -6, None),
    (i + j - 1 >= 0, 1, None),
    (i + j <= 5, None, 3),
    (i * 3 > 10, 4, None),
    (i * 3 >= 9, 3, None),
    (i // 4 * 3 + j < 20, None, 24),
    (i // 4 >= 3, 12, None),
    ((i * 2 + j) // 4 < 5, None, 9),
    ((i * 2 + j) // 4 >= 5, 10, None),
    (i // 4 // 5 >= 1, 20, None),
    (ir.equal(i // 4, 2), 8, 12),
    (ir.equal(i * 3, 12), 4, 5),
    (Compare("lt", Const(5), i), 6, None),
])
def test_solutions(known: Comparisons, condition: Expr, low: object, high: object) -> None:
    assert known.solve(condition, i) == (low, high)


@pytest.mark.parametrize("condition", [
    ir.not_equal(i, 3), j < 3, i * n < 4, Load(COUNTS, (i,)) < 3, i // 4 + i // 3 < 2,
    i + i // 4 < 9, n < i * 3 + j, i % 4 < 2, minimum(i, n) < 3, ir.equal(i * 3, 13),
    Compare("lt", Const(1.0, "float32"), Const(2.0, "float32")),
])
def test_what_cannot_be_solved(known: Comparisons, condition: Expr) -> None:
    assert known.solve(condition, i) is None


def test_what_is_certain(known: Comparisons) -> None:
    assert known.holds(i * 2 + j < 202) and not known.fails(i * 2 + j < 202)
    assert known.fails(i + j < 0) and not known.holds(i + j < 0)
    assert not known.holds(i < 50) and not known.fails(i < 50)
    assert known.holds(j // 4 + k < 6) and known.fails(n * 0 + k > 5)
    assert not known.holds(n >= 0)


def test_ranges_change(known: Comparisons) -> None:
    condition = i + n < 10
    assert known.solve(condition, i) is None
    known.bind(n, Const(1), j + 1)
    assert known.interval(n) == Interval(1, 4)
    assert known.solve(condition, i) == (None, 6)


@st.composite
def conditions(draw: st.DrawFn) -> Expr:
    coefficients = st.integers(-5, 5)
    left: Expr = i * draw(coefficients.filter(bool))
    if draw(st.booleans()):
        left = (left + j * draw(coefficients) + draw(coefficients)) // draw(st.integers(1, 5))
        left = left * draw(coefficients.filter(bool))
    right = k * draw(coefficients) + j * draw(coefficients) + draw(st.integers(-40, 40))
    return Compare(draw(st.sampled_from(sorted(COMPARES))), left, right)


@given(conditions())
def test_the_condition_holds_there(condition: Expr) -> None:
    ranges = {i: Interval(-30, 29), j: Interval(0, 3), k: Interval(-3, 5)}
    known = Comparisons(ranges)
    found = known.solve(condition, i)
    low, high = found or (None, None)
    inside = range(-30 if low is None else max(low, -30), 30 if high is None else min(high, 30))
    certain = True if known.holds(condition) else False if known.fails(condition) else None
    for at in inside if found else range(-30, 30):
        for values in ({i: at, j: b, k: c} for b in range(4) for c in range(-3, 6)):
            if found:
                assert evaluate(condition, values), (low, high, values)
            assert certain in (None, bool(evaluate(condition, values)))


@given(st.integers(-6, 6).filter(bool), st.integers(-40, 40), st.sampled_from(["lt", "le", "gt",
                                                                              "ge", "eq"]))
def test_nothing_is_lost_with_one_variable(factor: int, constant: int, op: str) -> None:
    found = Comparisons({i: Interval(-50, 49)}).solve(Compare(op, i * factor, Const(constant)), i)
    if op == "eq" and constant % factor:
        assert found is None
        return
    assert found is not None
    low, high = found
    for at in range(-50, 50):
        inside = (low is None or low <= at) and (high is None or at < high)
        assert inside == getattr(operator, op)(at * factor, constant)
