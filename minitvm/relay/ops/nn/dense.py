"""Products with a weight matrix: `nn.dense`, and batches of products: `nn.batch_matmul`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import dtypes, te
from minitvm.errors import OptionError
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.layout import parse_layout, unpack
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.nn.windows import stage
from minitvm.te.recipes import schedule_dense, schedule_matmul
from minitvm.tir import ir
from minitvm.tir.ir import Expr

if TYPE_CHECKING:
    from minitvm.target import Target


@register
@dataclass(frozen=True, slots=True)
class Dense(Op):
    """x[..., K] times the transpose of w[N, K]: a fully connected layer on every row of x.

    In the layout NK16n the weight is packed as (N/16, K, 16) and padded with zeros; the result
    has `units` columns (without it, N, padding included).
    """

    name = "nn.dense"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    arity = 2
    layouts = ("kernel_layout",)

    kernel_layout: str = "NK"
    units: int | None = None

    def infer(self, x: TensorType, weight: TensorType) -> TensorType:
        types = (x, weight)
        if x.dtype != weight.dtype or dtypes.is_bool(x.dtype):
            raise self.fail(types, "both arguments must have one numeric dtype; cast one of them")
        try:
            layout = parse_layout(self.kernel_layout)
        except OptionError as error:
            raise self.fail(types, str(error)) from error
        if str(layout.without("N")) != "K" or layout.logical != "NK" or layout.axes[-1].name != (
            "N" if layout.is_packed() else "K"
        ):
            raise self.fail(types, f"kernel_layout {layout} is not supported; give NK or NK16n")
        if x.rank < 2 or not layout.accepts(weight.shape):
            raise self.fail(types, f"x must be of rank 2 or more and the weight {layout}")
        columns, depth = layout.unpack_shape(weight.shape)
        if depth != x.shape[-1]:
            raise self.fail(types, f"the weight has {depth} columns, x has {x.shape[-1]}")
        units = columns if self.units is None else self.units
        if self.units is not None and layout.pack_shape((self.units, depth)) != weight.shape:
            raise self.fail(types, f"a weight of {self.units} units does not have this shape")
        return TensorType((*x.shape[:-1], units), x.dtype)

    def evaluate(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        layout = parse_layout(self.kernel_layout)
        if layout.is_packed():
            weight = unpack(weight, layout, (self.units, None))
        with np.errstate(all="ignore"):
            return np.asarray(x @ weight.T)

    def compute(self, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
        if parse_layout(self.kernel_layout).is_packed():
            return self._packed(x, weight)
        *leading, depth = x.extents()
        k = te.reduce_axis((0, depth), "k")

        def element(*i: Expr) -> Any:
            return te.sum(x[(*i[:-1], k.var)] * weight[i[-1], k], axis=k)

        return stage((*leading, weight.extents()[0]), element, "dense")

    def _packed(self, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
        """All rows as one axis by blocks of lanes, then their first `units` columns in a row."""
        *leading, depth = x.extents()
        blocks, _, lanes = weight.extents()
        k = te.reduce_axis((0, depth), "k")

        def element(m: Expr, no: Expr, ni: Expr) -> Any:
            return te.sum(x[(*split_index(m, leading), k.var)] * weight[no, k, ni], axis=k)

        packed = stage((prod(leading), blocks, lanes), element, "dense_packed")
        units = blocks * lanes if self.units is None else self.units

        def unpacked(*i: Expr) -> Any:
            return packed[joint_index(i[:-1], leading), i[-1] // lanes, i[-1] % lanes]

        return stage((*leading, units), unpacked, "dense_unpack")

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_dense(s, anchor, output, target)

    def alter_layout(self, types: tuple[Any, ...], target: Target) -> LayoutChoice | None:
        x, weight = types
        block = target.lanes(x.dtype)
        units = weight.shape[0]
        if self.kernel_layout != "NK" or not dtypes.is_float(x.dtype) or block == 1:
            return None
        if not isinstance(units, int):
            return None
        layout = f"NK{block}n"
        return LayoutChoice(replace(self, kernel_layout=layout, units=units), (None, layout), None)


def joint_index(indices: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The position that indices into a tensor of these extents have in the order of its memory."""
    position: Expr = ir.convert(0, ir.INDEX)
    for index, extent in zip(indices, extents, strict=True):
        position = position * extent + index
    return position


def split_index(position: Expr, extents: Sequence[int]) -> tuple[Expr, ...]:
    """The indices into a tensor of these extents at a position in the order of its memory."""
    indices: list[Expr] = []
    for axis, extent in enumerate(extents):
        stride = max(1, prod(extents[axis + 1:]))
        index = position // stride if stride > 1 else position
        indices.append(index % extent if axis and extent > 0 else index)
    return tuple(indices)


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a product of stacks of matrices: the extents in front of its matrices, and
    `read(indices in front, row, column)`."""

    tensor: te.Tensor
    batch: Sequence[int]
    read: Callable[[tuple[Expr, ...], Expr, Expr], Expr]

    def own(self, batch: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices in front of its matrices, of those of the product: it may broadcast."""
        indices = batch[len(batch) - len(self.batch):]
        zero = ir.convert(0, ir.INDEX)
        return tuple(index if extent != 1 else zero
                     for index, extent in zip(indices, self.batch, strict=True))


