"""ONNX's ConvTranspose, as a convolution over an image with zeros between its pixels.

    a . b . c          the image, `stride - 1` zeros behind each pixel but the last
    conv(that, W')     with stride 1; W' is W turned round, inputs and outputs swapped
"""

from __future__ import annotations

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import Conversion
from minitvm.relay.onnx.converters.shapes import reshape_to
from minitvm.relay.onnx.converters.windows import AUTO_PADS, Window, convolution, entries
from minitvm.relay.onnx.table import converter
from minitvm.relay.ops.join import StridedSlice
from minitvm.relay.ops.nn.bias_add import BiasAdd
from minitvm.relay.ops.nn.pad import Pad
from minitvm.relay.ops.transform import Transpose


@converter("ConvTranspose", 1)
def conv_transpose(c: Conversion) -> Atom:
    """The transposed convolution along one or two axes, and a bias for each channel."""
    x, weight, bias = c.input(0), c.input(1), c.optional(2)
    extents, shape = c.shape(x), c.shape(weight)
    groups = c.integer("group", 1)
    if len(extents) < 3 or len(shape) != len(extents) or shape[0] != extents[1]:
        raise ModelError(f"{c.node}: the weight {shape} does not fit data of {extents}")
    if groups < 1 or shape[0] % groups:
        raise ModelError(f"{c.node}: {shape[0]} channels are not {groups} groups")
    kernel = c.integers("kernel_shape") or shape[2:]
    if kernel != shape[2:]:
        raise ModelError(f"{c.node}: kernel_shape {kernel} does not fit the weight {shape}")
    strides = entries(c, "strides", len(kernel))
    dilation = entries(c, "dilations", len(kernel))
    before, after = _borders(c, extents[2:], kernel, strides, dilation)
    image = _cut(c, _with_zeros(c, x, strides), before, after)
    padding = tuple(max(border, 0) for border in (*before, *after))
    window = Window(kernel, (1,) * len(kernel), padding, dilation)
    result = c.emit(convolution(window, groups), image, _turned(c, weight, groups))
    return result if bias is None else c.emit(BiasAdd(axis=1), result, bias)


def _borders(c: Conversion, extents: tuple[int, ...], kernel: tuple[int, ...],
             strides: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """How many zeros stand before and after the image along each axis; less than 0: cut off."""
    count = len(extents)
    more = c.integers("output_padding") or (0,) * count
    pads = c.integers("pads") or (0,) * (2 * count)
    wanted = c.integers("output_shape")
    automatic = c.text("auto_pad", "NOTSET", AUTO_PADS)
    if len(more) != count or len(pads) != 2 * count or min((*more, *pads)) < 0:
        raise ModelError(f"{c.node}: output_padding and pads must be {count} and {2 * count} "
                         f"entries of at least 0, not {more} and {pads}")
    reach = [(taps - 1) * step for taps, step in zip(kernel, dilation)]
    if automatic.startswith("SAME") and wanted is None:
        wanted = tuple(extent * stride for extent, stride in zip(extents, strides))
    if wanted is not None:
        wanted = wanted[-count:]
        if len(wanted) != count or min(wanted) < 1:
            raise ModelError(f"{c.node}: output_shape must be {count} positive entries")
        totals = [stride * (extent - 1) + extra + span + 1 - size for stride, extent, extra, span,
                  size in zip(strides, extents, more, reach, wanted)]
        halves = [total // 2 for total in totals]
        rests = [total - half for total, half in zip(totals, halves)]
        pads = (*halves, *rests) if automatic == "SAME_UPPER" else (*rests, *halves)
    before = [span - pad for span, pad in zip(reach, pads[:count])]
    after = [span - pad + extra for span, pad, extra in zip(reach, pads[count:], more)]
    return before, after


def _with_zeros(c: Conversion, x: Atom, strides: tuple[int, ...]) -> Atom:
    """The image with zeros between its pixels."""
    if all(stride == 1 for stride in strides):
        return x
    extents = c.shape(x)
    spatial = extents[2:]
    apart = [size for extent in spatial for size in (extent, 1)]
    widths = [pair for stride in strides for pair in ((0, 0), (0, stride - 1))]
    result = reshape_to(c, x, (*extents[:2], *apart))
    result = c.emit(Pad(((0, 0), (0, 0), *widths)), result)
    wide = [extent * stride for extent, stride in zip(spatial, strides)]
    result = reshape_to(c, result, (*extents[:2], *wide))
    ends = tuple(size - stride + 1 for size, stride in zip(wide, strides))
    return c.emit(StridedSlice((0,) * len(ends), ends, axes=tuple(range(2, 2 + len(ends)))), result)


def _cut(c: Conversion, x: Atom, before: list[int], after: list[int]) -> Atom:
    if min(*before, *after) >= 0:
        return x
    extents = c.shape(x)[2:]
    starts = tuple(max(-border, 0) for border in before)
    ends = tuple(extent + min(border, 0) for extent, border in zip(extents, after))
    return c.emit(StridedSlice(starts, ends, axes=tuple(range(2, 2 + len(ends)))), x)


def _turned(c: Conversion, weight: Atom, groups: int) -> Atom:
    """(inputs, outputs of a group, ...) -> (outputs, inputs of a group, ...), turned round."""
    inputs, outputs, *kernel = c.shape(weight)
    axes = tuple(range(3, 3 + len(kernel)))
    result = reshape_to(c, weight, (groups, inputs // groups, outputs, *kernel))
    result = c.emit(Transpose((0, 2, 1, *axes)), result)
    result = reshape_to(c, result, (groups * outputs, inputs // groups, *kernel))
    count = len(kernel)
    return c.emit(StridedSlice((-1,) * count, (-(2**31),) * count, (-1,) * count,
                               tuple(range(2, 2 + count))), result)
