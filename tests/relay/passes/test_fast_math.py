"""FastMath: off unless asked for, and its operators within their stated error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import emitter, main, op

import minitvm
from minitvm import relay, te
from minitvm.relay import passes
from minitvm.relay.ir import TensorType, Var
from minitvm.relay.op import lookup
from minitvm.relay.ops.fast_math import EXP_HIGH, EXP_LOW, MAX_RELATIVE_ERROR
from minitvm.tir import interpret
from minitvm.transform import PassContext

erf = np.vectorize(math.erf, otypes=[np.float64])
EXACT = {
    "exp": np.exp, "tanh": np.tanh, "erf": erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
RANGES = {"exp": (EXP_LOW, EXP_HIGH), "tanh": (-12, 12), "erf": (-6, 6), "sigmoid": (-87, 60)}


def samples(name):
    low, high = RANGES[name]
    tiny = np.geomspace(1e-37, 1, 500)
    every = np.concatenate([np.linspace(low, high, 40_001), tiny, -tiny]).astype(np.float32)
    return every[(every >= low) & (every <= high)]


def relative_error(got, exact):
    with np.errstate(all="ignore"):
        return np.where(got == exact, 0, np.abs(got - exact) / np.abs(exact))


def unary(name, shape=(40,)):
    return main([Var("x", TensorType(shape, "float32"))], lambda b, x: emitter(b)(op(name), x))


def compiled(module):
    context = PassContext(opt_level=4, config={"cache.directory": None})
    with context:
        return minitvm.compile(module)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_in_numpy_is_within_the_bound(name, dtype):
    x = samples(name).astype(dtype)
    got = lookup(f"fast_{name}")().evaluate(x)
    assert got.dtype == dtype
    error = relative_error(got.astype(np.float64), EXACT[name](x.astype(np.float64)))
    assert error.max() < MAX_RELATIVE_ERROR, x[error.argmax()]


@pytest.mark.parametrize("name", EXACT)
def test_error_of_machine_code_is_within_the_bound(name):
    x = samples(name)
    module = compiled(unary(name, x.shape))
    assert [b.value.callee.name for b in module.relay.functions[f"fused_fast_{name}"].body.bindings
            ] == [f"fast_{name}"]
    (got,) = module.run({"x": x}).values()
    error = relative_error(got.astype(np.float64), EXACT[name](x.astype(np.float64)))
    assert error.max() < MAX_RELATIVE_ERROR, x[error.argmax()]


ENDS = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 200.0, -200.0, 1e-42], np.float32)


@pytest.mark.parametrize("name", EXACT)
def test_ends_are_exact(name):
    with np.errstate(all="ignore"):
        expected = EXACT[name](ENDS.astype(np.float64)).astype(np.float32)
    (got,) = compiled(unary(name, ENDS.shape)).run({"x": ENDS}).values()
    for result in (got, lookup(f"fast_{name}")().evaluate(ENDS)):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-37)
        assert not (np.abs(result) > 1).any() or name == "exp"
    assert np.signbit(got[4]) == np.signbit(expected[4])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis):
    x = np.random.default_rng(0).standard_normal((7, 9)).astype(np.float32) * 10
    x[2, 3] = -np.inf
    module = main([Var("x", TensorType(x.shape, "float32"))], lambda b, x: emitter(b)(
        op("nn.softmax", axis=axis), x))
    (got,) = compiled(module).run({"x": x}).values()
    (exact,) = relay.run(module, {"x": x})
    np.testing.assert_allclose(got, exact, rtol=3e-5, atol=1e-37)
    assert got[2, 3] == 0


def test_off_below_level_4():
    module = unary("exp")
    assert passes.fast_math(module) is module
    with PassContext(opt_level=4):
        assert passes.fast_math(module) is not module


def test_other_dtypes_stay_exact():
    module = main([Var("x", TensorType((4,), "float64"))], lambda b, x: emitter(b)(op("exp"), x))
    with PassContext(opt_level=4):
        assert passes.fast_math(module) is module


@given(st.sampled_from(list(EXACT)), st.integers(0, 2**32 - 1))
def test_te_and_numpy_agree(name, seed):
    x = (np.random.default_rng(seed).standard_normal(33) * 20).astype(np.float32)
    given_x = te.placeholder(x.shape, "float32", name="x")
    result = lookup(f"fast_{name}")().compute(given_x)
    function = te.lower(te.create_schedule([result]), [given_x, result], name="kernel")
    got = np.zeros_like(x)
    interpret.run(function, [x, got])
    np.testing.assert_allclose(got, lookup(f"fast_{name}")().evaluate(x), rtol=1e-6)
