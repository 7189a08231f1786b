"""Reductions: numpy and te agree over all axes; NaN, ties, empty axes, composite ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from semantics import check, evaluate, plain_array, random_array, run_compute, seeds

from minitvm.errors import TypeInferenceError
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType
from minitvm.relay.op import REGISTRY
from minitvm.relay.ops.composite import decompose
from minitvm.relay.ops.reduce import (
    AllTrue,
    AnyTrue,
    ArgMax,
    ArgMin,
    Max,
    Min,
    Prod,
    Reduction,
    Sum,
)
from minitvm.relay.ops.reduce_composite import (
    CompositeReduction,
    LogSumExp,
    Mean,
    ReduceL2,
    Variance,
)

SHAPE = (2, 3, 4)
axes = st.one_of(
    st.none(),
    st.integers(-3, 2),
    st.lists(st.integers(-3, 2), max_size=3, unique_by=lambda axis: axis % 3).map(tuple),
)


@pytest.mark.parametrize("cls", [Sum, Prod, Max, Min], ids=lambda cls: cls.name)
@given(seed=seeds, axis=axes, keepdims=st.booleans(),
       dtype=st.sampled_from(["float32", "int32", "int8", "uint8"]))
def test_reductions_of_numbers(cls, seed, axis, keepdims, dtype):
    x = np.abs(plain_array(seed, SHAPE)).astype(dtype)
    got = check(cls(axis, keepdims), x)
    function = {Sum: np.sum, Prod: np.prod, Max: np.max, Min: np.min}[cls]
    expected = function(x, axis=axis, keepdims=keepdims)
    np.testing.assert_array_equal(got, np.asarray(expected).astype(dtype))


@pytest.mark.parametrize("cls", [Max, Min], ids=lambda cls: cls.name)
@given(seed=seeds, axis=axes)
def test_extremes_propagate_nan(cls, seed, axis):
    x = random_array(seed, SHAPE)
    got = check(cls(axis), x)
    function = np.max if cls is Max else np.min
    np.testing.assert_array_equal(got, function(x, axis=axis))


@pytest.mark.parametrize("cls", [AllTrue, AnyTrue], ids=lambda cls: cls.name)
@given(seed=seeds, axis=axes, keepdims=st.booleans())
def test_reductions_of_bools(cls, seed, axis, keepdims):
    x = random_array(seed, SHAPE, "bool")
    function = np.all if cls is AllTrue else np.any
    got = check(cls(axis, keepdims), x)
    np.testing.assert_array_equal(got, function(x, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("cls", [ArgMax, ArgMin], ids=lambda cls: cls.name)
@given(seed=seeds, axis=st.integers(-3, 2), keepdims=st.booleans(), last=st.booleans(),
       dtype=st.sampled_from(["float32", "int8"]))
def test_positions(cls, seed, axis, keepdims, last, dtype):
    x = random_array(seed, SHAPE, dtype)
    got = check(cls(axis, keepdims, last), x)
    function = np.argmax if cls is ArgMax else np.argmin
    if not last:
        np.testing.assert_array_equal(got, function(x, axis=axis, keepdims=keepdims))
    else:
        flipped = function(np.flip(x, axis), axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(got, SHAPE[axis] - 1 - flipped)


def test_positions_of_ties_and_nan():
    x = np.float32([[1, 3, 3, 0], [np.nan, 5, np.nan, 7], [-np.inf] * 4])
    assert check(ArgMax(1), x).tolist() == [1, 0, 0]
    assert check(ArgMax(1, select_last_index=True), x).tolist() == [2, 2, 3]


COMPOSITES = sorted(
    (cls for cls in REGISTRY.values() if issubclass(cls, CompositeReduction)),
    key=lambda cls: cls.name,
)


@pytest.mark.parametrize("cls", COMPOSITES, ids=lambda cls: cls.name)
@given(seed=seeds, axis=axes, keepdims=st.booleans())
def test_composites_agree_with_a_float64_reference(cls, seed, axis, keepdims):
    x = np.random.default_rng(seed).uniform(0.5, 2, SHAPE).astype(np.float32)
    reference = {
        "mean": lambda x, **k: np.mean(x, **k),
        "variance": lambda x, **k: np.var(x, **k),
        "reduce_l1": lambda x, **k: np.sum(np.abs(x), **k),
        "reduce_l2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
        "reduce_sum_square": lambda x, **k: np.sum(x * x, **k),
        "reduce_log_sum": lambda x, **k: np.log(np.sum(x, **k)),
        "logsumexp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    }[cls.name]
    wanted = reference(x.astype(np.float64), axis=axis, keepdims=keepdims)
    op = cls(axis, keepdims)
    np.testing.assert_allclose(evaluate(op, x)[0], wanted, rtol=3e-5, atol=3e-6)
    np.testing.assert_allclose(run_compute(op, x)[0], wanted, rtol=3e-5, atol=3e-6)


def test_mean_of_integers_truncates():
    x = np.int32([[1, 2, 4], [-1, -2, -4]])
    assert check(Mean(1), x).tolist() == [2, -2]


def test_logsumexp_does_not_overflow():
    x = np.float32([[1000, 1000], [-np.inf, -np.inf], [np.inf, 0]])
    got = check(LogSumExp(1), x, ulp=4)
    np.testing.assert_allclose(got, [1000 + np.log(2), -np.inf, np.inf], rtol=1e-6)


def test_no_element_gives_the_neutral_element():
    x = np.zeros((2, 0), np.float32)
    assert evaluate(Sum(1), x)[0].tolist() == [0, 0]
    assert evaluate(Prod(1), x)[0].tolist() == [1, 1]
    assert evaluate(Max(1), x)[0].tolist() == [-np.inf] * 2
    assert evaluate(Min(1), np.zeros((1, 0), np.int8))[0].tolist() == [127]


def test_integer_sums_wrap():
    assert check(Sum(), np.int8([100, 100])) == np.int8(-56)


@given(axis=st.integers(-6, 6))
def test_axes_outside_the_rank_are_refused(axis):
    assume(not -3 <= axis < 3)
    with pytest.raises(TypeInferenceError, match=f"there is no axis {axis}"):
        operator_type(Sum(axis), (TensorType(SHAPE, "float32"),))


def test_an_axis_named_twice_is_refused():
    with pytest.raises(TypeInferenceError, match="twice"):
        operator_type(Sum((1, -2)), (TensorType(SHAPE, "float32"),))


def test_composites_hold_simple_operators_only():
    for op in (Variance(1), ReduceL2(), LogSumExp((0, 2))):
        _, steps, _ = decompose(op, (TensorType(SHAPE, "float32"),))
        assert steps and not any(isinstance(inner, CompositeReduction) for _, inner, _ in steps)


def test_every_reduction_is_tested():
    simple = {cls for cls in REGISTRY.values() if issubclass(cls, Reduction)}
    assert simple == {Sum, Prod, Max, Min, AllTrue, AnyTrue}
