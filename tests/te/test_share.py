"""Which loop threads share: even pieces for 2, 4 and 8 threads, outer loops first."""

import numpy as np
import pytest

from minitvm import te
from minitvm.codegen.jit import build_kernel, pool_threads
from minitvm.te.recipes.share import EVEN, WORTHWHILE, share, unevenness
from minitvm.tir import ir
from minitvm.tir.passes import lower
from minitvm.tir.walk import walk_statements


def shared(shape, operations=WORTHWHILE):
    """The kernel A * 2 with one of its outer loops shared."""
    a = te.placeholder(shape, "float32", name="A")
    b = te.compute(shape, lambda *i: a[i] * 2.0, name="B")
    s = te.create_schedule([b])
    share(s[b], s[b].op.axis[:-1], operations)
    return te.lower(s, [a, b], name="double")


def parallel(func):
    """The variables and extents of the parallel loops."""
    return [(loop.var.name, loop.extent.value) for loop in walk_statements(func.body)
            if isinstance(loop, ir.For) and loop.kind == "parallel"]


def test_unevenness_is_what_the_slowest_thread_takes_over_its_share():
    assert unevenness(8) == unevenness(64) == 1
    assert unevenness(2) == (1 + 2 + 4) / 3
    assert unevenness(9) == pytest.approx((10 / 9 + 12 / 9 + 16 / 9) / 3)


@pytest.mark.parametrize(("shape", "wanted"), [
    ((16, 9, 4), ("i0", 16)),  # the outermost, if it is even
    ((1, 12, 4), ("i1", 12)),  # loops of one iteration count for nothing
    ((9, 56, 4), ("i1_outer", 28)),  # an inner one, cut to equal pieces
    ((5, 14, 4), ("i1_outer", 14)),
    ((5, 3, 4), ("i0", 5)),  # the least uneven of those there are
    ((5, 6, 4), ("i1_outer", 6)),
    ((3, 1009, 4), ("i1_outer", 1009)),  # a prime: single iterations
])
def test_the_loop_that_is_shared(shape, wanted):
    func = shared(shape)
    assert parallel(func) == [wanted]
    others = [unevenness(extent) for extent in shape[:-1] if extent > 1]
    assert unevenness(wanted[1]) <= max(EVEN, min(others))


@pytest.mark.parametrize("shape", [(9, 56, 4), (5, 6, 4), (3, 1009, 4), (16, 9, 4)])
def test_results_are_the_same_on_any_number_of_threads(shape):
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    kernel, y = build_kernel(lower(shared(shape))), np.empty_like(x)
    for threads in (1, 2, 5):
        y[:] = 0
        with pool_threads(threads):
            kernel(x, y)
        np.testing.assert_array_equal(y, 2 * x)


def test_kernels_of_few_operations_and_short_loops_are_not_shared():
    assert not parallel(shared((16, 16, 4), WORTHWHILE - 1))
    assert not parallel(shared((1, 1, 4)))
