"""Elementwise operators: numpy and te agree on special values too; casts, clip and errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from semantics import check, evaluate, random_array, run_compute, seeds, shapes

from minitvm.errors import OptionError, TypeInferenceError
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType
from minitvm.relay.op import REGISTRY
from minitvm.relay.ops.activations import Celu, Elu, Gelu, HardSigmoid, Selu, Softplus, Swish
from minitvm.relay.ops.elementwise import Cast, Clip, IsFinite, Negative, Sign, Trunc
from minitvm.relay.ops.families import Unary

ULP = {
    "exp": 2, "log": 2, "rsqrt": 4, "tanh": 4, "sigmoid": 4, "erf": 2, "sin": 4, "cos": 4, "tan": 4,
    "asin": 4, "acos": 4, "atan": 4, "sinh": 4, "cosh": 4, "hard_swish": 4, "hard_sigmoid": 4,
    "swish": 8, "mish": 16, "softplus": 8, "gelu": 16, "softsign": 2, "nn.leaky_relu": 1,
    # exp(x) - 1 loses relative precision near zero: see the tests of absolute error below
    "elu": None, "celu": None, "selu": None,
}
UNARY = sorted(
    name for name, cls in REGISTRY.items() if issubclass(cls, Unary) and name != "cast"
)


@pytest.mark.parametrize("name", UNARY)
@given(seed=seeds, shape=shapes, data=st.data())
def test_te_computes_what_numpy_does(name, seed, shape, data):
    cls = REGISTRY[name]
    kind = data.draw(st.sampled_from(cls.kinds))
    dtype = {"float": "float32", "int": data.draw(st.sampled_from(["int8", "int32", "uint8"])),
             "bool": "bool"}[kind]
    ulp = ULP.get(name, 0)
    if ulp is not None:
        check(cls(), random_array(seed, shape, dtype), ulp=ulp)


@pytest.mark.parametrize("op", [Elu(), Elu(0.3), Celu(), Celu(2.0), Selu()], ids=str)
@given(seed=seeds)
def test_exponential_units_agree_in_absolute_error(op, seed):
    x = np.random.default_rng(seed).standard_normal(20).astype(np.float32) * 4
    x[:3] = [np.nan, -np.inf, np.inf]

    got, = run_compute(op, x)
    np.testing.assert_allclose(got, op.evaluate(x), atol=5e-7, rtol=1e-6)


@given(seed=seeds, shape=shapes, dtype=st.sampled_from(["float32", "float64", "int32", "uint8"]),
       low=st.one_of(st.none(), st.integers(-3, 3)), high=st.one_of(st.none(), st.integers(0, 6)))
def test_clip(seed, shape, dtype, low, high):
    if dtype == "uint8" and low is not None:
        low = abs(low)
    x = random_array(seed, shape, dtype)
    got = check(Clip(low, high), x)
    expected = x if low is None and high is None else np.clip(x, low, high)
    np.testing.assert_array_equal(got, expected)


def test_clip_where_bounds_cross_gives_the_upper_one():
    assert check(Clip(5, 1), np.float32([0, 3, 9])).tolist() == [1, 1, 1]


@given(seed=seeds, data=st.data())
def test_casts(seed, data):
    names = ["bool", "int8", "uint8", "int32", "int64", "float32", "float64"]
    source, target = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
    x = random_array(seed, (5,), source)
    if source.startswith("float"):
        x = np.nan_to_num(np.clip(x, 0 if target.startswith("u") else -100, 100))
    got = check(Cast(target), x)
    np.testing.assert_array_equal(got, x.astype(target))


def test_cast_to_bool_is_not_zero():
    assert check(Cast("bool"), np.float32([0.0, -0.0, 0.25, np.nan])).tolist() == [0, 0, 1, 1]


def test_meanings_that_onnx_does_not_cover():
    x = np.float32([np.nan, np.inf, -1.5, 0])
    assert evaluate(IsFinite(), x)[0].tolist() == [False, False, True, True]
    np.testing.assert_array_equal(evaluate(Trunc(), x)[0], np.float32([np.nan, np.inf, -1, 0]))
    assert np.isnan(evaluate(Sign(), x)[0][0])


def test_negating_zero_gives_minus_zero():
    assert np.signbit(check(Negative(), np.float32([0.0, 1.0]))).all()


def test_large_arguments_do_not_overflow():
    x = np.float32([-1000, -100, 0, 100, 1000])
    assert check(Softplus(), x, ulp=4).tolist()[3:] == [100, 1000]
    assert check(Swish(), x, ulp=4).tolist()[3:] == [100, 1000]
    assert np.isfinite(check(Selu(), x, ulp=4)).all()


def test_softplus_is_exact_for_tiny_results():
    x = np.float32([-20, -50, -80])
    np.testing.assert_allclose(check(Softplus(), x, ulp=16), np.exp(x.astype(float)), rtol=1e-6)


def test_wrong_kinds_are_refused():
    with pytest.raises(TypeInferenceError, match=r"sqrt\(.*int32.*\): argument 0 must be float"):
        operator_type(REGISTRY["sqrt"](), (TensorType((2,), "int32"),))
    with pytest.raises(TypeInferenceError, match=r"logical_not.*must be bool"):
        operator_type(REGISTRY["logical_not"](), (TensorType((2,), "float32"),))


def test_gelu_refuses_an_unknown_approximation():
    with pytest.raises(OptionError, match="sigmoid"):
        Gelu("sigmoid")


def test_attributes_are_the_fields():
    assert HardSigmoid(0.25).attributes() == {"alpha": 0.25}
    assert Cast("int8").attributes() == {"dtype": "int8"}
