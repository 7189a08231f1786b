"""Schedules: names, logs, replay, and the nest that `show` prints."""

import json

import numpy as np
import pytest

from minitvm import te
from minitvm.errors import ScheduleError
from minitvm.te import steps
from minitvm.te.log_text import read_log, write_log
from minitvm.te.schedule import Schedule
from minitvm.tir import ir, walk
from minitvm.tir.interpret import run
from minitvm.tir.text import print_func
from minitvm.tir.walk import walk_statements


def matmul():
    A, B = te.placeholder((10, 6), name="A"), te.placeholder((6, 8), name="B")
    k = te.reduce_axis((0, 6), name="k")
    C = te.compute((10, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((10, 8), lambda y, x: C[y, x] + 1.0, name="D")
    return te.create_schedule(D), A, B, C, D, k


def test_axis_names_follow_from_the_steps():
    s, *_, D, _k = matmul()
    outer, inner = s[D].split("y", factor=4)
    again_outer, again_inner = s[D].split(outer, nparts=2)
    fused = s[D].fuse(inner, "x")
    names = [axis.name for axis in (outer, inner, again_outer, again_inner, fused)]
    assert names == ["y.outer", "y.inner", "y.outer.outer", "y.outer.inner", "y.inner.x.fused"]
    assert [axis.name for axis in s[D].leaf_iter_vars] == [names[2], names[3], names[4]]
    assert s[D].axis("y.outer") is outer


def test_steps_are_the_log():
    s, A, _, C, D, k = matmul()
    xo, yo, _xi, yi = s[D].tile("y", "x", 4, 2)
    s[D].vectorize(yi)
    s[D].pragma(xo, "note", 3)
    s[C].compute_at(s[D], yo)
    s[C].unroll(k)
    s.cache_read(A, "local", [C])
    assert s.steps == (
        steps.Split("D", "y", 4), steps.Split("D", "x", 2),
        steps.Reorder("D", ("y.outer", "x.outer", "y.inner", "x.inner")),
        steps.Annotate("D", "x.inner", "vectorized"),
        steps.Pragma("D", "y.outer", "note", 3),
        steps.ComputeAt("C", "D", "x.outer"),
        steps.Annotate("C", "k", "unrolled"),
        steps.CacheRead("A", 0, "local", ("C",)),
    )
    assert s[D].stage.pragmas == [(xo, "note", 3)]


def test_every_kind_of_step_goes_through_json():
    examples = [
        steps.Split("C", "i", None, 3), steps.Fuse("C", ("i", "j")), steps.Reorder("C", ("j", "i")),
        steps.Annotate("C", "i", "parallel"), steps.Pragma("C", "i", "p", "text"),
        steps.ComputeAt("C", "D", "y"), steps.ComputeInline("C"), steps.ComputeRoot("C"),
        steps.SetScope("C", "local"), steps.CacheRead("A", 1, "local", ("C", "D")),
        steps.CacheWrite("C", "global"), steps.StorageAlign("C", "i", 8, 3),
        steps.Bind("C", "i", "blockIdx.x"), steps.Rfactor("C", "k", 1),
        steps.Tensorize("C", "j", "row_fma"), steps.RollingBuffer("C"),
        steps.ReorderStorage("C", ("j", "i"), 16), steps.ReorderStorage("C", ("j", "i")),
    ]
    assert {type(step).__name__ for step in examples} == set(steps.KINDS)
    for step in examples:
        assert steps.from_json(json.loads(json.dumps(steps.to_json(step)))) == step
    assert read_log(write_log(examples)) == tuple(examples)
    assert steps.steps_from_json(steps.steps_to_json(examples)) == tuple(examples)


@pytest.mark.parametrize("data", [
    [], ["Split"], ["Nothing", 1], ["Split", 1, 2, 3, 4, 5], [3], ["Split", "C", 2, 3, None],
    ["Split", "C", "i", True, None], ["Fuse", "C", "i"], ["Fuse", "C", ["i", 2]],
    ["Split", "C", "i", [1], None],
])
def test_what_is_no_step(data):
    with pytest.raises(ScheduleError, match="is not a schedule step"):
        steps.from_json(data)


def test_show_prints_each_step():
    s, *_, C, D, k = matmul()
    outer, _inner = s[D].split("y", factor=4)
    s[C].compute_at(s[D], outer)
    s[C].set_scope("local")
    s[C].reorder(k, "j")
    s[D].vectorize("x")
    assert s.show(0) == (
        "for i in range(10):\n"
        "    for j in range(8):\n"
        "        for k in range(6):\n"
        "            C[i, j] = sum(A, B)\n"
        "for y in range(10):\n"
        "    for x in range(8):\n"
        "        D[y, x] = compute(C)\n"
    )
    assert s.show() == s.show(len(s.steps)) == (
        "for y.outer in range(3):\n"
        "    # C: local (4, 8)\n"
        "    for i in range(4):\n"
        "        for k in range(6):\n"
        "            for j in range(8):\n"
        "                C[i, j] = sum(A, B)\n"
        "    for y.inner in range(4):\n"
        "        for x in vectorized(8):\n"
        "            D[y, x] = compute(C)\n"
    )


def test_show_names_what_is_inlined():
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")
    z = te.compute((4,), lambda i: y[i] + 1.0, name="z")
    s = te.create_schedule(z)
    s[y].compute_inline()
    assert s.show() == "# inlined: y\nfor i in range(4):\n    z[i] = compute(y)\n"


def test_attachment_follows_splits_and_fusions():
    s, *_, C, D, _k = matmul()
    s[C].compute_at(s[D], "y")
    s[D].split("y", factor=5)
    assert s[C].stage.attach.axis.name == "y.inner"
    s[D].fuse("y.inner", "x")
    assert s[C].stage.attach.axis.name == "y.inner.x.fused"


def test_a_prefix_is_a_schedule_of_its_own():
    s, A, B, _C, D, _k = matmul()
    s[D].split("y", factor=4)
    s[D].reorder("x", "y.outer")
    first = s.prefix(1)
    assert first.steps == s.steps[:1]
    first[D].vectorize("x")
    assert len(s.steps) == 2
    assert print_func(te.lower(s.prefix(2), [A, B, D])) == print_func(te.lower(s, [A, B, D]))
    again = Schedule.replay(D, s.steps)
    assert again.show() == s.show()


def test_caches():
    s, A, B, C, D, k = matmul()
    stored = s.cache_write(C, "local")
    read = s.cache_read(B, "global", stored)
    assert (stored.name, read.name) == ("C.local", "B.global")
    assert [axis.name for axis in s[C].op.axis] == ["i", "j"]
    assert s[C].op.reduce_axis == ()
    assert s[stored].op.reduce_axis == (k,)
    s[C].compute_at(s[D], "y")
    s[stored].compute_at(s[C], "j")
    s[read].compute_at(s[stored], s[stored].op.axis[1])
    func = te.lower(s, [A, B, D])
    a, b = np.ones((10, 6), "float32"), np.full((6, 8), 2, "float32")
    out = np.zeros((10, 8), "float32")
    run(func, [a, b, out])
    assert (out == 13).all()
    scopes = {node.buffer.name: node.buffer.scope for node in walk_statements(func.body)
              if isinstance(node, ir.Allocate)}
    assert scopes == {"C": "local", "C_local": "local", "B_global": "global"}


def test_cached_copy_of_a_computed_tensor():
    x = te.placeholder((9,), name="x")
    y = te.compute((9,), lambda i: x[i] + 1.0, name="y")
    z = te.compute((7,), lambda i: y[i] + y[i + 2], name="z")
    w = te.compute((9,), lambda i: y[i] * 2.0, name="w")
    s = te.create_schedule([z, w])
    outer, _ = s[z].split("i", factor=3)
    copy = s.cache_read(y, "local", [z])
    s[copy].compute_at(s[z], outer)
    func = te.lower(s, [x, z, w])
    text = print_func(func)
    assert 'y_local = allocate((5,), "float32", scope="local")' in text
    out = [np.zeros(7, "float32"), np.zeros(9, "float32")]
    data = np.arange(9, dtype="float32")
    run(func, [data, *out])
    np.testing.assert_array_equal(out[0], data[:7] + data[2:] + 2)
    np.testing.assert_array_equal(out[1], 2 * data + 2)


def test_inline_cost_counts_what_inlining_adds():
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")  # add, read, i, 1.0
    z = te.compute((4,), lambda i: y[i] * y[i], name="z")  # mul, 2 reads, 2 i
    s = te.create_schedule(z)
    assert (s["x"].inline_cost, s[y].inline_cost, s[z].inline_cost) == (0, 4, 5)
    s[y].compute_inline()
    assert s[z].inline_cost == 9
    s[y].compute_root()
    assert s[z].inline_cost == 5


def test_inline_cost_is_the_size_of_the_body():
    x = te.placeholder((4, 4), name="x")
    y = te.compute((4, 4), lambda i, j: x[i, j] * te.exp(x[j, i]), name="y")
    z = te.compute((4, 4), lambda i, j: y[j, i] + y[i, (j + i) % 4], name="z")
    w = te.compute((2, 2), lambda i, j: z[i * 2, j + 1] - z[j, i], name="w")
    s = te.create_schedule(w)
    s[z].compute_inline()
    s[y].compute_inline()

    def substitute(expr):
        def rule(node):
            if isinstance(node, ir.Read) and node.tensor.op.inputs:
                points = {a.var: i for a, i in zip(node.tensor.op.axis, node.indices)}
                return substitute(walk.substitute(node.tensor.op.bodies[0], points))
            return node
        return walk.rewrite(expr, rule)

    def depth(expr):
        return 1 + max(map(depth, walk.children(expr)), default=0)

    expanded = substitute(w.op.bodies[0])
    assert s[w].inline_cost == sum(1 for _ in walk.walk(expanded))
    assert s[w].stage.sizes[0].depth == depth(expanded)


def test_fuse_of_one_axis_is_that_axis():
    s, *_, D, _k = matmul()
    axis = s[D].op.axis[0]
    assert s[D].fuse(axis) is axis
    assert s.steps == ()


def test_inlined_truth_values_stand_in_conditions():
    A = te.placeholder((3,), name="A")
    B = te.compute((3,), lambda i: A[i] > 1.0, name="B")
    C = te.compute((3,), lambda i: B[2 - i], name="C")
    D = te.compute((3,), lambda i: te.all(C[i], B[i]), name="D")
    s = te.create_schedule(D)
    s[B].compute_inline()
    s[C].compute_inline()
    result = np.zeros(3, bool)
    run(te.lower(s, [A, D]), [np.array([2, 0, 3], np.float32), result])
    assert result.tolist() == [True, False, True]
