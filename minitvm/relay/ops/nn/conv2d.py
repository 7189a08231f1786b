"""Convolution: `nn.conv2d`, in plain and packed layouts.

    data    NCHW or NHWC, or packed NCHW16c
    weight  OIHW or HWIO, or packed OIHW16i16o: (O/16, I/16, KH, KW, 16, 16)
            OIHW3i16o over plain NCHW data of 3 channels, for the first layer
            OIHW1i16o over packed data, one channel a group (depthwise)
            OIHW6i16o over packed data, 6 channels a group, in groups that don't fill whole blocks
    result  as the data, or packed by the weight's block of O

Packed channels are padded with zeros up to the block; `channels` says how many of the result's are
true, and the others are zeros whatever the data (infinity * 0 would be NaN). Padding of images
contributes 0 * weight, so that a weight of NaN or infinity shows at the border too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import dtypes, te
from minitvm.errors import OptionError
from minitvm.relay.ir import TensorType
from minitvm.relay.layout import (
    Axis,
    Layout,
    blocks_of,
    extent_or_assumed,
    named_extents,
    parse_layout,
    transform,
)
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.nn import conv2d_compute, conv2d_cost
from minitvm.relay.ops.nn.conv2d_groups import Blocks, grouped_packed
from minitvm.relay.ops.nn.windows import Pads, Pair, Window, pads, pair
from minitvm.te.recipes import schedule_conv2d

if TYPE_CHECKING:
    from minitvm.target import Target

MOST_EXCESS = 6
"""How many lanes may be computed for each channel of groups that don't fill whole blocks."""
LEAST_BLOCK = 4
"""The fewest channels that are offered as a block. Double blocks are not: with AVX-512 they took
0.99 to 5.4 times as long, in 24 shapes."""
IMAGE, KERNEL = "NCHW", "OIHW"
"""The order of axes in which what a convolution means is written."""


