"""Layout strings such as `NCHW16c` -> how a tensor with named axes lies in memory.

    Layout = axes in order, each the whole of an axis or its inner block: "NCHW16c"
             C then counts blocks of 16 channels, and 16c the channels inside one

The upper-case letters alone, in their order, are the *logical* axes. An extent that its block does
not divide is padded with zeros up to the next multiple, so packing is exact and unpacking needs
the logical shape. Indices are split and joined by the same two formulas for integers, numpy arrays
and tir expressions: outer = index // block, inner = index % block.

The idea of one blocked layout through a whole network is from "Optimizing CNN Model Inference on
CPUs" (Liu et al., USENIX ATC 2019).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from minitvm.errors import OptionError
from minitvm.relay.dim import Dim

_AXIS = re.compile(r"([A-Z])|([1-9][0-9]*)([a-z])")


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a layout: a logical axis, or (`block` > 0) the inner block of one."""

    name: str
    block: int = 0

    def __str__(self) -> str:
        return f"{self.block}{self.name.lower()}" if self.block else self.name


@dataclass(frozen=True, slots=True)
class Layout:
    """A parsed layout; make one with `parse_layout`."""

    axes: tuple[Axis, ...]
    logical: str = field(init=False, repr=False, compare=False)
    """The letters of the logical axes, in order."""
    blocks: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """The block of each logical axis that is blocked."""
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole = "".join(axis.name for axis in self.axes if not axis.block)
        object.__setattr__(self, "logical", whole)
        blocks = {axis.name: axis.block for axis in self.axes if axis.block}
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "text", "".join(map(str, self.axes)))

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)  # strings remember theirs

    @property
    def rank(self) -> int:
        """The number of dimensions in memory."""
        return len(self.axes)

    def block(self, name: str) -> int:
        """The block of a logical axis; 1 where it is not blocked."""
        return self.blocks.get(name, 1)

    def is_packed(self) -> bool:
        """Whether any axis is blocked."""
        return bool(self.blocks)

    def pack_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The shape in memory of a tensor of this logical shape."""
        extents = dict(zip(self.logical, shape, strict=True))
        return tuple(
            axis.block or blocks_of(extents[axis.name], self.block(axis.name)) for axis in self.axes
        )

    def unpack_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The logical shape, padding included, of a tensor of this shape in memory."""
        return tuple(
            extent * self.block(axis.name)
            for axis, extent in zip(self.axes, shape, strict=True)
            if not axis.block
        )

    def accepts(self, shape: Sequence[Dim]) -> bool:
        """Whether a tensor in this layout can have this shape in memory."""
        return len(shape) == self.rank and all(
            not axis.block or axis.block == extent
            for axis, extent in zip(self.axes, shape, strict=True)
        )

    def join(self, indices: Sequence[Any]) -> dict[str, Any]:
        """Indices in memory -> the index along each logical axis."""
        logical: dict[str, Any] = {}
        for axis, index in zip(self.axes, indices, strict=True):
            if not axis.block:
                block = self.block(axis.name)
                logical[axis.name] = index * block if block > 1 else index
        for axis, index in zip(self.axes, indices, strict=True):
            if axis.block > 1:
                logical[axis.name] = logical[axis.name] + index
        return logical

    def split(self, logical: Mapping[str, Any]) -> tuple[Any, ...]:
        """The index along each logical axis -> indices in memory."""
        return tuple(self._split(axis, logical[axis.name]) for axis in self.axes)

    def _split(self, axis: Axis, index: Any) -> Any:
        if axis.block:
            return index % axis.block if axis.block > 1 else 0
        block = self.block(axis.name)
        return index // block if block > 1 else index

    def without(self, names: str) -> Layout:
        """The layout without some logical axes and their blocks."""
        return Layout(tuple(axis for axis in self.axes if axis.name not in names))


def named_extents(layout: Layout, shape: Sequence[Dim], names: str) -> tuple[Dim, ...]:
    """The logical extents, padding included, of the axes `names`, of a tensor of this shape."""
    extents = dict(zip(layout.logical, layout.unpack_shape(shape), strict=True))
    return tuple(extents[name] for name in names)


