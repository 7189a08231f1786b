"""ONNX operators of several tensors that broadcast: arithmetic, comparisons, logic, Where."""

from __future__ import annotations

import numpy as np

from minitvm import dtypes
from minitvm.errors import ModelError
from minitvm.relay.ir import Atom, Constant
from minitvm.relay.onnx.conversion import Conversion, chain
from minitvm.relay.onnx.table import converter
from minitvm.relay.op import Op
from minitvm.relay.ops.bits import (
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    LeftShift,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    RightShift,
)
from minitvm.relay.ops.broadcast import (
    Add,
    Divide,
    Equal,
    FloorMod,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Maximum,
    Minimum,
    Mod,
    Multiply,
    Power,
    Subtract,
    Where,
)
from minitvm.relay.ops.elementwise import Cast

BINARY: dict[str, tuple[int, Op]] = {
    "Add": (1, Add()),
    "Sub": (1, Subtract()),
    "Mul": (1, Multiply()),
    "Div": (1, Divide()),
    "Equal": (1, Equal()),
    "Less": (1, Less()),
    "Greater": (1, Greater()),
    "LessOrEqual": (12, LessEqual()),
    "GreaterOrEqual": (12, GreaterEqual()),
    "And": (1, LogicalAnd()),
    "Or": (1, LogicalOr()),
    "Xor": (1, LogicalXor()),
    "BitwiseAnd": (18, BitwiseAnd()),
    "BitwiseOr": (18, BitwiseOr()),
    "BitwiseXor": (18, BitwiseXor()),
}
"""Operators of two tensors that are one relay operator: the first opset, and that operator."""

VARIADIC: dict[str, Op] = {"Sum": Add(), "Max": Maximum(), "Min": Minimum()}
"""Operators of any number of tensors, from left to right."""


def _register_binary(name: str, since: int, op: Op) -> None:
    @converter(name, since)
    def convert(c: Conversion) -> Atom:
        return c.emit(op, c.input(0), c.input(1))


def _register_variadic(name: str, op: Op) -> None:
    @converter(name, 1)
    def convert(c: Conversion) -> Atom:
        return chain(c.emit, op, c.inputs())


for _name, (_since, _op) in BINARY.items():
    _register_binary(_name, _since, _op)
for _name, _op in VARIADIC.items():
    _register_variadic(_name, _op)


@converter("Mean", 1)
def mean(c: Conversion) -> Atom:
    """The sum over the number of tensors."""
    total = chain(c.emit, Add(), c.inputs())
    return c.emit(Divide(), total, c.make(len(c.arguments), c.type(total).dtype))


@converter("Where", 9)
def where(c: Conversion) -> Atom:
    """A choice between two tensors."""
    return c.emit(Where(), c.input(0), c.input(1), c.input(2))


@converter("Mod", 10)
def mod(c: Conversion) -> Atom:
    """`fmod` 0: the sign of the divisor, for integers; 1: that of the dividend."""
    truncated = c.flag("fmod")
    dtype = c.type(c.input(0)).dtype
    if dtypes.is_float(dtype) and not truncated:
        raise ModelError(f"{c.node}: floats need fmod=1")
    return c.emit(Mod() if truncated else FloorMod(), c.input(0), c.input(1))


@converter("BitShift", 11)
def bit_shift(c: Conversion) -> Atom:
    """A shift of unsigned integers."""
    direction = c.text("direction", "", ("LEFT", "RIGHT"))
    return c.emit(LeftShift() if direction == "LEFT" else RightShift(), c.input(0), c.input(1))


# --- powers -------------------------------------------------------------------------------------


LARGEST_EXPANDED_POWER = 64


@converter("Pow", 1)
def power(c: Conversion) -> Atom:
    """Powers have the dtype of the base. A small integer power of integers is multiplied out,
    which is exact; other powers of integers are computed in float64."""
    base, exponent = c.input(0), c.input(1)
    dtype = c.type(base).dtype
    if dtypes.is_float(dtype):
        return c.emit(Power(), base, _cast(c, exponent, dtype))
    count = _whole_exponent(exponent)
    if count is not None:
        return _multiplied_out(c, base, count)
    real = c.emit(Power(), _cast(c, base, "float64"), _cast(c, exponent, "float64"))
    return _cast(c, real, dtype)


def _cast(c: Conversion, atom: Atom, dtype: str) -> Atom:
    return atom if c.type(atom).dtype == dtype else c.emit(Cast(dtype), atom)


def _whole_exponent(exponent: Atom) -> int | None:
    """The one small natural number that an exponent holds; None for any other exponent."""
    if not isinstance(exponent, Constant) or exponent.data.shape not in ((), (1,)):
        return None
    value = float(exponent.data.reshape(-1)[0])
    whole = np.isfinite(value) and value.is_integer() and 1 <= value <= LARGEST_EXPANDED_POWER
    return int(value) if whole else None


def _multiplied_out(c: Conversion, base: Atom, count: int) -> Atom:
    """base to the power count, by squaring."""
    result: Atom | None = None
    square = base
    while True:
        if count & 1:
            result = square if result is None else c.emit(Multiply(), result, square)
        count >>= 1
        if not count:
            assert result is not None
            return result
        square = c.emit(Multiply(), square, square)
