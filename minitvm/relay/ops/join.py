"""Operators that put tensors together or cut pieces out: concatenate, stack, split, slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from minitvm import te
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType, TupleType
from minitvm.relay.layout import Axis, parse_layout
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.axes import one_axis
from minitvm.relay.ops.families import elementwise, extents_of, integers, require_one_dtype
from minitvm.tir import ir
from minitvm.tir.ir import Expr


def choose(
    position: Expr, ends: Sequence[int], read: Callable[[int], Expr], low: int, high: int
) -> Expr:
    """`read(k)` for the piece k, of those from `low` to `high`, that holds a position; `ends[k]`
    is where piece k ends. A balanced tree, so that many pieces don't nest deeply."""
    if high - low == 1:
        return read(low)
    middle = (low + high) // 2
    left = choose(position, ends, read, low, middle)
    right = choose(position, ends, read, middle, high)
    return te.if_then_else(position < ends[middle - 1], left, right)


@register
@dataclass(frozen=True, slots=True)
class Concatenate(Op):
    """Tensors one after the other along an axis."""

    axis: int = 0
    name = "concatenate"
    pattern = Pattern.INJECTIVE
    arity = None

    def infer(self, *types: TensorType) -> TensorType:
        if not types:
            raise self.fail(types, "there is nothing to concatenate")
        first = types[0]
        joined = one_axis(self, types, self.axis, first.rank)
        dtype = require_one_dtype(self, types)
        length: Dim = 0
        for given in types:
            same = given.rank == first.rank and all(
                a == b or axis == joined
                for axis, (a, b) in enumerate(zip(given.shape, first.shape, strict=True))
            )
            if not same:
                raise self.fail(types, f"the shapes may differ in axis {joined} only")
            length = length + given.shape[joined]
        return TensorType((*first.shape[:joined], length, *first.shape[joined + 1:]), dtype)

    def evaluate(self, *values: np.ndarray) -> np.ndarray:
        return np.concatenate(values, self.axis)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        shape = extents_of(inputs[0])
        axis = self.axis % len(shape)
        ends = list(accumulate(tensor.extents()[axis] for tensor in inputs))

        def body(*i: Expr) -> Expr:
            def read(piece: int) -> Expr:
                start = ends[piece - 1] if piece else 0
                return inputs[piece][(*i[:axis], i[axis] - start, *i[axis + 1:])]

            return choose(i[axis], ends, read, 0, len(inputs))

        return elementwise(self, (*shape[:axis], ends[-1], *shape[axis + 1:]), body)

    def follow_layout(
        self, types: tuple[Any, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        """All packed alike, where no padding of channels would come to lie in the middle."""
        text = next((text for text in layouts if text is not None), None)
        if text is None:
            return None
        layout = parse_layout(text)
        name = layout.logical[self.axis % len(layout.logical)]
        if any(given.shape[self.axis] % layout.block(name) != 0 for given in types[:-1]):
            return None
        place = layout.axes.index(Axis(name))
        return LayoutChoice(replace(self, axis=place), (text,) * len(types), text)


@register
@dataclass(frozen=True, slots=True)
class Stack(Op):
    """Tensors of one shape along a new axis."""

    axis: int = 0
    name = "stack"
    pattern = Pattern.INJECTIVE
    arity = None

    def infer(self, *types: TensorType) -> TensorType:
        if not types:
            raise self.fail(types, "there is nothing to stack")
        first = types[0]
        dtype = require_one_dtype(self, types)
        if any(given.shape != first.shape for given in types):
            raise self.fail(types, "the shapes must be equal")
        axis = one_axis(self, types, self.axis, first.rank + 1)
        return TensorType((*first.shape[:axis], len(types), *first.shape[axis:]), dtype)

    def evaluate(self, *values: np.ndarray) -> np.ndarray:
        return np.stack(values, self.axis)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        shape = extents_of(inputs[0])
        axis = self.axis % (len(shape) + 1)
        ends = range(1, len(inputs) + 1)

        def body(*i: Expr) -> Expr:
            rest = (*i[:axis], *i[axis + 1:])
            return choose(i[axis], ends, lambda piece: inputs[piece][rest], 0, len(inputs))

        return elementwise(self, (*shape[:axis], len(inputs), *shape[axis:]), body)


@register
@dataclass(frozen=True, slots=True)
class Split(Op):
    """A tuple of pieces along an axis: so many equal ones, or cut at these positions."""

    indices_or_sections: int | tuple[int, ...]
    axis: int = 0
    name = "split"
    pattern = Pattern.INJECTIVE

    def bounds(self, x: TensorType) -> tuple[int, list[tuple[Dim, Dim]]]:
        """The axis, and where each piece starts and ends."""
        axis = one_axis(self, (x,), self.axis, x.rank)
        extent = x.shape[axis]
        if isinstance(self.indices_or_sections, int):
            sections = self.indices_or_sections
            if sections < 1 or extent % sections != 0:
                raise self.fail((x,), f"axis {axis} does not split into {sections} equal pieces")
            size = extent // sections
            return axis, [(k * size, (k + 1) * size) for k in range(sections)]
        cuts = [0, *self.indices_or_sections]
        if cuts != sorted(cuts) or (isinstance(extent, int) and cuts[-1] > extent):
            raise self.fail((x,), f"the cuts {tuple(cuts[1:])} must rise within 0 to {extent}")
        return axis, list(zip(cuts, [*cuts[1:], extent], strict=True))

    def infer(self, x: TensorType) -> TupleType:
        axis, bounds = self.bounds(x)
        return TupleType(tuple(
            TensorType((*x.shape[:axis], end - start, *x.shape[axis + 1:]), x.dtype)
            for start, end in bounds
        ))

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        axis, bounds = self.bounds(TensorType(x.shape, x.dtype.name))
        before = (slice(None),) * axis
        return tuple(x[(*before, slice(start, end))].copy() for start, end in bounds)

    def compute(self, x: te.Tensor) -> tuple[te.Tensor, ...]:
        shape = x.extents()
        axis, bounds = self.bounds(TensorType(shape, x.dtype))

        def piece(start: int, end: int) -> te.Tensor:
            return elementwise(
                self,
                (*shape[:axis], end - start, *shape[axis + 1:]),
                lambda *i: x[(*i[:axis], i[axis] + start, *i[axis + 1:])],
            )

        return tuple(piece(*integers(between)) for between in bounds)


@register
@dataclass(frozen=True, slots=True)
class StridedSlice(Op):
    """`x[begin:end:strides]` along `axes` (None: the first ones), by the rules of Python slices:
    negative positions count from the back, those outside are held to the ends, None is the end
    that the stride starts from or runs to."""

    begin: tuple[int | None, ...]
    end: tuple[int | None, ...]
    strides: tuple[int, ...] = ()
    axes: tuple[int, ...] | None = None
    name = "strided_slice"
    pattern = Pattern.INJECTIVE

    def ranges(self, x: TensorType) -> dict[int, range]:
        """The positions taken along each axis that is cut."""
        count = len(self.begin)
        axes = self.axes if self.axes is not None else tuple(range(count))
        strides = self.strides or (1,) * count
        if not count == len(self.end) == len(axes) == len(strides) or 0 in strides:
            raise self.fail((x,), "begin, end, strides (not 0) and axes must be equally many")
        taken: dict[int, range] = {}
        for axis, *bounds in zip(axes, self.begin, self.end, strides, strict=True):
            place = one_axis(self, (x,), axis, x.rank)
            extent = x.shape[place]
            if place in taken:
                raise self.fail((x,), f"axes {axes} name one axis twice")
            if not isinstance(extent, int):
                raise self.fail((x,), f"axis {place} is cut, but its extent is {extent}")
            taken[place] = range(*slice(*bounds).indices(extent))
        return taken

    def infer(self, x: TensorType) -> TensorType:
        ranges = self.ranges(x)
        shape = (len(ranges[axis]) if axis in ranges else extent
                 for axis, extent in enumerate(x.shape))
        return TensorType(tuple(shape), x.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        ranges = self.ranges(TensorType(x.shape, x.dtype.name))
        cuts = (_as_slice(ranges[axis]) if axis in ranges else slice(None)
                for axis in range(x.ndim))
        return x[tuple(cuts)].copy()

    def compute(self, x: te.Tensor) -> te.Tensor:
        given = TensorType(x.extents(), x.dtype)
        ranges = self.ranges(given)

        def position(axis: int, index: Expr) -> Expr:
            taken = ranges.get(axis, range(2))
            return index * taken.step + taken.start if len(taken) > 1 else ir.convert(taken.start)

        def body(*i: Expr) -> Expr:
            return x[tuple(position(axis, index) for axis, index in enumerate(i))]

        return elementwise(self, integers(self.infer(given).shape), body)

    def follow_layout(
        self, types: tuple[Any, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        """Whole blocks of a blocked axis, and whatever is cut of the others."""
        if layouts[0] is None:
            return None
        layout = parse_layout(layouts[0])
        cuts: dict[int, tuple[int | None, int | None, int]] = {}
        for axis, taken in self.ranges(types[0]).items():
            name = layout.logical[axis]
            block, extent = layout.block(name), types[0].shape[axis]
            if block > 1:
                whole = taken.stop % block == 0 or taken.stop == extent
                if taken.step != 1 or taken.start % block or not whole or not taken:
                    return None
                taken = range(taken.start // block, -(-taken.stop // block))
            cut = _as_slice(taken)
            cuts[layout.axes.index(Axis(name))] = (cut.start, cut.stop, cut.step or 1)
        begin, end, strides = zip(*cuts.values(), strict=True) if cuts else ((), (), ())
        op = StridedSlice(begin, end, strides, tuple(cuts))
        return LayoutChoice(op, (layouts[0],), layouts[0])


def _as_slice(taken: range) -> slice:
    """The slice of these positions; one that runs down to the front ends in None."""
    stop: int | None = taken.stop if taken.stop >= 0 else None
    return slice(taken.start, stop, taken.step) if len(taken) else slice(0, 0)
