"""Intrinsics over samples of all floats, in units in the last place, against float64."""

import math

import numpy as np
import pytest
from differential import TARGETS, elementwise, empty_outputs

from minitvm import dtypes
from minitvm.codegen.jit import build_kernel
from minitvm.tir import intrinsics, ir

ALL_FLOATS = np.arange(0, 2**32, 8179, dtype=np.uint32).view(np.float32)
NEAR_ONE = np.linspace(-12, 12, 120_011).astype(np.float32)
SAMPLES = np.concatenate([ALL_FLOATS, NEAR_ONE, np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 88.72283, 88.72284, -87.33654, -103.97, -104.0,
     -105.5, 1e-45, -1e-45, 1.1754942e-38, 0.625, 0.62500006, 0.99999994, 4.0], np.float32)])


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


MEANINGS = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": sigmoid, "erf": erf}


def ulps(got, exact):
    """How far `got` is from float64 values, in units in the last place of its dtype."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        unit = np.spacing(np.abs(rounded).clip(None, np.finfo(got.dtype).max)).astype(np.float64)
        distance = np.abs(got.astype(np.float64) - exact) / unit
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(same, np.minimum(np.nan_to_num(distance), 0.5),
                    np.nan_to_num(distance, nan=np.inf, posinf=np.inf))


def evaluate(name, values, target, lanes=16, more=()):
    values = np.ascontiguousarray(values)
    func = elementwise(name, [dtypes.from_numpy(values.dtype)] * (1 + len(more)),
                       [lambda *a: ir.Call(name, a, a[0].dtype)], len(values), lanes)
    arrays = [values, *more, *empty_outputs(func, 1 + len(more))]
    build_kernel(func, target)(*arrays)
    return arrays[-1]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@pytest.mark.parametrize("name", MEANINGS)
def test_polynomials_are_within_their_bound(name, target):
    got = evaluate(name, SAMPLES, target)
    with np.errstate(all="ignore"):
        exact = MEANINGS[name](SAMPLES.astype(np.float64))
    error = ulps(got, exact)
    worst = int(error.argmax())
    bound = intrinsics.TABLE[name].ulp
    assert error[worst] <= bound, (
        f"{name}({SAMPLES[worst]!r}) = {got[worst]!r}, exactly {exact[worst]!r}: "
        f"{error[worst]:.2f} ulp of {bound}")


@pytest.mark.parametrize("lanes", (1, 2, 8))
@pytest.mark.parametrize("name", MEANINGS)
def test_every_width_gives_the_same_bits(name, lanes):
    wide = evaluate(name, SAMPLES[::97], TARGETS[0], 16)
    np.testing.assert_array_equal(wide, evaluate(name, SAMPLES[::97], TARGETS[0], lanes))


@pytest.mark.parametrize("name", MEANINGS)
def test_ends_are_exact(name):
    """A masked softmax needs exp(-inf) to be zero; signs of zero and NaN are kept."""
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -200.0, 200.0], np.float32)
    with np.errstate(all="ignore"):
        expected = MEANINGS[name](values.astype(np.float64)).astype(np.float32)
    got = evaluate(name, values, TARGETS[0], 4)
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", [n for n, row in intrinsics.TABLE.items()
                                  if row.arity == 1 and row.floats_only and row.kind == "same"])
def test_every_intrinsic_of_every_float(name, dtype):
    values = np.concatenate([np.linspace(0.01, 0.99, 50), [1.0, 0.0]]).astype(dtype)
    got = evaluate(name, values, TARGETS[0], 4)
    with np.errstate(all="ignore"):
        exact = np.asarray(intrinsics.TABLE[name].meaning(values.astype(np.longdouble)))
    bound = intrinsics.TABLE[name].ulp or 0.5
    assert ulps(got, exact).max() <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ldexp_is_exact(dtype):
    n = np.arange(-126, 129).astype(dtype)
    x = np.linspace(-2, 2, len(n)).astype(dtype)
    with np.errstate(all="ignore"):
        power = np.ldexp(np.ones_like(n), n.astype(int))
        np.testing.assert_array_equal(evaluate("ldexp", x, TARGETS[0], 8, (n,)), x * power)


def test_pow_and_fma():
    a = np.linspace(0.1, 9, 37).astype(np.float32)
    b = np.linspace(-3, 3, 37).astype(np.float32)
    exact = np.power(a.astype(np.float64), b.astype(np.float64))
    assert ulps(evaluate("pow", a, TARGETS[0], 4, (b,)), exact).max() <= 2
    c = a + b
    for target in TARGETS:
        fused = evaluate("fma", a, target, 8, (np.abs(b), c * c))
        exact = a.astype(np.float64) * np.abs(b).astype(np.float64) + (c * c).astype(np.float64)
        assert ulps(fused, exact).max() <= 1
