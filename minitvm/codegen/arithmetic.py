"""Operations on scalars and vectors -> LLVM instructions: binary operations, comparisons, casts.

Every operation is defined for every operand, as numpy defines it where it does: integers wrap,
nothing divides by zero, shifts past the width give zero or the sign, float to integer never
gives poison. float16 computes in float32 and rounds after each operation.
"""

from __future__ import annotations

from minitvm import dtypes
from minitvm.codegen import half
from minitvm.codegen.half import has_half, widened
from minitvm.codegen.text import FunctionText, constant, llvm_type, suffix
from minitvm.errors import CodegenError

_WRAPPING = {"add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or",
             "bitxor": "xor"}
_FLOAT = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_BOOL = {"add": "or", "bitor": "or", "max": "or", "mul": "and", "bitand": "and", "min": "and",
         "bitxor": "xor"}
_COMPARE_FLOAT = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def is_half(dtype: str) -> bool:
    """Whether lanes are float16."""
    return dtype.startswith("float16")


def is_literal(value: str) -> bool:
    """Whether an operand is an integer written out."""
    return value.lstrip("-").isdigit()


def binary(f: FunctionText, op: str, dtype: str, a: str, b: str, constants: str = "") -> str:
    """`op` of two values; `constants` says which of them ("a", "b") is a constant, not NaN."""
    if is_half(dtype):
        wide = widened(dtype)
        result = binary(f, op, wide, extend_half(f, dtype, a), extend_half(f, dtype, b), constants)
        return truncate_to_half(f, wide, result)
    if dtypes.is_float(dtype):
        return _binary_float(f, op, dtype, a, b, constants)
    kind = llvm_type(dtype)
    if dtypes.is_bool(dtype):
        if op not in _BOOL:
            raise CodegenError(f"the operation {op!r} is not defined for {dtype}; cast it first")
        return f.pure(f"{_BOOL[op]} {kind} {a}, {b}")
    if op in _WRAPPING:
        return f.pure(f"{_WRAPPING[op]} {kind} {a}, {b}")
    sign = "u" if dtypes.is_unsigned(dtype) else "s"
    match op:
        case "min" | "max":
            name = f"llvm.{sign}{op}.{suffix(dtype)}"
            return f.call(name, dtype, [(dtype, a), (dtype, b)])
        case "floordiv" | "floormod":
            return _divide_safely(f, op, dtype, a, b, "b" in constants)
        case "shl" | "shr":
            return _shift(f, op, dtype, a, b)
    raise CodegenError(f"the operation {op!r} is not defined for {dtype}")


def _binary_float(f: FunctionText, op: str, dtype: str, a: str, b: str, constants: str) -> str:
    kind = llvm_type(dtype)
    if op in _FLOAT:
        return f.pure(f"{_FLOAT[op]} {kind} {a}, {b}")
    if op in ("min", "max"):
        return _extremum(f, op, dtype, a, b, constants)
    if op in ("floordiv", "floormod"):
        return _divide_floats(f, op, dtype, a, b)
    raise CodegenError(f"the operation {op!r} is not defined for {dtype}; cast it first")


def _extremum(f: FunctionText, op: str, dtype: str, a: str, b: str, constants: str) -> str:
    """Min and max that give NaN where either is NaN.

    Against a constant, `x < c ? c : x` is one instruction and keeps a NaN in x.
    """
    kind = llvm_type(dtype)
    condition = llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))
    beaten = "olt" if op == "max" else "ogt"
    if "a" in constants:
        a, b = b, a
    if constants:
        wins = f.pure(f"fcmp {beaten} {kind} {a}, {b}")
        return f.pure(f"select {condition} {wins}, {kind} {b}, {kind} {a}")
    wins = f.pure(f"fcmp {beaten} {kind} {b}, {a}")
    chosen = f.pure(f"select {condition} {wins}, {kind} {a}, {kind} {b}")
    nan = f.pure(f"fcmp uno {kind} {a}, {a}")
    return f.pure(f"select {condition} {nan}, {kind} {a}, {kind} {chosen}")


