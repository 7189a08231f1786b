"""Intrinsics over samples of all floats, in units in the last place, against float64."""

import math
import re

import numpy as np
import pytest
from differential import TARGETS, elementwise, empty_outputs

from minitvm import dtypes
from minitvm.codegen import math as math_code
from minitvm.codegen.jit import build_kernel
from minitvm.codegen.program import compile_kernel
from minitvm.target import Target
from minitvm.testing import ulp
from minitvm.tir import intrinsics, ir

SAMPLES = np.concatenate([
    *ulp.patterns(8179),
    np.linspace(-12, 12, 120_011).astype(np.float32),
    np.float32(math.pi / 2) * np.arange(-20_000, 20_000, dtype=np.float32),
    np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 88.72283, 88.72284, -87.33654, -103.97,
         -104.0, -105.5, 104.5, 1e-45, -1e-45, 1.1754942e-38, 0.625, 0.62500006, 0.99999994, 4.0,
         2.0**20, 1048576.1, -2.0**20, 3.4028235e38, -3.4028235e38,
         16367173 * 2.0**72, -16367173 * 2.0**72],  # the nearest to a multiple of pi / 2
        np.float32)])
WORST = {
    "exp": (0.91, 4.505865573883057, 59.264610290527344, 4.506230354309082),
    "log": (0.84, 0.7052406072616577, 1.4132459163665771),
    "tanh": (1.49, 0.6314783096313477, 0.6256561875343323),
    "sigmoid": (1.61, -5.143397808074951, -5.155436038970947, -1.1120096445083618),
    "erf": (1.35, 0.9986525774002075, 0.9576027989387512, 1.0669194459915161),
    "sin": (1.58, 452633280.0, 49735.0546875, 2.4709243886954244e20, -18918300.0),
    "cos": (1.57, 81850168.0, 930965.9375, 203778736128.0, 1.8403080826945914e37),
    "decay": (1.18, -5.197236061096191, -15.583917617797852, -26.685649871826172),
    "rsqrt": (1.5, 1.0061858892440796, 1.85608535894634e19)}
"""The greatest errors found, as `codegen.math` says, and where machines were off by the most."""
MEANINGS = {name: ulp.REFERENCES[name] for name in
            ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos")}


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
    error = ulp.ulps(got, exact)
    worst = int(error.argmax())
    bound = intrinsics.TABLE[name].ulp
    assert error[worst] <= bound, (
        f"{name}({SAMPLES[worst]!r}) = {got[worst]!r}, exactly {exact[worst]!r}: "
        f"{error[worst]:.2f} ulp of {bound}")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@pytest.mark.parametrize("name", WORST)
def test_errors_are_no_greater_than_documented(name, target):
    """A function that changes has other worst arguments, but seldom stays exact at the old ones."""
    bound, *arguments = WORST[name]
    values = np.array(arguments, np.float32)
    error = ulp.ulps(evaluate(name, values, target, 1), ulp.REFERENCES[name](values.astype(float)))
    assert error.max() <= bound <= intrinsics.TABLE[name].ulp
    figures = re.findall(rf"^ +{name} +([\d.]+) at (\S+)", math_code.__doc__, re.MULTILINE)
    ((figure, at),) = figures
    assert np.float32(at) == values[0] and float(figure) == pytest.approx(bound, abs=0.011)


@pytest.mark.parametrize("cpu", ["cortex-a76", "neoverse-v1"])
@pytest.mark.parametrize("name", [*MEANINGS, "tan"])
def test_polynomials_need_no_library_on_arm(name, cpu):
    target = Target(f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}")
    kernel = compile_kernel(ulp.function_kernel(name, 64, 4), target)
    calls = f"{name}f".encode() in kernel.object
    assert calls == (name == "tan")  # which has no polynomial


@pytest.mark.parametrize("lanes", (1, 2, 8))
@pytest.mark.parametrize("name", MEANINGS)
def test_every_width_gives_the_same_bits(name, lanes):
    wide = evaluate(name, SAMPLES[::97], TARGETS[0], 16)
    np.testing.assert_array_equal(wide, evaluate(name, SAMPLES[::97], TARGETS[0], lanes))


@pytest.mark.parametrize("name", MEANINGS)
def test_ends_are_exact(name):
    """A masked softmax needs exp(-inf) to be zero; signs of zero and NaN are kept."""
    far = [] if name in ("sin", "cos") else [-200.0, 200.0]
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, *far], np.float32)
    with np.errstate(all="ignore"):
        expected = MEANINGS[name](values.astype(np.float64)).astype(np.float32)
    got = evaluate(name, values, TARGETS[0], 4)
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_decay_is_exp_up_to_zero_where_its_power_of_two_is_a_normal_number(target):
    values = SAMPLES[~(SAMPLES > 0)]
    got = evaluate("decay", values, target)
    with np.errstate(all="ignore"):
        exact = np.exp(values.astype(np.float64))
    far = values < intrinsics.DECAY_LOW
    assert np.nanmin(exact[~far]) > np.finfo(np.float32).tiny * 0.5**0.5
    assert not got[far].any() and np.isnan(got[np.isnan(values)]).all()
    assert ulp.ulps(got[~far], exact[~far]).max() <= intrinsics.TABLE["decay"].ulp
    assert evaluate("decay", np.float32([0.0, -0.0, -np.inf, np.nan]), target, 4).tolist()[:3] == [
        1.0, 1.0, 0.0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", [n for n, row in intrinsics.TABLE.items()
                                  if row.arity == 1 and row.floats_only and row.kind == "same"])
