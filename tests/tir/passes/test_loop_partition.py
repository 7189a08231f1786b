"""Interiors without guards, tails as smaller tiles, and code that grows within limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.remarks import collect
from minitvm.tir import ir, walk
from minitvm.tir.affine import Comparisons
from minitvm.tir.bounds import Interval
from minitvm.tir.interpret import run
from minitvm.tir.ir import Call, Compare, Const, For, PrimFunc, Store, Var
from minitvm.tir.passes import loop_partition, lower
from minitvm.tir.passes.loop_partition import MOST_LEAVES
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.walk import walk_statements


def conv(size: int, channels: int, tile: int, stride: int = 1, kind: str = "range") -> PrimFunc:
    """A 3x3 convolution, padded by 1, in blocks of 4 channels, two blocks and a row at a time."""
    out = (size - 1) // stride + 1
    x = f"(xo * {tile} + xi) * {stride} + kx - 1"
    y = f"y * {stride} + ky - 1"
    return parse_func(f"""
def conv(A: Buffer(({size}, {size}), "float32"), K: Buffer(({channels}, 3, 3, 4), "float32"),
         C: Buffer(({channels}, {out}, {out}, 4), "float32")):
    for o in {kind}({-(-channels // 2)}):
        for y in range({out}):
            for xo in range({-(-out // tile)}):
                acc = allocate((2, {tile}, 4), "float32", scope="local")
                for oi in unrolled(2):
                    for xi in unrolled({tile}):
                        for c in vectorized(4):
                            acc[oi, xi, c] = 0.0
                for ky in range(3):
                    for kx in range(3):
                        for oi in unrolled(2):
                            if likely(o * 2 + oi < {channels}):
                                for xi in unrolled({tile}):
                                    if likely(xo * {tile} + xi < {out}):
                                        for c in vectorized(4):
                                            acc[oi, xi, c] = acc[oi, xi, c] + if_then_else({y} >= 0
                                                and {y} < {size} and {x} >= 0 and {x} < {size},
                                                A[{y}, {x}], 0.0) * K[o * 2 + oi, ky, kx, c]
                for oi in unrolled(2):
                    if likely(o * 2 + oi < {channels}):
                        for xi in unrolled({tile}):
                            if likely(xo * {tile} + xi < {out}):
                                for c in vectorized(4):
                                    C[o * 2 + oi, y, xo * {tile} + xi, c] = acc[oi, xi, c]
""")


def guards(statement: ir.Stmt) -> int:
    """How many guards are in a statement: ifs and lazy choices."""
    count = 0
    for item in walk_statements(statement):
        count += isinstance(item, ir.If)
        for expr in walk.expressions(item):
            count += sum(isinstance(node, Call) and node.name == "if_then_else"
                         for node in walk.walk(expr))
    return count


def largest_loop(func: PrimFunc, name: str) -> For:
    loops = [item for item in walk_statements(func.body)
             if isinstance(item, For) and item.var.name == name]
    return max(loops, key=lambda loop: int(loop.extent.value))  # type: ignore[attr-defined]


CASES = [(12, 4, 4, 1), (12, 3, 4, 1), (13, 3, 5, 1), (13, 2, 4, 2), (7, 3, 7, 1), (6, 4, 3, 1)]


@pytest.mark.parametrize(("size", "channels", "tile", "stride"), CASES)
def test_convolutions_keep_their_results(
    size: int, channels: int, tile: int, stride: int
) -> None:
    for kind in ("range", "parallel"):
        func = conv(size, channels, tile, stride, kind)
        rng = np.random.default_rng(size)
        arrays = [rng.integers(-4, 5, p.extents()).astype(np.float32)  # type: ignore[union-attr]
                  for p in func.params]
        arrays[0][1, 1], arrays[1][0, 0, 0, 0] = np.nan, np.inf
        partitioned, lowered = [a.copy() for a in arrays], [a.reshape(-1).copy() for a in arrays]
        run(func, arrays)
        run(loop_partition(func), partitioned)
        run(lower(func), lowered)
        np.testing.assert_array_equal(partitioned[2], arrays[2])
        np.testing.assert_array_equal(lowered[2], arrays[2].reshape(-1))


@pytest.mark.parametrize(("size", "channels", "stride"), [(24, 4, 1), (24, 3, 1), (48, 4, 2)])
def test_the_interior_has_no_guard(size: int, channels: int, stride: int) -> None:
    for version in (loop_partition, lower):
        func = version(conv(size, channels, 4, stride))
        row = largest_loop(func, "y")
        assert guards(largest_loop(PrimFunc("f", (), row.body), "xo")) == 0
        assert guards(row) > 0  # at its ends, which are cold
        assert "likely" not in print_func(func)


@pytest.mark.parametrize(("size", "tile"), [(7, 7), (12, 4), (13, 5)])
def test_borders_that_are_a_large_part_are_split_inside(size: int, tile: int) -> None:
    func = lower(conv(size, 4, tile))
    assert guards(largest_loop(func, "y")) == 0
    assert guards(func.body) > 0  # the first and the last row


def test_tails_become_smaller_tiles() -> None:
    func = parse_func("""
def f(A: Buffer((9, 10), "float32")):
    for io in range(5):
        for jo in range(3):
            for ii in unrolled(2):
                if likely(io * 2 + ii < 9):
                    for ji in vectorized(4):
                        if likely(jo * 4 + ji < 10):
                            A[io * 2 + ii, jo * 4 + ji] = 1.0
""")
    result = lower(func)
    assert "if" not in print_func(result)
    assert print_func(result) == """\
def f(A: Buffer((90,), "float32")):
    for io in range(4):
        for jo in range(2):
            for ii in unrolled(2):
                A[ramp(io * 20 + ii * 10 + jo * 4, 1, 4)] = broadcast(1.0, 4)
        for ii_1 in unrolled(2):
            A[ramp(io * 20 + ii_1 * 10 + 8, 1, 2)] = broadcast(1.0, 2)
    for jo_1 in range(2):
        A[ramp(jo_1 * 4 + 80, 1, 4)] = broadcast(1.0, 4)
    A[ramp(88, 1, 2)] = broadcast(1.0, 2)
"""


def test_a_parallel_loop_stays_one_region() -> None:
    func = loop_partition(parse_func("""
def f(A: Buffer((9,), "float32")):
    for io in parallel(5):
        for ii in unrolled(2):
            if likely(io * 2 + ii < 9):
                A[io * 2 + ii] = 1.0
"""))
    assert print_func(func) == """\
def f(A: Buffer((9,), "float32")):
    for io in parallel(5):
        if io < 4:
            for ii in unrolled(2):
                A[io * 2 + ii] = 1.0
        else:
            A[8] = 1.0
"""


def test_the_code_grows_to_a_limit() -> None:
    stores = "\n".join(f"        A[i] = if_then_else(i > 0, B[i - 1], {n}.0)" for n in range(150))
    func = parse_func(f"""
def f(A: Buffer((64,), "float32"), B: Buffer((64,), "float32")):
    for i in range(64):
{stores}
""")
    with collect() as remarks:
        result = loop_partition(func)
    assert result is func
    assert [remark.pass_name for remark in remarks] == ["LoopPartition"]
    assert f"300 statements, more than {MOST_LEAVES}" in remarks[0].reason


def test_guards_on_data_are_left_alone() -> None:
    func = parse_func("""
def f(A: Buffer((8,), "float32"), B: Buffer((8,), "int32")):
    for i in range(8):
        if likely(B[i] + i < 5):
            A[i] = if_then_else(A[i] > 0.0 or i < 4, 1.0, 2.0)
""")
    assert loop_partition(func) is func


def test_a_serial_loop_is_split_for_the_guard_that_it_alone_decides() -> None:
    func = parse_func("""
def f(A: Buffer((24,), "float32"), C: Buffer((24,), "float32")):
    for y in range(24):
        for ky in range(3):
            C[y] = C[y] + if_then_else(y + ky >= 1 and y + ky < 25, A[y + ky - 1], 0.0)
""")
    result = loop_partition(func)
    assert guards(result.body) == 0
    assert sum(isinstance(item, Store) for item in walk_statements(result.body)) == 5
    arrays = [np.arange(24, dtype=np.float32), np.zeros(24, np.float32)]
    run(result, arrays)
    padded = np.pad(arrays[0], 1)
    np.testing.assert_array_equal(arrays[1], padded[:-2] + padded[1:-1] + padded[2:])


@given(op=st.sampled_from(ir.COMPARE_OPS), a=st.integers(-4, 4), b=st.integers(-4, 4),
       c=st.integers(-12, 12), j=st.tuples(st.integers(-3, 3), st.integers(0, 3)))
def test_solved_intervals_are_exact(op: str, a: int, b: int, c: int, j: tuple[int, int]) -> None:
    """Where a comparison of `a * i + b * j` with c holds for every j, by trying all."""
    vi, vj = Var("i"), Var("j")
    known = Comparisons({vj: Interval(j[0], j[0] + j[1])})
    condition = Compare(op, vi * a + vj * b, Const(c))
    found = known.solve(condition, vi)
    points = range(-40, 41)
    js = range(j[0], j[0] + j[1] + 1)
    func = PrimFunc("f", (vi, vj, out := ir.buffer("o", (), "bool")), Store(out, (), condition))

    def holds(i: int, j: int) -> bool:
        result = np.empty((), bool)
        run(func, [i, j, result])
        return bool(result)

    true_at = [i for i in points if all(holds(i, j) for j in js)]
    known.ranges[vi] = Interval(2, 3)
    assert known.holds(condition) <= all(
        holds(i, j) for i, j in itertools.product((2, 3), js))
    if found is None:
        assert a == 0 or op in ("eq", "ne")
        return
    low, high = found
    expected = [i for i in points if (low is None or i >= low) and (high is None or i < high)]
    assert expected == true_at
