"""What is shared, what is not, and that nothing is evaluated that was not before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.testing.tir_strategies import Place, make_arrays, same_bits, values
from minitvm.tir import ir, walk
from minitvm.tir.interpret import run
from minitvm.tir.ir import Const, For, Let, Load, PrimFunc, Store, Var, seq
from minitvm.tir.passes import common_subexpr_elim
from minitvm.tir.text import parse_func
from minitvm.tir.verify import verify


def lets(func: PrimFunc) -> list[str]:
    return [str(item.var.dtype) for item in walk.walk_statements(func.body)
            if isinstance(item, Let)]


def shared(*lines: str) -> list[str]:
    body = "\n        ".join(lines)
    func = parse_func(f"""
def f(A: Buffer((16,), "float32"), B: Buffer((16,), "float32"), n: int32, m: int32):
    for i in range(4):
        {body}
""")
    result = common_subexpr_elim(func)
    verify(result)
    assert lets(result) or result is func
    return lets(result)


@pytest.mark.parametrize(("lines", "found"), [
    (["B[i] = exp(A[i]) * exp(A[i])"], ["float32"]),
    (["B[i * n + m] = 1.0", "A[i * n + m] = 2.0"], ["int32"]),
    (["B[i // n] = 1.0", "A[i // n] = 2.0"], ["int32"]),
    (["B[i] = A[i] * A[i]"], ["float32"]),
    (["B[i + 1] = 1.0", "A[i + 1] = 2.0"], []),  # too cheap
    (["B[i] = A[i]", "B[i + 4] = A[i]"], []),  # memory may have changed in between
    (["B[i] = if_then_else(n > 3, A[n], 0.0) + if_then_else(n > 4, A[n], 1.0)"], []),  # lazy
    (["B[i] = if_then_else(n > 3, A[i] / A[n], 0.0) + A[n]"], ["float32"]),
    (["B[i] = if_then_else(n > 3 and A[n] > 0.0, 1.0, A[n])"], []),
    (["B[i] = if_then_else(n > 3 or A[n] > 0.0, A[n], 1.0)"], []),
    (["if n > 3:", "    B[i * n + m] = 1.0", "A[i * n + m] = 1.0"], []),  # not one run
    (["B[i] = select(n > 3, A[i], 0.0) + A[i]"], ["float32"]),
    (["B[ramp(i, 1, 4)] = A[ramp(i, 1, 4)]"], []),  # an access stays contiguous
    (["B[i] = select(i * 3 + n * 2 < m, 1.0, select(i * 3 + n * 2 < m, 2.0, 3.0))"], ["int32"]),
])
def test_what_is_shared(lines: list[str], found: list[str]) -> None:
    assert shared(*lines) == found


def test_the_condition_of_a_while_is_computed_anew() -> None:
    func = parse_func("""
def f(n: Buffer((1,), "int32")):
    while n[0] * n[0] > 4:
        n[0] = n[0] - 1
""")
    assert common_subexpr_elim(func) is func


@st.composite
def straight_lines(draw: st.DrawFn) -> PrimFunc:
    """Stores that follow each other, whose values are made of the same few parts."""
    dtype = draw(st.sampled_from(["float32", "int32"]))
    A, C = ir.buffer("A", (6,), dtype), ir.buffer("C", (6,), dtype)
    i = Var("i")
    place = Place(((i, 4),), (A, C), dtype)
    parts = draw(st.lists(values(place, 2), min_size=1, max_size=3))
    stores = []
    for _ in range(draw(st.integers(1, 3))):
        value = draw(st.sampled_from(parts))
        for part in draw(st.lists(st.sampled_from(parts), max_size=3)):
            if draw(st.booleans()):
                test = ir.compare("lt", Load(A, (i,)), Load(C, (Const(2),)))
                part = ir.if_then_else(test, part, value)
            value = ir.binary(draw(st.sampled_from(["add", "mul", "max"])), value, part)
        stores.append(Store(draw(st.sampled_from([A, C])), (i,), value))
    return PrimFunc("f", (A, C), For(i, Const(0), Const(4), "serial", seq(*stores)))


@given(func=straight_lines(), seed=st.integers(0, 3))
def test_results_are_kept(func: PrimFunc, seed: int) -> None:
    result = common_subexpr_elim(func)
    verify(result)
    expected, got = make_arrays(func, seed), make_arrays(func, seed)
    run(func, expected)
    run(result, got)
    assert all(map(same_bits, expected, got))


def test_a_chain_of_doublings_stays_linear() -> None:
    A, C = ir.buffer("A", (4,)), ir.buffer("C", (4,))
    value: ir.Expr = Load(A, (Const(0),))
    for _ in range(12):  # 4096 loads, if each is written out
        value = value * value
    result = common_subexpr_elim(PrimFunc("f", (A, C), Store(C, (Const(0),), value)))
    assert len(lets(result)) == 12
    data, got = np.full(4, 1.0001, np.float32), np.empty(4, np.float32)
    run(result, [data, got])
    expected = data[0]
    for _ in range(12):
        expected = expected * expected
    assert got[0] == expected
