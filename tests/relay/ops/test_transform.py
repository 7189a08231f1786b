"""Operators that move elements: numpy and te agree over generated shapes; errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from semantics import check, random_array, seeds, shapes

from minitvm.errors import TypeInferenceError
from minitvm.relay.dim import size
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType
from minitvm.relay.ops.create import Arange, Full, Ones, Trilu, Zeros
from minitvm.relay.ops.transform import (
    BroadcastTo,
    ExpandDims,
    Repeat,
    Reshape,
    Reverse,
    Squeeze,
    Tile,
    Transpose,
    reshape_groups,
)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of equally many elements, made of the same factors."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5]), max_size=5))

    def grouped() -> tuple[int, ...]:
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=4)))
        bounds = zip([0, *cuts], [*cuts, len(factors)], strict=True)
        return tuple(math.prod(factors[start:end]) for start, end in bounds)

    return grouped(), grouped()


@given(seed=seeds, pair=reshapes(), open_axis=st.integers(0, 9))
def test_reshape(seed, pair, open_axis):
    source, target = pair
    x = random_array(seed, source, "int32")
    np.testing.assert_array_equal(check(Reshape(target), x), x.reshape(target))
    wanted = list(target)
    wanted[open_axis % len(target)] = -1
    np.testing.assert_array_equal(check(Reshape(tuple(wanted)), x), x.reshape(target))


@given(pair=reshapes())
def test_reshape_groups_hold_equally_many_elements(pair):
    source, target = pair
    groups = reshape_groups(source, target)
    for own, other in groups:
        assert math.prod(source[i] for i in own) == math.prod(target[j] for j in other)
    assert [i for own, _ in groups for i in own] == list(range(len(source)))
    assert [j for _, other in groups for j in other] == list(range(len(target)))


def test_reshape_groups_are_small():
    assert reshape_groups((6, 4, 5), (2, 3, 20)) == [
        (range(0, 1), range(0, 2)), (range(1, 3), range(2, 3)),
    ]


@pytest.mark.parametrize(("newshape", "message"), [
    ((5, 2), "holds 10 elements, not 12"),
    ((-1, 5), "do not fill"),
    ((-1, -1), "one -1 only"),
    ((0, -1), "do not fill"),
])
def test_reshape_refuses(newshape, message):
    with pytest.raises(TypeInferenceError, match=message):
        operator_type(Reshape(newshape), (TensorType((3, 4), "float32"),))


def test_reshape_of_named_sizes():
    n = size("N")
    found = operator_type(Reshape((-1, 12)), (TensorType((n, 3, 4), "float32"),))
    assert found == TensorType((n, 12), "float32")
    assert operator_type(Reshape((n, 12)), (TensorType((n, 3, 4), "float32"),)).shape == (n, 12)


@given(seed=seeds, shape=shapes, data=st.data())
def test_transpose(seed, shape, data):
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    x = random_array(seed, shape)
    np.testing.assert_array_equal(check(Transpose(axes), x), x.transpose(axes))
    np.testing.assert_array_equal(check(Transpose(), x), x.T)


def test_transpose_refuses_missing_axes():
    with pytest.raises(TypeInferenceError, match="must name all 3 dimensions"):
        operator_type(Transpose((1, 0)), (TensorType((1, 2, 3), "float32"),))


@given(seed=seeds, shape=shapes, data=st.data())
def test_expand_and_squeeze_are_inverse(seed, shape, data):
    x = random_array(seed, shape)
    count = data.draw(st.integers(1, 2))
    rank = len(shape) + count
    axis = tuple(data.draw(st.lists(st.integers(-rank, rank - 1), min_size=count, max_size=count,
                                    unique_by=lambda a: a % rank)))
    wide = check(ExpandDims(axis), x)
    np.testing.assert_array_equal(wide, np.expand_dims(x, axis))
    np.testing.assert_array_equal(check(Squeeze(axis), wide), x)
    assert check(Squeeze(), wide).shape == np.squeeze(x).shape


def test_squeeze_refuses_an_extent_above_one():
    with pytest.raises(TypeInferenceError, match="axis 1 has extent 3, not 1"):
        operator_type(Squeeze(1), (TensorType((1, 3), "float32"),))


@given(seed=seeds, shape=shapes, data=st.data())
def test_broadcast_to(seed, shape, data):
    front = data.draw(shapes)
    own = tuple(1 if data.draw(st.booleans()) else extent for extent in shape)
    x = random_array(seed, own)
    got = check(BroadcastTo(front + shape), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x, front + shape))


@given(seed=seeds, shape=shapes, reps=st.lists(st.integers(0, 3), max_size=4).map(tuple))
def test_tile(seed, shape, reps):
    x = random_array(seed, shape)
    np.testing.assert_array_equal(check(Tile(reps), x), np.tile(x, reps))


@given(seed=seeds, shape=shapes.filter(bool), data=st.data())
def test_repeat_and_reverse(seed, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    count = data.draw(st.integers(0, 3))
    x = random_array(seed, shape)
    np.testing.assert_array_equal(check(Repeat(count, axis), x), np.repeat(x, count, axis))
    np.testing.assert_array_equal(check(Reverse(axis), x), np.flip(x, axis))


@given(shape=shapes, dtype=st.sampled_from(["float32", "int64", "bool"]))
def test_filled(shape, dtype):
    np.testing.assert_array_equal(check(Zeros(shape, dtype)), np.zeros(shape, dtype))
    np.testing.assert_array_equal(check(Ones(shape, dtype)), np.ones(shape, dtype))
    value = np.asarray(1, dtype)
    np.testing.assert_array_equal(check(Full(shape), value), np.full(shape, value))


@given(start=st.integers(-5, 5), stop=st.integers(-5, 5),
       step=st.integers(-3, 3).filter(bool), dtype=st.sampled_from(["float32", "int64"]))
def test_arange(start, stop, step, dtype):
    got = check(Arange(start, stop, step, dtype))
    np.testing.assert_array_equal(got, np.arange(start, stop, step).astype(dtype))


@given(seed=seeds, upper=st.booleans(), k=st.integers(-4, 4))
def test_trilu(seed, upper, k):
    x = random_array(seed, (2, 3, 4))
    expected = np.triu(x, k) if upper else np.tril(x, k)
    np.testing.assert_array_equal(check(Trilu(upper, k), x), expected)
