"""Memory laid out in another order of its axes holds the same values."""

from __future__ import annotations

import numpy as np
import pytest

import minitvm
from minitvm import te
from minitvm.errors import ScheduleError
from minitvm.te.schedule import Schedule
from minitvm.tir import walk
from minitvm.tir.ir import Allocate

N, M, K = 6, 20, 9


def product():
    a = te.placeholder((N, K), "float32", name="a")
    b = te.placeholder((M, K), "float32", name="b")
    r = te.reduce_axis((0, K), "r")
    c = te.compute((N, M), lambda y, x: te.sum(a[y, r] * b[x, r], axis=r), name="c")
    return a, b, c


def check(schedule, tensors, shapes):
    """Scratch memory has these shapes, and what is computed is the product."""
    func = minitvm.lower(schedule, tensors)
    found = {s.buffer.name: tuple(s.buffer.extents()) for s in walk.walk_statements(func.body)
             if isinstance(s, Allocate)}
    assert found == shapes
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-3, 4, shape).astype(np.float32) for shape in ((N, K), (M, K)))
    c = np.zeros((N, M), np.float32)
    minitvm.build(schedule, tensors)(a, b, c)
    np.testing.assert_array_equal(c, a @ b.T)


@pytest.mark.parametrize(("factor", "shape"), [
    (None, (K, M)), (4, (5, K, 4)), (8, (3, K, 8)), (32, (1, K, 32))])
def test_a_whole_tensor_in_another_order(factor, shape):
    a, b, c = product()
    s = te.create_schedule(c)
    x, r = s[s.cache_read(b, "global", [c])].op.axis
    s["b.global"].reorder_storage(r, x, factor=factor)
    check(s, [a, b, c], {"b_global": shape})


@pytest.mark.parametrize(("factor", "shape"), [(None, (K, 8)), (4, (2, K, 4))])
def test_the_part_that_a_loop_needs(factor, shape):
    a, b, c = product()
    s = te.create_schedule(c)
    outer, inner = s[c].split(s[c].op.axis[1], factor=8)
    s[c].reorder(outer, s[c].op.axis[0], *s[c].op.reduce_axis, inner)
    s[c].vectorize(inner)
    copy = s[s.cache_read(b, "global", [c])]
    copy.compute_at(s[c], outer)
    copy.reorder_storage("ax1", "ax0", factor=factor)
    check(s, [a, b, c], {"b_global": shape})


def test_sums_are_kept_in_another_order():
    a, b, c = product()
    s = te.create_schedule(c)
    sums = s[s.cache_write(c, "local")]
    sums.compute_at(s[c], s[c].split("x", factor=5)[0])
    sums.reorder_storage("x.c", "y.c")
    check(s, [a, b, c], {"c_local": (5, 1)})


def test_the_log_has_it():
    a, b, c = product()
    s = te.create_schedule(c)
    s.cache_read(b, "global", [c])
    s["b.global"].reorder_storage("ax1", "ax0", factor=4)
    assert 's["b.global"].reorder_storage("ax1", "ax0", factor=4)' in str(s)
    assert Schedule.parse_log(str(s)) == s.steps
    again = Schedule.replay(c, s.steps)
    assert str(minitvm.lower(again, [a, b, c])) == str(minitvm.lower(s, [a, b, c]))


@pytest.mark.parametrize(("stage", "axes", "factor", "message"), [
    ("c", ("x", "y"), None, "it is an output"),
    ("b.global", ("ax0",), None, "each axis of the tensor once"),
    ("b.global", ("ax0", "ax0"), None, "each axis of the tensor once"),
    ("b.global", ("ax1", "ax0"), 0, "a positive factor"),
])
def test_it_refuses(stage, axes, factor, message):
    _, b, c = product()
    s = te.create_schedule(c)
    s.cache_read(b, "global", [c])
    with pytest.raises(ScheduleError, match=message):
        s[stage].reorder_storage(*axes, factor=factor)


def test_one_layout_at_a_time():
    _, b, c = product()
    s = te.create_schedule(c)
    s.cache_read(b, "global", [c])
    s["b.global"].storage_align("ax0", 16)
    with pytest.raises(ScheduleError, match="storage_align has laid out"):
        s["b.global"].reorder_storage("ax1", "ax0")
