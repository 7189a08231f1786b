"""ONNX operators with windows: convolution and pooling, along one or two axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import Conversion, Unsupported
from minitvm.relay.onnx.table import converter
from minitvm.relay.op import Op
from minitvm.relay.ops.nn.bias_add import BiasAdd
from minitvm.relay.ops.nn.conv1d import Conv1d
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.nn.pooling import AvgPool2d, GlobalAvgPool2d, GlobalMaxPool2d, MaxPool2d
from minitvm.relay.ops.reduce import Max
from minitvm.relay.ops.reduce_composite import Mean
from minitvm.relay.ops.transform import ExpandDims, Squeeze

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True)
class Window:
    """A window in one entry for each spatial axis; `padding` in front of all, then behind."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


def read_window(c: Conversion, extents: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """The window that the attributes describe, over an image of these extents."""
    count = len(extents)
    strides = entries(c, "strides", count)
    dilation = entries(c, "dilations", count)
    pads = c.integers("pads")
    automatic = c.text("auto_pad", "NOTSET", AUTO_PADS)
    if pads is not None and (len(pads) != 2 * count or min(pads, default=0) < 0):
        raise ModelError(f"{c.node}: pads must be {2 * count} entries of at least 0, not {pads}")
    if automatic == "NOTSET":
        return Window(kernel, strides, pads or (0,) * (2 * count), dilation)
    if pads is not None and any(pads):
        raise ModelError(f"{c.node} has both auto_pad={automatic} and pads")
    if automatic == "VALID":
        return Window(kernel, strides, (0,) * (2 * count), dilation)
    totals = [
        max((-(-extent // stride) - 1) * stride + (taps - 1) * step + 1 - extent, 0)
        for extent, stride, taps, step in zip(extents, strides, kernel, dilation, strict=True)
    ]
    smaller = tuple(total // 2 for total in totals)
    larger = tuple(total - half for total, half in zip(totals, smaller, strict=True))
    padding = (*smaller, *larger) if automatic == "SAME_UPPER" else (*larger, *smaller)
    return Window(kernel, strides, padding, dilation)


def entries(c: Conversion, name: str, count: int) -> tuple[int, ...]:
    """A list of positive integers, one for each axis; all 1 where it is left out."""
    values = c.integers(name)
    if values is None:
        return (1,) * count
    if len(values) != count or min(values) < 1:
        raise ModelError(f"{c.node}: {name} must be {count} entries of at least 1, not {values}")
    return values


# --- convolution --------------------------------------------------------------------------------


@converter("Conv", 1)
def conv(c: Conversion) -> Atom:
    """A convolution along one or two axes, and a bias for each channel."""
    x, weight, bias = c.input(0), c.input(1), c.optional(2)
    extents, shape = c.shape(x), c.shape(weight)
    if len(extents) < 3 or len(shape) != len(extents):
        raise ModelError(f"{c.node} takes data and weight of one rank, not {extents} and {shape}")
    kernel = c.integers("kernel_shape") or shape[2:]
    if kernel != shape[2:]:
        raise ModelError(f"{c.node}: kernel_shape {kernel} does not fit the weight {shape}")
    window = read_window(c, extents[2:], kernel)
    result = c.emit(convolution(window, c.integer("group", 1)), x, weight)
    return result if bias is None else c.emit(BiasAdd(axis=1), result, bias)


def convolution(window: Window, groups: int) -> Op:
    """The convolution of a window along one or two axes."""
    match window:
        case Window((_,), (stride,), (before, after), (dilation,)):
            return Conv1d(stride, (before, after), dilation, groups)
        case Window((_, _), (down, across), (top, left, bottom, right), (rows, columns)):
            padding = (top, left, bottom, right)
            return Conv2d((down, across), padding, (rows, columns), groups)
        case _:
            raise _too_many_axes(len(window.kernel))


def _too_many_axes(count: int) -> Unsupported:
    return Unsupported(f"windows along {count} axes", "one or two axes are supported")


# --- pooling ------------------------------------------------------------------------------------


Pair = tuple[int, int]
MakePool = Callable[[Pair, Pair, tuple[int, int, int, int], Pair], Op]
"""kernel, strides, padding, dilation -> the operator."""


def _pool(c: Conversion, make: MakePool) -> Atom:
    x = c.input(0)
    extents = c.shape(x)[2:]
    kernel = c.integers("kernel_shape")
    if kernel is None or len(kernel) != len(extents):
        raise ModelError(f"{c.node}: kernel_shape {kernel} does not fit {c.type(x)}")
    match read_window(c, extents, kernel):
        case Window((taps,), (stride,), (before, after), (dilation,)):
            op = make((1, taps), (1, stride), (0, before, 0, after), (1, dilation))
            return c.emit(Squeeze((2,)), c.emit(op, c.emit(ExpandDims((2,)), x)))
        case Window((high, wide), (down, across), (top, left, bottom, right), (rows, columns)):
            padding = (top, left, bottom, right)
            return c.emit(make((high, wide), (down, across), padding, (rows, columns)), x)
        case window:
            raise _too_many_axes(len(window.kernel))


def _ceil_mode(c: Conversion) -> bool:
    """Whether a last window may begin inside and end outside; from opset 10 on."""
    return c.opset >= 10 and c.flag("ceil_mode")


@converter("MaxPool", 1)
def max_pool(c: Conversion) -> Atom:
    """The greatest of each window."""
    c.require_one_output("the positions of the maxima are not computed")
    c.ignore("storage_order")  # the order of the positions
    ceil_mode = _ceil_mode(c)
    return _pool(c, lambda k, s, p, d: MaxPool2d(k, s, p, d, ceil_mode))


@converter("AveragePool", 1)
def average_pool(c: Conversion) -> Atom:
    """The mean of each window."""
    ceil_mode, count_pads = _ceil_mode(c), c.flag("count_include_pad")

    def make(
        kernel: Pair, strides: Pair, padding: tuple[int, int, int, int], dilation: Pair
    ) -> AvgPool2d:
        return AvgPool2d(
            kernel, strides, padding, dilation, ceil_mode, count_include_pad=count_pads
        )

    return _pool(c, make)


def _global_pool(c: Conversion, image_op: Op, other: type[Max] | type[Mean]) -> Atom:
    x = c.input(0)
    rank = c.type(x).rank
    if rank < 3:
        raise ModelError(f"{c.node} takes data with spatial axes, not {c.type(x)}")
    return c.emit(image_op if rank == 4 else other(tuple(range(2, rank)), True), x)


@converter("GlobalAveragePool", 1)
def global_average_pool(c: Conversion) -> Atom:
    """The mean of each channel."""
    return _global_pool(c, GlobalAvgPool2d(), Mean)


@converter("GlobalMaxPool", 1)
def global_max_pool(c: Conversion) -> Atom:
    """The greatest of each channel."""
    return _global_pool(c, GlobalMaxPool2d(), Max)
