"""ONNX operators that change shapes or move axes: Reshape, Squeeze, Transpose, Expand, others."""

from __future__ import annotations

import math

import numpy as np

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import Conversion
from minitvm.relay.onnx.table import converter
from minitvm.relay.ops.create import Trilu
from minitvm.relay.ops.transform import (
    BroadcastTo,
    ExpandDims,
    Reshape,
    Squeeze,
    Tile,
    Transpose,
)


def reshape_to(c: Conversion, x: Atom, shape: tuple[int, ...]) -> Atom:
    """x in another shape; x itself where it has that one."""
    return x if c.shape(x) == shape else c.emit(Reshape(shape), x)


def _reshape(c: Conversion, keep_zeros: bool) -> Atom:
    x = c.input(0)
    extents = c.shape(x)
    wanted = list(c.constant_integers(1, "the shape"))
    for axis, extent in enumerate(wanted):
        if extent == 0 and not keep_zeros:
            if axis >= len(extents):
                raise ModelError(f"{c.node}: the shape {tuple(wanted)} copies no axis {axis}")
            wanted[axis] = extents[axis]
        elif extent < -1:
            raise ModelError(f"{c.node}: the shape {tuple(wanted)} holds a negative extent")
    if wanted.count(-1) == 1:
        known = math.prod(extent for extent in wanted if extent != -1)
        total = math.prod(extents)
        if known and total % known == 0:
            wanted[wanted.index(-1)] = total // known
    return reshape_to(c, x, tuple(wanted))


@converter("Reshape", 5)
def reshape(c: Conversion) -> Atom:
    """0 keeps an extent, -1 is what is left over."""
    return _reshape(c, keep_zeros=False)


@converter("Reshape", 14)
def reshape_with_zeros(c: Conversion) -> Atom:
    """With `allowzero`, 0 is an extent of zero."""
    return _reshape(c, keep_zeros=c.flag("allowzero"))


@converter("Flatten", 1)
def flatten(c: Conversion) -> Atom:
    """A matrix: the axes in front of `axis`, and the others."""
    extents = c.shape(c.input(0))
    axis = c.integer("axis", 1)
    if not -len(extents) <= axis <= len(extents):
        raise ModelError(f"{c.node}: there is no axis {axis} in {extents}")
    axis = axis % len(extents) if axis < 0 else axis
    return reshape_to(c, c.input(0), (math.prod(extents[:axis]), math.prod(extents[axis:])))


# --- squeeze and unsqueeze ----------------------------------------------------------------------


def _squeeze(c: Conversion, axes: tuple[int, ...] | None) -> Atom:
    return c.emit(Squeeze(axes), c.input(0))


@converter("Squeeze", 1)
def squeeze_by_attribute(c: Conversion) -> Atom:
    """The axes in an attribute."""
    return _squeeze(c, c.integers("axes"))


@converter("Squeeze", 13)
def squeeze_by_input(c: Conversion) -> Atom:
    """The axes in an input."""
    return _squeeze(c, None if c.optional(1) is None else c.constant_integers(1, "the axes"))


@converter("Unsqueeze", 1)
def unsqueeze_by_attribute(c: Conversion) -> Atom:
    """The axes in an attribute."""
    axes = c.integers("axes")
    if axes is None:
        raise ModelError(f"{c.node} lacks its attribute axes")
    return c.emit(ExpandDims(axes), c.input(0))


@converter("Unsqueeze", 13)
def unsqueeze_by_input(c: Conversion) -> Atom:
    """The axes in an input."""
    return c.emit(ExpandDims(c.constant_integers(1, "the axes")), c.input(0))


# --- axes and copies ----------------------------------------------------------------------------


@converter("Transpose", 1)
def transpose(c: Conversion) -> Atom:
    """In reverse order unless `perm` says otherwise."""
    return c.emit(Transpose(c.integers("perm")), c.input(0))


@converter("Expand", 8)
def expand(c: Conversion) -> Atom:
    """Both the input and the shape broadcast."""
    x = c.input(0)
    wanted = c.constant_integers(1, "the shape")
    try:
        shape = np.broadcast_shapes(c.shape(x), wanted)
    except ValueError as error:
        raise ModelError(f"{c.node}: {c.shape(x)} does not broadcast with {wanted}") from error
    return x if shape == c.shape(x) else c.emit(BroadcastTo(shape), x)


@converter("Tile", 6)
def tile(c: Conversion) -> Atom:
    """Repeats for each axis."""
    repeats = c.constant_integers(1, "the repeats")
    if len(repeats) != c.type(c.input(0)).rank:
        raise ModelError(f"{c.node} has {len(repeats)} repeats for {c.type(c.input(0))}")
    return c.emit(Tile(repeats), c.input(0))


@converter("Trilu", 14)
def trilu(c: Conversion) -> Atom:
    """A triangle of each matrix."""
    diagonal = 0 if c.optional(1) is None else c.constant_integers(1, "the diagonal")[0]
    return c.emit(Trilu(c.flag("upper", True), diagonal), c.input(0))


def _image(c: Conversion) -> tuple[int, int, int, int]:
    extents = c.shape(c.input(0))
    if len(extents) != 4:
        raise ModelError(f"{c.node} takes an image of rank 4, not {extents}")
    batch, channels, height, width = extents
    return batch, channels, height, width


def _depth_to_space(c: Conversion, mode: str) -> Atom:
    batch, channels, height, width = _image(c)
    block = c.required_integer("blocksize")
    if block < 1 or channels % (block * block):
        raise ModelError(f"{c.node}: {channels} channels do not give blocks of {block}x{block}")
    depth = channels // (block * block)
    if mode == "DCR":
        split, order = (batch, block, block, depth, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (batch, depth, block, block, height, width), (0, 1, 4, 2, 5, 3)
    moved = c.emit(Transpose(order), c.emit(Reshape(split), c.input(0)))
    return c.emit(Reshape((batch, depth, height * block, width * block)), moved)


@converter("DepthToSpace", 1)
def depth_to_space(c: Conversion) -> Atom:
    """Channels laid out in blocks, depth last."""
    return _depth_to_space(c, "DCR")


@converter("DepthToSpace", 11)
def depth_to_space_by_mode(c: Conversion) -> Atom:
    """Channels laid out in blocks: depth-column-row or column-row-depth."""
    return _depth_to_space(c, c.text("mode", "DCR", ("DCR", "CRD")))


def _space_to_depth(c: Conversion, mode: str) -> Atom:
    batch, channels, height, width = _image(c)
    block = c.required_integer("blocksize")
    if block < 1 or height % block or width % block:
        raise ModelError(f"{c.node}: {height}x{width} does not divide into {block}x{block}")
    split = (batch, channels, height // block, block, width // block, block)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = c.emit(Transpose(order), c.emit(Reshape(split), c.input(0)))
    depth = channels * block * block
    return c.emit(Reshape((batch, depth, height // block, width // block)), moved)


@converter("SpaceToDepth", 1)
def space_to_depth(c: Conversion) -> Atom:
    """Blocks gathered into channels."""
    return _space_to_depth(c, "DCR")


@converter("SpaceToDepth", 28)
def space_to_depth_by_mode(c: Conversion) -> Atom:
    """Blocks gathered into channels: depth-column-row or column-row-depth."""
    return _space_to_depth(c, c.text("mode", "DCR", ("DCR", "CRD")))
