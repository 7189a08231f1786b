"""Local response normalisation: `nn.lrn`, across neighbouring channels.

From "ImageNet Classification with Deep Convolutional Neural Networks" (Krizhevsky et al., 2012).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import TensorType, Type
from minitvm.relay.layout import Layout, parse_layout, transform
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.families import intrinsic
from minitvm.relay.ops.nn.pooling import image_layout
from minitvm.relay.ops.nn.windows import stage
from minitvm.te.recipes import schedule_lrn
from minitvm.tir import ir
from minitvm.tir.ir import Expr

if TYPE_CHECKING:
    from minitvm.target import Target


@register
@dataclass(frozen=True, slots=True)
class Lrn(Op):
    """x / (bias + alpha / size * s) ** beta, s the sum of the squares of `size` neighbouring
    channels, (size - 1) // 2 of them before; those that don't exist count as zero.

    The layout is NCHW, NHWC or packed. A packed tensor has so many true channels as `channels`
    says (None: all), and zeros in the result behind them.
    """

    name = "nn.lrn"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    layouts = ("layout",)
    clears_padding = True

    size: int = 5
    bias: float = 1.0
    alpha: float = 1e-4
    beta: float = 0.75
    layout: str = "NCHW"
    channels: int | None = None

    def infer(self, data: TensorType) -> TensorType:
        layout = image_layout(self, self.layout, data)
        if not dtypes.is_float(data.dtype):
            raise self.fail((data,), "the data must be floats; cast it")
        if self.size < 1:
            raise self.fail((data,), "the size must be at least 1")
        shape: Any = dict(zip(layout.logical, layout.unpack_shape(data.shape), strict=True))
        if not isinstance(shape["C"], int):
            raise self.fail((data,), "the number of channels must be known")
        if self.channels is not None and not 0 <= shape["C"] - self.channels < layout.block("C"):
            raise self.fail((data,), f"the data has no {self.channels} channels")
        if layout.is_packed() and self.size > layout.block("C"):
            raise self.fail((data,), f"a block of {layout} holds less than {self.size} channels")
        return data

    def follow_layout(
        self, types: tuple[Type, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        """Packed with the number of its channels, so that padding lanes count as zero."""
        (given,) = types
        assert isinstance(given, TensorType)
        text = layouts[0]
        if text is None or self.layout != "NCHW" or parse_layout(text).logical != "NCHW":
            return None
        channels = given.shape[1]
        if not isinstance(channels, int) or parse_layout(text).block("C") < self.size:
            return None
        return LayoutChoice(replace(self, layout=text, channels=channels), (text,), text)

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        layout, plain = parse_layout(self.layout), parse_layout("NCHW")
        image = transform(data, layout, plain)[:, : self.channels]
        before, number = (self.size - 1) // 2, image.dtype.type
        with np.errstate(all="ignore"):
            widths = ((0, 0), (before, self.size - 1 - before), (0, 0), (0, 0))
            squares, total = np.pad(image * image, widths), np.zeros_like(image)
            for tap in range(self.size):
                total += squares[:, tap : tap + image.shape[1]]
            base = number(self.bias) + total * number(self.alpha / self.size)
            result = np.asarray(image / base ** number(self.beta), image.dtype)
        return transform(result, plain, layout)

    def compute(self, data: te.Tensor) -> te.Tensor:
        layout = parse_layout(self.layout)
        total = self._packed_total(data, layout) if layout.is_packed() else self._total(data)

        def element(*i: Expr) -> Any:
            value: Any = data[i] / self._divisor(total(i))
            if self.channels is None or self.channels % layout.block("C") == 0:
                return value
            return te.select(layout.join(i)["C"] < self.channels, value, 0)

        return stage(data.extents(), element, "lrn")

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_lrn(s, anchor, output, target)

    def _total(self, data: te.Tensor) -> Callable[[Sequence[Expr]], Any]:
        """The sum of squares at an element: a stage that reduces."""
        axis = self.layout.index("C")
        channels = data.extents()[axis]
        tap = te.reduce_axis((0, self.size), "tap")

        def element(*i: Expr) -> Any:
            channel = i[axis] + tap.var - (self.size - 1) // 2
            value = data[(*i[:axis], channel, *i[axis + 1 :])]
            inside = te.all(channel >= 0, channel < channels)
            return te.sum(te.if_then_else(inside, value * value, 0), axis=[tap])

        result = stage(data.extents(), element, "lrn_sum")
        return lambda i: result[tuple(i)]

    def _packed_total(
        self, data: te.Tensor, layout: Layout
    ) -> Callable[[Sequence[Expr]], Any]:
        """The same on a packed tensor: squares with all channels of a pixel in a row, between
        blocks of zeros, so that neighbours of a vector of channels are a vector, too."""
        shape: Any = layout.unpack_shape(data.extents())
        extents = dict(zip(layout.logical, shape, strict=True))
        lanes = layout.block("C")
        channels = extents["C"] if self.channels is None else self.channels

        def square(n: Expr, y: Expr, x: Expr, block: Expr, lane: Expr) -> Any:
            channel = block * lanes + lane - lanes
            value = data[layout.split({"N": n, "C": channel, "H": y, "W": x})]
            inside = te.all(channel >= 0, channel < channels)
            return te.if_then_else(inside, value * value, 0)

        blocks = extents["C"] // lanes + 2
        shape = (extents["N"], extents["H"], extents["W"], blocks, lanes)
        squares = stage(shape, square, "lrn_squares")

        def total(i: Sequence[Expr]) -> Any:
            at = layout.join(i)
            first = at["C"] + (lanes - (self.size - 1) // 2)
            pixel = (at["N"], at["H"], at["W"])
            taps = (first + tap for tap in range(self.size))
            return reduce(operator.add, (squares[*pixel, c // lanes, c % lanes] for c in taps))

        return total

    def _divisor(self, total: Any) -> Any:
        """(bias + alpha / size * total) ** beta, by square roots where they do."""
        dtype = total.dtype
        base = ir.convert(self.bias, dtype) + total * ir.convert(self.alpha / self.size, dtype)
        if self.bias < 0 or self.alpha < 0 or self.beta not in (0.25, 0.5, 0.75, 1):
            return intrinsic("pow", base, ir.convert(self.beta, dtype))
        if self.beta == 1:
            return base
        root = te.sqrt(base)
        if self.beta == 0.5:
            return root
        return te.sqrt(root) if self.beta == 0.25 else root * te.sqrt(root)
