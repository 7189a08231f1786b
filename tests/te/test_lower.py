"""Lowering: the code of typical schedules, and its values."""

import re
import textwrap

import numpy as np
import pytest

from minitvm import te
from minitvm.origin import origin
from minitvm.testing.te_oracle import Program, evaluate, random_inputs
from minitvm.tir import ir
from minitvm.tir.interpret import run
from minitvm.tir.ir import Allocate, For, If, Store
from minitvm.tir.text import print_func
from minitvm.tir.verify import verify
from minitvm.tir.walk import walk_statements


def check(s, inputs, *outputs):
    """Lowers, runs, compares with the definition; gives the body's text without origins."""
    program = Program(tuple(inputs), outputs)
    func = te.lower(s, program.args)
    verify(func, "nested")
    arrays = random_inputs(program, seed=1)
    results = [np.full(tensor.extents(), -99, tensor.dtype) for tensor in outputs]
    run(func, [*arrays, *results])
    for got, want in zip(results, evaluate(program, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    text = re.sub(r"  #: .*", "", print_func(func))
    return textwrap.dedent(text.split("\n", 1)[1]).strip()


def dedent(text):
    return textwrap.dedent(text).strip()


def test_matmul_in_tiles():
    A, B = te.placeholder((8, 6), name="A"), te.placeholder((6, 10), name="B")
    k = te.reduce_axis((0, 6), name="k")
    C = te.compute((8, 10), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C)
    i, j = s[C].op.axis
    io, jo, ii, ji = s[C].tile(i, j, 4, 5)
    s[C].reorder(io, jo, k, ii, ji)
    s[C].vectorize(ji)
    s[C].unroll(ii)
    s[C].parallel(io)
    assert check(s, [A, B], C) == dedent("""
        for i_outer in parallel(2):
            for j_outer in range(2):
                for i_inner_init in unrolled(4):
                    for j_inner_init in vectorized(5):
                        C[i_outer * 4 + i_inner_init, j_outer * 5 + j_inner_init] = 0.0
                for k in range(6):
                    for i_inner in unrolled(4):
                        for j_inner in vectorized(5):
                            C[i_outer * 4 + i_inner, j_outer * 5 + j_inner] = \
C[i_outer * 4 + i_inner, j_outer * 5 + j_inner] + \
A[i_outer * 4 + i_inner, k] * B[k, j_outer * 5 + j_inner]
    """)


def test_fused_axes_of_a_flattened_convolution_stay_flat():
    """1x1 convolutions reduce over h*w as one axis; the fused output index reads it back."""
    x = te.placeholder((1, 2, 4, 7, 4), name="x")
    w = te.placeholder((3, 2, 4, 4), name="w")
    co, ci = te.reduce_axis((0, 2), "co"), te.reduce_axis((0, 4), "ci")
    conv = te.compute(
        (1, 3, 28, 4),
        lambda n, fo, p, fi: te.sum(x[n, co, p // 7, p % 7, ci] * w[fo, co, ci, fi], axis=[co, ci]),
        name="conv")
    out = te.compute((1, 3, 4, 7, 4), lambda n, fo, h, v, fi: conv[n, fo, h * 7 + v, fi] + 1.0,
                     name="out")
    s = te.create_schedule(out)
    n, fo, h, v, fi = s[out].op.axis
    p_outer, p_inner = s[out].split(s[out].fuse(h, v), factor=14)
    fo_outer, fo_inner = s[out].split(fo, factor=2)
    s[out].reorder(n, fo_outer, p_outer, fo_inner, p_inner, fi)
    s[out].vectorize(fi)
    s[conv].compute_at(s[out], p_outer)
    n, fo, p, fi = s[conv].op.axis
    s[conv].reorder(n, co, ci, fo, p, fi)
    s[conv].vectorize(fi)
    assert check(s, [x, w], out) == dedent("""
        for fo_outer in range(2):
            for h_v_fused_outer in range(2):
                conv = allocate((1, 2, 14, 4), "float32", scope="local")
                for fo_init in range(2):
                    if likely(fo_outer * 2 + fo_init < 3):
                        for p_init in range(14):
                            for fi_init in vectorized(4):
                                conv[0, fo_init, p_init, fi_init] = 0.0
                for co in range(2):
                    for ci in range(4):
                        for fo in range(2):
                            if likely(fo_outer * 2 + fo < 3):
                                for p in range(14):
                                    for fi in vectorized(4):
                                        conv[0, fo, p, fi] = conv[0, fo, p, fi] + \
x[0, co, h_v_fused_outer * 2 + p // 7, p % 7, ci] * w[fo_outer * 2 + fo, co, ci, fi]
                for fo_inner in range(2):
                    if likely(fo_outer * 2 + fo_inner < 3):
                        for h_v_fused_inner in range(14):
                            for fi_1 in vectorized(4):
                                out[0, fo_outer * 2 + fo_inner, h_v_fused_outer * 2 + \
h_v_fused_inner // 7, h_v_fused_inner % 7, fi_1] = conv[0, fo_inner, h_v_fused_inner, fi_1] + 1.0
    """)


def convolution(stride=1, tile=4, depthwise=False):
    """(schedule, stages, inputs, output) of a padded 3x3 convolution with bias and clip."""
    H, V, L = 6, 6, 2
    x = te.placeholder((1, 2, H, V, L), name="x")
    b = te.placeholder((3 if not depthwise else 2, L), name="b")

    def inside(n, c, h, v, ell):
        within = te.all(h >= 1, h < H + 1, v >= 1, v < V + 1)
        return te.if_then_else(within, x[n, c, h - 1, v - 1, ell], 0.0)

    pad = te.compute((1, 2, H + 2, V + 2, L), inside, name="pad", tag="pad")
    kh, kw = te.reduce_axis((0, 3), "kh"), te.reduce_axis((0, 3), "kw")
    shape = ((H - 1) // stride + 1, (V - 1) // stride + 1)
    if depthwise:
        w = te.placeholder((2, 3, 3, L), name="w")
        conv = te.compute(
            (1, 2, *shape, L),
            lambda n, o, h, v, e: te.sum(
                pad[n, o, h * stride + kh, v * stride + kw, e] * w[o, kh, kw, e], axis=[kh, kw]),
            name="conv")
    else:
        w = te.placeholder((3, 2, 3, 3, L, L), name="w")
        co, ci = te.reduce_axis((0, 2), "co"), te.reduce_axis((0, L), "ci")
        conv = te.compute(
            (1, 3, *shape, L),
            lambda n, o, h, v, e: te.sum(
                pad[n, co, h * stride + kh, v * stride + kw, ci] * w[o, co, kh, kw, ci, e],
                axis=[co, kh, kw, ci]),
            name="conv")
    out = te.compute(
        conv.shape,
        lambda n, o, h, v, e: ir.minimum(
            ir.maximum(conv[n, o, h, v, e] + b[o, e], 0.0), 6.0), name="out")
    s = te.create_schedule(out)
    n, o, h, v, e = s[out].op.axis
    o_outer, o_inner = s[out].split(o, factor=2)
    v_outer, v_inner = s[out].split(v, factor=tile)
    s[out].reorder(n, o_outer, h, v_outer, o_inner, v_inner, e)
    s[out].vectorize(e)
    s[out].parallel(s[out].fuse(n, o_outer, h))
    s[conv].compute_at(s[out], v_outer)
    n, o, h, v, e = s[conv].op.axis
    s[conv].reorder(n, h, *s[conv].op.reduce_axis, o, v, e)
    s[conv].vectorize(e)
    s[conv].unroll(v)
    return s, (pad, conv, out), [x, b, w], out


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("tile", [3, 4])
@pytest.mark.parametrize("place", ["inline", "root", "n.o.outer.h.fused", "v.outer", "kh"])
def test_convolution_with_padding(depthwise, stride, tile, place):
    s, (pad, conv, out), inputs, output = convolution(stride, tile, depthwise)
    if place == "inline":
        s[pad].compute_inline()
    elif place == "kh":
        s[pad].compute_at(s[conv], place)
    elif place != "root":
        s[pad].compute_at(s[out], place)
    inputs = [inputs[0], inputs[2], inputs[1]]
    text = check(s, inputs, output)
    assert "conv = allocate" in text
    assert ("pad = allocate" in text) == (place != "inline")


def test_no_guard_where_tiles_divide():
    s, (pad, _, _), inputs, output = convolution(tile=3, depthwise=True)
    s[pad].compute_inline()
    assert "likely" not in check(s, inputs, output)


def test_guards_keep_the_form_of_the_tile():
    s, (pad, _, _), inputs, output = convolution(tile=4)
    s[pad].compute_inline()
    guards = set(re.findall(r"if likely\((.*)\):", check(s, inputs, output)))
    assert guards == {
        "n_o_outer_h_fused // 6 * 2 + o < 3", "n_o_outer_h_fused // 6 * 2 + o_init < 3",
        "n_o_outer_h_fused // 6 * 2 + o_inner < 3", "v_outer * 4 + v < 6",
        "v_outer * 4 + v_init < 6", "v_outer * 4 + v_inner < 6",
    }


def test_a_guard_stands_as_far_out_as_its_variables():
    A = te.placeholder((10, 3), name="A")
    B = te.compute((10, 3), lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B)
    s[B].split("i", factor=4)
    assert check(s, [A], B) == dedent("""
        for i_outer in range(3):
            for i_inner in range(4):
                if likely(i_outer * 4 + i_inner < 10):
                    for j in range(3):
                        B[i_outer * 4 + i_inner, j] = A[i_outer * 4 + i_inner, j] + 1.0
    """)


def test_packed_dense_with_a_tail():
    x, w = te.placeholder((3, 5), name="x"), te.placeholder((3, 5, 4), name="w")
    k = te.reduce_axis((0, 5), "k")
    dense = te.compute((3, 3, 4), lambda m, no, ni: te.sum(x[m, k] * w[no, k, ni], axis=k),
                       name="dense")
    out = te.compute((3, 10), lambda m, n: dense[m, n // 4, n % 4] + 1.0, name="out")
    s = te.create_schedule(out)
    n_outer, n_inner = s[out].split("n", factor=8)
    block, lane = s[out].split(n_inner, factor=4)
    s[out].reorder(n_outer, "m", block, lane)
    s[out].vectorize(lane)
    s[dense].compute_at(s[out], n_outer)
    m, no, ni = s[dense].op.axis
    s[dense].reorder(k, m, no, ni)
    s[dense].vectorize(ni)
    text = check(s, [x, w], out)
    assert 'dense = allocate((3, 2, 4), "float32", scope="local")' in text
    assert "dense[m_1, n_inner_outer, n_inner_inner] + 1.0" in text


def test_global_pooling_over_lanes():
    x = te.placeholder((1, 3, 3, 2, 4), name="x")
    kh, kw = te.reduce_axis((0, 3), "kh"), te.reduce_axis((0, 2), "kw")
    total = te.compute(
        (1, 3, 1, 1, 4), lambda n, c, h, v, e: te.sum(x[n, c, kh, kw, e], axis=[kh, kw]),
        name="total")
    out = te.compute(total.shape, lambda n, c, h, v, e: total[n, c, h, v, e] * 0.5, name="out")
    s = te.create_schedule(out)
    n, c, h, v, e = s[out].op.axis
    s[out].vectorize(e)
    s[total].compute_at(s[out], v)
    n, c, h, v, e = s[total].op.axis
    s[total].reorder(n, c, h, v, kh, kw, e)
    s[total].vectorize(e)
    assert check(s, [x], out) == dedent("""
        for c in range(3):
            total = allocate((1, 1, 1, 1, 4), "float32", scope="local")
            for e_init in vectorized(4):
                total[0, 0, 0, 0, e_init] = 0.0
            for kh in range(3):
                for kw in range(2):
                    for e in vectorized(4):
                        total[0, 0, 0, 0, e] = total[0, 0, 0, 0, e] + x[0, c, kh, kw, e]
            for e_1 in vectorized(4):
                out[0, c, 0, 0, e_1] = total[0, 0, 0, 0, e_1] * 0.5
    """)


def test_fused_injective_with_a_tail():
    x = te.placeholder((3, 7), name="x")
    y = te.compute((3, 7), lambda i, j: x[i, j] * 2.0, name="y")
    z = te.compute((3, 7), lambda i, j: ir.maximum(y[i, j], 0.0), name="z")
    s = te.create_schedule(z)
    s[y].compute_inline()
    _, lane = s[z].split(s[z].fuse(*s[z].op.axis), factor=8)
    s[z].vectorize(lane)
    index = "i_j_fused_outer * 8 + i_j_fused_inner"
    point = f"({index}) // 7, ({index}) % 7"
    assert check(s, [x], z) == dedent(f"""
        for i_j_fused_outer in range(3):
            for i_j_fused_inner in vectorized(8):
                if likely({index} < 21):
                    z[{point}] = max(x[{point}] * 2.0, 0.0)
    """)


def test_softmax_like_chain_of_reductions():
    x = te.placeholder((4, 6), name="x")
    k, m = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "m")
    greatest = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="greatest")
    shifted = te.compute((4, 6), lambda i, j: x[i, j] - greatest[i], name="shifted")
    total = te.compute((4,), lambda i: te.sum(shifted[i, m], axis=m), name="total")
    out = te.compute((4, 6), lambda i, j: shifted[i, j] + total[i], name="out")
    s = te.create_schedule(out)
    row = s[out].op.axis[0]
    for tensor in (total, shifted, greatest):
        s[tensor].compute_at(s[out], row)
    text = check(s, [x], out)
    assert 'shifted = allocate((1, 6), "float32", scope="local")' in text
    assert 'total = allocate((1,), "float32", scope="local")' in text


def test_large_attached_memory_is_global_unless_told():
    x = te.placeholder((4, 10_000), name="x")
    y = te.compute((4, 10_000), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((4, 10_000), lambda i, j: y[i, j] + 1.0, name="z")
    s = te.create_schedule(z)
    s[y].compute_at(s[z], "i")

    def allocation():
        body = te.lower(s, [x, z]).body
        return next(node.buffer for node in walk_statements(body) if isinstance(node, Allocate))

    assert (allocation().scope, allocation().extents()) == ("global", (1, 10_000))
    s[y].set_scope("local")
    assert allocation().scope == "local"


def test_origins_are_merged_from_inlined_computes():
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y", origin=origin("Add_0"))
    z = te.compute((4,), lambda i: y[i] * 2.0, name="z", origin=origin("Mul_1"))
    s = te.create_schedule(z)
    nodes = [node for node in walk_statements(te.lower(s, [x, z]).body)
             if isinstance(node, Store | For | Allocate)]
    assert {str(node.origin) for node in nodes} == {'"Add_0"', '"Mul_1"'}
    s[y].compute_inline()
    for node in walk_statements(te.lower(s, [x, z]).body):
        assert str(node.origin) == '"Add_0", "Mul_1"'


def test_several_outputs_share_a_producer():
    x = te.placeholder((5, 3), name="x")
    shared = te.compute((5, 3), lambda i, j: x[i, j] * 3.0, name="shared")
    left = te.compute((5, 3), lambda i, j: shared[i, j] + 1.0, name="left")
    right = te.compute((3, 5), lambda i, j: shared[j, i] - 1.0, name="right")
    s = te.create_schedule([left, right])
    assert check(s, [x], left, right).count("shared = allocate") == 1
    s[shared].compute_inline()
    assert "allocate" not in check(s, [x], left, right)


def test_output_that_another_output_reads():
    x = te.placeholder((5,), name="x")
    first = te.compute((5,), lambda i: x[i] * 3.0, name="first")
    second = te.compute((5,), lambda i: first[i] + 1.0, name="second")
    s = te.create_schedule([first, second])
    assert "allocate" not in check(s, [x], first, second)


def test_rank_zero_and_empty_tensors():
    x = te.placeholder((3,), name="x")
    k = te.reduce_axis((0, 3), "k")
    total = te.compute((), lambda: te.sum(x[k], axis=k), name="total")
    out = te.compute((0, 3), lambda i, j: x[j] + total[()], name="out")
    s = te.create_schedule([total, out])
    s[out].split("i", factor=4)
    check(s, [x], total, out)


def test_same_names_are_made_unique():
    x = te.placeholder((3,), name="t")
    y = te.compute((3,), lambda i: x[i] + 1.0, name="t")
    z = te.compute((3,), lambda i: y[i] + 1.0, name="t")
    s = te.create_schedule(z)
    assert [stage.name for stage in s.stages] == ["t", "t_1", "t_2"]
    check(s, [x], z)


def test_axes_of_one_name_are_made_unique():
    x = te.placeholder((3, 4), name="x")
    i = te.reduce_axis((0, 4), "i")
    y = te.compute((3,), lambda i_, r=i: te.sum(x[i_, r], axis=r), name="y")
    z = te.compute((3,), lambda i: y[i] + 1.0, name="z")
    s = te.create_schedule(z)
    outer, inner = s[y].split(i, factor=2)
    assert (outer.name, inner.name) == ("i.outer", "i.inner")
    assert sum(isinstance(node, If) for node in walk_statements(te.lower(s, [x, z]).body)) == 0
    check(s, [x], z)


def test_reduction_where_and_start():
    x = te.placeholder((3, 8), name="x")
    k = te.reduce_axis((2, 7), "k")
    y = te.compute((3,), lambda i: te.sum(x[i, k], axis=k, where=x[i, k] > 0.0), name="y")
    s = te.create_schedule(y)
    s[y].split(k, factor=2)
    assert "x[i, k_outer * 2 + k_inner + 2]" in check(s, [x], y)


def test_int64_axes():
    x = te.placeholder((ir.Const(6, "int64"), ir.Const(4, "int64")), name="x")
    y = te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="y")
    z = te.compute(x.shape, lambda i, j: y[i, j] + 1.0, name="z")
    s = te.create_schedule(z)
    outer, _ = s[z].split(s[z].fuse("i", "j"), factor=5)
    s[y].compute_at(s[z], outer)
    check(s, [x], z)