@register
@dataclass(frozen=True, slots=True)
class Conv2d(Op):
    """A two-dimensional convolution (cross-correlation, as in ONNX) in `groups` groups.

    `channels`: the number of output channels; None: as many as the weight has, padding included.
    """

    name = "nn.conv2d"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    arity = 2
    layouts = ("data_layout", "kernel_layout")

    strides: Pair = (1, 1)
    padding: Pads = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    channels: int | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"

    def __post_init__(self) -> None:
        object.__setattr__(self, "strides", pair(self.strides))
        object.__setattr__(self, "padding", pads(self.padding))
        object.__setattr__(self, "dilation", pair(self.dilation))

    @property
    def out_layout(self) -> str:
        """The layout of the result: packed as the weight's output channels are, or plain as the
        data."""
        block = parse_layout(self.kernel_layout).block("O")
        if block == 1 and not parse_layout(self.data_layout).is_packed():
            return self.data_layout
        return f"NCHW{block}c" if block > 1 else "NCHW"

    def is_depthwise_packed(self, filters: int) -> bool:
        """Whether the data is packed and each of its channels has its own window; `filters` are
        those of the weight, padding included."""
        data, kernel = parse_layout(self.data_layout), parse_layout(self.kernel_layout)
        return data.is_packed() and kernel.block("I") == 1 and self.groups == filters

    def is_cut_by_groups(self, filters: int, inputs: int) -> bool:
        """Whether the data is packed and groups begin or end within blocks."""
        data, kernel = parse_layout(self.data_layout), parse_layout(self.kernel_layout)
        if self.groups == 1 or not data.is_packed() or self.is_depthwise_packed(filters):
            return False
        of_group = (filters if self.channels is None else self.channels) // self.groups
        return bool(inputs % data.block("C") or of_group % kernel.block("O"))

    def infer(self, data: TensorType, weight: TensorType) -> TensorType:
        types = (data, weight)
        if data.dtype != weight.dtype or dtypes.is_bool(data.dtype):
            raise self.fail(types, "data and weight must have one numeric dtype; cast one of them")
        data_layout, kernel_layout = self._layouts(types)
        if not data_layout.accepts(data.shape) or not kernel_layout.accepts(weight.shape):
            raise self.fail(types, f"data must be {data_layout} and weight {kernel_layout}")
        batch, channels, height, width = named_extents(data_layout, data.shape, IMAGE)
        extents = named_extents(kernel_layout, weight.shape, KERNEL)
        known = [extent for extent in extents if isinstance(extent, int)]
        if len(known) < 4 or not isinstance(channels, int):
            raise self.fail(types, "channels and the extents of the weight must be known")
        filters, inputs, *taps = known
        window = self.window(taps[0], taps[1])
        if fault := window.fault() or self._channel_fault(channels, filters, inputs):
            raise self.fail(types, fault)
        rows, columns = window.outputs(height, width)
        if any(isinstance(extent, int) and extent < 1 for extent in (rows, columns)):
            raise self.fail(types, f"the window of {window.span} exceeds the padded image")
        result = parse_layout(self.out_layout)
        named = dict(zip(IMAGE, (batch, filters, rows, columns), strict=True))
        shape = result.pack_shape([named[name] for name in result.logical])
        return TensorType(shape, data.dtype)

    def _channel_fault(self, channels: int, filters: int, inputs: int) -> str:
        """What is wrong with the numbers of channels, padding included; empty if nothing is."""
        data, kernel = parse_layout(self.data_layout), parse_layout(self.kernel_layout)
        if self.groups > 1 and self.is_cut_by_groups(filters, inputs):
            return self._cut_fault(channels, filters, inputs)
        if self.groups < 1 or filters % self.groups or inputs * self.groups != channels:
            return (
                f"with {self.groups} groups, the weight takes {inputs} channels a group and gives "
                f"{filters}; the data has {channels}"
            )
        if data.is_packed() and kernel.block("I") not in (data.block("C"), 1):
            return f"{kernel} over {data} is for groups that don't fill whole blocks"
        if data.is_packed() and kernel.block("I") == 1 and not self.groups == channels == filters:
            return f"{kernel} over packed data needs a group for each channel"
        whole = self.groups == 1 and channels == kernel.block("I")
        if kernel.is_packed() and not data.is_packed() and not whole:
            return f"{kernel} over NCHW takes all channels as one block"
        block = kernel.block("O")
        if self.channels is not None and blocks_of(self.channels, block) != filters // block:
            return f"the weight gives {filters} channels, not {self.channels}"
        return ""

    def _cut_fault(self, channels: int, filters: int, inputs: int) -> str:
        """The same where groups don't fill whole blocks."""
        data, kernel = parse_layout(self.data_layout), parse_layout(self.kernel_layout)
        true = filters if self.channels is None else self.channels
        if kernel.block("I") != inputs:
            return f"{kernel} must have the {inputs} channels of a group as one block"
        if blocks_of(inputs * self.groups, data.block("C")) * data.block("C") != channels:
            return f"{self.groups} groups of {inputs} channels don't fill the data's {channels}"
        if true % self.groups or blocks_of(true, kernel.block("O")) * kernel.block("O") != filters:
            return f"{self.groups} groups don't give {true} channels with a weight of {filters}"
        return ""

    def _layouts(self, types: tuple[TensorType, TensorType]) -> tuple[Layout, Layout]:
        try:
            data, kernel = parse_layout(self.data_layout), parse_layout(self.kernel_layout)
        except OptionError as error:
            raise self.fail(types, str(error)) from error
        if not _is_known(data, kernel):
            raise self.fail(
                types,
                f"data_layout {data} with kernel_layout {kernel} is not supported; NCHW and NHWC "
                f"go with OIHW and HWIO, NCHW also with OIHW3i16o, NCHW16c with OIHW16i16o or "
                f"OIHW1i16o, or with all channels of a group as a block",
            )
        return data, kernel

    def window(self, rows: int, columns: int) -> Window:
        """The window of a kernel of these extents."""
        return Window((rows, columns), self.strides, self.padding, self.dilation)

    def evaluate(self, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
        image = transform(data, parse_layout(self.data_layout), parse_layout(IMAGE))
        kernel = transform(weight, parse_layout(self.kernel_layout), parse_layout(KERNEL))
        if self.is_cut_by_groups(*kernel.shape[:2]):
            image, kernel = image[:, : self.groups * kernel.shape[1]], kernel[: self.channels]
        result = convolve(image, kernel, self.window(*kernel.shape[2:]), self.groups)
        if self.channels is not None:
            result[:, self.channels :] = 0
        return transform(result, parse_layout(IMAGE), parse_layout(self.out_layout))

    def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        kernel_layout = parse_layout(self.kernel_layout)
        rows, columns = (
            weight.extents()[kernel_layout.axes.index(Axis(name))] for name in "HW"
        )
        window = self.window(rows, columns)
        if not kernel_layout.is_packed():
            layouts = (self.data_layout, self.kernel_layout)
            return conv2d_compute.plain(data, weight, window, self.groups, layouts)
        filters, inputs, *_ = named_extents(kernel_layout, weight.extents(), KERNEL)
        assert isinstance(filters, int) and isinstance(inputs, int)
        if self.is_cut_by_groups(filters, inputs):
            return grouped_packed(data, weight, window, self._blocks(filters))
        if self.is_depthwise_packed(filters):
            result = conv2d_compute.depthwise_packed(data, weight, window)
        elif window.is_pointwise and parse_layout(self.data_layout).is_packed():
            result = conv2d_compute.pointwise_packed(data, weight, window, self.groups)
        else:
            result = conv2d_compute.packed(data, weight, window, self.groups)
        return conv2d_compute.with_zero_padding(result, self.channels)

    def _blocks(self, filters: int) -> Blocks:
        """How groups that don't fill whole blocks lie in them."""
        of_group = (filters if self.channels is None else self.channels) // self.groups
        return Blocks(self.groups, of_group, parse_layout(self.kernel_layout).block("O"))

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_conv2d(s, anchor, output, target)

    def alter_layout(self, types: tuple[Any, ...], target: Target) -> LayoutChoice | None:
        block = target.lanes(types[0].dtype)
        return self._packed(types, block, has_few_channels(types[0].shape[1], block))

    def layout_alternatives(
        self, types: tuple[Any, ...], target: Target
    ) -> tuple[LayoutChoice, ...]:
        """Plain; in blocks of the vector's lanes or, where that leaves less padding, of half of
        that; without groups, also from plain data, and from blocks of one size to another."""
        counts = types[0].shape[1], types[1].shape[0]
        blocks = _blocks(target.lanes(types[0].dtype), counts)
        packed = [self._packed(types, block, False) for block in blocks]
        found = [choice for choice in packed if choice is not None]
        if not found:
            return ()
        if self.groups == 1:
            found += [self._between(types, None, block) for block in blocks]
            found += [self._between(types, a, b) for a in blocks for b in blocks if a != b]
        return (*found, LayoutChoice(self, (None, None), None))

    def seconds(self, types: tuple[Any, ...], target: Target) -> float | None:
        data, kernel = parse_layout(self.data_layout), parse_layout(self.kernel_layout)
        batch, channels, height, width = map(
            extent_or_assumed, named_extents(data, types[0].shape, IMAGE))
        filters, inputs, rows, columns = map(
            extent_or_assumed, named_extents(kernel, types[1].shape, KERNEL))
        dtype = types[0].dtype
        excess = 1.0
        if self.is_cut_by_groups(filters, inputs):
            excess = self._blocks(filters).excess
        shape = conv2d_cost.Shape(
            batch, channels, inputs, filters, (height, width), self.window(rows, columns),
            data.block("C"), kernel.block("O"), self.is_depthwise_packed(filters),
            dtypes.size_bytes(dtype), excess)
        return conv2d_cost.cycles(shape, target, target.lanes(dtype)) * target.cycle_seconds

    def follow_layout(
        self, types: tuple[Any, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        if layouts[0] is None:
            return None
        layout = parse_layout(layouts[0])
        block = layout.block("C")
        return self._packed(types, block, False) if str(layout) == f"NCHW{block}c" else None

    def _between(self, types: tuple[Any, ...], inputs: int | None, outputs: int) -> LayoutChoice:
        """From plain data or blocks of `inputs` channels to blocks of `outputs`, without groups."""
        channels, filters = types[0].shape[1], types[1].shape[0]
        named = replace(self, channels=filters) if filters % outputs else self
        kernel, result = f"OIHW{inputs or channels}i{outputs}o", f"NCHW{outputs}c"
        if inputs is None:
            return LayoutChoice(replace(named, kernel_layout=kernel), (None, kernel), result)
        data = f"NCHW{inputs}c"
        op = replace(named, data_layout=data, kernel_layout=kernel)
        return LayoutChoice(op, (data, kernel), result)

    def _packed(
        self, types: tuple[Any, ...], block: int, unpacked_data: bool
    ) -> LayoutChoice | None:
        """The form in blocks of channels; `unpacked_data` leaves the data as it is."""
        channels, filters = types[0].shape[1], types[1].shape[0]
        if (self.data_layout, self.kernel_layout) != ("NCHW", "OIHW") or block == 1:
            return None
        if not dtypes.is_float(types[0].dtype):
            return None
        packed = f"NCHW{block}c"
        named = replace(self, channels=filters) if filters % block else self
        if self.groups > 1 and self.groups == channels == filters:
            kernel = f"OIHW1i{block}o"
            padded = -(-channels // block) * block
            op = replace(named, groups=padded, data_layout=packed, kernel_layout=kernel)
            return LayoutChoice(op, (packed, kernel), packed)
        if self.groups > 1 and (channels // self.groups % block or filters // self.groups % block):
            if Blocks(self.groups, filters // self.groups, block).excess > MOST_EXCESS:
                return None
            kernel = f"OIHW{channels // self.groups}i{block}o"
            op = replace(named, data_layout=packed, kernel_layout=kernel)
            return LayoutChoice(op, (packed, kernel), packed)
        if self.groups == 1 and unpacked_data:
            kernel = f"OIHW{channels}i{block}o"
            return LayoutChoice(replace(named, kernel_layout=kernel), (None, kernel), packed)
        kernel = f"OIHW{block}i{block}o"
        op = replace(named, data_layout=packed, kernel_layout=kernel)
        return LayoutChoice(op, (packed, kernel), packed)


def _is_known(data: Layout, kernel: Layout) -> bool:
    """Whether a convolution takes this pair of layouts."""
    if not data.is_packed() and not kernel.is_packed():
        return str(data) in ("NCHW", "NHWC") and str(kernel) in ("OIHW", "HWIO")
    if data.logical != "NCHW" or kernel.logical != "OIHW" or str(data.without("C")) != "NHW":
        return False
    if not kernel.is_packed():
        return False
    inner = [axis for axis in kernel.axes if axis.block]
    if [axis.name for axis in inner] != ["I", "O"] or kernel.axes[-2:] != tuple(inner):
        return False
    if not data.is_packed():
        return True
    return inner[0].block != 1 or inner[1].block == data.block("C")


def _blocks(lanes: int, counts: tuple[int, int]) -> list[int]:
    """The blocks that may suit so many channels and filters: each half of the one before, while it
    holds one of them in less."""
    blocks = [lanes]
    while (half := blocks[-1] // 2) >= LEAST_BLOCK and any(
        0 < count % blocks[-1] <= half for count in counts
    ):
        blocks.append(half)
    return blocks


def has_few_channels(channels: int, block: int) -> bool:
    """Whether so few channels would fill a block that the data is better read unpacked."""
    return channels < block and (channels <= 4 or 2 * channels <= block)


def convolve(data: np.ndarray, weight: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """NCHW with OIHW: for each tap, one product of matrices (or of vectors, where each group has
    one channel), added up."""
    batch, _, height, width = data.shape
    filters, inputs = weight.shape[:2]
    rows, columns = window.positions(height, width)
    padded = window.pad(data, (rows, columns))
    result = np.zeros((batch, groups, filters // groups, rows * columns), data.dtype)
    with np.errstate(all="ignore"):
        for i, j, view in window.taps(padded, (rows, columns)):
            image = view.reshape(batch, groups, inputs, rows * columns)
            matrix = weight[:, :, i, j].reshape(groups, filters // groups, inputs)
            result += matrix * image if inputs == 1 else matrix @ image
    return result.reshape(batch, filters, rows, columns)