def product_in_blocks(
    left: Factor, right: Factor, batch: Sequence[int], extents: tuple[int, int, int], lanes: int
) -> te.Tensor:
    """The product of stacks of matrices of (rows, depth, columns), the second one copied into
    blocks of columns first."""
    rows, depth, columns = extents
    blocks = -(-columns // lanes)
    k = te.reduce_axis((0, depth), "k")

    def packed(*i: Expr) -> Expr:
        n = i[-3] * lanes + i[-1]
        value = right.read(i[:-3], i[-2], n)
        if columns % lanes == 0:
            return value
        return te.if_then_else(n < columns, value, ir.convert(0.0, value.dtype))

    copy = stage((*right.batch, blocks, depth, lanes), packed, "matmul_right")

    def element(*i: Expr) -> Any:
        weight = copy[(*right.own(i[:-3]), i[-2], k.var, i[-1])]
        return te.sum(left.read(left.own(i[:-3]), i[-3], k.var) * weight, axis=k)

    product = stage((*batch, rows, blocks, lanes), element, "matmul_packed")
    return stage((*batch, rows, columns),
                 lambda *i: product[(*i[:-1], i[-1] // lanes, i[-1] % lanes)], "matmul_unpack")


FEW_ROWS = 4
"""So few rows are not worth a copy of the other matrix."""


def lanes_for(
    types: tuple[TensorType, ...], extents: Sequence[Dim], target: Target
) -> int | None:
    """How many columns a product of rows by columns computes together; None where it has too few of
    them, or of rows."""
    lanes = target.lanes(types[0].dtype)
    dims = [dim for given in types for dim in given.shape]
    if lanes == 1 or not dtypes.is_float(types[0].dtype):
        return None
    if not all(isinstance(dim, int) and dim > 0 for dim in dims):
        return None
    rows, columns = TensorType(tuple(extents), types[0].dtype).extents()
    return lanes if rows >= FEW_ROWS and 2 * columns >= lanes else None


@register
@dataclass(frozen=True, slots=True)
class BatchMatmul(Op):
    """x[B, M, K] times y[B, N, K] transposed, for each of B (or one for all).

    `transpose_a`: x is [B, K, M]. `transpose_b` (the default, as in Relay): y is [B, N, K], else
    [B, K, N]. `lanes`: how many columns are computed together (`alter_layout` says); y is then
    copied into blocks of them.
    """

    name = "nn.batch_matmul"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    arity = 2

    transpose_a: bool = False
    transpose_b: bool = True
    lanes: int = 1

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        types = (x, y)
        if x.rank != 3 or y.rank != 3:
            raise self.fail(types, "both arguments must be of rank 3")
        if x.dtype != y.dtype or dtypes.is_bool(x.dtype):
            raise self.fail(types, "both arguments must have one numeric dtype; cast one of them")
        rows, depth = x.shape[:0:-1] if self.transpose_a else x.shape[1:]
        columns, depth_y = y.shape[1:] if self.transpose_b else y.shape[:0:-1]
        if depth != depth_y:
            raise self.fail(types, f"x sums over {depth} products, y over {depth_y}")
        if x.shape[0] != y.shape[0] and 1 not in (x.shape[0], y.shape[0]):
            raise self.fail(types, f"the batches differ: {x.shape[0]} and {y.shape[0]}")
        batch = y.shape[0] if x.shape[0] == 1 else x.shape[0]
        return TensorType((batch, rows, columns), x.dtype)

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        left = x.swapaxes(1, 2) if self.transpose_a else x
        right = y.swapaxes(1, 2) if self.transpose_b else y
        with np.errstate(all="ignore"):
            return np.asarray(left @ right)

    def compute(self, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        x_shape, y_shape = x.extents(), y.extents()
        depth, rows = x_shape[1:] if self.transpose_a else x_shape[:0:-1]
        columns = y_shape[1] if self.transpose_b else y_shape[2]
        batch = max(x_shape[0], y_shape[0]) if min(x_shape[0], y_shape[0]) else 0
        k = te.reduce_axis((0, depth), "k")

        def element(b: Expr, m: Expr, n: Expr) -> Any:
            b_x = b if x_shape[0] != 1 else 0
            b_y = b if y_shape[0] != 1 else 0
            left = x[b_x, k, m] if self.transpose_a else x[b_x, m, k]
            right = y[b_y, n, k] if self.transpose_b else y[b_y, k, n]
            return te.sum(left * right, axis=k)

        if self.lanes == 1:
            return stage((batch, rows, columns), element, "batch_matmul")
        return product_in_blocks(
            Factor(x, x_shape[:1], lambda b, m, k: x[(*b, k, m) if self.transpose_a
                                                     else (*b, m, k)]),
            Factor(y, y_shape[:1], lambda b, k, n: y[(*b, n, k) if self.transpose_b
                                                     else (*b, k, n)]),
            (batch,), (rows, depth, columns), self.lanes)

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_matmul(s, anchor, output, target)

    def alter_layout(self, types: tuple[Any, ...], target: Target) -> LayoutChoice | None:
        lanes = lanes_for(types, self.infer(*types).shape[1:], target)
        if lanes is None or self.lanes != 1:
            return None
        return LayoutChoice(replace(self, lanes=lanes), (None, None), None)
