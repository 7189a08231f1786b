"""`detect_affine` and `solve_less`: coefficients, and where a condition holds."""

from __future__ import annotations

import operator

import pytest
from expressions import COMPARES, evaluate
from hypothesis import given
from hypothesis import strategies as st

from minitvm.tir import ir
from minitvm.tir.affine import detect_affine, solve_less
from minitvm.tir.ir import Call, Compare, Const, Expr, Load, Not, Var, buffer, minimum
from minitvm.tir.simplify import Analyzer

i, j, k, n, x = (Var(name) for name in "ijknx")
COUNTS = buffer("counts", (64,), "int32")


@pytest.fixture
def analyzer() -> Analyzer:
    """0 <= i < 100, 0 <= j < 4, -3 <= k < 6; n is unbound."""
    result = Analyzer()
    for var, start, extent in ((i, 0, 100), (j, 0, 4), (k, -3, 9)):
        result.bind(var, start, extent)
    return result


def test_coefficients_and_rest() -> None:
    assert detect_affine(i * 4 + j + 3, [i]) == ({i: 4}, j + 3)
    assert detect_affine((i * 2 + j) * 3 - i, [i, j]) == ({i: 5, j: 3}, Const(0))
    assert detect_affine(n * x + j - n, [j]) == ({j: 1}, n * x - n)
    assert detect_affine(n + 1, [i]) == ({}, n + 1)
    assert detect_affine(i // 4 * 4 + i % 4, [i]) == ({i: 1}, Const(0))


@pytest.mark.parametrize("expr", [i // 4, i % 4 + j, i * n, minimum(i, n), Load(COUNTS, (i,))])
def test_what_is_not_affine(expr: Expr) -> None:
    assert detect_affine(expr, [i]) is None


SOLVED: list[tuple[Expr, object, object]] = [
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
    (n < i * 3 + j, n // 3 + 1, None),
    (i + j < n, None, n - 3),
    (ir.equal(i * 3, 12), 4, 5),
    (ir.equal(i * 3, 13), 0, 0),
    (ir.equal(i + j, 12), 0, 0),
    (Call("likely", (i < 3,), "bool"), None, 3),
    (Not(i < 3), 3, None),
    (j < 4, None, None),
    (Compare("lt", Const(5), i), 6, None),
]


@pytest.mark.parametrize(("condition", "low", "high"), SOLVED)
def test_solutions(analyzer: Analyzer, condition: Expr, low: object, high: object) -> None:
    expected = tuple(Const(end) if isinstance(end, int) else end for end in (low, high))
    assert solve_less(condition, i, analyzer) == expected


@pytest.mark.parametrize("condition", [
    ir.not_equal(i, 3), j < 3, i * n < 4, Load(COUNTS, (i,)) < 3, i // 4 + i // 3 < 2,
    Compare("lt", Const(1.0, "float32"), Const(2.0, "float32")),
])
def test_what_cannot_be_solved(analyzer: Analyzer, condition: Expr) -> None:
    assert solve_less(condition, i, analyzer) is None


def test_only_some_variables_take_all_values(analyzer: Analyzer) -> None:
    condition = i * 4 + j + k < 30
    assert solve_less(condition, i, analyzer) == (None, Const(6))
    found = solve_less(condition, i, analyzer, relax=[k])
    assert found is not None and found[0] is None and found[1] is not None
    assert analyzer.simplify(found[1] - ((24 - j) // 4 + 1)) == Const(0)  # i * 4 <= 24 - j


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
    analyzer = Analyzer()
    for var, start, extent in ((i, -30, 60), (j, 0, 4), (k, -3, 9)):
        analyzer.bind(var, start, extent)
    found = solve_less(condition, i, analyzer)
    if found is None:
        return
    low, high = (-30 if found[0] is None else evaluate(found[0], {}),
                 30 if found[1] is None else evaluate(found[1], {}))
    for at in range(max(low, -30), min(high, 30)):
        for values in ({i: at, j: b, k: c} for b in range(4) for c in range(-3, 6)):
            assert evaluate(condition, values), (low, high, values)


@given(st.integers(-6, 6).filter(bool), st.integers(-40, 40), st.sampled_from(["lt", "le", "gt",
                                                                              "ge", "eq"]))
def test_nothing_is_lost_with_one_variable(factor: int, constant: int, op: str) -> None:
    found = solve_less(Compare(op, i * factor, Const(constant)), i, Analyzer())
    assert found is not None
    low, high = (None if end is None else evaluate(end, {}) for end in found)
    for at in range(-50, 50):
        inside = (low is None or low <= at) and (high is None or at < high)
        assert inside == getattr(operator, op)(at * factor, constant)


@given(st.recursive(
    st.one_of(st.sampled_from([i, j, n]), st.integers(-4, 9).map(Const)),
    lambda inner: st.one_of(
        st.builds(operator.add, inner, inner), st.builds(operator.sub, inner, inner),
        st.builds(operator.mul, inner, st.integers(-4, 4)),
        st.builds(operator.floordiv, inner, st.integers(1, 4))),
    max_leaves=6,
), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_affine_means_what_it_says(expr: Expr, at: int, other: int, size: int) -> None:
    found = detect_affine(expr, [i, j])
    if found is None:
        return
    coefficients, rest = found
    values = {i: at, j: other, n: size}
    total = evaluate(rest, {n: size}) + sum(f * values[var] for var, f in coefficients.items())
    assert evaluate(expr, values) == total
