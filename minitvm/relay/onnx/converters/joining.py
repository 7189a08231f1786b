"""ONNX operators that join, cut, pad and index: Concat, Split, Slice, Pad, Gather, OneHot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom, Constant
from minitvm.relay.onnx.conversion import Conversion, Unsupported
from minitvm.relay.onnx.table import converter
from minitvm.relay.ops.gather import Gather, GatherNd, OneHot, Take
from minitvm.relay.ops.join import Concatenate, StridedSlice
from minitvm.relay.ops.nn.pad import Pad
from minitvm.relay.ops.transform import Reshape


def axis_of(c: Conversion, axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise ModelError(f"{c.node}: there is no axis {axis} in a tensor of rank {rank}")
    return axis % rank


@converter("Concat", 4)
def concat(c: Conversion) -> Atom:
    """One after the other."""
    axis = c.required_integer("axis")
    inputs = c.inputs()
    return inputs[0] if len(inputs) == 1 else c.emit(Concatenate(axis), *inputs)


# --- split --------------------------------------------------------------------------------------


def _pieces(c: Conversion, axis: int, sizes: Sequence[int]) -> tuple[Atom, ...]:
    x = c.input(0)
    extent = c.shape(x)[axis]
    if any(size < 0 for size in sizes) or sum(sizes) != extent:
        raise ModelError(f"{c.node}: pieces of {tuple(sizes)} do not make up an axis of {extent}")
    if len(sizes) != len(c.node.outputs):
        raise ModelError(f"{c.node} has {len(c.node.outputs)} outputs for {len(sizes)} pieces")
    pieces, start = [], 0
    for size in sizes:
        pieces.append(c.emit(StridedSlice((start,), (start + size,), axes=(axis,)), x))
        start += size
    return tuple(pieces)


def _split_axis(c: Conversion) -> tuple[int, int]:
    extents = c.shape(c.input(0))
    axis = axis_of(c, c.integer("axis", 0), len(extents))
    return axis, extents[axis]


def _equal_sizes(c: Conversion, extent: int) -> list[int]:
    count = len(c.node.outputs)
    if extent % count:
        raise ModelError(f"{c.node}: an axis of {extent} does not split into {count} equal pieces")
    return [extent // count] * count


@converter("Split", 2)
def split_by_attribute(c: Conversion) -> tuple[Atom, ...]:
    """The sizes in an attribute, or equal pieces."""
    axis, extent = _split_axis(c)
    sizes = c.integers("split")
    return _pieces(c, axis, _equal_sizes(c, extent) if sizes is None else sizes)


@converter("Split", 13)
def split_by_input(c: Conversion) -> tuple[Atom, ...]:
    """The sizes in an input, or equal pieces."""
    axis, extent = _split_axis(c)
    if c.optional(1) is None:
        return _pieces(c, axis, _equal_sizes(c, extent))
    return _pieces(c, axis, c.constant_integers(1, "the sizes"))


@converter("Split", 18)
def split_by_count(c: Conversion) -> tuple[Atom, ...]:
    """The sizes in an input, or so many pieces of which the last may be smaller."""
    axis, extent = _split_axis(c)
    if c.optional(1) is not None:
        return _pieces(c, axis, c.constant_integers(1, "the sizes"))
    count = c.integer("num_outputs", len(c.node.outputs))
    if count < 1:
        raise ModelError(f"{c.node}: num_outputs is {count}")
    size = -(-extent // count)
    sizes = [max(0, min(size, extent - k * size)) for k in range(count)]
    return _pieces(c, axis, sizes)


# --- slice --------------------------------------------------------------------------------------


def _slice(
    c: Conversion,
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> Atom:
    x = c.input(0)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(f"{c.node}: starts, ends, axes and steps must be equally many")
    return c.emit(StridedSlice(starts, ends, steps, axes), x)


@converter("Slice", 1)
def slice_by_attributes(c: Conversion) -> Atom:
    """Bounds in attributes."""
    starts, ends = c.integers("starts"), c.integers("ends")
    if starts is None or ends is None:
        raise ModelError(f"{c.node} lacks its attribute starts or ends")
    return _slice(c, starts, ends, c.integers("axes"), None)


@converter("Slice", 10)
def slice_by_inputs(c: Conversion) -> Atom:
    """Bounds in inputs."""
    axes = None if c.optional(3) is None else c.constant_integers(3, "the axes")
    steps = None if c.optional(4) is None else c.constant_integers(4, "the steps")
    starts, ends = c.constant_integers(1, "the starts"), c.constant_integers(2, "the ends")
    return _slice(c, starts, ends, axes, steps)


# --- pad ----------------------------------------------------------------------------------------


PAD_MODES = ("constant", "reflect", "edge")


def _pad(c: Conversion, pads: tuple[int, ...], value: float, axes: tuple[int, ...] | None) -> Atom:
    x = c.input(0)
    rank = c.type(x).rank
    mode = c.text("mode", "constant", PAD_MODES)
    places = [axis_of(c, axis, rank) for axis in (range(rank) if axes is None else axes)]
    if len(pads) != 2 * len(places) or len(set(places)) != len(places):
        raise ModelError(f"{c.node} has {len(pads)} pads for {len(places)} axes")
    widths = [(0, 0)] * rank
    for k, place in enumerate(places):
        widths[place] = (pads[k], pads[k + len(places)])
    if not any(map(any, widths)):
        return x
    return c.emit(Pad(tuple(widths), value, mode), x)


@converter("Pad", 2)
def pad_by_attributes(c: Conversion) -> Atom:
    """Pads and value in attributes."""
    pads = c.integers("pads")
    if pads is None:
        raise ModelError(f"{c.node} lacks its attribute pads")
    return _pad(c, pads, c.number("value", 0.0), None)


@converter("Pad", 11)
def pad_by_inputs(c: Conversion) -> Atom:
    """Pads, value and (from opset 18 on) axes in inputs."""
    value = 0.0
    if c.optional(2) is not None:
        given = c.constant(2, "the value")
        if given.size != 1:
            raise ModelError(f"{c.node}: the value must be one number, not {given.size}")
        value = given.item()
    axes = None
    if c.optional(3) is not None:
        axes = c.constant_integers(3, "the axes")
    return _pad(c, c.constant_integers(1, "the pads"), value, axes)


# --- indices ------------------------------------------------------------------------------------


def _require_in_range(c: Conversion, indices: Atom, extent: int) -> None:
    if isinstance(indices, Constant) and indices.data.size:
        low, high = int(indices.data.min()), int(indices.data.max())
        if not -extent <= low <= high < extent:
            raise ModelError(
                f"{c.node}: the indices {low} to {high} leave an axis of extent {extent}"
            )


@converter("Gather", 1)
def gather(c: Conversion) -> Atom:
    """Slices at indices along an axis."""
    x, indices = c.input(0), c.input(1)
    axis = axis_of(c, c.integer("axis", 0), c.type(x).rank)
    _require_in_range(c, indices, c.shape(x)[axis])
    return c.emit(Take(axis), x, indices)


@converter("GatherElements", 11)
def gather_elements(c: Conversion) -> Atom:
    """An element for each index."""
    x, indices = c.input(0), c.input(1)
    axis = axis_of(c, c.integer("axis", 0), c.type(x).rank)
    _require_in_range(c, indices, c.shape(x)[axis])
    return c.emit(Gather(axis), x, indices)


@converter("GatherND", 11)
def gather_nd(c: Conversion) -> Atom:
    """The parts at places given by the last axis."""
    return c.emit(GatherNd(), c.input(0), c.input(1))


@converter("GatherND", 12)
def gather_nd_in_batches(c: Conversion) -> Atom:
    """The parts at places given by the last axis, in each batch."""
    return c.emit(GatherNd(c.integer("batch_dims", 0)), c.input(0), c.input(1))


@converter("OneHot", 9)
def one_hot(c: Conversion) -> Atom:
    """Values are off, on; the depth must be known."""
    depth = c.constant(1, "the depth")
    values = c.input(2)
    if depth.size != 1 or c.type(values).shape != (2,):
        raise ModelError(f"{c.node} takes one depth and two values")
    indices = c.input(0)
    if c.type(indices).dtype.startswith("float"):
        raise Unsupported("indices that are floats", "cast them to int64")
    off, on = (
        c.emit(Reshape(()), c.emit(StridedSlice((k,), (k + 1,)), values)) for k in (0, 1)
    )
    return c.emit(OneHot(int(np.reshape(depth, ())), c.integer("axis", -1)), indices, on, off)
