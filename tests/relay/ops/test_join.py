"""Joining, cutting and indexing: numpy and te agree over generated cuts; errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from semantics import check, random_array, seeds, shapes

from minitvm.errors import TypeInferenceError
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType
from minitvm.relay.ops.gather import Gather, GatherNd, OneHot, Take
from minitvm.relay.ops.join import Concatenate, Split, Stack, StridedSlice


@given(seed=seeds, shape=shapes.filter(bool), data=st.data())
def test_concatenate(seed, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    pieces = []
    for k, length in enumerate(lengths):
        own = list(shape)
        own[axis] = length
        pieces.append(random_array(seed + k, tuple(own)))
    np.testing.assert_array_equal(check(Concatenate(axis), *pieces), np.concatenate(pieces, axis))


@given(seed=seeds, shape=shapes, count=st.integers(1, 5), data=st.data())
def test_stack(seed, shape, count, data):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    pieces = [random_array(seed + k, shape) for k in range(count)]
    np.testing.assert_array_equal(check(Stack(axis), *pieces), np.stack(pieces, axis))


def test_joining_refuses_what_does_not_fit():
    a, b = TensorType((2, 3), "float32"), TensorType((2, 4), "float32")
    assert operator_type(Concatenate(1), (a, b)) == TensorType((2, 7), "float32")
    with pytest.raises(TypeInferenceError, match="may differ in axis 0 only"):
        operator_type(Concatenate(0), (a, b))
    with pytest.raises(TypeInferenceError, match="nothing to concatenate"):
        operator_type(Concatenate(0), ())
    with pytest.raises(TypeInferenceError, match="must be equal"):
        operator_type(Stack(0), (a, b))


@given(seed=seeds, sections=st.integers(1, 4), size=st.integers(1, 3), front=st.integers(1, 3))
def test_split_into_equal_pieces(seed, sections, size, front):
    x = random_array(seed, (front, sections * size))
    got = check(Split(sections, 1), x)
    for piece, wanted in zip(got if sections > 1 else (got,), np.split(x, sections, 1)):
        np.testing.assert_array_equal(piece, wanted)


@given(seed=seeds, cuts=st.lists(st.integers(0, 7), min_size=1, max_size=4).map(sorted))
def test_split_at_positions(seed, cuts):
    x = random_array(seed, (7, 2))
    for piece, wanted in zip(check(Split(tuple(cuts), -2), x), np.split(x, cuts), strict=True):
        np.testing.assert_array_equal(piece, wanted)


def test_split_refuses_uneven_pieces():
    with pytest.raises(TypeInferenceError, match="does not split into 3 equal pieces"):
        operator_type(Split(3), (TensorType((7,), "float32"),))
    with pytest.raises(TypeInferenceError, match="must rise within 0 to 7"):
        operator_type(Split((3, 2)), (TensorType((7,), "float32"),))


bounds = st.one_of(st.none(), st.integers(-9, 9), st.just(2**31 - 1), st.just(-(2**31)))


@given(seed=seeds, shape=shapes.filter(bool), data=st.data())
def test_strided_slice(seed, shape, data):
    count = data.draw(st.integers(1, len(shape)))
    axes = tuple(data.draw(st.permutations(range(len(shape))))[:count])
    begin = tuple(data.draw(bounds) for _ in axes)
    end = tuple(data.draw(bounds) for _ in axes)
    strides = tuple(data.draw(st.integers(-3, 3).filter(bool)) for _ in axes)
    x = random_array(seed, shape)
    cuts = [slice(None)] * len(shape)
    for axis, *cut in zip(axes, begin, end, strides, strict=True):
        cuts[axis] = slice(*cut)
    got = check(StridedSlice(begin, end, strides, axes), x)
    np.testing.assert_array_equal(got, x[tuple(cuts)])


def test_strided_slice_refuses():
    x = TensorType((4, 4), "float32")
    with pytest.raises(TypeInferenceError, match="equally many"):
        operator_type(StridedSlice((0,), (1, 2)), (x,))
    with pytest.raises(TypeInferenceError, match=r"strides \(not 0\)"):
        operator_type(StridedSlice((0,), (1,), (0,)), (x,))
    with pytest.raises(TypeInferenceError, match="twice"):
        operator_type(StridedSlice((0, 0), (1, 1), axes=(1, -1)), (x,))


@given(seed=seeds, axis=st.integers(-3, 2), shape=shapes,
       dtype=st.sampled_from(["int32", "int64", "uint8"]))
def test_take(seed, axis, shape, dtype):
    x = random_array(seed, (2, 3, 4))
    low = 0 if dtype == "uint8" else -x.shape[axis]
    indices = np.random.default_rng(seed).integers(low, x.shape[axis], shape).astype(dtype)
    np.testing.assert_array_equal(check(Take(axis), x, indices), np.take(x, indices, axis))


def test_take_stays_within_the_axis():
    x = np.float32([10, 20, 30])
    assert check(Take(), x, np.int64([5, -5, 2**40, -(2**40)])).tolist() == [30, 10, 30, 10]


@given(seed=seeds, axis=st.integers(-3, 2), count=st.integers(1, 5))
def test_gather(seed, axis, count):
    x = random_array(seed, (2, 3, 4))
    shape = list(x.shape)
    shape[axis] = count
    extent = x.shape[axis]
    indices = np.random.default_rng(seed).integers(-extent, extent, shape)
    got = check(Gather(axis), x, indices)
    np.testing.assert_array_equal(got, np.take_along_axis(x, indices, axis))


def test_gather_takes_a_part_of_the_other_axes():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert check(Gather(0), x, np.int64([[2, 0]])).tolist() == [[8, 1]]
    with pytest.raises(TypeInferenceError, match="must fit"):
        operator_type(Gather(0), (TensorType((3, 4), "float32"), TensorType((1, 5), "int64")))


@given(seed=seeds, batch=st.integers(0, 1), depth=st.integers(0, 2), middle=shapes)
def test_gather_nd(seed, batch, depth, middle):
    x = random_array(seed, (2, 3, 4))
    front = (2, *middle) if batch else (*middle[:2], 2)
    limits = np.array(x.shape[batch : batch + depth])
    random = np.random.default_rng(seed)
    indices = random.integers(-limits, limits, (*front, depth)) if depth else np.zeros((*front, 0))
    got = check(GatherNd(batch), x, indices.astype(np.int64))
    for place in np.ndindex(*front):
        source = x[place[0]] if batch else x
        np.testing.assert_array_equal(got[place], source[tuple(indices[place].astype(int))])


def test_gather_nd_refuses():
    types = (TensorType((2, 3), "float32"), TensorType((2, 3), "int64"))
    with pytest.raises(TypeInferenceError, match="exceed x"):
        operator_type(GatherNd(), types)


@given(seed=seeds, shape=shapes, depth=st.integers(1, 4), data=st.data())
def test_one_hot(seed, shape, depth, data):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    indices = np.random.default_rng(seed).integers(-depth - 1, depth + 1, shape)
    values = np.asarray(5, np.float32), np.asarray(-1, np.float32)
    got = check(OneHot(depth, axis), np.asarray(indices), *values)
    counted = np.where(indices < 0, indices + depth, indices)
    last = np.where(counted[..., None] == np.arange(depth), 5, -1)
    np.testing.assert_array_equal(got, np.moveaxis(last, -1, axis))
