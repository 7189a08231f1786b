"""Expressions of tir as Python closures: the part of the interpreter without memory.

`expression_rules(expr, compile)` gives the function that computes `expr` from a frame, where
`compile` does the same for its operands. Scalar integers are Python ints wrapped to their dtype,
scalar floats numpy scalars, scalar bools Python or numpy bools; vectors are numpy arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import InterpreterError
from minitvm.tir import instructions, intrinsics
from minitvm.tir.ir import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Not,
    Or,
    Ramp,
    Select,
)

Frame = list[Any]
Value = Callable[[Frame], Any]
Compile = Callable[[Expr], Value]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}


def expression_rules(expr: Expr, compile: Compile) -> Value:
    """The closure for an expression that neither names a variable nor touches memory itself."""
    match expr:
        case Const(value, dtype):
            constant = _constant(value, dtype)
            return lambda frame: constant
        case Binary(op, a, b):
            return _binary(op, compile(a), compile(b), expr.dtype)
        case Compare(op, a, b):
            return _apply(_COMPARE[op], compile(a), compile(b))
        case And(a, b) | Or(a, b):
            return _connective(isinstance(expr, And), compile(a), compile(b), expr.dtype)
        case Not(a):
            value_of = compile(a)
            return lambda frame: np.logical_not(value_of(frame))
        case Select(condition, true_value, false_value):
            return _select(compile(condition), compile(true_value), compile(false_value))
        case Cast(dtype, value):
            return _cast(compile(value), value.dtype, dtype)
        case Call(name, arguments, dtype):
            return _call(name, [compile(argument) for argument in arguments], dtype)
        case Ramp(base, stride, lanes):
            return _ramp(compile(base), compile(stride), lanes, dtypes.element(expr.dtype))
        case Broadcast(value, lanes):
            return _broadcast(compile(value), lanes, dtypes.to_numpy(expr.dtype))
    raise InterpreterError(f"{type(expr).__name__} can't be run; lower it to tir first")


def check_lanes(index: Any, extent: int) -> bool:
    """Whether an index, or each lane of it, is within [0, extent)."""
    if isinstance(index, np.ndarray):
        return bool(((index >= 0) & (index < extent)).all())
    return bool(0 <= index < extent)


def _constant(value: Any, dtype: str) -> Any:
    if dtypes.is_float(dtype):
        return dtypes.to_numpy(dtype).type(value)
    return bool(value) if dtype == "bool" else int(value)


def _apply(function: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
    return lambda frame: function(a(frame), b(frame))


# --- arithmetic ---------------------------------------------------------------------------------


def _binary(op: str, a: Value, b: Value, dtype: str) -> Value:
    if op in ("min", "max"):
        return _extremum(op, a, b, dtype)
    if dtypes.is_float(dtype):
        return _apply(_FLOAT_OPS[op], a, b)
    if dtypes.lanes(dtype) > 1:
        return _apply(_VECTOR_OPS.get(op) or _checked_vector(op, dtype), a, b)
    if op in _CHECKED:
        return _checked(op, a, b, dtype)
    return _wrapping(_INT_OPS[op], a, b, dtype)


_FLOAT_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": np.floor_divide, "floormod": np.mod,
}
_INT_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor,
    "floordiv": operator.floordiv, "floormod": operator.mod,
    "shl": operator.lshift, "shr": operator.rshift,
}
_CHECKED = ("floordiv", "floormod", "shl", "shr")
_VECTOR_OPS = {name: function for name, function in _INT_OPS.items() if name not in _CHECKED}


def _wrapping(function: Callable[[Any, Any], Any], a: Value, b: Value, dtype: str) -> Value:
    low, high = dtypes.integer_range(dtype)
    mask = high - low

    def execute(frame: Frame) -> Any:
        value = function(a(frame), b(frame))
        return value if low <= value <= high else ((value - low) & mask) + low

    return execute


def _checked(op: str, a: Value, b: Value, dtype: str) -> Value:
    """Division and shifts, which have no meaning for some right operands."""
    check = _bad_operand(op, dtype)

    def right(frame: Frame) -> Any:
        value = b(frame)
        if check(value):
            raise InterpreterError(f"{op} by {value} has no meaning for {dtype}")
        return value

    return _wrapping(_INT_OPS[op], a, right, dtype)


def _checked_vector(op: str, dtype: str) -> Callable[[Any, Any], Any]:
    check, function = _bad_operand(op, dtype), _INT_OPS[op]

    def apply(a: Any, b: Any) -> Any:
        if np.any(check(b)):
            raise InterpreterError(f"{op} by {b} has no meaning for {dtype}")
        return function(a, b)

    return apply


def _bad_operand(op: str, dtype: str) -> Callable[[Any], Any]:
    if op in ("floordiv", "floormod"):
        return lambda value: value == 0
    width = dtypes.bits(dtype)
    return lambda value: (value < 0) | (value >= width)


def _extremum(op: str, a: Value, b: Value, dtype: str) -> Value:
    """The lesser or greater; the first operand where it is NaN, the second where that is."""
    better = operator.lt if op == "min" else operator.gt
    if dtypes.lanes(dtype) > 1:
        def choose(x: Any, y: Any) -> Any:
            return np.where(better(x, y) | (x != x), x, y)
    else:
        def choose(x: Any, y: Any) -> Any:
            return x if better(x, y) or x != x else y
    return _apply(choose, a, b)


# --- choice, conversion, vectors ----------------------------------------------------------------


def _connective(both: bool, a: Value, b: Value, dtype: str) -> Value:
    """Short-circuit for scalars; vectors evaluate both operands."""
    if dtypes.lanes(dtype) > 1:
        return _apply(np.logical_and if both else np.logical_or, a, b)
    if both:
        return lambda frame: bool(a(frame)) and bool(b(frame))
    return lambda frame: bool(a(frame)) or bool(b(frame))


def _select(condition: Value, true_value: Value, false_value: Value) -> Value:
    def execute(frame: Frame) -> Any:
        test, a, b = condition(frame), true_value(frame), false_value(frame)
        if isinstance(test, np.ndarray):
            return np.where(test, a, b)
        return a if test else b

    return execute


def _cast(value: Value, source: str, target: str) -> Value:
    lanes = dtypes.lanes(target)
    from_dtype, to_dtype = dtypes.to_numpy(source), dtypes.to_numpy(target)
    if lanes > 1:
        return lambda frame: value(frame).astype(to_dtype)
    if dtypes.is_float(target):
        return lambda frame: np.asarray(value(frame), from_dtype).astype(to_dtype)[()]
    return lambda frame: np.asarray(value(frame), from_dtype).astype(to_dtype).item()


def _ramp(base: Value, stride: Value, lanes: int, element: str) -> Value:
    low, high = dtypes.integer_range(element)
    dtype = dtypes.to_numpy(element)

    def execute(frame: Frame) -> np.ndarray:
        first, step = base(frame), stride(frame)
        values = [(first + step * lane - low) % (high - low + 1) + low for lane in range(lanes)]
        return np.array(values, dtype)

    return execute


def _broadcast(value: Value, lanes: int, dtype: np.dtype) -> Value:
    return lambda frame: np.full(lanes, value(frame), dtype)


def _call(name: str, arguments: list[Value], dtype: str) -> Value:
    if name == "likely":
        return arguments[0]
    if name == "prefetch":
        return lambda frame: 0
    if name == "if_then_else":
        condition, true_value, false_value = arguments
        return lambda frame: true_value(frame) if condition(frame) else false_value(frame)
    row = instructions.TABLE.get(name) or intrinsics.TABLE.get(name)
    if row is None:
        raise InterpreterError(f"there is no intrinsic {name}")
    meaning, to_dtype = row.meaning, dtypes.to_numpy(dtype)
    if dtypes.lanes(dtype) > 1:
        return lambda frame: np.asarray(
            meaning(*(argument(frame) for argument in arguments))
        ).astype(to_dtype)
    finish = _constant_of(dtype)

    def execute(frame: Frame) -> Any:
        result = meaning(*(argument(frame) for argument in arguments))
        return finish(np.asarray(result).astype(to_dtype))

    return execute


def _constant_of(dtype: str) -> Callable[[np.ndarray], Any]:
    if dtypes.is_float(dtype):
        return lambda array: array[()]
    return lambda array: array.item()
