"""The intrinsics of tir -> LLVM: vector polynomials for float32, libm a lane for the rest.

Each of exp, decay, log, tanh, sigmoid, erf, sin and cos becomes a small helper function of the
module, made for one vector width. The greatest errors found, in units in the last place, of code
with AVX-512, AVX2, and SSE2, which has no fused multiply-add:

    exp      0.906 at 4.5058656       every float
    log      0.830 at 0.70524061      every float
    tanh     1.480 at 0.63147831      every float of sizes 1e-4 to 12
    sigmoid  1.601 at -5.1433978      every float of sizes 1e-8 to 106
    erf      1.343 at 0.99865258      every float of sizes 1e-4 to 4.2
    rsqrt    1.490 at 1.0061859       every float from 1 to 4: others only differ in the exponent
    decay    1.178 at -5.1972361      every float
    sin      1.576 at 452633280       every float
    cos      1.561 at 81850168        every float

`python -m minitvm.testing.ulp` measures them; over all floats that takes minutes for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minitvm import dtypes
from minitvm.codegen import exponentials, trigonometry
from minitvm.codegen.arithmetic import (
    binary,
    compare,
    extend_half,
    is_half,
    truncate_to_half,
)
from minitvm.codegen.float32 import ROUNDER, Float32, Rule, call_helper
from minitvm.codegen.half import widened
from minitvm.codegen.text import FunctionText, constant, llvm_type, suffix
from minitvm.errors import CodegenError
from minitvm.tir.intrinsics import DECAY_LOW

_POLYNOMIALS: dict[str, Rule] = {
    "exp": exponentials.exp, "decay": exponentials.decay, "log": exponentials.log,
    "tanh": exponentials.tanh, "sigmoid": exponentials.sigmoid, "erf": exponentials.erf,
    "sin": trigonometry.sin, "cos": trigonometry.cos}
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
        return call_helper(f, name, _POLYNOMIALS[name], dtype, arguments[0])
    if name == "decay":
        return _decay(f, dtype, arguments[0])
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


def _ldexp(f: FunctionText, dtype: str, x: str, n: str) -> str:
    """x * 2**n, n an integer from -126 to 128: its bits are the exponent of 2**n."""
    if dtypes.element(dtype) != "float32":
        return binary(f, "mul", dtype, x, _each_lane(f, "exp2", dtype, [n]))
    v = Float32(f, dtype)
    shifted = v.apply("add", n, v.real(ROUNDER + 127))
    power = v.integer_op("sub", v.bits(shifted), v.bits(v.real(ROUNDER)))
    return v.apply("mul", x, v.from_bits(v.integer_op("shl", power, 23)))


def _decay(f: FunctionText, dtype: str, x: str) -> str:
    """exp of libm, zero where `decay` is."""
    kind, flag = llvm_type(dtype), llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))
    far = compare(f, "lt", dtype, x, constant(DECAY_LOW, dtype))
    power = _each_lane(f, "exp", dtype, [x])
    return f.pure(f"select {flag} {far}, {kind} {constant(0.0, dtype)}, {kind} {power}")


def _sigmoid(f: FunctionText, dtype: str, x: str, exp: Callable[[str], str]) -> str:
    """1 / (1 + e) or e / (1 + e), with e = exp(-|x|) <= 1: precise at both ends."""
    kind, flag = llvm_type(dtype), llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))
    size = f.call(f"llvm.fabs.{suffix(dtype)}", dtype, [(dtype, x)])
    e = exp(f.pure(f"fneg {kind} {size}"))
    negative = compare(f, "lt", dtype, x, constant(0.0, dtype))
    above = f.pure(f"select {flag} {negative}, {kind} {e}, {kind} {constant(1.0, dtype)}")
    return binary(f, "div", dtype, above, binary(f, "add", dtype, e, constant(1.0, dtype)))
