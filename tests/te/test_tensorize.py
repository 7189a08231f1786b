"""Tensor intrinsics in place of inner loops: values, what must match, what stays matched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import te
from minitvm.errors import LoweringError, ScheduleError
from minitvm.te.schedule import Schedule
from minitvm.testing.te_machine import run_interpreter, run_machine
from minitvm.testing.te_oracle import Program, evaluate, random_inputs
from minitvm.tir import ir
from minitvm.tir.text import print_func


def fma_tile(rows, lanes, name="fma_tile"):
    """c[i, j] += a[i] * b[j]: a register tile of `rows` vectors of `lanes`."""
    a, b = te.placeholder((rows, 1), name="a"), te.placeholder((1, lanes), name="b")
    k = te.reduce_axis((0, 1), name="k")
    c = te.compute((rows, lanes), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")

    def body(ins, outs):
        (a, b), (c,) = ins, outs
        vector = f"float32x{lanes}"
        reset, update = [], []
        for row in range(rows):
            reset.append(c.vstore((row, 0), ir.Broadcast(ir.Const(0.0, "float32"), lanes)))
            product = ir.Call("fma", (ir.Broadcast(a[row, 0], lanes), b.vload((0, 0), vector),
                                      c.vload((row, 0), vector)), vector)
            update.append(c.vstore((row, 0), product))
        return None, ir.seq(*reset), ir.seq(*update)

    return te.decl_tensor_intrin(c.op, body, name=name)


def dot4(lanes, name="dot4"):
    """c[j] += sum of four int8 products: what `vpdpbusd` and `sdot` do, in portable tir."""
    a = te.placeholder((4,), "int8", name="a")
    b = te.placeholder((lanes, 4), "int8", name="b")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute(
        (lanes,),
        lambda j: te.sum(ir.cast(a[k], "int32") * ir.cast(b[j, k], "int32"), axis=k), name="c")

    def body(ins, outs):
        (a, b), (c,) = ins, outs
        j = ir.Var("lane")
        products = [ir.cast(a[q], "int32") * ir.cast(b[j, q], "int32") for q in range(4)]
        total = (products[0] + products[1]) + (products[2] + products[3])
        loop = ir.For(j, ir.Const(0), ir.Const(lanes), "serial", c.vstore(j, c[j] + total))
        return None, None, loop

    return te.decl_tensor_intrin(c.op, body, name=name)


def matmul(m=8, n=16, k=6, a_dtype="float32"):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return A, B, C, r


def check(s, program):
    inputs = random_inputs(program, seed=5)
    wanted = evaluate(program, inputs)
    for run in (run_interpreter, run_machine):
        for got, want in zip(run(s, program, inputs), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("order", ["reduce outside", "reduce outermost"])
def test_fma_row_tile(lanes, order):
    A, B, C, r = matmul()
    s = te.create_schedule(C)
    io, jo, ii, ji = s[C].tile("i", "j", 4, lanes)
    if order == "reduce outside":
        s[C].reorder(io, jo, r, ii, ji)
    else:
        s[C].reorder(r, io, jo, ii, ji)
    s[C].tensorize(ii, fma_tile(4, lanes))
    program = Program((A, B), (C,))
    check(s, program)
    text = print_func(te.lower(s, program.args))
    assert text.count("fma(") == 4 and "i_inner" not in text
    again = Schedule.replay(C, Schedule.parse_log(str(s)))
    assert print_func(te.lower(again, program.args)) == text


def test_dot_product_of_int8():
    lanes = 8
    A = te.placeholder((3, 20), "int8", name="A")
    W = te.placeholder((2, 5, lanes, 4), "int8", name="W")
    r = te.reduce_axis((0, 20), name="r")
    C = te.compute(
        (3, 2, lanes),
        lambda m, n, j: te.sum(ir.cast(A[m, r], "int32") * ir.cast(W[n, r // 4, j, r % 4], "int32"),
                               axis=r), name="C")
    out = te.compute((3, 2 * lanes), lambda m, n: C[m, n // lanes, n % lanes] + 1, name="out")
    s = te.create_schedule(out)
    s[C].compute_at(s[out], "m")
    m, n, j = s[C].op.axis
    outer, inner = s[C].split(r, factor=4)
    s[C].reorder(m, n, outer, j, inner)
    s[C].tensorize(j, dot4(lanes))
    check(s, Program((A, W), (out,)))
    assert "lane" in print_func(te.lower(s, [A, W, out]))


def test_an_elementwise_intrinsic_reads_an_inlined_producer_through():
    x = te.placeholder((6, 8), name="x")
    y = te.compute((6, 8), lambda i, j: x[i, 7 - j] * 2.0, name="y")
    z = te.compute((6, 8), lambda i, j: y[i, 7 - j] + 1.0, name="z")
    p = te.placeholder((8,), name="p")
    q = te.compute((8,), lambda i: p[i] * 2.0 + 1.0, name="q")
    axpb = te.decl_tensor_intrin(
        q.op, lambda ins, outs: outs[0].vstore(0, ins[0].vload(0, "float32x8")
                                               * ir.Broadcast(ir.Const(2.0, "float32"), 8)
                                               + ir.Broadcast(ir.Const(1.0, "float32"), 8)), "axpb")
    s = te.create_schedule(z)
    s[y].compute_inline()
    s[z].tensorize("j", axpb)
    check(s, Program((x,), (z,)))
    with pytest.raises(ScheduleError, match="z is tensorized by axpb: its body is not"):
        s[y].compute_root()
    check(s, Program((x,), (z,)))


def test_whole_reduction_inside_uses_body_or_reset_and_update():
    used = []

    def declare(with_body):
        a = te.placeholder((4,), name="a")
        k = te.reduce_axis((0, 4), name="k")
        c = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="c")

        def parts(ins, outs):
            total = ins[0][0] + ins[0][1] + ins[0][2] + ins[0][3]
            used.append(with_body)
            body = outs[0].vstore(0, total) if with_body else None
            return body, outs[0].fill(0.0), outs[0].vstore(0, outs[0][0] + total)

        return te.decl_tensor_intrin(c.op, parts, f"sum4_{with_body}")

    for with_body in (False, True):
        A = te.placeholder((3, 8), name="A")
        r = te.reduce_axis((0, 8), name="r")
        C = te.compute((3,), lambda i, A=A, r=r: te.sum(A[i, r], axis=r), name="C")
        s = te.create_schedule(C)
        _, inner = s[C].split(r, factor=4)
        s[C].tensorize(inner, declare(with_body))
        check(s, Program((A,), (C,)))
        A = te.placeholder((3, 4), name="A")
        r = te.reduce_axis((0, 4), name="r")
        C = te.compute((3,), lambda i, A=A, r=r: te.sum(A[i, r], axis=r), name="C")
        s = te.create_schedule(C)
        s[C].tensorize(r, declare(with_body))
        check(s, Program((A,), (C,)))
    assert set(used) == {False, True}


REFUSALS = {
    "tail": (lambda s, C: [s[C].split("j", 7), s[C].reorder("i", "r", "j.outer", "j.inner"),
                           s[C].tensorize("j.inner", fma_tile(1, 7))], "its loops have a tail"),
    "other extents": (lambda s, C: [s[C].split("j", 4), s[C].reorder("r", "j.inner"),
                                    s[C].tensorize("j.inner", fma_tile(1, 8))],
                      r"run over \[4\], the intrinsic over \[8\]"),
    "other body": (lambda s, C: [s[C].reorder("r", "i", "j"), s[C].split("i", 4),
                                 s[C].reorder("i.inner", "j"),
                                 s[C].tensorize("i.inner", dot4(16))], "the intrinsic over"),
    "other dtype": (lambda s, C: [s[C].split("r", 4), s[C].split("j", 8),
                                  s[C].reorder("i", "j.outer", "r.outer", "j.inner", "r.inner"),
                                  s[C].tensorize("j.inner", dot4(8))],
                    "its body is not that|does not reduce|read"),
    "unknown": (lambda s, C: s[C].tensorize("j", "nothing"), "no intrinsic 'nothing' was declared"),
    "annotated": (lambda s, C: [s[C].split("j", 8), s[C].reorder("r", "j.inner"),
                                s[C].unroll("j.inner"),
                                s[C].tensorize("j.inner", fma_tile(1, 8))], "already unrolled"),
    "inside": (lambda s, C: [tile(s, C), s[C].split("j.inner", 2)], "part of the tensor intrinsic"),
    "cache later": (lambda s, C: [tile(s, C), s.cache_write(C, "local")], "already scheduled"),
    "rfactor later": (lambda s, C: [tile(s, C), s.rfactor(C, "r")], "already scheduled"),
}


def tile(s, C):
    s[C].split("j", 8)
    s[C].reorder("i", "j.outer", "r", "j.inner")
    s[C].tensorize("j.inner", fma_tile(1, 8))


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    A, B, C, _ = matmul(k=8)
    s = te.create_schedule(C)
    action, message = REFUSALS[name]
    with pytest.raises(ScheduleError, match=message) as caught:
        action(s, C)
    assert "Legal choices:" in str(caught.value)
    check(s, Program((A, B), (C,)))


def test_a_later_step_that_gives_a_tail_is_refused():
    A, B, C, r = matmul(m=6)
    D = te.compute((6, 16), lambda y, x: C[y, x] + 1.0, name="D")
    s = te.create_schedule(D)
    s[C].reorder(r, "i", "j")
    s[C].tensorize("i", fma_tile(6, 16, "whole"))
    y, _ = s[D].split("y", factor=4)
    with pytest.raises(ScheduleError, match="C is tensorized by whole"):
        s[C].compute_at(s[D], y)
    check(s, Program((A, B), (D,)))


def test_padded_memory():
    A, B, C, _r = matmul()
    D = te.compute((8, 16), lambda y, x: C[y, x] + 1.0, name="D")
    s = te.create_schedule(D)
    tile(s, C)
    s[C].storage_align("i", 32, 8)
    check(s, Program((A, B), (D,)))
    assert "C = allocate((8, 40)" in print_func(te.lower(s, [A, B, D]))


def test_vectors_must_lie_in_a_row():
    x = te.placeholder((8, 8), name="x")
    y = te.compute((8, 8), lambda i, j: x[j, i] + 1.0, name="y")
    p = te.placeholder((8,), name="p")
    q = te.compute((8,), lambda i: p[i] + 1.0, name="q")
    plus = te.decl_tensor_intrin(
        q.op, lambda ins, outs: outs[0].vstore(0, ins[0].vload(0, "float32x8")), "plus")
    s = te.create_schedule(y)
    with pytest.raises(ScheduleError, match="does not lie in one row of p"):
        s[y].tensorize("j", plus)


def rows_intrin(declared, written, name):
    p = te.placeholder(declared, name="p")
    q = te.compute(written, lambda *at: p[at] + 1.0, name="q")
    return te.decl_tensor_intrin(q.op, lambda ins, outs: ir.seq(), name)


def test_loops_that_run_over_no_box_are_refused():
    x = te.placeholder((4, 6), name="x")
    y = te.compute((4, 6), lambda i, j: x[i, j] + 1.0, name="y")
    s = te.create_schedule(y)
    _, inner = s[y].split(s[y].fuse("i", "j"), factor=4)
    with pytest.raises(ScheduleError, match="do not run over a box"):
        s[y].tensorize(inner, rows_intrin((2, 6), (2, 6), "two_rows"))


def test_an_input_must_be_read_whole():
    x = te.placeholder((4, 6), name="x")
    y = te.compute((4, 6), lambda i, j: x[i, j] + 1.0, name="y")
    s = te.create_schedule(y)
    with pytest.raises(ScheduleError, match="does not run like that of p"):
        s[y].tensorize("j", rows_intrin((8,), (6,), "too_wide"))


@pytest.mark.parametrize("index", [lambda j: 7 - j, lambda j: j * 2, lambda j: (j + 3) % 8],
                         ids=["backwards", "every other", "around"])
def test_an_input_must_be_read_in_the_intrinsics_order(index):
    x = te.placeholder((4, 16), name="x")
    y = te.compute((4, 8), lambda i, j: x[i, index(j)] + 1.0, name="y")
    s = te.create_schedule(y)
    with pytest.raises(ScheduleError, match="does not run like that of p"):
        s[y].tensorize("j", rows_intrin((8,), (8,), "one_row"))


def test_an_initial_value_is_refused():
    A, B = te.placeholder((4, 3), name="A"), te.placeholder((3, 8), name="B")
    r = te.reduce_axis((0, 3), name="r")
    C = te.compute((4, 8), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r, init=2.0), name="C")
    s = te.create_schedule(C)
    s[C].reorder("i", r, "j")
    with pytest.raises(ScheduleError, match="does not reduce as the intrinsic does"):
        s[C].tensorize("j", fma_tile(1, 8))


def test_a_reduction_outside_needs_an_update():
    _A, _B, C, _ = matmul()
    a, b = te.placeholder((1,), name="a"), te.placeholder((1, 8), name="b")
    k = te.reduce_axis((0, 1), name="k")
    c = te.compute((8,), lambda j: te.sum(a[k] * b[k, j], axis=k), name="c")
    only = te.decl_tensor_intrin(c.op, lambda ins, outs: outs[0].fill(0.0), "only_body")
    s = te.create_schedule(C)
    s[C].split("j", 8)
    s[C].reorder("r", "j.inner")
    with pytest.raises(ScheduleError, match="no update"):
        s[C].tensorize("j.inner", only)


def test_what_an_intrinsic_gives_is_checked():
    view = te.BufferView("v", ir.buffer("B", (4, 8)), (8,), (ir.Const(1), ir.Const(0)), (1,))
    assert view[3] == ir.Load(view.buffer, (ir.Const(1), ir.Const(3)))
    with pytest.raises(LoweringError, match="with 2 indices"):
        view[1, 2]
    with pytest.raises(LoweringError, match="of float32"):
        view.vload(0, "int8x4")
    q = te.compute((4,), lambda i: 1.0, name="q")
    with pytest.raises(LoweringError, match="must give a statement"):
        te.decl_tensor_intrin(q.op, lambda ins, outs: 3, "three").parts([], [view])
    n = te.var("n")
    with pytest.raises(ScheduleError, match="constant shapes"):
        te.decl_tensor_intrin(te.compute((n,), lambda i: 1.0).op, lambda ins, outs: None)


@given(st.data())
def test_random_tiles_are_right_or_refused(data):
    """Whatever is split, reordered and placed around an intrinsic, before it or after it."""
    A, B, C, _ = matmul(m=data.draw(st.sampled_from([4, 6])), n=8, k=data.draw(st.integers(1, 4)))
    D = te.compute(C.shape, lambda y, x: C[y, x] + 1.0, name="D")
    s = te.create_schedule(D)
    for _ in range(data.draw(st.integers(1, 7))):
        try:
            match data.draw(st.sampled_from(["split", "order", "tensorize", "tensorize", "at"])):
                case "split":
                    stage = s[data.draw(st.sampled_from([C, D]))]
                    axis = data.draw(st.sampled_from(stage.leaf_iter_vars))
                    stage.split(axis, factor=data.draw(st.sampled_from([1, 2, 4])))
                case "order":
                    s[C].reorder(*data.draw(st.permutations(s[C].leaf_iter_vars)))
                case "tensorize":
                    rows, lanes = (data.draw(st.sampled_from([1, 2, 4, 8])) for _ in "ab")
                    axis = data.draw(st.sampled_from(s[C].leaf_iter_vars))
                    s[C].tensorize(axis, fma_tile(rows, max(lanes, 2), f"fma_{rows}_{lanes}"))
                case "at":
                    s[C].compute_at(s[D], data.draw(st.sampled_from(s[D].leaf_iter_vars)))
        except ScheduleError as error:
            assert "Legal choices" in str(error)
    program = Program((A, B), (D,))
    inputs = random_inputs(program, seed=1)
    (got,), (want,) = run_interpreter(s, program, inputs), evaluate(program, inputs)
    np.testing.assert_array_equal(got, want, err_msg=str(s))