def keeps_order(source: Layout, target: Layout, shape: Mapping[str, Dim]) -> bool:
    """Whether a tensor with these logical extents lies in memory the same way in both layouts, so
    that a reshape takes it from one to the other: no padding, and no axis of more than one element
    passes another."""

    def digits(layout: Layout) -> list[tuple[str, Dim]]:
        places: list[tuple[str, Dim]] = []
        for axis in layout.axes:
            split = max(source.block(axis.name), target.block(axis.name))
            if axis.block:
                places.append((axis.name, axis.block))
            elif layout.block(axis.name) == split:
                places.append((axis.name, blocks_of(shape[axis.name], split)))
            else:
                places += [(axis.name, blocks_of(shape[axis.name], split)), (axis.name, split)]
        return [place for place in places if place[1] != 1]

    unpadded = all(
        extent % max(source.block(name), target.block(name)) == 0 for name, extent in shape.items()
    )
    return unpadded and digits(source) == digits(target)


def blocks_of(extent: Dim, block: int) -> Dim:
    """The number of blocks that hold `extent` elements."""
    return extent if block == 1 else (extent + (block - 1)) // block


ASSUMED_EXTENT = 32
"""What models of costs take an unknown extent to be."""


def extent_or_assumed(extent: Dim) -> int:
    """An extent as a number, for models of costs."""
    return extent if isinstance(extent, int) else ASSUMED_EXTENT


@cache
def parse_layout(text: str) -> Layout:
    """The layout a string names. Raises `OptionError` for anything else."""
    axes = []
    position = 0
    while match := _AXIS.match(text, position):
        position = match.end()
        axes.append(Axis(match[1]) if match[1] else Axis(match[3].upper(), int(match[2])))
    whole = [axis.name for axis in axes if not axis.block]
    blocked = [axis.name for axis in axes if axis.block]
    if (
        not axes
        or position < len(text)
        or len(set(whole)) < len(whole)
        or len(set(blocked)) < len(blocked)
        or not set(blocked) <= set(whole)
    ):
        raise OptionError(
            f"{text!r} is no layout; write each axis once in upper case, and its block, if it has "
            f"one, as a size and the letter in lower case: NCHW, NCHW16c, OIHW16i16o"
        )
    return Layout(tuple(axes))


def pack(array: np.ndarray, layout: Layout) -> np.ndarray:
    """A tensor with the logical axes of `layout` in order -> the same in memory order, padded with
    zeros up to whole blocks."""
    padding = [
        (0, -extent % layout.block(name))
        for name, extent in zip(layout.logical, array.shape, strict=True)
    ]
    if any(after for _, after in padding):
        array = np.pad(array, padding)
    shape: list[int] = []
    position: dict[Axis, int] = {}
    for name, extent in zip(layout.logical, array.shape, strict=True):
        block = layout.block(name)
        position[Axis(name)] = len(shape)
        position[Axis(name, block)] = len(shape) + 1
        shape += [extent // block, block]
    order = [position[axis] for axis in layout.axes]
    dropped = [index for index in range(len(shape)) if index not in order]  # blocks of 1
    split = array.reshape(shape).transpose(order + dropped)
    return np.ascontiguousarray(split.reshape(split.shape[: layout.rank]))


def unpack(
    array: np.ndarray, layout: Layout, shape: Sequence[int | None] | None = None
) -> np.ndarray:
    """The inverse of `pack`: cut to the logical `shape`, or, without one, padding included."""
    order = []
    for name in layout.logical:
        order.append(layout.axes.index(Axis(name)))
        if (inner := Axis(name, layout.block(name))) in layout.axes:
            order.append(layout.axes.index(inner))
    padded: tuple[Any, ...] = layout.unpack_shape(array.shape)
    whole = array.transpose(order).reshape(padded)
    if shape is not None:
        whole = whole[tuple(slice(extent) for extent in shape)]
    return np.ascontiguousarray(whole)


def transform(
    array: np.ndarray, source: Layout, target: Layout, shape: Sequence[int] | None = None
) -> np.ndarray:
    """A tensor in one layout -> the same in another. `shape`: the logical shape, in the order of
    the source's axes, where the source holds padding that is to be dropped."""
    if source == target and shape is None:
        return array
    logical = unpack(array, source, shape)
    order = [source.logical.index(name) for name in target.logical]
    return pack(logical.transpose(order), target)