def _divide_floats(f: FunctionText, op: str, dtype: str, a: str, b: str) -> str:
    """Python's rule, as numpy has it: the remainder takes the divisor's sign."""
    kind, flag = llvm_type(dtype), llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))
    zero = constant(0.0, dtype)

    def choose(condition: str, yes: str, no: str) -> str:
        return f.pure(f"select {flag} {condition}, {kind} {yes}, {kind} {no}")

    def copysign(size: str, sign: str) -> str:
        return f.call(f"llvm.copysign.{suffix(dtype)}", dtype, [(dtype, size), (dtype, sign)])

    rest = f.pure(f"frem {kind} {a}, {b}")
    rest_negative = f.pure(f"fcmp olt {kind} {rest}, {zero}")
    divisor_negative = f.pure(f"fcmp olt {kind} {b}, {zero}")
    differ = f.pure(f"xor {flag} {rest_negative}, {divisor_negative}")
    inexact = f.pure(f"fcmp une {kind} {rest}, {zero}")
    adjust = f.pure(f"and {flag} {differ}, {inexact}")
    if op == "floormod":
        moved = choose(adjust, f.pure(f"fadd {kind} {rest}, {b}"), rest)
        return choose(inexact, moved, copysign(zero, b))
    quotient = f.pure(f"fdiv {kind} {f.pure(f'fsub {kind} {a}, {rest}')}, {b}")
    quotient = choose(adjust, f.pure(f"fsub {kind} {quotient}, {constant(1.0, dtype)}"), quotient)
    floor = f.call(f"llvm.floor.{suffix(dtype)}", dtype, [(dtype, quotient)])
    error = f.pure(f"fsub {kind} {quotient}, {floor}")
    above = f.pure(f"fcmp ogt {kind} {error}, {constant(0.5, dtype)}")
    floor = choose(above, f.pure(f"fadd {kind} {floor}, {constant(1.0, dtype)}"), floor)
    exact = f.pure(f"fdiv {kind} {a}, {b}")
    nonzero = f.pure(f"fcmp une {kind} {quotient}, {zero}")
    result = choose(nonzero, floor, copysign(zero, exact))
    return choose(f.pure(f"fcmp oeq {kind} {b}, {zero}"), exact, result)


def floor_divide(f: FunctionText, op: str, kind: str, a: str, b: str) -> str:
    """Floor division or remainder of signed integers of LLVM type `kind`, for a sound divisor.

    For a constant divisor LLVM turns this into shifts and multiplications.
    """
    flag = kind.replace(kind.strip("<>").split()[-1], "i1")
    zero = "zeroinitializer" if kind.startswith("<") else "0"
    quotient = f.pure(f"sdiv {kind} {a}, {b}")
    product = f.pure(f"mul {kind} {quotient}, {b}")
    rest = f.pure(f"sub {kind} {a}, {product}")
    signs = f.pure(f"xor {kind} {rest}, {b}")
    differ = f.pure(f"icmp slt {kind} {signs}, {zero}")
    inexact = f.pure(f"icmp ne {kind} {rest}, {zero}")
    adjust = f.pure(f"and {flag} {differ}, {inexact}")
    if op == "floordiv":
        down = f.pure(f"sext {flag} {adjust} to {kind}")
        return f.pure(f"add {kind} {quotient}, {down}")
    up = f.pure(f"select {flag} {adjust}, {kind} {b}, {kind} {zero}")
    return f.pure(f"add {kind} {rest}, {up}")


def _divide_safely(f: FunctionText, op: str, dtype: str, a: str, b: str, sound: bool) -> str:
    """Integer division; by zero it gives zero, as numpy's does, instead of ending the process."""
    kind, flag = llvm_type(dtype), llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))
    one, zero = constant(1, dtype), constant(0, dtype)
    signed = not dtypes.is_unsigned(dtype)
    divisor, by_zero, by_minus_one = b, "", ""
    if not sound:
        by_zero = f.pure(f"icmp eq {kind} {b}, {zero}")
        divisor = f.pure(f"select {flag} {by_zero}, {kind} {one}, {kind} {divisor}")
        if signed:  # the least integer divided by -1 overflows
            by_minus_one = f.pure(f"icmp eq {kind} {b}, {constant(-1, dtype)}")
            divisor = f.pure(f"select {flag} {by_minus_one}, {kind} {one}, {kind} {divisor}")
    if signed:
        result = floor_divide(f, op, kind, a, divisor)
    else:
        result = f.pure(f"{'udiv' if op == 'floordiv' else 'urem'} {kind} {a}, {divisor}")
    if by_minus_one and op == "floordiv":
        negated = f.pure(f"sub {kind} {zero}, {a}")
        result = f.pure(f"select {flag} {by_minus_one}, {kind} {negated}, {kind} {result}")
    if by_zero:
        result = f.pure(f"select {flag} {by_zero}, {kind} {zero}, {kind} {result}")
    return result


def _shift(f: FunctionText, op: str, dtype: str, a: str, b: str) -> str:
    kind, flag = llvm_type(dtype), llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))
    last = constant(dtypes.bits(dtype) - 1, dtype)
    inside = f.pure(f"icmp ule {kind} {b}, {last}")
    amount = f.pure(f"select {flag} {inside}, {kind} {b}, {kind} {last}")
    if op == "shr" and not dtypes.is_unsigned(dtype):
        return f.pure(f"ashr {kind} {a}, {amount}")
    shifted = f.pure(f"{'shl' if op == 'shl' else 'lshr'} {kind} {a}, {amount}")
    return f.pure(f"select {flag} {inside}, {kind} {shifted}, {kind} {constant(0, dtype)}")