def test_every_intrinsic_of_every_float(name, dtype):
    values = np.concatenate([np.linspace(0.01, 0.99, 50), [1.0, 0.0]]).astype(dtype)
    values = -100 * values if name == "decay" else values
    got = evaluate(name, values, TARGETS[0], 4)
    with np.errstate(all="ignore"):
        exact = np.asarray(intrinsics.TABLE[name].meaning(values.astype(np.longdouble)))
    bound = intrinsics.TABLE[name].ulp or 0.5
    assert ulp.ulps(got, exact).max() <= bound


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("exponent", [2, 3])
@pytest.mark.parametrize("lanes", [1, 4])
def test_small_powers_are_products(exponent, dtype, lanes):
    x = np.concatenate([np.linspace(-4, 4, 63), [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(dtype)

    def body(a):
        number = ir.Const(float(exponent), dtype)
        power = number if lanes == 1 else ir.Broadcast(number, lanes)
        return ir.Call("pow", (a, power), a.dtype)

    func = elementwise("power", [dtype] * 1, [body], len(x), lanes)
    result = empty_outputs(func, 1)
    target = TARGETS[0]
    build_kernel(func, target)(x, *result)
    assert ulp.ulps(result[0], x.astype(np.longdouble) ** exponent).max() <= 2
    assert b"pow" not in compile_kernel(func, target).object.replace(b"power", b"")


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
    assert ulp.ulps(evaluate("pow", a, TARGETS[0], 4, (b,)), exact).max() <= 2
    c = a + b
    for target in TARGETS:
        fused = evaluate("fma", a, target, 8, (np.abs(b), c * c))
        exact = a.astype(np.float64) * np.abs(b).astype(np.float64) + (c * c).astype(np.float64)
        assert ulp.ulps(fused, exact).max() <= 1


def test_a_large_argument_does_not_change_its_neighbours():
    """Lanes beyond what two products reduce take another way, alone."""
    small = np.linspace(-1e6, 1e6, 16 * 64).astype(np.float32)
    mixed = small.copy()
    mixed[::16] = 1e30
    for name in ("sin", "cos"):
        alone, among = evaluate(name, small, TARGETS[0]), evaluate(name, mixed, TARGETS[0])
        rest = np.arange(len(small)) % 16 != 0
        np.testing.assert_array_equal(alone[rest], among[rest])
