"""exp, decay, log, tanh, sigmoid and erf of float32 vectors, by polynomials.

The polynomials are minimax fits of the relative error. A product that is added may fuse
(`contract`); no other liberty is taken, so that infinities, NaN, signed zeros and subnormals come
out as numpy has them.
"""

from __future__ import annotations

import math

from minitvm.codegen.arithmetic import compare
from minitvm.codegen.float32 import ROUNDER, Float32

_EXP = (0.4999999341, 0.166665201, 0.0416683943, 0.0083687809, 0.0013814462)
"""(exp(r) - 1 - r) / r**2 for |r| <= log(2) / 2."""
_LOG = (0.333333126, -0.2500000961, 0.2000211883, -0.1666799543, 0.1421954905, -0.1240559453,
        0.1188819031, -0.1167562826, 0.0674655183)
"""(log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2)."""
_TANH = (-0.3333333045, 0.1333319164, -0.053944888, 0.02169015, -0.0081506893, 0.0021180112)
"""(tanh(x) - x) / x**3 in x**2, for |x| <= 0.63."""
_ERF = (0.12837916706, -0.37612638435, 0.11283781974, -0.026865400037, 0.0052209454181,
        -0.00084828286276, 0.00011256946315, -0.0000096415115043)
"""erf(x) / x - 1 in x**2, for |x| <= 1."""
_LOG_ERFC = (0.00018246195291, -1.1295520503, -0.63327239484, -0.10836157426, 0.02517182359,
             -0.0041908617142, 0.00043853123344, -0.000021445684256)
"""log(1 - erf(x)) for 0.95 <= x <= 4."""

_LOG_2 = 0.693145751953125
"""log(2) to 16 bits: its product with an integer of 8 bits is exact."""


def exp(v: Float32, x: str) -> str:
    """exp(x) = 2**n * exp(r): see `_exp_parts`.

    Clamping keeps n in range, by comparisons that leave NaN as it is. What is certainly zero, as
    for masked scores, is not computed: products that underflow take a hundred cycles.
    """
    zero = v.less(x, v.real(-104.0))
    x = v.choose(zero, v.real(0.0), x)
    x = v.choose(v.less(v.real(89.0), x), v.real(89.0), x)
    part, scales = _exp_parts(v, x)
    result = v.apply("add", part, v.real(1.0))
    for scale in scales:
        result = v.apply("mul", result, scale)
    return v.choose(zero, v.real(0.0), result)


def _exp_parts(v: Float32, x: str) -> tuple[str, tuple[str, str]]:
    """exp(r) - 1 and two powers of two whose product is 2**n, where x = n * log(2) + r.

    n = round(x / log(2)), r = high + low; `high` is exact, so it is added as late as it can be.
    The power of two comes in two halves, so that infinities and subnormals come by themselves.
    """
    shifted = v.muladd(x, v.real(1 / math.log(2)), v.real(ROUNDER))
    n = v.apply("sub", shifted, v.real(ROUNDER))
    high = v.muladd(n, v.real(-_LOG_2), x)
    low = v.apply("mul", n, v.real(_LOG_2 - math.log(2)))
    r = v.apply("add", high, low)
    tail = v.muladd(v.polynomial(r, _EXP), v.apply("mul", r, r), low)
    power = v.integer_op("sub", v.bits(shifted), v.bits(v.real(ROUNDER)))
    half = v.integer_op("ashr", power, 1)
    first, second = (
        v.from_bits(v.integer_op("shl", v.integer_op("add", part, 127), 23))
        for part in (half, v.integer_op("sub", power, half)))
    return v.apply("add", high, tail), (first, second)


def decay(v: Float32, x: str) -> str:
    """exp(x) for x <= 0, where n >= -126, so that 2**n is a normal number; elsewhere 0.

    Further down x is held where n = -127, the exponent of a zero, by a comparison that a NaN
    passes. Powers as Horner has them: the last sum, with 1, is rounded as it would be anyway.
    """
    end = -127 * math.log(2)
    x = v.choose(v.less(x, v.real(end)), v.real(end), x)
    shifted = v.muladd(x, v.real(1 / math.log(2)), v.real(ROUNDER))
    n = v.apply("sub", shifted, v.real(ROUNDER))
    r = v.muladd(n, v.real(-_LOG_2), x)
    r = v.muladd(n, v.real(_LOG_2 - math.log(2)), r)
    result = v.polynomial(r, (1.0, 1.0, *_EXP))
    power = v.integer_op("shl", v.bits(shifted), 23)
    return v.apply("mul", result, v.from_bits(v.integer_op("add", power, 127 << 23)))


