"""Loops of symbolic extent: whole vectors without guards, tails apart, the same values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import te
from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.machine import emit_assembly
from minitvm.remarks import collect
from minitvm.target import Target
from minitvm.testing.assembly import Loop, innermost_loops
from minitvm.testing.te_machine import run_interpreter, run_machine
from minitvm.testing.te_oracle import Program, evaluate, random_inputs
from minitvm.tir import ir
from minitvm.tir.interpret import run
from minitvm.tir.ir import If, Load, PrimFunc, Ramp
from minitvm.tir.passes import lower, partition_symbolic_loops
from minitvm.tir.passes.loop_partition import MOST_LEAVES
from minitvm.tir.text import parse_func
from minitvm.tir.verify import verify
from minitvm.tir.walk import expressions, walk, walk_statements

AVX2 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
SIZES = (*range(18), 31, 32, 33)


def hot_loops(func: PrimFunc) -> list[Loop]:
    return innermost_loops(emit_assembly(function_to_llvm(lower(func), AVX2), AVX2))


def guards(func: PrimFunc) -> int:
    return sum(isinstance(item, If) for item in walk_statements(func.body))


def check(schedule: te.Schedule, program: Program, sizes: list[ir.Var]) -> None:
    for value in SIZES:
        given_sizes = dict.fromkeys(sizes, value)
        inputs = random_inputs(program, 2, given_sizes)
        wanted = evaluate(program, inputs, given_sizes)
        for run_it in (run_interpreter, run_machine):
            for got, want in zip(run_it(schedule, program, inputs, given_sizes), wanted,
                                 strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"size {value}")


NESTS = st.fixed_dictionaries({
    "step": st.integers(1, 5), "tile": st.integers(1, 6), "scale": st.integers(1, 2),
    "shift": st.integers(-3, 3), "kind": st.sampled_from(["range", "parallel", "unrolled"]),
    "inner": st.sampled_from(["range", "vectorized", "unrolled"]), "extent": st.sampled_from(
        ["n", "(n + 7) // 8", "n // 3", "n + 2", "n - 3", "9 - n", "max(n, 4)"]),
    "form": st.sampled_from(["{e} < n", "n > {e}", "{e} <= n - 1", "n - 1 >= {e}",
                             "{e} < n and {e} < 2 * n - 5", "{e} < n // 2 + 3", "n != {e}"]),
    "around": st.booleans(),
})


@given(NESTS)
def test_nests_do_the_same_for_every_size(parts):
    """A guard of two loops, one of them symbolic; sometimes with a statement it doesn't guard."""
    index = f"i * {parts['step']} + j * {parts['scale']} + {parts['shift']}"
    guard = parts["form"].format(e=f"({index})")
    text = f"""
def f(n: int32, A: Buffer((400,), "float32"), B: Buffer((400,), "float32")):
    for i in {parts['kind'].replace('unrolled', 'range')}({parts['extent']}):
        for j in {parts['inner']}({parts['tile']}):
            if likely({guard}):
                A[{index} + 10] = A[{index} + 10] * 2.0 + B[i + 1]
        {"B[i] = B[i] + 1.0" if parts['around'] else "B[i] = B[i]"}
"""
    func = parse_func(text)
    cut = partition_symbolic_loops(func)
    verify(cut)
    for size in range(14):
        results = []
        for version in (func, cut, lower(func)):
            arrays = [np.arange(400, dtype="float32"), np.ones(400, "float32")]
            run(version, [size, *arrays])
            results.append(np.stack(arrays))
        np.testing.assert_array_equal(results[1], results[0], err_msg=f"{size} {text}")
        np.testing.assert_array_equal(results[2], results[0], err_msg=f"{size} {text}")


