"""The intrinsics of tir -> LLVM: vector polynomials for float32, libm a lane for the rest.

Each of exp, log, tanh, sigmoid and erf becomes a small helper function of the module, made for
one vector width and always inlined. Their polynomials are minimax fits of the relative error.
A product that is added may fuse (`contract`); no other liberty is taken, so that infinities, NaN,
signed zeros and subnormals come out as numpy has them. Errors, in units in the last place over
all floats: exp 1, log 0.8, tanh 1.3, sigmoid 2.2, erf 1.2, with or without fused multiply-add.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minitvm import dtypes
from minitvm.codegen.arithmetic import (
    binary,
    compare,
    extend_half,
    is_half,
    truncate_to_half,
)
from minitvm.codegen.half import widened
from minitvm.codegen.text import FunctionText, constant, llvm_type, suffix
from minitvm.errors import CodegenError

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

_LIBM = {"exp": "exp", "log": "log", "tanh": "tanh", "erf": "erf", "sin": "sin", "cos": "cos",
         "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh",
         "cosh": "cosh", "pow": "pow"}
_INSTRUCTIONS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
                 "round": "rint", "abs": "fabs", "fma": "fmuladd"}


def intrinsic(f: FunctionText, name: str, dtype: str, arguments: list[str], given: str) -> str:
    """A call of an intrinsic; `dtype` is the result's, `given` that of the arguments."""
    if name == "likely":
        return arguments[0]
    if name in ("isnan", "isinf"):
        return _classify(f, name, given, arguments[0])
    if is_half(dtype):
        wide = widened(dtype)
        result = intrinsic(f, name, wide, [extend_half(f, dtype, x) for x in arguments], wide)
        return truncate_to_half(f, wide, result)
    if not dtypes.is_float(dtype):
        return _integer_intrinsic(f, name, dtype, arguments)
    if name in _INSTRUCTIONS:
        function = f"llvm.{_INSTRUCTIONS[name]}.{suffix(dtype)}"
        return f.call(function, dtype, [(dtype, x) for x in arguments])
    if name == "rsqrt":
        root = f.call(f"llvm.sqrt.{suffix(dtype)}", dtype, [(dtype, arguments[0])])
        return f.pure(f"fdiv {llvm_type(dtype)} {constant(1.0, dtype)}, {root}")
    if name in _POLYNOMIALS and dtypes.element(dtype) == "float32":
        return _call_helper(f, name, dtype, arguments[0])
    if name == "sigmoid":
        return _sigmoid(f, dtype, arguments[0], lambda x: intrinsic(f, "exp", dtype, [x], dtype))
    if name == "ldexp":
        return _ldexp(f, dtype, *arguments)
    if name in _LIBM:
        return _each_lane(f, _LIBM[name], dtype, arguments)
    raise CodegenError(f"code generation does not know the intrinsic {name!r}")


def _integer_intrinsic(f: FunctionText, name: str, dtype: str, arguments: list[str]) -> str:
    if name != "abs":
        raise CodegenError(f"the intrinsic {name!r} takes floats, not {dtype}; cast the argument")
    if dtypes.is_unsigned(dtype) or dtypes.is_bool(dtype):
        return arguments[0]
    name = f"llvm.abs.{suffix(dtype)}"
    kind = llvm_type(dtype)
    callee = f.module.declare(name, kind, (kind, "i1"))
    return f.pure(f"call {kind} {callee}({kind} {arguments[0]}, i1 false)")


def _classify(f: FunctionText, name: str, dtype: str, x: str) -> str:
    if not dtypes.is_float(dtype):
        return constant(False, dtypes.vector("bool", dtypes.lanes(dtype)))
    if is_half(dtype):
        x, dtype = extend_half(f, dtype, x), widened(dtype)
    kind = llvm_type(dtype)
    if name == "isnan":
        return f.pure(f"fcmp uno {kind} {x}, {x}")
    size = f.call(f"llvm.fabs.{suffix(dtype)}", dtype, [(dtype, x)])
    return compare(f, "eq", dtype, size, constant(math.inf, dtype))


