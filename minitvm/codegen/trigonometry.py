"""sin and cos of float32 vectors, of any argument.

The argument is reduced to a quarter turn in float64: x = q * pi/2 + r, |r| <= pi/4. Up to 2**20 two
products with parts of pi/2 are exact enough, though r may be as small as 2**-30. Beyond, which is
rare and has a function of its own that is called if any lane asks for it, the turns x / 2 pi are
summed from products with seven pieces of 1 / 2 pi: products of 24 and 28 bits are exact, and whole
turns drop out of each (after Payne and Hanek). Lanes that are not that large get what they always
get, so results don't depend on neighbours.
"""

from __future__ import annotations

import math

from minitvm import dtypes
from minitvm.codegen.arithmetic import binary, compare
from minitvm.codegen.float32 import Float32
from minitvm.codegen.text import constant, llvm_type, suffix

_SIN = (-0.16666654937, 0.0083321776818, -0.00019517234054)
"""(sin(r) - r) / r**3 in r**2, for |r| <= pi/4."""
_COS = (0.041666646854, -0.0013887366905, 0.000024438378856)
"""(cos(r) - 1 + r**2 / 2) / r**4 in r**2, for |r| <= pi/4."""
_LARGE = 2.0**20
_QUARTER_HIGH, _QUARTER_LOW = 1.5707963267341256, 6.077100506506192e-11
"""pi/2 to 33 bits, whose product with an integer of 20 bits is exact, and the rest."""
_PIECE_BITS = 28
_TURNS = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E4107
"""1 / 2 pi to 196 bits: what is behind them adds less than 2**-68 turns."""
_PIECES = 7
_TO_WHOLE = 1.5 * 2.0**52
"""Adding it to a float64 below 2**51 rounds that to an integer."""
_TO_QUARTER = 1.5 * 2.0**50


class _Float64:
    """Short names for operations on a float64 vector with the lanes of a float32 vector."""

    def __init__(self, v: Float32) -> None:
        self.f, self.v = v.f, v
        lanes = dtypes.lanes(v.dtype)
        self.dtype = dtypes.vector("float64", lanes)
        self.kind, self.longs = llvm_type(self.dtype), llvm_type(dtypes.vector("int64", lanes))

    def apply(self, op: str, a: str, b: str | float) -> str:
        operand = constant(b, self.dtype) if isinstance(b, float) else b
        return binary(self.f, op, self.dtype, a, operand)

    def rounded(self, a: str, rounder: float) -> str:
        """a to the nearest multiple of a power of two, which the rounder chooses."""
        return self.apply("sub", self.apply("add", a, rounder), rounder)

    def widen(self, x: str) -> str:
        return self.f.pure(f"fpext {self.v.kind} {x} to {self.kind}")

    def narrow(self, a: str) -> str:
        return self.f.pure(f"fptrunc {self.kind} {a} to {self.v.kind}")

    def low_bits(self, a: str) -> str:
        """The integer in the low bits of a float that `_TO_WHOLE` was added to."""
        bits = self.f.pure(f"bitcast {self.kind} {a} to {self.longs}")
        return self.f.pure(f"trunc {self.longs} {bits} to {self.v.integers}")

    def unless_whole(self, a: str) -> str:
        """a, or zero where it is so large that it must be an integer."""
        small = compare(self.f, "lt", self.dtype, a, constant(2.0**51, self.dtype))
        zero = constant(0.0, self.dtype)
        return self.f.pure(f"select {self.v.flag} {small}, {self.kind} {a}, {self.kind} {zero}")


def sin(v: Float32, x: str) -> str:
    """The sine; NaN of infinities."""
    return _rotated(v, x, "sin", 0)


def cos(v: Float32, x: str) -> str:
    """The cosine, a quarter turn ahead of the sine."""
    return _rotated(v, x, "cos", 1)


