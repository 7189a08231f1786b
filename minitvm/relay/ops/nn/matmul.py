"""`matmul`: the product of matrices and of stacks of them, as numpy's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.dim import Dim
from minitvm.relay.ir import Atom, Constant, TensorType, tensor_type
from minitvm.relay.op import Emit, LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.families import broadcast_shapes, integers, read_broadcast
from minitvm.relay.ops.nn.dense import Dense, Factor, lanes_for, product_in_blocks
from minitvm.relay.ops.nn.windows import stage
from minitvm.relay.ops.transform import Reshape, Transpose
from minitvm.te.recipes import schedule_matmul
from minitvm.tir.ir import Expr

if TYPE_CHECKING:
    from minitvm.target import Target


@register
@dataclass(frozen=True, slots=True)
class Matmul(Op):
    """x[..., M, K] times y[..., K, N]; what is in front broadcasts. A vector is a row in front of
    the product and a column behind it, and leaves no dimension in the result.

    `lanes`: how many columns are computed together, as for `nn.batch_matmul`.
    """

    name = "matmul"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    arity = 2

    lanes: int = 1

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        types = (x, y)
        if x.dtype != y.dtype or dtypes.is_bool(x.dtype):
            raise self.fail(types, "both arguments must have one numeric dtype; cast one of them")
        if x.rank == 0 or y.rank == 0:
            raise self.fail(types, "a scalar has no rows; use multiply")
        depth = y.shape[-2] if y.rank > 1 else y.shape[0]
        if x.shape[-1] != depth:
            raise self.fail(types, f"x has {x.shape[-1]} columns, y has {depth} rows")
        batches = [TensorType(given.shape[:-2], given.dtype) for given in types]
        batch = broadcast_shapes(self, batches)
        return TensorType((*batch, *x.shape[-2:-1], *_columns(y.shape)), x.dtype)

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(np.matmul(x, y))

    def compute(self, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        types = [TensorType(tensor.extents(), tensor.dtype) for tensor in (x, y)]
        shape = self.infer(*types).shape
        k = te.reduce_axis((0, x.extents()[-1]), "k")
        batch_rank = len(shape) - min(x.ndim - 1, 1) - min(y.ndim - 1, 1)

        def element(*indices: Expr) -> Any:
            batch, rest = indices[:batch_rank], indices[batch_rank:]
            row = rest[:1] if x.ndim > 1 else ()
            column = rest[-1:] if y.ndim > 1 else ()
            left = read_broadcast(x, (*batch, *row, k.var)[-x.ndim:])
            inner = (*batch, k.var, *column)
            return te.sum(left * read_broadcast(y, inner[-y.ndim:]), axis=k)

        if self.lanes == 1 or min(x.ndim, y.ndim) < 2:
            return stage(shape, element, "matmul")
        return product_in_blocks(
            Factor(x, x.extents()[:-2], lambda b, m, n: x[(*b, m, n)]),
            Factor(y, y.extents()[:-2], lambda b, m, n: y[(*b, m, n)]),
            integers(shape[:-2]), (x.extents()[-2], x.extents()[-1], y.extents()[-1]), self.lanes)

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_matmul(s, anchor, output, target)

    def alter_layout(self, types: tuple[Any, ...], target: Target) -> LayoutChoice | None:
        if self.lanes != 1 or min(given.rank for given in types) < 2:
            return None
        lanes = lanes_for(types, (types[0].shape[-2], types[1].shape[-1]), target)
        if lanes is None:
            return None
        return LayoutChoice(replace(self, lanes=lanes), (None, None), None)

    def legalize(self, emit: Emit, x: Atom, y: Atom) -> Atom | None:
        """A product with a constant matrix is a `nn.dense`, whose weights can be packed."""
        given = tensor_type(x)
        if not isinstance(y, Constant) or y.data.ndim != 2 or 0 in y.data.shape:
            return None
        if given.rank == 1:
            row = emit(Reshape(newshape=(1, y.data.shape[0])), x)
            product = emit(Dense(), row, emit(Transpose(axes=(1, 0)), y))
            return emit(Reshape(newshape=(y.data.shape[1],)), product)
        return emit(Dense(), x, emit(Transpose(axes=(1, 0)), y))


def _columns(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return (shape[-1],) if len(shape) > 1 else ()
