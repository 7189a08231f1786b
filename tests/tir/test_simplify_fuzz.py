"""Random expressions keep their value, don't grow, and are simplified once and for all."""

from __future__ import annotations

from expressions import (
    ASSIGNMENTS,
    CONDITIONS,
    FEW,
    INDICES,
    RANGES,
    Outside,
    Values,
    evaluate,
    split_expressions,
)
from hypothesis import assume, given, note
from hypothesis import strategies as st

from minitvm import dtypes
from minitvm.tir.bounds import Modular
from minitvm.tir.conditions import node_count
from minitvm.tir.ir import Binary, Broadcast, Cast, Compare, Const, Expr, Ramp, Select, Var
from minitvm.tir.simplify import Analyzer


def bound_analyzer() -> Analyzer:
    analyzer = Analyzer()
    for var, (low, high) in RANGES.items():
        analyzer.bind(var, low, high - low)
    return analyzer


def meaning(expr: Expr, values: Values, lane: int = 0) -> int | None:
    try:
        return evaluate(expr, values, lane)
    except Outside:
        return None


def check_same(before: Expr, after: Expr, assignments: list[dict[Var, int]]) -> None:
    assert after.dtype == before.dtype
    for values in assignments:
        for lane in range(dtypes.lanes(before.dtype)):
            expected = meaning(before, values, lane)
            if expected is not None:
                assert evaluate(after, values, lane, wraps=True) == expected, (values, lane)


def check_form(before: Expr, after: Expr) -> None:
    assert node_count(after) <= node_count(before)
    if after == before:
        assert after is before
    again = bound_analyzer().simplify(after)
    assert again is after, f"simplified once more: {again}"


@given(INDICES, ASSIGNMENTS)
def test_indices_keep_their_value(expr: Expr, assignments: list[dict[Var, int]]) -> None:
    after = bound_analyzer().simplify(expr)
    note(f"after: {after}")
    check_same(expr, after, assignments)
    check_form(expr, after)


@given(split_expressions(), ASSIGNMENTS)
def test_split_indices_keep_their_value(expr: Expr, assignments: list[dict[Var, int]]) -> None:
    after = bound_analyzer().simplify(expr)
    note(f"after: {after}")
    check_same(expr, after, assignments)
    check_form(expr, after)


@given(split_expressions(), st.sampled_from(["lt", "le", "eq", "ge"]), st.integers(-40, 70),
       ASSIGNMENTS)
def test_guards_keep_their_value(
    index: Expr, op: str, limit: int, assignments: list[dict[Var, int]]
) -> None:
    expr = Compare(op, index, Const(limit))
    analyzer = bound_analyzer()
    after = analyzer.simplify(expr)
    note(f"after: {after}")
    check_same(expr, after, assignments)
    inside = [values for values in assignments if meaning(expr, values)]
    with analyzer.constraint(expr):
        for var in RANGES:
            low, high = analyzer.interval(var)
            assert all(low <= values[var] <= high for values in inside)


@given(CONDITIONS, ASSIGNMENTS)
def test_conditions_keep_their_value(expr: Expr, assignments: list[dict[Var, int]]) -> None:
    after = bound_analyzer().simplify(expr)
    note(f"after: {after}")
    check_same(expr, after, assignments)
    check_form(expr, after)


@given(CONDITIONS, st.one_of(INDICES, CONDITIONS), ASSIGNMENTS)
def test_under_a_constraint(
    condition: Expr, expr: Expr, assignments: list[dict[Var, int]]
) -> None:
    inside = [values for values in assignments if meaning(condition, values)]
    assume(inside)
    analyzer = bound_analyzer()
    outside = analyzer.simplify(expr)
    with analyzer.constraint(condition):
        after = analyzer.simplify(expr)
        interval = analyzer.interval(expr)
    note(f"after: {after}")
    check_same(expr, after, inside)
    for values in inside:
        value = meaning(expr, values)
        assert value is None or interval.low <= value <= interval.high
    assert analyzer.simplify(expr) == outside, "facts outlive their constraint"


@given(INDICES, ASSIGNMENTS)
def test_intervals_and_residues_hold(expr: Expr, assignments: list[dict[Var, int]]) -> None:
    analyzer = bound_analyzer()
    low, high = analyzer.interval(expr)
    residue = Modular(*analyzer.modular(expr))
    for values in assignments:
        value = meaning(expr, values)
        if value is not None:
            assert low <= value <= high
            assert not residue.excludes(value)


@given(CONDITIONS, ASSIGNMENTS)
def test_what_is_proved_holds(condition: Expr, assignments: list[dict[Var, int]]) -> None:
    if bound_analyzer().prove(condition):
        assert all(meaning(condition, values) in (True, None) for values in assignments)


