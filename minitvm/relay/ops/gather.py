"""Operators that read elements at places given by another tensor.

A negative index counts from the back. An index outside the axis is held to its ends, so that no
input can make a kernel read foreign memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.axes import one_axis
from minitvm.relay.ops.families import INTEGER, elementwise, extents_of, require_kind
from minitvm.tir import ir
from minitvm.tir.ir import Expr


def held_index(index: Expr, extent: int) -> Expr:
    """An index into an axis, negative ones counted from the back, held within it."""
    index = ir.cast(index, "int64")
    counted = te.select(index < 0, index + extent, index)
    return ir.cast(ir.maximum(ir.minimum(counted, extent - 1), 0), ir.INDEX)


def held_indices(indices: np.ndarray, extent: int) -> np.ndarray:
    """The same in numpy."""
    counted = np.where(indices < 0, indices.astype(np.int64) + extent, indices)
    return np.clip(counted, 0, extent - 1).astype(np.int64)


def _require_elements(op: Op, types: tuple[TensorType, ...], axis: int) -> None:
    if types[0].shape[axis] == 0:
        raise op.fail(types, f"axis {axis} has no element to read")


@register
@dataclass(frozen=True, slots=True)
class Take(Op):
    """`numpy.take`: the slices of x at `indices` along an axis, which their shape replaces."""

    axis: int = 0
    name = "take"
    pattern = Pattern.INJECTIVE
    arity = 2

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require_kind(self, (indices,), INTEGER)
        axis = one_axis(self, (x, indices), self.axis, x.rank)
        _require_elements(self, (x, indices), axis)
        return TensorType((*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]), x.dtype)

    def evaluate(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        axis = self.axis % x.ndim
        return np.asarray(np.take(x, held_indices(indices, x.shape[axis]), axis))

    def compute(self, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        shape, count = extents_of(x), len(indices.shape)
        axis = self.axis % len(shape)

        def body(*i: Expr) -> Expr:
            place = held_index(indices[i[axis : axis + count]], shape[axis])
            return x[(*i[:axis], place, *i[axis + count:])]

        return elementwise(self, (*shape[:axis], *extents_of(indices), *shape[axis + 1:]), body)


@register
@dataclass(frozen=True, slots=True)
class Gather(Op):
    """`numpy.take_along_axis`: y[i, j] = x[indices[i, j], j] for axis 0. The other axes of
    `indices` may be shorter than those of x."""

    axis: int = 0
    name = "gather"
    pattern = Pattern.INJECTIVE
    arity = 2

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require_kind(self, (indices,), INTEGER)
        axis = one_axis(self, (x, indices), self.axis, x.rank)
        _require_elements(self, (x, indices), axis)
        fits = x.rank == indices.rank and all(
            place == axis or dim == other or (
                isinstance(dim, int) and isinstance(other, int) and other < dim)
            for place, (dim, other) in enumerate(zip(x.shape, indices.shape, strict=True))
        )
        if not fits:
            raise self.fail((x, indices), f"outside axis {axis}, the indices must fit into x")
        return TensorType(indices.shape, x.dtype)

    def evaluate(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        axis = self.axis % x.ndim
        places = list(np.ogrid[tuple(slice(extent) for extent in indices.shape)])
        places[axis] = held_indices(indices, x.shape[axis])
        result: np.ndarray = x[tuple(places)]
        return result

    def compute(self, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        extents = extents_of(x)
        axis = self.axis % len(extents)

        def body(*i: Expr) -> Expr:
            return x[(*i[:axis], held_index(indices[i], extents[axis]), *i[axis + 1:])]

        return elementwise(self, extents_of(indices), body)


@register
@dataclass(frozen=True, slots=True)
class GatherNd(Op):
    """The parts of x at places that the last axis of `indices` holds: y[i] = x[indices[i, :]]. The
    first `batch_dims` axes of both are one and the same."""

    batch_dims: int = 0
    name = "gather_nd"
    pattern = Pattern.INJECTIVE
    arity = 2

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        types = (x, indices)
        require_kind(self, (indices,), INTEGER)
        batch = self.batch_dims
        if indices.rank == 0 or not isinstance(indices.shape[-1], int):
            raise self.fail(types, "the last axis of the indices must have a known extent")
        depth = indices.shape[-1]
        if not 0 <= batch < indices.rank or batch + depth > x.rank:
            raise self.fail(types, f"places of {depth} indices behind {batch} axes exceed x")
        if x.shape[:batch] != indices.shape[:batch]:
            raise self.fail(types, f"the first {batch} axes must be the same")
        for axis in range(batch, batch + depth):
            _require_elements(self, types, axis)
        return TensorType((*indices.shape[:-1], *x.shape[batch + depth:]), x.dtype)

    def evaluate(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        *front, depth = indices.shape
        batch = self.batch_dims
        places = list(np.indices(front)[:batch])
        places += [held_indices(indices[..., k], x.shape[batch + k]) for k in range(depth)]
        return np.array(x[tuple(places)] if places else np.broadcast_to(x, (*front, *x.shape)))

    def compute(self, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        extents, own = x.extents(), indices.extents()
        batch, depth, rank = self.batch_dims, own[-1], len(own) - 1

        def body(*i: Expr) -> Expr:
            places = [held_index(indices[(*i[:rank], k)], extents[batch + k]) for k in range(depth)]
            return x[(*i[:batch], *places, *i[rank:])]

        return elementwise(self, (*own[:-1], *extents[batch + depth:]), body)


@register
@dataclass(frozen=True, slots=True)
class OneHot(Op):
    """`on` where the position along a new axis is the index, `off` elsewhere; arguments: indices,
    and on and off of rank 0. A negative index counts from the back; one outside is nowhere."""

    depth: int
    axis: int = -1
    name = "one_hot"
    pattern = Pattern.INJECTIVE
    arity = 3

    def infer(self, indices: TensorType, on: TensorType, off: TensorType) -> TensorType:
        types = (indices, on, off)
        require_kind(self, (indices,), INTEGER)
        if on.rank or off.rank or on.dtype != off.dtype:
            raise self.fail(types, "the on and off values must be of one dtype and of rank 0")
        axis = one_axis(self, types, self.axis, indices.rank + 1)
        shape = indices.shape
        return TensorType((*shape[:axis], self.depth, *shape[axis:]), on.dtype)

    def evaluate(self, indices: np.ndarray, on: np.ndarray, off: np.ndarray) -> np.ndarray:
        axis = self.axis % (indices.ndim + 1)
        counted = np.where(indices < 0, indices.astype(np.int64) + self.depth, indices)
        places = np.arange(self.depth).reshape((-1,) + (1,) * (indices.ndim - axis))
        return np.where(np.expand_dims(counted, axis) == places, on, off)

    def compute(self, indices: te.Tensor, on: te.Tensor, off: te.Tensor) -> te.Tensor:
        shape = extents_of(indices)
        axis = self.axis % (len(shape) + 1)

        def body(*i: Expr) -> Expr:
            index = ir.cast(indices[(*i[:axis], *i[axis + 1:])], "int64")
            if not dtypes.is_unsigned(indices.dtype):
                index = te.select(index < 0, index + self.depth, index)
            return te.select(ir.equal(index, ir.cast(i[axis], "int64")), on[()], off[()])

        return elementwise(self, (*shape[:axis], self.depth, *shape[axis:]), body)