def test_elements_run_as_vectors_and_the_rest_one_by_one():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0 + 1.0, name="B")
    s = te.create_schedule(B)
    _, inner = s[B].split("i", factor=16)
    s[B].vectorize(inner)
    with collect() as remarks:
        func = lower(te.lower(s, [A, B]))
    assert not remarks and guards(func) == 0
    loads = [node for item in walk_statements(func.body) for expr in expressions(item)
             for node in walk(expr) if isinstance(node, Load)]
    assert {isinstance(load.indices[0], Ramp) for load in loads} == {True, False}
    vector = [loop for loop in hot_loops(te.lower(s, [A, B]))
              if any("fmadd" in line and "ps" in line and "%ymm" in line
                     for line in loop.instructions)]
    assert vector and all(sum(line.startswith("j") for line in loop.instructions) == 1
                          for loop in vector)
    check(s, Program((A,), (B,)), [n])


def product():
    """Rows of a symbolic number, in tiles of 4 x 16 that are added up in registers."""
    n = te.var("n")
    A = te.placeholder((n, 24), name="A")
    W = te.placeholder((24, 32), name="W")
    k = te.reduce_axis((0, 24), "k")
    C = te.compute((n, 32), lambda i, j: te.sum(A[i, k] * W[k, j], axis=k), name="C")
    s = te.create_schedule(C)
    kept = s.cache_write(C, "local")
    _, j, *_ = s[C].tile("i", "j", 4, 16)
    s[C].vectorize("j.inner")
    s[kept].compute_at(s[C], j)
    row, column, k = s[kept].leaf_iter_vars
    s[kept].reorder(k, row, column)
    s[kept].vectorize(column)
    s[kept].unroll(row)
    return n, A, W, C, s


def test_a_product_of_symbolic_rows_runs_from_registers():
    n, A, W, C, s = product()
    hot = [loop for loop in hot_loops(te.lower(s, [A, W, C])) if loop.multiplies_and_adds]
    tiles = [loop for loop in hot
             if sum("vfmadd" in line and "%ymm" in line for line in loop.instructions) >= 8]
    interior = [loop for loop in tiles  # the tail has a branch for each of its rows
                if sum(line.startswith("j") for line in loop.instructions) == 1]
    assert interior, "no loop adds up a whole tile without a guard"
    assert not any(loop.stack_accesses for loop in interior)
    check(s, Program((A, W), (C,)), [n])


def test_two_symbolic_axes_have_an_interior_and_both_tails():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B)
    _, _, _, j = s[B].tile("i", "j", 3, 8)
    s[B].vectorize(j)
    s[B].parallel(s[B].leaf_iter_vars[0])
    with collect() as remarks:
        lower(te.lower(s, [A, B]))
    assert not remarks
    check(s, Program((A,), (B,)), [n, m])


def test_functions_without_scalars_and_loops_between_constants_stay():
    for size, extent in (("", "4"), ("n: int32, ", "4")):
        func = parse_func(f"""
def f({size}A: Buffer((30,), "float32")):
    for i in range({extent}):
        for j in vectorized(8):
            if likely(i * 8 + j < 30):
                A[i * 8 + j] = 1.0
""")
        assert partition_symbolic_loops(func).body is func.body


def test_code_grows_within_a_limit():
    many = "\n".join(f"            A[i * 4 + j + {k}] = 1.0" for k in range(MOST_LEAVES - 4))
    func = parse_func(f"""
def f(n: int32, A: Buffer((n + 9,), "float32")):
    for i in range((n + 3) // 4):
        for j in range(4):
            if likely(i * 4 + j < n):
{many.replace("            ", "                ")}
""")
    with collect() as remarks:
        assert partition_symbolic_loops(func).body is func.body
    assert "more than 256" in remarks[0].reason


@pytest.mark.parametrize("size", [0, 1, 5, 8])
def test_ends_are_kept_within_the_loop(size):
    """The guard holds beyond the loop, or fails before it: the pieces are what the loop is."""
    func = parse_func("""
def f(n: int32, A: Buffer((64,), "float32")):
    for i in range(n):
        for j in range(2):
            if likely(i + j < n + 5):
                A[i * 2 + j] = 1.0
    for k in range(n + 3):
        for l in range(2):
            if likely(k + l + 9 < n):
                A[k + l] = 2.0
""")
    got, want = np.zeros(64, "float32"), np.zeros(64, "float32")
    run(partition_symbolic_loops(func), [size, got])
    run(func, [size, want])
    np.testing.assert_array_equal(got, want)