LANES = 4
VECTORS = st.recursive(
    st.one_of(
        st.builds(Ramp, FEW, st.integers(-4, 8).map(Const), st.just(LANES)),
        st.builds(Ramp, FEW, FEW, st.just(LANES)),
        st.builds(Broadcast, FEW, st.just(LANES)),
        st.builds(Ramp, split_expressions(), st.sampled_from([1, 2, 4, 8]).map(Const),
                  st.just(LANES)),
    ),
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner),
        st.builds(Binary, st.sampled_from(["floordiv", "floormod"]), inner,
                  st.integers(1, 16).map(lambda c: Broadcast(Const(c), LANES))),
        st.builds(Binary, st.just("mul"), inner,
                  st.integers(-3, 8).map(lambda c: Broadcast(Const(c), LANES))),
        st.builds(Select, st.builds(Compare, st.sampled_from(["lt", "eq", "ge"]), inner, inner),
                  inner, inner),
    ),
    max_leaves=4,
)


@given(VECTORS, ASSIGNMENTS)
def test_vectors_keep_every_lane(expr: Expr, assignments: list[dict[Var, int]]) -> None:
    after = bound_analyzer().simplify(expr)
    note(f"after: {after}")
    check_same(expr, after, assignments)
    check_form(expr, after)


@given(VECTORS, VECTORS, st.sampled_from(["lt", "le", "eq", "ne"]), ASSIGNMENTS)
def test_vector_comparisons_keep_every_lane(
    a: Expr, b: Expr, op: str, assignments: list[dict[Var, int]]
) -> None:
    expr = Compare(op, a, b)
    after = bound_analyzer().simplify(expr)
    check_same(expr, after, assignments)


def narrow_expressions(dtype: str) -> st.SearchStrategy[Expr]:
    low, high = dtypes.integer_range(dtype)
    leaves = st.one_of(st.sampled_from(NARROW[dtype]),
                       st.integers(low, high).map(lambda value: Const(value, dtype)),
                       st.integers(0, 4).map(lambda value: Const(value, dtype)))
    ops = st.sampled_from(["add", "sub", "mul", "floordiv", "floormod", "min", "max", "bitand",
                           "bitor", "bitxor", "shl", "shr"])
    return st.recursive(leaves, lambda inner: st.builds(Binary, ops, inner, inner), max_leaves=8)


NARROW = {dtype: (Var("u", dtype), Var("v", dtype))
          for dtype in ("int8", "uint8", "int16", "uint32", "uint64")}


@st.composite
def narrow_cases(draw: st.DrawFn) -> tuple[Expr, list[dict[Var, int]]]:
    dtype = draw(st.sampled_from(sorted(NARROW)))
    expr = draw(narrow_expressions(dtype))
    if draw(st.booleans()):
        op = draw(st.sampled_from(["lt", "le", "eq", "ne", "gt", "ge"]))
        expr = draw(st.sampled_from([expr, expr + draw(st.integers(0, 127))]))
        expr = Compare(op, expr, draw(narrow_expressions(dtype)))
    values = st.integers(*dtypes.integer_range(dtype))
    u, v = NARROW[dtype]
    return expr, draw(st.lists(st.fixed_dictionaries({u: values, v: values}), min_size=8,
                               max_size=8))


@given(narrow_cases())
def test_narrow_integers_wrap(case: tuple[Expr, list[dict[Var, int]]]) -> None:
    expr, assignments = case
    after = Analyzer().simplify(expr)
    note(f"after: {after}")
    check_same(expr, after, assignments)
    assert node_count(after) <= node_count(expr)


LOADED = Cast("int32", Var("wide", "int64"))
"""Stands for a value from memory: any int32, and its sums wrap."""
DATA = st.recursive(
    st.one_of(st.just(LOADED), st.integers(-9, 9).map(Const), st.just(Const(2**31 - 1))),
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner),
        st.builds(Binary, st.sampled_from(["floordiv", "floormod"]), inner,
                  st.integers(1, 9).map(Const)),
    ),
    max_leaves=6,
)
EXTREMES = (-(2**31), 2**31 - 1, 2**30, -(2**30) - 1, 0, 1, -1, 715827883)


@given(DATA, DATA, st.sampled_from(["lt", "le", "eq", "value"]), st.integers(-(2**31), 2**31 - 1))
def test_data_wraps(a: Expr, b: Expr, op: str, value: int) -> None:
    expr = a if op == "value" else Compare(op, a, b)
    after = Analyzer().simplify(expr)
    note(f"after: {after}")
    for wide in (value, *EXTREMES):
        values = {LOADED.value: wide}
        assert evaluate(after, values, wraps=True) == evaluate(expr, values, wraps=True)
