"""What te computes mean, in plain Python: `evaluate(program, arrays, sizes)`.

Each element is computed by itself, straight from its definition: slow, and independent of
schedules, lowering and tir. Tests hold whatever is lowered against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm.te.tensor import Compute, Scan, Tensor
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


Sizes = Mapping[Var, int]


def extents_of(tensor: Tensor, sizes: Sizes) -> tuple[int, ...]:
    """The shape for given sizes."""
    return tuple(int(_value(extent, sizes, {})) for extent in tensor.shape)


def random_inputs(
    program: Program, seed: int, sizes: Sizes | None = None
) -> list[np.ndarray[Any, Any]]:
    """Small integers for every input."""
    random = np.random.default_rng(seed)
    return [
        random.integers(-4, 5, extents_of(tensor, sizes or {})).astype(tensor.dtype)
        for tensor in program.inputs
    ]


Known = dict[Tensor, np.ndarray[Any, Any]]


def evaluate(
    program: Program, arrays: Sequence[np.ndarray[Any, Any]], sizes: Sizes | None = None
) -> list[np.ndarray[Any, Any]]:
    """The outputs, each element computed as its definition says."""
    known: Known = dict(zip(program.inputs, arrays, strict=True))
    return [_tensor_value(tensor, known, sizes or {}) for tensor in program.outputs]


def _tensor_value(tensor: Tensor, known: Known, sizes: Sizes) -> np.ndarray[Any, Any]:
    if tensor in known:
        return known[tensor]
    op = tensor.op
    if isinstance(op, Scan):
        _run_scan(op, known, sizes)
        return known[tensor]
    assert isinstance(op, Compute)
    for source in op.inputs:
        _tensor_value(source, known, sizes)
    result = np.zeros(extents_of(tensor, sizes), tensor.dtype)
    for point in np.ndindex(*result.shape):
        values = {**sizes, **{axis.var: index for axis, index in zip(op.axis, point)}}
        result[point] = _value(op.bodies[tensor.index], values, known)
    known[tensor] = result
    return result


def _run_scan(op: Scan, known: Known, sizes: Sizes) -> None:
    """The states, step by step; what depends on them is computed as it is read."""
    first = int(_value(op.scan_axis.start, sizes, {}))
    states = [np.zeros(extents_of(state, sizes), state.dtype) for state in op.states]
    for state, init, array in zip(op.states, op.init, states, strict=True):
        array[:first] = _tensor_value(init, known, sizes)
        known[state] = array
    changing = _changing(op)
    for update in op.update:
        for tensor in _sources(update):
            if tensor not in changing:
                _tensor_value(tensor, known, sizes)
    for time in range(first, states[0].shape[0]):
        steps = []
        for update, array in zip(op.update, states, strict=True):
            assert isinstance(update.op, Compute)
            row = np.zeros(array.shape[1:], array.dtype)
            for point in np.ndindex(*row.shape):
                at = dict(zip((axis.var for axis in update.op.axis), (time, *point)))
                row[point] = _value(update.op.bodies[0], {**sizes, **at}, known)
            steps.append(row)
        for row, array in zip(steps, states, strict=True):
            array[time] = row
    for index, array in enumerate(states):
        known[Tensor(op, index, op.states[index].shape, array.dtype.name)] = array


def _sources(tensor: Tensor) -> list[Tensor]:
    """A tensor and all that it is computed from, results of scans taken as they are."""
    found = dict.fromkeys([tensor])
    stack = [tensor]
    while stack:
        op = stack.pop().op
        for source in () if isinstance(op, Scan) else op.inputs:
            if source not in found:
                found[source] = None
                stack.append(source)
    return list(found)


def _changing(op: Scan) -> set[Tensor]:
    """The states, and what depends on them."""
    return {tensor for update in op.update for tensor in _sources(update)
            if any(source in op.states for source in _sources(tensor))} | set(op.update)


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
            if tensor not in known:
                at = dict(zip((axis.var for axis in tensor.op.axis), position))
                return _value(tensor.op.bodies[tensor.index], {**values, **at}, known)
            extents = known[tensor].shape
            assert all(0 <= i < extent for i, extent in zip(position, extents)), "out of bounds"
            return known[tensor][position].item()
        case Reduce():
            return _reduce(expr, values, known)
    raise TypeError(f"the oracle does not know {expr!r}")


def _reduce(
    expr: Reduce, values: Mapping[Var, int], known: Mapping[Tensor, np.ndarray[Any, Any]]
) -> Any:
    state = expr.init or expr.reducer.identity(tuple(source.dtype for source in expr.sources))
    accumulated = [_value(item, values, known) for item in state]
    left = [Var(f"left{i}", source.dtype) for i, source in enumerate(expr.sources)]
    right = [Var(f"right{i}", source.dtype) for i, source in enumerate(expr.sources)]
    combined = expr.reducer.combine(tuple(left), tuple(right))
    ranges = []
    for axis in expr.axes:
        start, extent = _value(axis.start, values, known), _value(axis.extent, values, known)
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