def _each_lane(f: FunctionText, name: str, dtype: str, arguments: list[str]) -> str:
    """A function of libm, lane by lane."""
    scalar, count = dtypes.split(dtype)
    function = name + ("f" if scalar == "float32" else "")
    if count == 1:
        return f.call(function, scalar, [(scalar, x) for x in arguments])
    kind, result = llvm_type(dtype), "poison"
    for lane in range(count):
        parts = [f.pure(f"extractelement {kind} {x}, i64 {lane}") for x in arguments]
        value = f.call(function, scalar, [(scalar, part) for part in parts])
        result = f.pure(f"insertelement {kind} {result}, {llvm_type(scalar)} {value}, i64 {lane}")
    return result


# --- float32 polynomials ------------------------------------------------------------------------


def _call_helper(f: FunctionText, name: str, dtype: str, x: str) -> str:
    """Calls the helper for a function and a width, and writes it where it is the first call."""
    helper, kind = f"math.{name}.{suffix(dtype)}", llvm_type(dtype)
    if helper not in f.module.helpers:
        f.module.helpers[helper] = ""  # keeps its place before the helpers that it calls itself
        body = FunctionText(f.module)
        result = _POLYNOMIALS[name](_Float32(body, dtype), "%x")
        body.effect(f"ret {kind} {result}")
        header = f"define internal {kind} @{helper}({kind} %x) #2"
        f.module.helpers[helper] = body.text(header)
    return f.pure(f"call {kind} @{helper}({kind} {x})")