def compare(f: FunctionText, op: str, dtype: str, a: str, b: str) -> str:
    """A comparison of two values of `dtype`; gives a bool."""
    if is_half(dtype):
        a, b = extend_half(f, dtype, a), extend_half(f, dtype, b)
        dtype = widened(dtype)
    kind = llvm_type(dtype)
    if dtypes.is_float(dtype):
        return f.pure(f"fcmp {_COMPARE_FLOAT[op]} {kind} {a}, {b}")
    sign = "s" if dtypes.is_int(dtype) and not dtypes.is_unsigned(dtype) else "u"
    condition = op if op in ("eq", "ne") else sign + op
    return f.pure(f"icmp {condition} {kind} {a}, {b}")


# --- casts --------------------------------------------------------------------------------------


def cast(f: FunctionText, source: str, result: str, value: str) -> str:
    """Conversion from dtype `source` to `result`, as numpy's `astype`."""
    if source == result:
        return value
    if is_half(source):
        return cast(f, widened(source), result, extend_half(f, source, value))
    if is_half(result):
        middle = source if source.startswith("float64") else widened(source)
        return truncate_to_half(f, middle, cast(f, source, middle, value))
    kind, target = llvm_type(source), llvm_type(result)
    if dtypes.is_bool(result):
        zero = constant(0, source)
        compared = "fcmp une" if dtypes.is_float(source) else "icmp ne"
        return f.pure(f"{compared} {kind} {value}, {zero}")
    if dtypes.is_float(source):
        if dtypes.is_float(result):
            wider = dtypes.bits(result) > dtypes.bits(source)
            return f.pure(f"{'fpext' if wider else 'fptrunc'} {kind} {value} to {target}")
        return _float_to_integer(f, source, result, value)
    signed = dtypes.is_int(source) and not dtypes.is_unsigned(source)
    if dtypes.is_float(result):
        return f.pure(f"{'sitofp' if signed else 'uitofp'} {kind} {value} to {target}")
    return _resize(f, source, result, value)


def _resize(f: FunctionText, source: str, result: str, value: str) -> str:
    width = 1 if dtypes.is_bool(source) else dtypes.bits(source)
    if width == dtypes.bits(result):
        return value
    signed = dtypes.is_int(source) and not dtypes.is_unsigned(source)
    change = "trunc" if width > dtypes.bits(result) else "sext" if signed else "zext"
    return f.pure(f"{change} {llvm_type(source)} {value} to {llvm_type(result)}")


def _float_to_integer(f: FunctionText, source: str, result: str, value: str) -> str:
    """Truncation through a wider signed integer, so that what doesn't fit wraps.

    Beyond that integer numpy leaves the result to the machine; `freeze` makes it some integer.
    """
    kind, count = llvm_type(source), dtypes.lanes(source)
    narrow = dtypes.bits(result) < 32 or dtypes.element(result) == "int32"
    middle = dtypes.vector("int32" if narrow else "int64", count)
    signed = f.pure(f"fptosi {kind} {value} to {llvm_type(middle)}")
    signed = f.pure(f"freeze {llvm_type(middle)} {signed}")
    if dtypes.element(result) != "uint64":
        return _resize(f, middle, result, signed)
    target, flag = llvm_type(result), llvm_type(dtypes.vector("bool", count))
    unsigned = f.pure(f"freeze {target} {f.pure(f'fptoui {kind} {value} to {target}')}")
    large = f.pure(f"fcmp oge {kind} {value}, {constant(2.0**63, source)}")
    return f.pure(f"select {flag} {large}, {target} {unsigned}, {target} {signed}")


def extend_half(f: FunctionText, dtype: str, value: str) -> str:
    """float16 -> float32."""
    if has_half(f.module.target):
        return f.pure(f"fpext {llvm_type(dtype)} {value} to {llvm_type(widened(dtype))}")
    return half.extend(f, dtype, value)


def truncate_to_half(f: FunctionText, source: str, value: str) -> str:
    """float32 or float64 -> float16, rounded once."""
    if source.startswith("float64"):
        value = cast(f, source, widened(source), half.round_to_odd(f, source, value))
        source = widened(source)
    if has_half(f.module.target):
        target = llvm_type(dtypes.vector("float16", dtypes.lanes(source)))
        return f.pure(f"fptrunc {llvm_type(source)} {value} to {target}")
    return half.truncate(f, source, value)