def _rotated(v: Float32, x: str, name: str, quarters: int) -> str:
    """The sine of x and some quarter turns, by a rare function if any lane is large."""
    f = v.f
    large = _is_large(v, x)
    lanes = dtypes.lanes(v.dtype)
    if lanes > 1:
        reduced = f"llvm.vector.reduce.or.{suffix(dtypes.vector('bool', lanes))}"
        callee = f.module.declare(reduced, "i1", (v.flag,))
        large = f.pure(f"call i1 {callee}({v.flag} {large})")
    rare, common, done = f.name("large"), f.name("common"), f.name("done")
    f.effect(f"br i1 {large}, label %{rare}, label %{common}")
    f.start(rare)

    def anything(v: Float32, x: str) -> str:
        return _sine(v, *_reduced_anything(v, x), quarters)

    slow = v.call(f"{name}.large", anything, x, rare=True)
    f.branch(done)
    f.start(common)
    fast = _sine(v, *_reduced(v, x), quarters)
    f.branch(done)
    f.start(done)
    return f.emit(f"phi {v.kind} [ {slow}, %{rare} ], [ {fast}, %{common} ]")


def _is_large(v: Float32, x: str) -> str:
    return v.less(v.real(_LARGE), v.size(x))


def _reduced(v: Float32, x: str) -> tuple[str, str]:
    """r and q, for |x| up to 2**20."""
    w = _Float64(v)
    wide = w.widen(x)
    shifted = w.apply("add", w.apply("mul", wide, 2 / math.pi), _TO_WHOLE)
    n = w.apply("sub", shifted, _TO_WHOLE)
    r = w.apply("sub", wide, w.apply("mul", n, _QUARTER_HIGH))
    r = w.apply("sub", r, w.apply("mul", n, _QUARTER_LOW))
    return w.narrow(r), w.low_bits(shifted)


def _reduced_anything(v: Float32, x: str) -> tuple[str, str]:
    """r and q of large lanes by their turns, of others as ever.

    The turns so far are kept within 1/8 and the quarters counted apart, so that where they cancel
    what follows is not rounded away.
    """
    w = _Float64(v)
    size = w.widen(v.size(x))
    turns = quarters = constant(0.0, w.dtype)
    for piece in range(_PIECES):
        below = _PIECE_BITS * (_PIECES - 1 - piece)
        bits = (_TURNS >> below) & (2**_PIECE_BITS - 1)
        product = w.apply("mul", size, math.ldexp(bits, -_PIECE_BITS * (piece + 1)))
        product = w.unless_whole(product)
        turns = w.apply("add", turns, w.apply("sub", product, w.rounded(product, _TO_WHOLE)))
        quarter = w.rounded(turns, _TO_QUARTER)
        turns = w.apply("sub", turns, quarter)
        quarters = w.apply("add", quarters, quarter)
    q = w.low_bits(w.apply("add", w.apply("mul", quarters, 4.0), _TO_WHOLE))
    nan_of_infinity = v.apply("sub", x, x)
    r = v.apply("add", w.narrow(w.apply("mul", turns, 2 * math.pi)), nan_of_infinity)
    negative = v.less(x, v.real(0.0))
    r = v.choose(negative, v.f.pure(f"fneg {v.kind} {r}"), r)
    opposite = v.f.pure(f"sub {v.integers} {v.whole(0)}, {q}")
    q = v.choose_whole(negative, opposite, q)
    common_r, common_q = _reduced(v, x)
    large = _is_large(v, x)
    return v.choose(large, r, common_r), v.choose_whole(large, q, common_q)


def _sine(v: Float32, r: str, q: str, quarters: int) -> str:
    """The sine of r and q + `quarters` quarter turns: that of r or its cosine, with a sign."""
    square = v.apply("mul", r, r)
    tail = v.apply("mul", v.apply("mul", square, r), v.polynomial(square, _SIN))
    odd = v.with_sign(v.apply("add", r, tail), r)  # sin(-0) is -0
    fall = v.apply("mul", square, v.real(0.5))
    rise = v.apply("mul", v.apply("mul", square, square), v.polynomial(square, _COS))
    even = v.apply("sub", v.real(1.0), v.apply("sub", fall, rise))
    q = v.integer_op("add", q, quarters) if quarters else q
    one = v.integer_op("and", q, 1)
    crossed = v.f.pure(f"icmp ne {v.integers} {one}, {v.whole(0)}")
    result = v.choose(crossed, even, odd)
    sign = v.integer_op("shl", v.integer_op("and", q, 2), 30)
    return v.from_bits(v.integer_op("xor", v.bits(result), sign))
