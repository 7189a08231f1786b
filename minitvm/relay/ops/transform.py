"""Operators that give the elements of a tensor other places: reshape, transpose, broadcast, flip.

No element is computed, so all of them fuse into whatever reads the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minitvm import te
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.axes import all_axes, one_axis
from minitvm.relay.ops.families import elementwise, extents_of, integers, read_broadcast
from minitvm.tir import ir
from minitvm.tir.ir import Expr


def product(dims: Sequence[Dim]) -> Dim:
    """The number of elements."""
    return math.prod(dims)


# --- reshape and its kin ------------------------------------------------------------------------


def reshape_groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[range, range]]:
    """The least runs of source and target dimensions that hold equally many elements, so that
    indices are taken apart only within a run: (6, 4, 5) to (2, 3, 20) is 6|2, 3 and 4, 5|20."""
    if 0 in source:
        return [(range(len(source)), range(len(target)))]
    groups = []
    i = j = 0
    while i < len(source) or j < len(target):
        start, inner, outer = (i, j), 1, 1
        if i < len(source):
            inner, i = inner * source[i], i + 1
        if j < len(target):
            outer, j = outer * target[j], j + 1
        while inner != outer:
            if inner < outer:
                inner, i = inner * source[i], i + 1
            else:
                outer, j = outer * target[j], j + 1
        groups.append((range(start[0], i), range(start[1], j)))
    return groups


def ravel(indices: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The row-major position."""
    position: Expr = ir.convert(0)
    for index, extent in zip(indices, extents, strict=True):
        position = position * extent + index if extent != 1 else position
    return position


def unravel(position: Expr, extents: Sequence[int]) -> list[Expr]:
    """The indices at a row-major position."""
    indices: list[Expr] = []
    stride = 1
    inner = math.prod(extents)
    for extent in reversed(extents):
        if extent == 1:
            indices.append(ir.convert(0))
            continue
        index = position // stride
        stride *= extent
        indices.append(index if stride == inner else index % extent)
    return indices[::-1]


def reshaped_read(x: te.Tensor, target: Sequence[int], indices: Sequence[Expr]) -> Expr:
    """The element of `x` that its reshape to `target` has at `indices`."""
    source = x.extents()
    places: list[Expr] = []
    for own, others in reshape_groups(source, target):
        position = ravel([indices[j] for j in others], [target[j] for j in others])
        places.extend(unravel(position, [source[i] for i in own]))
    return x[tuple(places)]


