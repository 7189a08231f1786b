"""Symbolic sizes: scalar parameters, guards where splits may not divide, one function for all n."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import te
from minitvm.errors import InputError, LoweringError, ScheduleError
from minitvm.testing.te_machine import run_interpreter, run_machine
from minitvm.testing.te_oracle import Program, evaluate, random_inputs
from minitvm.tir.text import parse_func, print_func

SIZES = (0, 1, 3, 4, 7, 8, 33)


def check(s, program, sizes, machine=True):
    for value in SIZES:
        given_sizes = dict.fromkeys(sizes, value)
        inputs = random_inputs(program, 2, given_sizes)
        wanted = evaluate(program, inputs, given_sizes)
        for run in (run_interpreter, run_machine)[: 1 + machine]:
            for got, want in zip(run(s, program, inputs, given_sizes), wanted, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"size {value}\n{s}")
    func = te.lower(s, program.args)
    assert print_func(parse_func(print_func(func))) == print_func(func)


def rows_plus(n):
    A = te.placeholder((n, 4), name="A")
    B = te.compute((n, 4), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((n, 4), lambda i, j: B[i, j] + 1.0, name="C")
    return A, B, C


def test_sizes_are_parameters_and_tails_are_guarded():
    n = te.var("n")
    A, B, C = rows_plus(n)
    s = te.create_schedule(C)
    outer, inner = s[C].split("i", factor=4)
    s[B].compute_at(s[C], outer)
    text = print_func(te.lower(s, [A, C]))
    assert 'def main(n: int32, A: Buffer((n, 4), "float32")' in text
    assert "for i_outer in range((n + 3) // 4)" in text
    assert 'B = allocate((4, 4), "float32", scope="local")' in text
    assert "if likely(i_outer * 4 + i_inner < n)" in text
    s[C].unroll(inner)
    check(s, Program((A,), (C,)), [n])
    assert "for i.outer in range((n + 3) // 4):" in s.show()


def test_no_guard_where_the_split_divides():
    n = te.size_var("n")
    A = te.placeholder((n * 8,), name="A")
    B = te.compute((n * 8,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B)
    _, inner = s[B].split("i", factor=4)
    s[B].vectorize(inner)
    text = print_func(te.lower(s, [A, B]))
    assert "if" not in text and "vectorized(4)" in text
    check(s, Program((A,), (B,)), [n])


@pytest.mark.parametrize("how", [{"factor": 4}, {"nparts": 3}])
def test_fused_axes_and_parts(how):
    n = te.var("n")
    A, B, C = rows_plus(n)
    s = te.create_schedule(C)
    s[B].compute_inline()
    outer, _ = s[C].split(s[C].fuse("i", "j"), **how)
    s[C].parallel(outer)
    check(s, Program((A,), (C,)), [n])


def test_reduction_over_a_symbolic_axis():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B)
    outer, inner = s[B].split(k, factor=4)
    check(s, Program((A,), (B,)), [n, m])
    s[B].reorder(outer, "i", inner)
    check(s, Program((A,), (B,)), [n, m])


def test_a_stencil_over_a_symbolic_row():
    n = te.var("n")
    A = te.placeholder((n + 2,), name="A")
    B = te.compute((n + 2,), lambda i: A[i] * 3.0, name="B")
    C = te.compute((n,), lambda i: B[i] + B[i + 2], name="C")
    s = te.create_schedule(C)
    outer, _ = s[C].split("i", factor=5)
    s[B].compute_at(s[C], outer)
    assert "B = allocate((7,)" in print_func(te.lower(s, [A, C]))
    check(s, Program((A,), (C,)), [n])


def test_a_region_of_constant_size_may_exceed_the_tensor():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 3.0, name="B")
    C = te.compute((6,), lambda i: te.if_then_else(i < n, B[i], -1.0), name="C")
    s = te.create_schedule(C)
    outer, _ = s[C].split("i", factor=6)
    s[B].compute_at(s[C], outer)
    check(s, Program((A,), (C,)), [n])


def test_scalars_in_bodies_and_arguments_in_any_order():
    n, scale = te.var("n"), te.var("scale", "float32")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * scale, name="B")
    s = te.create_schedule(B)
    func = te.lower(s, [A, scale, B])
    assert [param.name for param in func.params] == ["n", "A", "scale", "B"]
    with pytest.raises(LoweringError, match="n is given twice"):
        te.lower(s, [n, A, n, B])
    check(s, Program((A,), (B,)), [n, scale])


def test_the_machine_checks_sizes_of_arrays():
    n = te.var("n")
    A, _, C = rows_plus(n)
    s = te.create_schedule(C)
    s["B"].compute_inline()
    with pytest.raises(InputError, match="'A' has 48 bytes, its buffer 64"):
        run_machine(s, Program((A,), (C,)), [np.zeros((3, 4), "float32")], {n: 4})


def test_memory_of_symbolic_size_is_refused():
    n = te.var("n")
    A, B, C = rows_plus(n)
    s = te.create_schedule(C)
    with pytest.raises(LoweringError, match="the memory of B would have the symbolic extent n"):
        te.lower(s, [A, C])
    te.lower(s, [A, B, C])
    s[C].reorder("j", "i")
    with pytest.raises(ScheduleError, match="memory of B inside the loop j would have"):
        s[B].compute_at(s[C], "j")
    te.lower(s, [A, B, C])


def test_vectorize_takes_constant_extents():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B)
    with pytest.raises(ScheduleError, match="its extent n is known only when the code runs"):
        s[B].vectorize("i")
    _, inner = s[B].split("i", factor=8)
    s[B].vectorize(inner)
    check(s, Program((A,), (B,)), [n])


@given(st.data())
def test_random_schedules_with_symbolic_sizes(data):
    n = te.var("n")
    A, B, C = rows_plus(n)
    s = te.create_schedule(C)
    for _ in range(data.draw(st.integers(0, 6))):
        stage = s[data.draw(st.sampled_from([B, C]))]
        leaf = data.draw(st.sampled_from(stage.leaf_iter_vars))
        step = data.draw(st.sampled_from(["split", "nparts", "reorder", "fuse", "unroll", "at"]))
        try:
            match step:
                case "split":
                    stage.split(leaf, factor=data.draw(st.integers(1, 5)))
                case "nparts":
                    stage.split(leaf, nparts=data.draw(st.integers(1, 5)))
                case "reorder":
                    stage.reorder(*data.draw(st.permutations(stage.leaf_iter_vars)))
                case "fuse":
                    stage.fuse(*stage.leaf_iter_vars[:2])
                case "unroll":
                    stage.unroll(leaf)
                case "at":
                    s[B].compute_at(s[C], data.draw(st.sampled_from(s[C].leaf_iter_vars)))
        except ScheduleError as error:
            assert "Legal choices" in str(error)
    if s[B].stage.attach == "root":
        s[B].compute_inline()
    check(s, Program((A,), (C,)), [n], machine=False)
