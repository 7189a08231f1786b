"""Sliding windows: extents, padding and taps, shared by convolutions and pooling.

A window of `kernel` taps, `dilation` apart, moves by `strides` over an image to which `padding`
(top, left, bottom, right) is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import te
from minitvm.relay.dim import Dim
from minitvm.tir.ir import Expr

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


def pair(value: Any) -> Pair:
    """`2` or `[2, 2]` as `(2, 2)`."""
    if isinstance(value, int):
        return value, value
    first, second = value
    return int(first), int(second)


def pads(value: Any) -> Pads:
    """`1`, `(vertical, horizontal)` or `(top, left, bottom, right)` as the latter."""
    if isinstance(value, int):
        return value, value, value, value
    items = tuple(int(item) for item in value)
    if len(items) == 2:
        items *= 2
    top, left, bottom, right = items
    return top, left, bottom, right


@dataclass(frozen=True, slots=True)
class Window:
    """How a window moves. `ceil_mode`: positions that only begin inside count too."""

    kernel: Pair
    strides: Pair = (1, 1)
    padding: Pads = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    ceil_mode: bool = False

    def fault(self) -> str:
        """What is wrong with the numbers themselves; empty if nothing is."""
        if min(self.kernel) < 1 or min(self.strides) < 1 or min(self.dilation) < 1:
            return "kernel, strides and dilation must be at least 1"
        return "" if min(self.padding) >= 0 else "padding must not be negative"

    @property
    def span(self) -> Pair:
        """The extent from the first to the last tap."""
        return (
            (self.kernel[0] - 1) * self.dilation[0] + 1,
            (self.kernel[1] - 1) * self.dilation[1] + 1,
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether it is one tap, at every position of the image."""
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any(self.padding)

    def outputs(self, height: Dim, width: Dim) -> tuple[Dim, Dim]:
        """The number of positions, for an image of these extents."""
        return self._outputs(height, 0), self._outputs(width, 1)

    def positions(self, height: int, width: int) -> Pair:
        """The same for extents that are known."""
        rows, columns = self.outputs(height, width)
        assert isinstance(rows, int) and isinstance(columns, int)
        return rows, columns

    def _outputs(self, extent: Dim, axis: int) -> Dim:
        before, after = self.padding[axis], self.padding[axis + 2]
        stride = self.strides[axis]
        room = extent + (before + after - self.span[axis])
        if not self.ceil_mode:
            return room // stride + 1
        count = (room + (stride - 1)) // stride + 1
        starts_in_padding = isinstance(count, int) and (count - 1) * stride >= extent + before
        return count - 1 if starts_in_padding else count

    def reach(self, outputs: Pair) -> Pair:
        """The extents that the windows of so many positions cover, padding included."""
        rows, columns = (
            (outputs[axis] - 1) * self.strides[axis] + self.span[axis] for axis in (0, 1)
        )
        return rows, columns

    def taps(self, padded: np.ndarray, outputs: Pair) -> Iterator[tuple[int, int, Any]]:
        """For each tap (i, j), the view of `padded[..., H, W]` it sees at all positions."""
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                seen = (self._seen(0, i, outputs[0]), self._seen(1, j, outputs[1]))
                yield i, j, padded[(..., *seen)]

    def _seen(self, axis: int, tap: int, outputs: int) -> slice:
        start, stride = tap * self.dilation[axis], self.strides[axis]
        return slice(start, start + (outputs - 1) * stride + 1, stride)

    def pad(self, image: np.ndarray, outputs: Pair, value: Any = 0) -> np.ndarray:
        """`image[..., H, W]` with padding, as far as the windows reach; a view if there is none."""
        rows, columns = self.reach(outputs)
        top, left = self.padding[:2]
        height, width = image.shape[-2:]
        if (top, left) == (0, 0) and rows <= height and columns <= width:
            return image
        padded = np.full((*image.shape[:-2], rows, columns), value, image.dtype)
        inside = image[..., : max(rows - top, 0), : max(columns - left, 0)]
        padded[..., top : top + inside.shape[-2], left : left + inside.shape[-1]] = inside
        return padded

    def pad_stage(
        self, image: te.Tensor, axes: Pair, outputs: Pair, value: Any = 0
    ) -> te.Tensor:
        """The same as a te stage of its own, tagged "pad"; `image` itself if there is none.

        `axes` are the dimensions of `image` that hold height and width.
        """
        reach = self.reach(outputs)
        before = {axes[0]: self.padding[0], axes[1]: self.padding[1]}
        extents = list(image.extents())
        if not any(before.values()) and all(reach[i] <= extents[axes[i]] for i in (0, 1)):
            return image
        shape = list(extents)
        shape[axes[0]], shape[axes[1]] = reach
        return pad_stage(image, before, shape, value)

    def position(self, axis: int, output: Any, tap: Any) -> Any:
        """The row (axis 0) or column in the padded image of a tap at an output position."""
        return output * self.strides[axis] + tap * self.dilation[axis]


def pad_stage(
    image: te.Tensor, before: Mapping[int, int], shape: list[int], value: Any
) -> te.Tensor:
    """`image` in a frame of `shape`, moved by `before` along some axes; `value` outside of it."""
    extents = image.extents()

    def element(*indices: Expr) -> Expr:
        moved = [index - before.get(axis, 0) for axis, index in enumerate(indices)]
        inside: list[Expr] = []
        for axis, index in enumerate(indices):
            start = before.get(axis, 0)
            if start > 0:
                inside.append(index >= start)
            if start + extents[axis] < shape[axis]:
                inside.append(index < start + extents[axis])
        return te.if_then_else(te.all(*inside), image[tuple(moved)], value)

    return stage(shape, element, "pad")


def stage(
    shape: Sequence[Any],
    element: Callable[..., Any],
    tag: str,
    attrs: Mapping[str, Any] | None = None,
) -> te.Tensor:
    """A te stage of one output, named as it is tagged."""
    result: te.Tensor = te.compute(shape, element, name=tag, tag=tag, attrs=attrs)
    return result
