"""float16 to float32 and back, where the machine has no instruction for it.

LLVM would call a function of the compiler's own library, which neither libc nor libm holds; so the
conversion is written out, in integer operations that work on vectors. Rounding is to nearest even.
"""

from __future__ import annotations

from functools import cache

from minitvm import dtypes
from minitvm.codegen.text import FunctionText, constant, llvm_type
from minitvm.target import Target

_FEATURES = {"x86_64": "f16c", "riscv64": "zfhmin"}
_HALF_INFINITY = 0x7C00
_REBIAS = 127 - 15


@cache
def has_half(target: Target) -> bool:
    """Whether the target converts float16 in hardware."""
    feature = _FEATURES.get(target.isa)
    return feature is None or target.has(feature)


def widened(dtype: str) -> str:
    """The float32 dtype with as many lanes."""
    return dtypes.vector("float32", dtypes.lanes(dtype))


class _Bits:
    """Short names for integer operations on the bits of a float32 vector."""

    def __init__(self, f: FunctionText, lanes: int) -> None:
        self.f = f
        self.floats, self.integers, self.flags, self.shorts = (
            llvm_type(dtypes.vector(name, lanes)) for name in ("float32", "int32", "bool", "int16"))
        self.float_dtype = dtypes.vector("float32", lanes)
        self.integer_dtype = dtypes.vector("int32", lanes)

    def op(self, op: str, a: str, b: int | str) -> str:
        operand = constant(b, self.integer_dtype) if isinstance(b, int) else b
        return self.f.pure(f"{op} {self.integers} {a}, {operand}")

    def float_op(self, op: str, a: str, b: float) -> str:
        return self.f.pure(f"{op} {self.floats} {a}, {constant(b, self.float_dtype)}")

    def choose(self, condition: str, yes: str, no: str) -> str:
        return self.f.pure(
            f"select {self.flags} {condition}, {self.integers} {yes}, {self.integers} {no}")

    def to_float(self, bits: str) -> str:
        return self.f.pure(f"bitcast {self.integers} {bits} to {self.floats}")

    def to_bits(self, value: str) -> str:
        return self.f.pure(f"bitcast {self.floats} {value} to {self.integers}")


def extend(f: FunctionText, dtype: str, value: str) -> str:
    """float16 -> float32: the bits moved up, and a product that sets the exponent right.

    The product also normalises subnormals; infinities and NaN get the greatest exponent.
    """
    bits = _Bits(f, dtypes.lanes(dtype))
    short = f.pure(f"bitcast {llvm_type(dtype)} {value} to {bits.shorts}")
    raw = f.pure(f"zext {bits.shorts} {short} to {bits.integers}")
    size = bits.op("and", raw, 0x7FFF)
    moved = bits.op("shl", size, 13)
    finite = bits.to_bits(bits.float_op("fmul", bits.to_float(moved), 2.0**_REBIAS))
    special = bits.op("or", moved, 0x7F800000)
    chosen = bits.choose(bits.op("icmp uge", size, _HALF_INFINITY), special, finite)
    sign = bits.op("shl", bits.op("and", raw, 0x8000), 16)
    return bits.to_float(bits.op("or", chosen, sign))


def truncate(f: FunctionText, source: str, value: str) -> str:
    """float32 -> float16.

    Below float16's normal numbers, adding 0.5 leaves the rounded result in the low bits of the
    sum; above, half of what is cut off is added first, less one if the last bit kept is even.
    """
    bits = _Bits(f, dtypes.lanes(source))
    raw = bits.to_bits(value)
    size = bits.op("and", raw, 0x7FFFFFFF)
    small = bits.to_bits(bits.float_op("fadd", bits.to_float(size), 0.5))
    small = bits.op("sub", small, 0x3F000000)
    odd = bits.op("and", bits.op("lshr", size, 13), 1)
    rounded = bits.op("lshr", bits.op("add", bits.op("add", size, 0xFFF), odd), 13)
    normal = bits.op("sub", rounded, _REBIAS << 10)
    result = bits.choose(bits.op("icmp ult", size, (127 - 14) << 23), small, normal)
    infinity = constant(_HALF_INFINITY, bits.integer_dtype)
    result = bits.choose(bits.op("icmp uge", size, (127 + 16) << 23), infinity, result)
    nan = constant(_HALF_INFINITY | 0x200, bits.integer_dtype)
    result = bits.choose(bits.op("icmp ugt", size, 0x7F800000), nan, result)
    sign = bits.op("and", bits.op("lshr", raw, 16), 0x8000)
    short = f.pure(f"trunc {bits.integers} {bits.op('or', result, sign)} to {bits.shorts}")
    result_type = llvm_type(dtypes.vector("float16", dtypes.lanes(source)))
    return f.pure(f"bitcast {bits.shorts} {short} to {result_type}")


def round_to_odd(f: FunctionText, dtype: str, value: str) -> str:
    """A float64 cut to float32's precision, its last bit set if anything was lost.

    Rounded again to float16, it sees on which side of a tie the float64 was.
    """
    bits = dtypes.vector("int64", dtypes.lanes(dtype))
    kind, flag = llvm_type(bits), llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))
    unit, zero = constant(2**29, bits), constant(0, bits)
    raw = f.pure(f"bitcast {llvm_type(dtype)} {value} to {kind}")
    lost = f.pure(f"and {kind} {raw}, {constant(2**29 - 1, bits)}")
    kept = f.pure(f"and {kind} {raw}, {constant(-(2**29), bits)}")
    inexact = f.pure(f"icmp ne {kind} {lost}, {zero}")
    sticky = f.pure(f"select {flag} {inexact}, {kind} {unit}, {kind} {zero}")
    odd = f.pure(f"or {kind} {kept}, {sticky}")
    return f.pure(f"bitcast {kind} {odd} to {llvm_type(dtype)}")
