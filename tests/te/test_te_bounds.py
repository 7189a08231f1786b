"""Regions: exact for affine indices, a cover for the rest, never outside the tensor."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minitvm import te
from minitvm.te.bounds import identifier, infer_bounds
from minitvm.tir import ir
from minitvm.tir.interpret import run
from minitvm.tir.ir import Const


def region_of(read, shape, extents, at, factor=None):
    """The region of P(shape), read by C(extents) as `read(P, *axes)`, P computed at axis `at`."""
    P = te.compute(shape, lambda *i: ir.cast(i[0], "float32"), name="P")
    C = te.compute(extents, lambda *axes: read(P, *axes), name="C")
    s = te.create_schedule(C)
    axis = s[C].op.axis[at]
    if factor is not None:
        axis, _ = s[C].split(axis, factor=factor)
    s[P].compute_at(s[C], axis)
    return infer_bounds(s.graph).nests[s[P].stage].region


def sizes(region):
    return [dimension.extent for dimension in region]


@given(
    st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 6), st.integers(1, 5), st.integers(1, 5),
)
def test_affine_regions_are_exact(a, b, c, rows, columns):
    low = c + min(a * (rows - 1), 0) + min(b * (columns - 1), 0)
    assume(low >= 0)
    extent = c + max(a * (rows - 1), 0) + max(b * (columns - 1), 0) + 1
    region = region_of(lambda P, i, j: P[i * a + j * b + c], (extent,), (rows, columns), at=0)
    touched = {i: {i * a + j * b + c for j in range(columns)} for i in range(rows)}
    widest = max(max(points) - min(points) + 1 for points in touched.values())
    assert sizes(region) == [widest]


@given(
    st.integers(0, 3), st.integers(0, 3), st.integers(0, 4), st.integers(0, 4), st.integers(1, 5),
    st.integers(1, 5), st.booleans(),
)
def test_what_differences_and_several_reads_need_is_computed(
    a, b, near, far, rows, columns, inner
):
    """Run: an element that is read but not computed is an error of the interpreter."""
    start = b * (columns - 1)
    extent = a * (rows - 1) + start + max(near, far) + 1
    P = te.compute((extent,), lambda k: ir.cast(k * k + 1, "float32"), name="P")
    C = te.compute((rows, columns), lambda i, j: (
        P[i * a + (start + near) - j * b] + P[i * a + start - j * b + far] * 1000.0), name="C")
    s = te.create_schedule(C)
    s[P].compute_at(s[C], s[C].op.axis[1 if inner else 0])
    got = np.zeros((rows, columns), np.float32)
    run(te.lower(s, [C]), [got])
    i, j = np.indices((rows, columns))
    read = i * a + start - j * b
    np.testing.assert_array_equal(got, (read + near) ** 2 + 1 + 1000 * ((read + far) ** 2 + 1))


@given(st.integers(1, 8), st.integers(1, 8), st.integers(2, 30), st.integers(1, 12))
def test_regions_of_fused_tiles_cover_what_is_read(rows, columns, total, factor):
    total = min(total, rows * columns)
    P = te.compute((rows, columns), lambda i, j: ir.cast(i, "float32"), name="P")
    C = te.compute((total,), lambda f: P[f // columns, f % columns], name="C")
    s = te.create_schedule(C)
    outer, _ = s[C].split("f", factor=factor)
    s[P].compute_at(s[C], outer)
    height, width = sizes(infer_bounds(s.graph).nests[s[P].stage].region)
    for first in range(0, total, factor):
        points = [(f // columns, f % columns) for f in range(first, min(first + factor, total))]
        assert max(r for r, _ in points) - min(r for r, _ in points) < height <= rows
        assert max(c for _, c in points) - min(c for _, c in points) < width <= columns


@pytest.mark.parametrize(("read", "expected"), [
    (lambda P, i, j: P[i, j] + P[i, j + 2], [1, 10]),
    (lambda P, i, j: P[i, 9 - j], [1, 8]),
    (lambda P, i, j: P[i + 2, 0] + P[i, 0], [3, 1]),
    (lambda P, i, j: P[i, j // 2], [1, 4]),
    (lambda P, i, j: P[0, i * 2 + j % 4], [1, 4]),
    (lambda P, i, j: P[ir.minimum(i, 2), 3], [1, 1]),
    (lambda P, i, j: P[ir.maximum(i, j), 3], [8, 1]),
    (lambda P, i, j: P[ir.cast(P[i, j], "int32"), j], [12, 8]),
    (lambda P, i, j: P[i * i % 12, 0], [1, 1]),
    (lambda P, i, j: P[3, 2] + P[7, 2], [5, 1]),
])
def test_region_of_an_access(read, expected):
    assert sizes(region_of(read, (12, 10), (3, 8), at=0)) == expected


def test_an_aligned_tile_of_fused_axes_is_a_box_of_whole_rows():
    read = lambda P, f: P[f // 7, f % 7]  # noqa: E731
    assert sizes(region_of(read, (7, 7), (49,), at=0, factor=14)) == [2, 7]
    assert sizes(region_of(read, (7, 7), (49,), at=0, factor=5)) == [2, 7]


def test_constant_regions_are_clipped_to_the_tensor():
    inside = lambda P, i, j: te.if_then_else(  # noqa: E731
        te.all(j >= 1, j < 7), P[0, j - 1], 0.0)
    region = region_of(inside, (1, 6), (3, 8), at=0)
    assert region[1].low == Const(0)
    assert sizes(region) == [1, 6]


def test_convolution_window():
    P = te.compute((20, 20), lambda i, j: ir.cast(i + j, "float32"), name="P")
    kh, kw = te.reduce_axis((0, 3), "kh"), te.reduce_axis((0, 3), "kw")
    C = te.compute((9, 9), lambda y, x: te.sum(P[y * 2 + kh, x * 2 + kw], axis=[kh, kw]), name="C")
    s = te.create_schedule(C)
    y, x = s[C].op.axis
    xo, xi = s[C].split(x, factor=3)
    s[C].reorder(y, xo, kh, xi, kw)
    for axis, expected in [(y, [3, 19]), (xo, [3, 7]), (kh, [1, 7]), (xi, [1, 3]), (kw, [1, 1])]:
        s[P].compute_at(s[C], axis)
        assert sizes(infer_bounds(s.graph).nests[s[P].stage].region) == expected


def test_region_through_two_attached_stages():
    P = te.compute((16,), lambda i: ir.cast(i, "float32"), name="P")
    Q = te.compute((14,), lambda i: P[i] + P[i + 2], name="Q")
    R = te.compute((12,), lambda i: Q[i] + Q[i + 2], name="R")
    s = te.create_schedule(R)
    outer, _ = s[R].split("i", factor=4)
    s[Q].compute_at(s[R], outer)
    s[P].compute_at(s[R], outer)
    nests = infer_bounds(s.graph).nests
    assert sizes(nests[s[Q].stage].region) == [6]
    assert sizes(nests[s[P].stage].region) == [8]


def test_identifiers():
    names = [identifier(name) for name in ("i.outer", "3x", "a_b", "")]
    assert names == ["i_outer", "_3x", "a_b", "_"]


def test_every_split_covers_its_extent_with_no_empty_part():
    for extent, size in product(range(1, 20), range(1, 8)):
        A = te.placeholder((extent,), name="A")
        B = te.compute((extent,), lambda i, A=A: A[i] + 1.0, name="B")
        for how in ("factor", "nparts"):
            s = te.create_schedule(B)
            outer, inner = s[B].split("i", **{how: size})
            extents = infer_bounds(s.graph).nests[s[B].stage].extents
            assert extents[outer] * extents[inner] >= extent > (extents[outer] - 1) * extents[inner]
            assert (extents[inner] if how == "factor" else extents[outer]) <= size
