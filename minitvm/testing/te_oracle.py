"""What te computes mean, in plain Python: `evaluate(program, arrays)`.

Each element is computed by itself, straight from its definition: slow, and independent of
schedules, lowering and tir. Tests hold whatever is lowered against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm.te.tensor import Compute, Tensor
from minitvm.tir.ir import (
    And,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Not,
    Or,
    Read,
    Reduce,
    Select,
    Var,
)


@dataclass(frozen=True, slots=True)
class Program:
    """Some computes: what they read, and what they give."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def args(self) -> tuple[Tensor, ...]:
        """The parameters of the lowered function."""
        return (*self.inputs, *self.outputs)


def random_inputs(program: Program, seed: int) -> list[np.ndarray[Any, Any]]:
    """Small integers for every input."""
    random = np.random.default_rng(seed)
    return [
        random.integers(-4, 5, tensor.extents()).astype(tensor.dtype) for tensor in program.inputs
    ]


def evaluate(
    program: Program, arrays: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """The outputs, each element computed as its definition says."""
    known: dict[Tensor, np.ndarray[Any, Any]] = dict(zip(program.inputs, arrays, strict=True))
    return [_tensor_value(tensor, known) for tensor in program.outputs]


def _tensor_value(
    tensor: Tensor, known: dict[Tensor, np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    if tensor in known:
        return known[tensor]
    op = tensor.op
    assert isinstance(op, Compute)
    for source in op.inputs:
        _tensor_value(source, known)
    result = np.zeros(tensor.extents(), tensor.dtype)
    for point in np.ndindex(*tensor.extents()):
        values = {axis.var: index for axis, index in zip(op.axis, point)}
        result[point] = _value(op.bodies[tensor.index], values, known)
    known[tensor] = result
    return result


def _value(
    expr: Expr, values: Mapping[Var, int], known: Mapping[Tensor, np.ndarray[Any, Any]]
) -> Any:
    def of(operand: Expr) -> Any:
        return _value(operand, values, known)

    match expr:
        case Const(value):
            return value
        case Var():
            return values[expr]
        case Binary(op, a, b):
            return _BINARY[op](of(a), of(b))
        case Compare(op, a, b):
            return _COMPARE[op](of(a), of(b))
        case And(a, b):
            return of(a) and of(b)
        case Or(a, b):
            return of(a) or of(b)
        case Not(a):
            return not of(a)
        case Cast(dtype, value):
            return np.dtype(dtype).type(of(value)).item()
        case Select(condition, a, b) | Call("if_then_else", (condition, a, b)):
            return of(a) if of(condition) else of(b)
        case Read(tensor, indices):
            position = tuple(of(index) for index in indices)
            extents = tensor.extents()
            assert all(0 <= i < extent for i, extent in zip(position, extents)), "out of bounds"
            return known[tensor][position].item()
        case Reduce():
            return _reduce(expr, values, known)
    raise TypeError(f"the oracle does not know {expr!r}")


def _reduce(
    expr: Reduce, values: Mapping[Var, int], known: Mapping[Tensor, np.ndarray[Any, Any]]
) -> Any:
    state = expr.reducer.identity(tuple(source.dtype for source in expr.sources))
    accumulated = [_value(item, values, known) for item in state]
    left = [Var(f"left{i}", source.dtype) for i, source in enumerate(expr.sources)]
    right = [Var(f"right{i}", source.dtype) for i, source in enumerate(expr.sources)]
    combined = expr.reducer.combine(tuple(left), tuple(right))
    ranges = []
    for axis in expr.axes:
        start, extent = _value(axis.start, {}, known), _value(axis.extent, {}, known)
        ranges.append(range(start, start + extent))
    for point in itertools.product(*ranges):
        inner = {**values, **{axis.var: index for axis, index in zip(expr.axes, point)}}
        if expr.where is None or _value(expr.where, inner, known):
            sources = [_value(source, inner, known) for source in expr.sources]
            pair = {**dict(zip(left, accumulated)), **dict(zip(right, sources))}
            accumulated = [_value(item, pair, known) for item in combined]
    return accumulated[expr.index]


_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
}
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