def log(v: Float32, x: str) -> str:
    """log(x) = e * log(2) + log(1 + f), with x = 2**e * (1 + f)."""
    tiny = v.less(x, v.real(2.0**-126))
    scaled = v.choose(tiny, v.apply("mul", x, v.real(2.0**23)), x)
    above = v.integer_op("sub", v.bits(scaled), v.bits(v.real(math.sqrt(0.5))))
    exponent = v.integer_op("ashr", above, 23)
    mantissa = v.integer_op("sub", v.bits(scaled), v.integer_op("shl", exponent, 23))
    f = v.apply("sub", v.from_bits(mantissa), v.real(1.0))
    e = v.f.pure(f"sitofp {v.integers} {exponent} to {v.kind}")
    e = v.choose(tiny, v.apply("sub", e, v.real(23.0)), e)
    square = v.apply("mul", f, f)
    tail = v.apply("mul", v.apply("mul", v.polynomial(f, _LOG), f), square)
    tail = v.muladd(e, v.real(math.log(2) - 0.693359375), tail)
    tail = v.muladd(square, v.real(-0.5), tail)
    result = v.muladd(e, v.real(0.693359375), v.apply("add", f, tail))
    infinite = compare(v.f, "eq", v.dtype, x, v.real(math.inf))
    result = v.choose(infinite, x, result)
    positive = v.less(v.real(0.0), x)
    zero = compare(v.f, "eq", v.dtype, x, v.real(0.0))
    outside = v.choose(zero, v.real(-math.inf), v.real(math.nan))
    return v.choose(positive, result, outside)


def tanh(v: Float32, x: str) -> str:
    """An odd polynomial near zero, 1 - 2 e / (1 + e) with e = exp(-2 |x|) further out."""
    size = v.size(x)
    square = v.apply("mul", x, x)
    near = v.muladd(v.apply("mul", v.polynomial(square, _TANH), square), x, x)
    e = v.call("decay", decay, v.apply("mul", size, v.real(-2.0)))
    far = v.apply("div", v.apply("add", e, e), v.apply("add", e, v.real(1.0)))
    far = v.apply("sub", v.real(1.0), far)
    return v.with_sign(v.choose(v.less(v.real(0.625), size), far, near), x)


def sigmoid(v: Float32, x: str) -> str:
    """1 / (1 + e) or e / (1 + e), with e = exp(-|x|) = (1 + p) * 2**n <= 1.

    What rounding 1 + e to `total` has lost is taken from the numerator before that is rounded
    itself: e / (total + lost) = e * (1 - lost) / total, as lost is only felt where total is near 1.
    """
    size = v.size(x)
    zero = v.less(v.real(104.0), size)
    down = v.f.pure(f"fneg {v.kind} {v.choose(zero, v.real(0.0), size)}")
    part, (first, second) = _exp_parts(v, down)
    first = v.choose(zero, v.real(0.0), first)
    scale = v.apply("mul", first, second)
    total = v.muladd(part, scale, v.apply("add", scale, v.real(1.0)))
    lost = v.apply("sub", scale, v.apply("sub", total, v.real(1.0)))
    lost = v.muladd(part, scale, lost)
    kept = v.apply("sub", part, v.muladd(lost, part, lost))
    e = v.apply("mul", v.apply("mul", v.apply("add", kept, v.real(1.0)), first), second)
    above = v.choose(v.less(x, v.real(0.0)), e, v.real(1.0))
    return v.apply("div", above, total)


def erf(v: Float32, x: str) -> str:
    """An odd polynomial up to 1, 1 - exp(polynomial) from there to 4, where it is 1."""
    size = v.size(x)
    square = v.apply("mul", x, x)
    near = v.muladd(v.polynomial(square, _ERF), x, x)
    bounded = v.choose(v.less(v.real(4.0), size), v.real(4.0), size)
    rest = v.call("decay", decay, v.polynomial(bounded, _LOG_ERFC))
    far = v.with_sign(v.apply("sub", v.real(1.0), rest), x)
    return v.choose(v.less(v.real(1.0), size), far, near)