class _Float32:
    """Short names for the operations on one float32 vector type."""

    def __init__(self, f: FunctionText, dtype: str) -> None:
        self.f = f
        self.dtype = dtype
        self.integer = dtypes.vector("int32", dtypes.lanes(dtype))
        self.kind, self.integers = llvm_type(dtype), llvm_type(self.integer)
        self.flag = llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))

    def real(self, value: float) -> str:
        return constant(value, self.dtype)

    def whole(self, value: int) -> str:
        return constant(value, self.integer)

    def apply(self, op: str, a: str, b: str) -> str:
        return binary(self.f, op, self.dtype, a, b)

    def integer_op(self, op: str, a: str, b: int | str) -> str:
        operand = self.whole(b) if isinstance(b, int) else b
        return self.f.pure(f"{op} {self.integers} {a}, {operand}")

    def muladd(self, a: str, b: str, c: str) -> str:
        return self.apply("add", self.apply("mul", a, b), c)

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        result = self.real(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.muladd(result, x, self.real(coefficient))
        return result

    def less(self, a: str, b: str) -> str:
        return compare(self.f, "lt", self.dtype, a, b)

    def choose(self, condition: str, yes: str, no: str) -> str:
        return self.f.pure(f"select {self.flag} {condition}, {self.kind} {yes}, {self.kind} {no}")

    def bits(self, x: str) -> str:
        return self.f.pure(f"bitcast {self.kind} {x} to {self.integers}")

    def from_bits(self, x: str) -> str:
        return self.f.pure(f"bitcast {self.integers} {x} to {self.kind}")

    def size(self, x: str) -> str:
        return self.f.call(f"llvm.fabs.{suffix(self.dtype)}", self.dtype, [(self.dtype, x)])

    def with_sign(self, size: str, sign: str) -> str:
        return self.f.call(f"llvm.copysign.{suffix(self.dtype)}", self.dtype,
                           [(self.dtype, size), (self.dtype, sign)])


_ROUNDER = 1.5 * 2.0**23
"""Adding it to a float below 2**22 rounds that to an integer, found in the sum's low bits."""


def _exp(v: _Float32, x: str) -> str:
    """exp(x) = 2**n * exp(r), n = round(x / log(2)), r = x - n * log(2) in two parts.

    The power of two is applied in two halves, so that infinities and subnormals come by
    themselves. Clamping keeps n in range, by comparisons that leave NaN as it is. What is certainly
    zero, as for masked scores, is not computed: products that underflow take a hundred cycles.
    """
    zero = v.less(x, v.real(-104.0))
    x = v.choose(zero, v.real(0.0), x)
    x = v.choose(v.less(v.real(89.0), x), v.real(89.0), x)
    shifted = v.muladd(x, v.real(1 / math.log(2)), v.real(_ROUNDER))
    n = v.apply("sub", shifted, v.real(_ROUNDER))
    r = v.muladd(n, v.real(-0.693359375), x)
    r = v.muladd(n, v.real(0.693359375 - math.log(2)), r)
    tail = v.muladd(v.polynomial(r, _EXP), v.apply("mul", r, r), r)
    result = v.apply("add", tail, v.real(1.0))
    power = v.integer_op("sub", v.bits(shifted), v.bits(v.real(_ROUNDER)))
    half = v.integer_op("ashr", power, 1)
    for part in (half, v.integer_op("sub", power, half)):
        scale = v.integer_op("shl", v.integer_op("add", part, 127), 23)
        result = v.apply("mul", result, v.from_bits(scale))
    return v.choose(zero, v.real(0.0), result)


def _ldexp(f: FunctionText, dtype: str, x: str, n: str) -> str:
    """x * 2**n, n an integer from -126 to 128: its bits are the exponent of 2**n."""
    if dtypes.element(dtype) != "float32":
        return binary(f, "mul", dtype, x, _each_lane(f, "exp2", dtype, [n]))
    v = _Float32(f, dtype)
    shifted = v.apply("add", n, v.real(_ROUNDER + 127))
    power = v.integer_op("sub", v.bits(shifted), v.bits(v.real(_ROUNDER)))
    return v.apply("mul", x, v.from_bits(v.integer_op("shl", power, 23)))


def _log(v: _Float32, x: str) -> str:
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


def _tanh(v: _Float32, x: str) -> str:
    """An odd polynomial near zero, 1 - 2 / (exp(2 |x|) + 1) further out."""
    size = v.size(x)
    square = v.apply("mul", x, x)
    near = v.muladd(v.apply("mul", v.polynomial(square, _TANH), square), x, x)
    grown = _call_helper(v.f, "exp", v.dtype, v.apply("add", size, size))
    far = v.apply("div", v.real(2.0), v.apply("add", grown, v.real(1.0)))
    far = v.apply("sub", v.real(1.0), far)
    return v.with_sign(v.choose(v.less(v.real(0.625), size), far, near), x)


def _sigmoid_float32(v: _Float32, x: str) -> str:
    return _sigmoid(v.f, v.dtype, x, lambda y: _call_helper(v.f, "exp", v.dtype, y))


def _sigmoid(f: FunctionText, dtype: str, x: str, exp: Callable[[str], str]) -> str:
    """1 / (1 + e) or e / (1 + e), with e = exp(-|x|) <= 1: precise at both ends."""
    kind, flag = llvm_type(dtype), llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))
    size = f.call(f"llvm.fabs.{suffix(dtype)}", dtype, [(dtype, x)])
    e = exp(f.pure(f"fneg {kind} {size}"))
    negative = compare(f, "lt", dtype, x, constant(0.0, dtype))
    above = f.pure(f"select {flag} {negative}, {kind} {e}, {kind} {constant(1.0, dtype)}")
    return binary(f, "div", dtype, above, binary(f, "add", dtype, e, constant(1.0, dtype)))


def _erf(v: _Float32, x: str) -> str:
    """An odd polynomial up to 1, 1 - exp(polynomial) from there to 4, where it is 1."""
    size = v.size(x)
    square = v.apply("mul", x, x)
    near = v.muladd(v.polynomial(square, _ERF), x, x)
    bounded = v.choose(v.less(v.real(4.0), size), v.real(4.0), size)
    rest = _call_helper(v.f, "exp", v.dtype, v.polynomial(bounded, _LOG_ERFC))
    far = v.with_sign(v.apply("sub", v.real(1.0), rest), x)
    return v.choose(v.less(v.real(1.0), size), far, near)


_POLYNOMIALS: dict[str, Callable[[_Float32, str], str]] = {
    "exp": _exp, "log": _log, "tanh": _tanh, "sigmoid": _sigmoid_float32, "erf": _erf}
