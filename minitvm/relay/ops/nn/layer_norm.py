"""Normalisation by statistics of each row: `nn.standardize`, and `nn.layer_norm` made of it.

The te stages of `nn.standardize`, rows r by blocks of lanes, by tag:

    standardize_data        r, n        the data, padded
    standardize_sum         r           by `rows.reduce_rows`, as are
    standardize_squares     r           those of distances to the mean
    standardize_mean        r           if it is centered, as is the sum
    standardize_factor      r           1 / sqrt(variance + epsilon)
    standardize             as x        (data - mean) * factor
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import Atom, TensorType, tensor_type
from minitvm.relay.op import Emit, LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.broadcast import Add, Multiply
from minitvm.relay.ops.composite import Composite
from minitvm.relay.ops.nn.dense import joint_index
from minitvm.relay.ops.nn.normalization import channel_axis
from minitvm.relay.ops.nn.rows import copy_rows, reduce_rows
from minitvm.relay.ops.nn.windows import stage
from minitvm.relay.ops.transform import Transpose
from minitvm.te.recipes import schedule_standardize
from minitvm.tir import ir
from minitvm.tir.ir import Expr

if TYPE_CHECKING:
    from minitvm.target import Target


@register
@dataclass(frozen=True, slots=True)
class Standardize(Op):
    """(x - mean) / sqrt(variance + epsilon), statistics taken over the last `axes` axes together;
    x / sqrt(mean square + epsilon) where it is not `centered`.

    `lanes`: how many elements are summed up together (`alter_layout` says).
    """

    name = "nn.standardize"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    reads_through_copies = True

    axes: int = 1
    epsilon: float = 1e-5
    lanes: int = 1
    centered: bool = True

    def infer(self, x: TensorType) -> TensorType:
        if not dtypes.is_float(x.dtype):
            raise self.fail((x,), "the data must be floats; cast it")
        if not 1 <= self.axes <= x.rank:
            raise self.fail((x,), f"it has no {self.axes} axes at the end")
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        axes = tuple(range(x.ndim - self.axes, x.ndim))
        count = x.dtype.type(prod(x.shape[x.ndim - self.axes:]))
        with np.errstate(all="ignore"):
            distance = x - x.sum(axes, keepdims=True) / count if self.centered else x
            variance = (distance * distance).sum(axes, keepdims=True) / count
            return np.asarray(distance / np.sqrt(variance + x.dtype.type(self.epsilon)))

    def compute(self, x: te.Tensor) -> te.Tensor:
        extents = x.extents()
        leading, row = extents[:x.ndim - self.axes], extents[x.ndim - self.axes:]
        zero, one = ir.convert(0.0, x.dtype), ir.convert(1.0, x.dtype)
        count, epsilon = ir.convert(prod(row), x.dtype), ir.convert(self.epsilon, x.dtype)
        data = copy_rows(x, self.axes, self.lanes, zero, "standardize_data")
        shape = data.extents()
        mean: te.Tensor | None = None
        if self.centered:
            total = reduce_rows(shape, self.lanes, te.sum, data, "standardize_sum")
            mean = stage(shape[:1], lambda r: total[r] / count, "standardize_mean")

        def distance(r: Expr, n: Expr) -> Expr:
            return data[r, n] if mean is None else data[r, n] - mean[r]

        def square(r: Expr, n: Expr) -> Expr:
            value = distance(r, n) * distance(r, n)
            is_padded = self.centered and shape[1] != prod(row)
            return te.if_then_else(n < prod(row), value, zero) if is_padded else value

        squares = reduce_rows(shape, self.lanes, te.sum, square, "standardize_squares")
        factor = stage(shape[:1], lambda r: one / te.sqrt(squares[r] / count + epsilon),
                       "standardize_factor")

        def element(*i: Expr) -> Expr:
            r, n = joint_index(i[:len(leading)], leading), joint_index(i[len(leading):], row)
            return distance(r, n) * factor[r]

        return stage(extents, element, "standardize")

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_standardize(s, anchor, output, target)

    def alter_layout(self, types: tuple[Any, ...], target: Target) -> LayoutChoice | None:
        lanes = target.lanes(types[0].dtype)
        if self.lanes != 1 or lanes == 1:
            return None
        return LayoutChoice(replace(self, lanes=lanes), (None,), None)


@register
@dataclass(frozen=True, slots=True)
class LayerNorm(Composite):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta, by the statistics along an axis."""

    name = "nn.layer_norm"
    arity = 3

    axis: int = -1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True

    def check(self, types: tuple[TensorType, ...]) -> None:
        if not dtypes.is_float(types[0].dtype):
            raise self.fail(types, "the data must be floats; cast it")
        channel_axis(self, self.axis, types)

    def legalize(self, emit: Emit, x: Atom, gamma: Atom, beta: Atom) -> Atom:
        rank = tensor_type(x).rank
        axis = self.axis % rank
        order = (*(i for i in range(rank) if i != axis), axis)
        last = x if axis == rank - 1 else emit(Transpose(axes=order), x)
        result = emit(Standardize(epsilon=self.epsilon), last)
        result = emit(Multiply(), result, gamma) if self.scale else result
        result = emit(Add(), result, beta) if self.center else result
        back = tuple(order.index(i) for i in range(rank))
        return result if axis == rank - 1 else emit(Transpose(axes=back), result)
