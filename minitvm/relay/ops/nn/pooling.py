"""Pooling: the greatest or the mean of each window of an image, or of the whole image.

All take NCHW or NHWC, or packed NCHW16c: a channel never meets another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minitvm import dtypes, te
from minitvm.errors import OptionError
from minitvm.relay.ir import TensorType, Type
from minitvm.relay.layout import Axis, Layout, parse_layout, transform
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.nn.windows import Pads, Pair, Window, pads, pair, stage
from minitvm.tir import ir
from minitvm.tir.ir import Expr


def image_layout(op: Op, text: str, data: TensorType) -> Layout:
    """The layout of an image; raises the operator's type error for one that is not supported, or
    for data that does not fit."""
    try:
        layout = parse_layout(text)
    except OptionError as error:
        raise op.fail((data,), str(error)) from error
    packed = layout.logical == "NCHW" and str(layout.without("C")) == "NHW"
    if not packed and str(layout) != "NHWC":
        raise op.fail((data,), f"the layout {layout} is not supported; give NCHW, NHWC or NCHW16c")
    if not layout.accepts(data.shape):
        raise op.fail((data,), f"the data must be {layout}")
    return layout


def image_axes(text: str) -> Pair:
    """The dimensions that hold the rows and the columns of an image in a layout."""
    rows, columns = (parse_layout(text).axes.index(Axis(name)) for name in "HW")
    return rows, columns


def packed_choice(op: Any, layouts: tuple[str | None, ...]) -> LayoutChoice | None:
    """`op` in the layout that its argument comes in, if that is a packed image."""
    layout = layouts[0]
    if layout is None or op.layout != "NCHW" or parse_layout(layout).logical != "NCHW":
        return None
    return LayoutChoice(replace(op, layout=layout), (layout,), layout)


@dataclass(frozen=True, slots=True)
class Pool2d(Op):
    """What pooling over windows has in common."""

    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    layouts = ("layout",)

    pool_size: Pair
    strides: Pair = (1, 1)
    padding: Pads = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    ceil_mode: bool = False
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        object.__setattr__(self, "pool_size", pair(self.pool_size))
        object.__setattr__(self, "strides", pair(self.strides))
        object.__setattr__(self, "padding", pads(self.padding))
        object.__setattr__(self, "dilation", pair(self.dilation))

    @property
    def window(self) -> Window:
        """How the window moves."""
        return Window(self.pool_size, self.strides, self.padding, self.dilation, self.ceil_mode)

    def infer(self, data: TensorType) -> TensorType:
        if dtypes.is_bool(data.dtype):
            raise self.fail((data,), "the data must be numeric")
        image_layout(self, self.layout, data)
        if fault := self.window.fault():
            raise self.fail((data,), fault)
        axes = image_axes(self.layout)
        shape = list(data.shape)
        outputs = self.window.outputs(*(data.shape[axis] for axis in axes))
        if any(isinstance(extent, int) and extent < 1 for extent in outputs):
            raise self.fail((data,), f"the window of {self.window.span} exceeds the padded image")
        for axis, extent in zip(axes, outputs, strict=True):
            shape[axis] = extent
        return TensorType(tuple(shape), data.dtype)

    def follow_layout(
        self, types: tuple[Type, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        return packed_choice(self, layouts)

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        layout, plain = parse_layout(self.layout), parse_layout("NCHW")
        image = transform(data, layout, plain)
        return transform(self.evaluate_image(image), plain, layout)

    def evaluate_image(self, image: np.ndarray) -> np.ndarray:
        """`evaluate` for NCHW."""
        raise NotImplementedError(self.name)

    def taps(self, image: np.ndarray, value: Any) -> Iterator[np.ndarray]:
        """What each tap of the window sees, `value` outside of the image."""
        outputs = self.window.positions(*image.shape[2:])
        padded = self.window.pad(image, outputs, value)
        return (view for _, _, view in self.window.taps(padded, outputs))

    def reduce_stage(self, data: te.Tensor, reducer: Any, value: Any, tag: str) -> te.Tensor:
        """The stage that reduces each window, `value` outside of the image."""
        rows, columns = image_axes(self.layout)
        shape = list(data.extents())
        outputs = self.window.positions(shape[rows], shape[columns])
        padded = self.window.pad_stage(data, (rows, columns), outputs, value)
        shape[rows], shape[columns] = outputs
        ky = te.reduce_axis((0, self.pool_size[0]), "ky")
        kx = te.reduce_axis((0, self.pool_size[1]), "kx")

        def element(*i: Expr) -> Any:
            place: list[Any] = list(i)
            place[rows] = self.window.position(0, i[rows], ky)
            place[columns] = self.window.position(1, i[columns], kx)
            return reducer(padded[tuple(place)], axis=[ky, kx])

        return stage(shape, element, tag)


@register
@dataclass(frozen=True, slots=True)
class MaxPool2d(Pool2d):
    """The greatest element of each window; NaN if there is one. Padding never wins."""

    name = "nn.max_pool2d"

    def evaluate_image(self, image: np.ndarray) -> np.ndarray:
        views = self.taps(image, least(image.dtype.name))
        result = np.array(next(views))
        for view in views:
            np.maximum(result, view, out=result)
        return result

    def compute(self, data: te.Tensor) -> te.Tensor:
        return self.reduce_stage(data, te.max, least(data.dtype), "max_pool2d")


def least(dtype: str) -> float | int:
    """The least value of a dtype; minus infinity for floats."""
    return float("-inf") if dtypes.is_float(dtype) else dtypes.integer_range(dtype)[0]


@register
@dataclass(frozen=True, slots=True)
class AvgPool2d(Pool2d):
    """The mean of each window: of its elements in the image or, with `count_include_pad`, in the
    padded image. What `ceil_mode` adds beyond the padding never counts."""

    name = "nn.avg_pool2d"

    count_include_pad: bool = False

    def infer(self, data: TensorType) -> TensorType:
        if not dtypes.is_float(data.dtype):
            raise self.fail((data,), "the mean is for floats; cast the data")
        return Pool2d.infer(self, data)

    def evaluate_image(self, image: np.ndarray) -> np.ndarray:
        views = self.taps(image, 0)
        with np.errstate(all="ignore"):
            result = np.array(next(views))
            for view in views:
                result += view
            rows, columns = self.window.positions(*image.shape[2:])
            counts = np.multiply.outer(
                self.counts(0, np.arange(rows), image.shape[2], np),
                self.counts(1, np.arange(columns), image.shape[3], np),
            )
            return np.asarray(result / counts.astype(image.dtype))

    def counts(self, axis: int, output: Any, extent: int, math: Any) -> Any:
        """How many taps count along an axis at an output position (an array or an expression;
        `math` has their `minimum` and `maximum`)."""
        before, after = self.padding[axis], self.padding[axis + 2]
        low, high = (-before, extent + after) if self.count_include_pad else (0, extent)
        start, step = output * self.strides[axis] - before, self.dilation[axis]
        first = math.maximum((low - start + (step - 1)) // step, 0)
        end = math.minimum((high - start + (step - 1)) // step, self.pool_size[axis])
        return math.maximum(end - first, 0)

    def compute(self, data: te.Tensor) -> te.Tensor:
        y, x = image_axes(self.layout)
        height, width = data.extents()[y], data.extents()[x]
        total = self.reduce_stage(data, te.sum, 0, "avg_pool2d_sum")
        rows, columns = self.window.positions(height, width)
        every_row = self.counts(0, np.arange(rows), height, np)
        every_column = self.counts(1, np.arange(columns), width, np)

        def element(*i: Expr) -> Any:
            count_y = self.counts(0, i[y], height, ir)
            count_x = self.counts(1, i[x], width, ir)
            if len(set(every_row)) == 1:
                count_y = int(every_row[0])
            if len(set(every_column)) == 1:
                count_x = int(every_column[0])
            return total[i] / ir.cast(count_y * count_x, data.dtype)

        return stage(total.extents(), element, "avg_pool2d")


@dataclass(frozen=True, slots=True)
class GlobalPool2d(Op):
    """What pooling over whole images has in common."""

    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    layouts = ("layout",)

    layout: str = "NCHW"

    def infer(self, data: TensorType) -> TensorType:
        image_layout(self, self.layout, data)
        if dtypes.is_bool(data.dtype):
            raise self.fail((data,), "the data must be numeric")
        axes = image_axes(self.layout)
        shape = (1 if axis in axes else extent for axis, extent in enumerate(data.shape))
        return TensorType(tuple(shape), data.dtype)

    def follow_layout(
        self, types: tuple[Type, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        return packed_choice(self, layouts)

    def reduce_stage(self, data: te.Tensor, reducer: Any, tag: str) -> te.Tensor:
        """The stage that reduces each image."""
        rows, columns = image_axes(self.layout)
        shape = list(data.extents())
        ky = te.reduce_axis((0, shape[rows]), "ky")
        kx = te.reduce_axis((0, shape[columns]), "kx")
        shape[rows] = shape[columns] = 1

        def element(*i: Expr) -> Any:
            place: list[Any] = list(i)
            place[rows], place[columns] = ky, kx
            return reducer(data[tuple(place)], axis=[ky, kx])

        return stage(shape, element, tag)


@register
@dataclass(frozen=True, slots=True)
class GlobalAvgPool2d(GlobalPool2d):
    """The mean of each channel."""

    name = "nn.global_avg_pool2d"

    def infer(self, data: TensorType) -> TensorType:
        if not dtypes.is_float(data.dtype):
            raise self.fail((data,), "the mean is for floats; cast the data")
        return GlobalPool2d.infer(self, data)

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            axes = image_axes(self.layout)
            return np.asarray(data.mean(axis=axes, keepdims=True, dtype=data.dtype))

    def compute(self, data: te.Tensor) -> te.Tensor:
        total = self.reduce_stage(data, te.sum, "global_avg_pool2d_sum")
        rows, columns = image_axes(self.layout)
        count = float(data.extents()[rows] * data.extents()[columns])
        return stage(total.extents(), lambda *i: total[i] / count, "global_avg_pool2d")


@register
@dataclass(frozen=True, slots=True)
class GlobalMaxPool2d(GlobalPool2d):
    """The greatest element of each channel."""

    name = "nn.global_max_pool2d"

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        return np.asarray(data.max(axis=image_axes(self.layout), keepdims=True))

    def compute(self, data: te.Tensor) -> te.Tensor:
        return self.reduce_stage(data, te.max, "global_max_pool2d")
