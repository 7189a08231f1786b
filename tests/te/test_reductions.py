"""Reducers of every kind, their conditions and initial values, and reductions in two stages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import te
from minitvm.errors import LoweringError, ScheduleError
from minitvm.testing.te_machine import run_interpreter, run_machine
from minitvm.testing.te_oracle import Program, evaluate, random_inputs
from minitvm.tir import ir
from minitvm.tir.text import print_func
from minitvm.tir.walk import walk_statements


def arg_reducer(name):
    """(index, value) of the first greatest or least value."""
    better = (lambda a, b: a > b) if name == "argmax" else (lambda a, b: a < b)
    worst = te.min_value if name == "argmax" else te.max_value

    def combine(left, right):
        keep = te.any(better(left[1], right[1]),
                      te.all(ir.equal(left[1], right[1]), left[0] < right[0]))
        return te.select(keep, left[0], right[0]), te.select(keep, left[1], right[1])

    return te.comm_reducer(combine, lambda i, v: (te.max_value(i), worst(v)), name=name)


def log_sum_exp():
    """(m, s): m the greatest value, s the sum of exp(x - m)."""

    def combine(left, right):
        m = ir.maximum(left[0], right[0])
        return m, left[1] * te.exp(left[0] - m) + right[1] * te.exp(right[0] - m)

    return te.comm_reducer(
        combine, lambda m, s: (ir.Const(-1e30, m), ir.Const(0.0, s)), name="log_sum_exp")


def check(s, program, expected=None, tolerance=0.0):
    inputs = random_inputs(program, seed=7)
    wanted = evaluate(program, inputs) if expected is None else expected(*inputs)
    for run in (run_interpreter, run_machine):
        for got, want in zip(run(s, program, inputs), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def arg_program(name, rows=5, columns=11):
    A = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, columns), name="k")
    index, value = te.compute((rows,), lambda i: arg_reducer(name)((k.var, A[i, k]), axis=k),
                              name="best")
    return A, k, index, value


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax_and_argmin(name):
    A, k, index, value = arg_program(name)
    s = te.create_schedule(index)
    outer, _ = s[index].split(k, factor=4)
    s[index].reorder(outer, "i")
    find = getattr(np, name)
    check(s, Program((A,), (index, value)),
          lambda a: [find(a, axis=1), np.take_along_axis(a, find(a, axis=1)[:, None], 1)[:, 0]])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("which", ["inner", "outer"])
def test_rfactor_of_a_tuple(name, which):
    A, k, index, value = arg_program(name)
    s = te.create_schedule(index)
    outer, inner = s[index].split(k, factor=4)
    partial = s.rfactor(index, inner if which == "inner" else outer, factor_axis=1)
    assert [tensor.dtype for tensor in partial] == ["int32", "float32"]
    s[partial[0]].compute_at(s[index], "i")
    find = getattr(np, name)
    check(s, Program((A,), (index, value)), lambda a: [find(a, axis=1), getattr(a, name[3:])(1)])


def test_log_sum_exp():
    A = te.placeholder((3, 10), name="A")
    k = te.reduce_axis((0, 10), name="k")
    m, total = te.compute((3,), lambda i: log_sum_exp()((A[i, k], 1.0), axis=k), name="parts")
    out = te.compute((3,), lambda i: m[i] + te.log(total[i]), name="out")
    s = te.create_schedule(out)
    program = Program((A,), (out,))

    def expected(a):
        return [np.log(np.exp(a.astype("float64")).sum(1))]

    check(s, program, expected, tolerance=1e-5)
    _, inner = s[m].split(k, factor=4)
    partial = s.rfactor(m, inner)
    s[partial[0]].compute_at(s[m], "i")
    check(s, program, expected, tolerance=1e-5)


def test_condition_and_initial_value():
    A, bias = te.placeholder((4, 9), name="A"), te.placeholder((4,), name="bias")
    scaled = te.compute((4,), lambda i: bias[i] * 3.0, name="scaled")
    k = te.reduce_axis((2, 8), name="k")
    C = te.compute(
        (4,), lambda i: te.sum(A[i, k], axis=k, where=A[i, k] > 0.0, init=scaled[i] + 1.0),
        name="C")
    program = Program((A, bias), (C,))

    def expected(a, b):
        part = a[:, 2:8]
        return [np.where(part > 0, part, 0).sum(1) + 3 * b + 1]

    s = te.create_schedule(C)
    check(s, program, expected)
    with pytest.raises(ScheduleError, match=r"not all of its readers.*Legal choices: \(C, i\)"):
        s[scaled].compute_at(s[C], k)
    s[scaled].compute_at(s[C], "i")
    with pytest.raises(ScheduleError, match="scaled is computed in C at i"):
        s[C].reorder(k, "i")
    check(s, program, expected)
    s[scaled].compute_inline()
    s[C].split("i", factor=3)
    s[C].reorder(k, "i.outer", "i.inner")
    assert print_func(te.lower(s, program.args)).count("* 3.0 + 1.0") == 1
    check(s, program, expected)
    with pytest.raises(ScheduleError, match="already scheduled"):
        s.rfactor(C, k)


def test_initial_value_goes_with_caches_and_factors():
    A, bias = te.placeholder((4, 9), name="A"), te.placeholder((4,), name="bias")
    k = te.reduce_axis((0, 9), name="k")
    C = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=bias[i]), name="C")
    s = te.create_schedule(C)
    cached = s.cache_write(C, "local")
    _, inner = s[cached].split(k, factor=2)
    s.rfactor(cached, inner)
    check(s, Program((A, bias), (C,)), lambda a, b: [a.sum(1) + b])


@pytest.mark.parametrize(("init", "message"), [
    (lambda k: (1.0, 2.0), "takes 1 initial values, not 2"),
    (lambda k: ir.cast(k.var, "float32"), "can't depend on the axes"),
    (lambda k: ir.Const(1, "int32"), "is int32, not float32"),
])
def test_initial_values_that_are_refused(init, message):
    A = te.placeholder((9,), name="A")
    k = te.reduce_axis((0, 9), name="k")
    with pytest.raises(TypeError, match=message):
        te.sum(A[k], axis=k, init=init(k))


@given(st.integers(1, 9), st.integers(1, 7), st.integers(1, 5), st.integers(-3, 2), st.booleans(),
       st.booleans())
def test_rfactor_of_any_split(rows, columns, factor, position, inner_one, two_axes):
    A = te.placeholder((rows, columns, 3), name="A")
    k, m = te.reduce_axis((0, columns), name="k"), te.reduce_axis((0, 3), name="m")
    axes = [k, m] if two_axes else [k]
    C = te.compute(
        (rows, 2), lambda i, j: te.sum(A[i, k, m if two_axes else j] * 2.0, axis=axes,
                                       where=A[i, k, 0] < 3.0), name="C")
    s = te.create_schedule(C)
    split = s[C].split(k, factor=factor)
    axis = split[inner_one]
    if two_axes and inner_one:
        axis = s[C].fuse(axis, m)
    partial = s.rfactor(C, axis, position)
    assert partial.shape[position % 3] == axis.extent
    program = Program((A,), (C,))
    inputs = random_inputs(program, 1)
    got, want = run_interpreter(s, program, inputs), evaluate(program, inputs)
    np.testing.assert_array_equal(got[0], want[0])


REFUSALS = {
    "spatial": (lambda s: s.rfactor("C", "i"), "axis i is no reduce axis", "k"),
    "no reduction": (lambda s: s.rfactor("D", "y"), "it is no reduction", "C"),
    "scheduled": (lambda s: [s["C"].split("i", 2), s.rfactor("C", "k")], "already scheduled", ""),
    "annotated": (lambda s: [s["C"].unroll("k"), s.rfactor("C", "k")], "already scheduled", ""),
    "place": (lambda s: s.rfactor("C", "k", 3), "3 is no place among 2 axes", "0, 1"),
    "attached": (lambda s: [s["B"].compute_at(s["C"], "k"), s.rfactor("C", "k")],
                 "B is computed inside its loops", "rfactor before compute_at"),
    "gone": (lambda s: [s["C"].split("k", 2), s.rfactor("C", "k")], "no loop any more", "k.outer"),
    "align last": (lambda s: s["B"].storage_align("q", 8), "innermost axis has stride 1", "p"),
    "align loop": (lambda s: s["C"].storage_align("k", 8), "no axis of the tensor", ""),
    "align output": (lambda s: s["D"].storage_align("y", 8), "it is an output", "B"),
    "align offset": (lambda s: s["B"].storage_align("p", 8, 8), "an offset below it", ""),
    "bind nothing": (lambda s: s["D"].bind("y", "core.x"), "there are no threads", "blockIdx.x"),
    "bind reduction": (lambda s: s["C"].bind("k", "threadIdx.x"), "race", "i"),
    "bind twice": (lambda s: [s["D"].split("y", 2), s["D"].bind("y.outer", "vthread"),
                              s["D"].bind("y.inner", "vthread")], "bound to vthread already",
                   "blockIdx.x"),
    "bound split": (lambda s: [s["D"].bind("y", "vthread"), s["D"].split("y", 2)],
                    "already vthread", ""),
    "steps": (lambda s: s["D"].pragma("y", "auto_unroll_max_step", "x"), "no number of steps", ""),
    "bytes": (lambda s: s["D"].pragma("y", "prefetch_bytes", -1), "no number of bytes", ""),
    "reordered cache": (lambda s: [s["B"].reorder("q", "p"), s.cache_write("B", "local")],
                        "already scheduled", "cache_write first"),
    "pragma cache": (lambda s: [s["B"].pragma("q", "note"), s.cache_write("B", "local")],
                     "already scheduled", "cache_write first"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_change_nothing(name):
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda p, q: A[p, q] * 2.0, name="B")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((4,), lambda i: te.sum(B[i, k], axis=k), name="C")
    D = te.compute((4,), lambda y: C[y] + 1.0, name="D")
    s = te.create_schedule(D)
    action, message, choice = REFUSALS[name]
    with pytest.raises(ScheduleError, match=message) as caught:
        action(s)
    assert choice in str(caught.value).split("Legal choices:")[1].split("\n")[0]
    if "vthread" not in str(s):
        check(s, Program((A,), (D,)))


def test_threads_are_recorded_and_refused_for_a_cpu():
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B)
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    assert str(s) == 's["B"].bind("i", "blockIdx.x")\n'
    with pytest.raises(LoweringError,
                       match=r"axis i of B is bound to blockIdx\.x, and a CPU has no such"):
        te.lower(s, [A, B])


@pytest.mark.parametrize(("most", "unrolled"), [(0, 0), (7, 0), (8, 1), (23, 1), (24, 2), (96, 2)])
def test_auto_unroll_counts_stores_from_the_inside(most, unrolled):
    A = te.placeholder((4, 3, 8), name="A")
    B = te.compute((4, 3, 8), lambda i, j, k: A[i, j, k] + 1.0, name="B")
    s = te.create_schedule(B)
    s[B].pragma("i", "auto_unroll_max_step", most)
    assert print_func(te.lower(s, [A, B])).count("unrolled") == unrolled
    check(s, Program((A,), (B,)))


def test_prefetch_asks_for_what_later_turns_read():
    A = te.placeholder((8, 4), name="A")
    W = te.placeholder((3, 8, 16), name="W")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((3, 4, 16), lambda b, p, o: te.sum(A[k, p] * W[b, k, o], axis=[k]), name="B")
    s = te.create_schedule(B)
    b, p, o = B.op.axis
    b_outer, b_inner = s[B].split(b, factor=2)
    s[B].reorder(b_outer, k, p, b_inner, o)
    s[B].vectorize(o)
    s[B].unroll(p)
    s[B].unroll(b_inner)
    s[B].pragma(k, "prefetch_bytes", 512)
    text = print_func(te.lower(s, [A, W, B]))
    assert text.count("prefetch") == 1, "once for each vector of W, and not for scalars of A"
    assert "for b_inner_ahead in unrolled(2):" in text
    assert "address(W, (b_outer * 2 + b_inner_ahead) * 128 + k * 16 + 128)" in text
    check(s, Program((A, W), (B,)))


def test_prefetch_is_for_inputs_alone():
    A = te.placeholder((8, 16), name="A")
    B = te.compute((8, 16), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((8, 16), lambda i, j: B[i, j] * 2.0, name="C")
    s = te.create_schedule(C)
    s[C].vectorize("j")
    s[C].pragma("i", "prefetch_bytes", 512)
    assert "prefetch" not in print_func(te.lower(s, [A, C]))


@pytest.mark.parametrize("axis", ["a", "b", "c"])
@pytest.mark.parametrize(("factor", "offset"), [(1, 0), (16, 0), (16, 5)])
def test_storage_align_pads_a_stride(axis, factor, offset):
    A = te.placeholder((3, 4, 5, 6), name="A")
    B = te.compute((3, 4, 5, 6), lambda a, b, c, d: A[a, b, c, d] * 2.0, name="B")
    C = te.compute((3, 4, 5, 6), lambda a, b, c, d: B[a, b, c, d] + B[2 - a, b, c, 5 - d], name="C")
    s = te.create_schedule(C)
    s[B].compute_at(s[C], "a")
    s[B].vectorize("d")
    s[B].storage_align(axis, factor, offset)
    func = te.lower(s, [A, C])
    (buffer,) = [node.buffer for node in walk_statements(func.body)
                 if isinstance(node, ir.Allocate)]
    position = "abc".index(axis)
    stride = int(np.prod(buffer.extents()[position + 1 :]))
    assert stride % factor == offset
    check(s, Program((A,), (C,)))