@dataclass(frozen=True, slots=True)
class ShapeChange(Op):
    """The base of operators that keep the row-major order and change the shape."""

    pattern = Pattern.INJECTIVE

    def shape(self, x: TensorType) -> tuple[Dim, ...]:
        """The shape of the result."""
        raise NotImplementedError(self.name)

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(self.shape(x), x.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(integers(self.shape(TensorType(x.shape, x.dtype.name))))

    def compute(self, x: te.Tensor) -> te.Tensor:
        target = integers(self.shape(TensorType(x.extents(), x.dtype)))
        return elementwise(self, target, lambda *i: reshaped_read(x, target, i))


@register
@dataclass(frozen=True, slots=True)
class Reshape(ShapeChange):
    """The same elements in the shape `newshape`, where one -1 stands for what is left over."""

    newshape: tuple[Dim, ...]
    name = "reshape"

    def shape(self, x: TensorType) -> tuple[Dim, ...]:
        total = product(x.shape)
        unknown = self.newshape.count(-1)
        known = product([dim for dim in self.newshape if dim != -1])
        if unknown > 1:
            raise self.fail((x,), "newshape may hold one -1 only")
        if unknown:
            left = total // known if known != 0 else 0
            if left * known != total or known == 0:
                raise self.fail((x,), f"{total} elements do not fill {self.newshape} evenly")
            return tuple(left if dim == -1 else dim for dim in self.newshape)
        if known != total:
            raise self.fail((x,), f"newshape {self.newshape} holds {known} elements, not {total}")
        return self.newshape


@register
@dataclass(frozen=True, slots=True)
class ExpandDims(ShapeChange):
    """New dimensions of extent 1, at these axes of the result."""

    axis: int | tuple[int, ...]
    name = "expand_dims"

    def shape(self, x: TensorType) -> tuple[Dim, ...]:
        count = 1 if isinstance(self.axis, int) else len(self.axis)
        new = all_axes(self, (x,), self.axis, x.rank + count)
        old = iter(x.shape)
        return tuple(1 if axis in new else next(old) for axis in range(x.rank + count))


@register
@dataclass(frozen=True, slots=True)
class Squeeze(ShapeChange):
    """Without these dimensions, whose extent must be 1; None: without all of extent 1."""

    axis: int | tuple[int, ...] | None = None
    name = "squeeze"

    def shape(self, x: TensorType) -> tuple[Dim, ...]:
        if self.axis is None:
            return tuple(dim for dim in x.shape if dim != 1)
        gone = all_axes(self, (x,), self.axis, x.rank)
        for axis in gone:
            if x.shape[axis] != 1:
                raise self.fail((x,), f"axis {axis} has extent {x.shape[axis]}, not 1")
        return tuple(dim for axis, dim in enumerate(x.shape) if axis not in gone)


# --- moving axes --------------------------------------------------------------------------------


@register
@dataclass(frozen=True, slots=True)
class Transpose(Op):
    """Axis k of the result is axis `axes[k]` of x; None: in reverse order."""

    axes: tuple[int, ...] | None = None
    name = "transpose"
    pattern = Pattern.INJECTIVE

    def order(self, rank: int) -> tuple[int, ...]:
        """The axes counted from the front."""
        if self.axes is None:
            return tuple(reversed(range(rank)))
        return tuple(axis % rank for axis in self.axes)

    def infer(self, x: TensorType) -> TensorType:
        if self.axes is not None:
            all_axes(self, (x,), self.axes, x.rank)
            if len(self.axes) != x.rank:
                raise self.fail((x,), f"axes {self.axes} must name all {x.rank} dimensions")
        return TensorType(tuple(x.shape[axis] for axis in self.order(x.rank)), x.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x.transpose(self.order(x.ndim))).reshape(
            tuple(x.shape[axis] for axis in self.order(x.ndim))
        )

    def compute(self, x: te.Tensor) -> te.Tensor:
        order = self.order(len(x.shape))
        places = [order.index(axis) for axis in range(len(order))]
        shape = tuple(extents_of(x)[axis] for axis in order)
        return elementwise(self, shape, lambda *i: x[tuple(i[place] for place in places)])


@register
@dataclass(frozen=True, slots=True)
class Reverse(Op):
    """The elements along one axis in reverse order."""

    axis: int = 0
    name = "reverse"
    pattern = Pattern.INJECTIVE

    def infer(self, x: TensorType) -> TensorType:
        one_axis(self, (x,), self.axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.flip(x, self.axis))

    def compute(self, x: te.Tensor) -> te.Tensor:
        extents = extents_of(x)
        flipped = self.axis % len(extents)

        def body(*i: Expr) -> Expr:
            return x[tuple(extents[axis] - 1 - index if axis == flipped else index
                           for axis, index in enumerate(i))]

        return elementwise(self, extents, body)


# --- copying elements ---------------------------------------------------------------------------


@register
@dataclass(frozen=True, slots=True)
class BroadcastTo(Op):
    """x repeated to `shape` by numpy's rule."""

    shape: tuple[Dim, ...]
    name = "broadcast_to"
    pattern = Pattern.BROADCAST

    def infer(self, x: TensorType) -> TensorType:
        aligned = self.shape[len(self.shape) - x.rank:]
        if x.rank > len(self.shape) or any(
            dim not in (1, wanted) for dim, wanted in zip(x.shape, aligned, strict=True)
        ):
            raise self.fail((x,), f"the shape does not broadcast to {self.shape}")
        return TensorType(self.shape, x.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, integers(self.shape)).copy()

    def compute(self, x: te.Tensor) -> te.Tensor:
        return elementwise(self, self.shape, lambda *i: read_broadcast(x, i))


@register
@dataclass(frozen=True, slots=True)
class Tile(Op):
    """x put side by side `reps[k]` times along axis k, aligned from the back as `numpy.tile`."""

    reps: tuple[int, ...]
    name = "tile"
    pattern = Pattern.INJECTIVE

    def shape(self, extents: Sequence[Dim]) -> tuple[Dim, ...]:
        """The shape of the result."""
        rank = max(len(extents), len(self.reps))
        dims = (1,) * (rank - len(extents)) + tuple(extents)
        reps = (1,) * (rank - len(self.reps)) + self.reps
        return tuple(dim * count for dim, count in zip(dims, reps, strict=True))

    def infer(self, x: TensorType) -> TensorType:
        if any(count < 0 for count in self.reps):
            raise self.fail((x,), f"reps {self.reps} must not be negative")
        return TensorType(self.shape(x.shape), x.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.tile(x, self.reps)

    def compute(self, x: te.Tensor) -> te.Tensor:
        extents = x.extents()

        def body(*i: Expr) -> Expr:
            own = i[len(i) - len(extents):]
            return x[tuple(index % extent for index, extent in zip(own, extents, strict=True))]

        return elementwise(self, self.shape(extents), body)


@register
@dataclass(frozen=True, slots=True)
class Repeat(Op):
    """Each element `repeats` times in a row along one axis."""

    repeats: int
    axis: int = 0
    name = "repeat"
    pattern = Pattern.INJECTIVE

    def infer(self, x: TensorType) -> TensorType:
        if self.repeats < 0:
            raise self.fail((x,), f"repeats is {self.repeats}; it must not be negative")
        repeated = one_axis(self, (x,), self.axis, x.rank)
        shape = (dim * self.repeats if axis == repeated else dim
                 for axis, dim in enumerate(x.shape))
        return TensorType(tuple(shape), x.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.repeat(x, self.repeats, self.axis)

    def compute(self, x: te.Tensor) -> te.Tensor:
        repeated = self.axis % len(x.shape)
        shape = self.infer(TensorType(x.extents(), x.dtype)).shape

        def body(*i: Expr) -> Expr:
            return x[tuple(index // self.repeats if axis == repeated else index
                           for axis, index in enumerate(i))]

        return elementwise(self, shape, body)
