"""Accesses out of bounds are reported and not made; others are neither tested nor changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.testing.tir_strategies import functions, make_arrays, same_bits
from minitvm.tir.interpret import run
from minitvm.tir.ir import PrimFunc
from minitvm.tir.passes import inject_bound_checks, lower
from minitvm.tir.passes.inject_bound_checks import CHECKS, with_bound_checks
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import verify
from minitvm.transform import PassContext

ON = {"tir.bound_checks": True}


def test_a_check() -> None:
    func = with_bound_checks(parse_func("""
def f(A: Buffer((8,), "float32"), n: int32):
    A[n] = 1.0  #: "store"
"""))
    assert print_func(func) == """\
@attrs(bound_checks=(("A", 0, 8, ("store",)),))
def f(A: Buffer((8,), "float32"), n: int32, report: Buffer((4,), "int64"), call: int64):
    if n < 0 or n >= 8:  #: "store"
        if report[0] == 0:  #: "store"
            report[1] = call  #: "store"
            report[2] = 0  #: "store"
            report[3] = cast(n, "int64")  #: "store"
            report[0] = 1  #: "store"
    else:
        A[n] = 1.0  #: "store"
"""
    assert print_func(parse_func(print_func(func))) == print_func(func)


def test_nothing_is_added_unless_asked_for() -> None:
    func = parse_func("""
def f(A: Buffer((8,), "float32"), n: int32):
    A[n] = 1.0
""")
    assert inject_bound_checks(func) is func
    with PassContext(config=ON):
        checked = inject_bound_checks(func)
        assert CHECKS in checked.attrs and inject_bound_checks(checked) is checked


@given(func=functions(), seed=st.integers(0, 3))
def test_what_is_in_bounds_computes_the_same(func: PrimFunc, seed: int) -> None:
    with PassContext(config=ON):
        checked = lower(func)
    verify(checked, "machine", require_origins=True)
    arrays, expected = make_arrays(func, seed), make_arrays(func, seed)
    run(func, expected)
    report = np.zeros(4, np.int64)
    flat = [array.reshape(-1) for array in arrays]
    run(checked, [*flat, report, 5] if CHECKS in checked.attrs else flat)
    assert all(map(same_bits, arrays, expected)) and not report.any()


PROGRAM = """
def f(A: Buffer((4, 6), "float32"), index: Buffer((6,), "int32"), C: Buffer((6,), "float32"),
      n: int32):
    for i in vectorized(6):
        {statement}
"""


@pytest.mark.parametrize(("statement", "n", "place", "index"), [
    ("C[i] = A[index[i], i]", 0, ("A", 0, 4), 7),
    ("C[i] = A[index[i], 5 - i] + A[1, index[i] + n]", 0, ("A", 0, 4), 7),
    ("C[i + n] = 1.0", 3, ("C", 0, 6), 6),
    ("C[i] = if_then_else(i < 5, A[3, i + n], 0.0)", -1, ("A", 1, 6), -1),
    ("C[i] = select(i < 5, A[n, i], 0.0)", 4, ("A", 0, 4), 4),
    ("C[i] = if_then_else(index[i + n] > 2, 1.0, 0.0)", 1, ("index", 0, 6), 6),
])
def test_the_first_failure_is_reported(
    statement: str, n: int, place: tuple[str, int, int], index: int
) -> None:
    func = parse_func(PROGRAM.format(statement=statement))
    with PassContext(config=ON):
        checked = lower(func)
    data = np.ones((4, 6), np.float32)
    C, report = np.zeros(6, np.float32), np.zeros(4, np.int64)
    run(checked, [data.reshape(-1), np.array([0, 3, 7, 1, -2, 0], np.int32), C, n, report, 9])
    assert report[0] == 1 and report[1] == 9
    assert checked.attrs[CHECKS][report[2]][:3] == place
    assert report[3] == index


@pytest.mark.parametrize("statement", [
    "C[i] = A[3, i]",
    "C[i] = if_then_else(n >= 0 and n < 4, A[n, i], 0.0)",
    "C[(i * 7 + n) % 6] = 1.0",
])
def test_what_is_proven_is_not_tested(statement: str) -> None:
    func = parse_func(PROGRAM.format(statement=statement))
    assert with_bound_checks(func) is func
