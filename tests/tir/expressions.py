"""Random tir expressions, and what they mean: the oracle of the simplifier's tests."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from minitvm import dtypes
from minitvm.tir import ir
from minitvm.tir.ir import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Not,
    Or,
    Ramp,
    Select,
    Var,
)

Values = Mapping[Var, int]


class Outside(Exception):
    """The expression overflows or divides by zero: it has no meaning there."""


COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}


def evaluate(expr: Expr, values: Values, lane: int = 0, wraps: bool = False) -> int:
    """One lane of an integer or bool expression.

    Where `wraps`, integers wrap; else an index that leaves its dtype raises `Outside`, and so does
    a division by zero in any case. Casts and narrow integers always wrap.
    """

    def visit(node: Expr) -> int:
        match node:
            case Var():
                return values[node]
            case Const(value):
                return int(value)
            case Binary(op, a, b):
                return arithmetic(op, visit(a), visit(b), dtypes.element(node.dtype), wraps)
            case Compare(op, a, b):
                return COMPARES[op](visit(a), visit(b))
            case And(a, b):
                return bool(visit(a) and visit(b))
            case Or(a, b):
                return bool(visit(a) or visit(b))
            case Not(a):
                return not visit(a)
            case Select(c, a, b):
                chosen, other, condition = visit(a), visit(b), visit(c)
                return chosen if condition else other
            case Call("if_then_else", (c, a, b), _):
                return visit(a) if visit(c) else visit(b)
            case Call("likely", (c,), _):
                return visit(c)
            case Cast(dtype, value):
                return ir.wrap_integer(visit(value), dtypes.element(dtype))
            case Broadcast(value, _):
                return visit(value)
            case Ramp(base, stride, _):
                step = arithmetic("mul", visit(stride), lane, base.dtype, wraps)
                return arithmetic("add", visit(base), step, base.dtype, wraps)
        raise TypeError(f"no meaning for {node!r}")

    return visit(expr)


def arithmetic(op: str, a: int, b: int, dtype: str, wraps: bool) -> int:
    """`a op b` in a dtype."""
    if op in ("floordiv", "floormod") and b == 0:
        raise Outside
    if op in ("shl", "shr") and not 0 <= b < dtypes.bits(dtype):
        raise Outside
    result = ir._INTEGER_OPS[op](a, b)
    wrapped = ir.wrap_integer(result, dtype)
    if wrapped != result and not wraps and dtype in ("int32", "int64"):
        raise Outside
    return wrapped


I_, J, K, X, Y = (Var(name) for name in "ijkxy")
SMALL = Var("small", "int8")
OFFSET = Var("offset")
RANGES: dict[Var, tuple[int, int]] = {I_: (0, 8), J: (0, 4), K: (-3, 13), OFFSET: (8, 16)}
"""[low, high) of the variables that the tests bind; X and Y stay unbound."""


def constants(dtype: str = "int32") -> st.SearchStrategy[Expr]:
    """Small constants, and those of typical factors."""
    numbers = st.one_of(st.integers(-4, 9), st.sampled_from([16, 12, -8, 20, 32]))
    return numbers.map(lambda value: Const(value, dtype))


def operations(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """One operation on index values."""
    divisors = st.sampled_from([1, 2, 3, 4, 6, 7, 8, 12, -2, -3]).map(Const)
    return st.one_of(
        st.builds(Binary, st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner),
        st.builds(Binary, st.sampled_from(["floordiv", "floormod"]), inner, divisors),
        st.builds(Binary, st.just("mul"), inner, constants()),
        st.builds(Binary, st.just("add"), inner, constants()),
    )


def rare_operations(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """Operations that index arithmetic seldom has."""
    ops = ["floordiv", "floormod", "bitand", "bitor", "bitxor", "shl", "shr"]
    conditions = st.builds(Compare, st.sampled_from(ir.COMPARE_OPS), inner, inner)
    return st.one_of(
        st.builds(Binary, st.sampled_from(ops), inner, inner),
        st.builds(Select, conditions, inner, inner),
        st.builds(lambda c, a, b: Call("if_then_else", (c, a, b), a.dtype),
                  conditions, inner, inner),
    )


LEAVES = st.one_of(
    st.sampled_from([I_, J, K, X, Y]),
    constants(),
    st.just(Cast("int32", SMALL)),
)
INDICES = st.recursive(
    LEAVES, lambda inner: st.one_of(operations(inner), operations(inner), rare_operations(inner)),
    max_leaves=10,
)
"""Scalar int32 expressions."""


def conditions_over(numbers: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """Conditions on numbers."""
    compares = st.builds(Compare, st.sampled_from(ir.COMPARE_OPS), numbers, numbers)
    return st.recursive(
        compares,
        lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner),
                                st.builds(Not, inner)),
        max_leaves=4,
    )


FEW = st.recursive(LEAVES, operations, max_leaves=4)
CONDITIONS = conditions_over(FEW)


FACTORS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


@st.composite
def linear(draw: st.DrawFn) -> Expr:
    """A sum of variables times factors that divide each other."""
    variables = draw(st.lists(st.sampled_from([I_, J, K, OFFSET, X]), min_size=1, max_size=3,
                              unique=True))
    total: Expr = Const(draw(st.integers(-9, 20)))
    for var in variables:
        total = total + var * draw(st.sampled_from((*FACTORS, -1, -4)))
    return total


@st.composite
def digits(draw: st.DrawFn) -> Expr:
    """Quotients and remainders of one source, with factors that may put it together again."""
    source = draw(linear())
    total: Expr = Const(draw(st.integers(0, 3)))
    weight = draw(st.sampled_from((1, 2, -1)))
    divisor = 1
    for _ in range(draw(st.integers(1, 4))):
        modulus = draw(st.sampled_from((0, 0, 2, 3, 4, 8)))
        part = source // divisor
        part = part % modulus if modulus else part
        total = total + part * weight * draw(st.sampled_from((1, 1, 1, -1, 2)))
        step = draw(st.sampled_from((1, modulus or 4, modulus or 4, 2)))
        divisor, weight = divisor * step, weight * step
    return total


def split_expressions() -> st.SearchStrategy[Expr]:
    """What splitting and fusing loops gives, divided again."""
    divisors = st.sampled_from([2, 3, 4, 7, 8, 12, 16, 32])
    once = st.one_of(linear(), digits())
    twice = st.builds(lambda e, op, c: ir.binary(op, e, c), once,
                      st.sampled_from(["floordiv", "floormod"]), divisors)
    thrice = st.builds(lambda e, op, c: ir.binary(op, e, c), twice,
                       st.sampled_from(["floordiv", "floormod", "mul"]), divisors)
    return st.one_of(once, twice, thrice,
                     st.builds(lambda a, op, b: ir.binary(op, a, b), thrice,
                               st.sampled_from(["add", "sub", "min"]), twice))


@st.composite
def assignments(draw: st.DrawFn) -> dict[Var, int]:
    """Values within `RANGES`."""
    values = {var: draw(st.integers(low, high - 1)) for var, (low, high) in RANGES.items()}
    for var in (X, Y):
        values[var] = draw(st.integers(-40, 40))
    values[SMALL] = draw(st.integers(-128, 127))
    return values


ASSIGNMENTS = st.lists(assignments(), min_size=6, max_size=12)
