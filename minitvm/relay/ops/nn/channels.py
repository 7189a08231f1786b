"""Channels that move among blocks: shuffles, and pieces that begin or end within a block.

    nn.channel_shuffle(x, groups)         channel i of every group, then channel i + 1 of every one
    nn.slice_channels(x, begin, count)    some channels of a packed tensor
    nn.concatenate_channels(x, y, sizes)  the channels of several packed tensors, one after another

The first is what a reshape, a transposition and a reshape do together; the others are what
`strided_slice` and `concatenate` become on packed tensors where whole blocks won't do. A packed
tensor that is read has padding behind its true channels, which is passed over; one that is written
has zeros there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from minitvm import te
from minitvm.relay.ir import TensorType, Type
from minitvm.relay.layout import Layout, parse_layout, transform
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.join import choose
from minitvm.relay.ops.nn.pooling import image_layout
from minitvm.te.recipes import CHANNELS
from minitvm.tir.ir import Expr

PLAIN = parse_layout("NCHW")


@register
@dataclass(frozen=True, slots=True)
class ChannelShuffle(Op):
    """Channels of `groups` groups in turn: result[k] = x[k % groups * (C / groups) + k // groups].

    A packed tensor has so many true channels as `channels` says (None: all). From "ShuffleNet"
    (Zhang et al., CVPR 2018).
    """

    name = "nn.channel_shuffle"
    pattern = Pattern.INJECTIVE
    layouts = ("layout",)
    clears_padding = True

    groups: int
    layout: str = "NCHW"
    channels: int | None = None

    def infer(self, data: TensorType) -> TensorType:
        layout = image_layout(self, self.layout, data)
        held = channels_of(layout, data.shape)
        if not isinstance(held, int):
            raise self.fail((data,), "the number of channels must be known")
        if self.channels is not None and not 0 <= held - self.channels < layout.block("C"):
            raise self.fail((data,), f"the data has no {self.channels} channels")
        count = held if self.channels is None else self.channels
        if self.groups < 1 or count % self.groups:
            raise self.fail((data,), f"{count} channels are no {self.groups} equal groups")
        return data

    def follow_layout(
        self, types: tuple[Type, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        (given,), text = types, layouts[0]
        assert isinstance(given, TensorType)
        if text is None or self.layout != "NCHW" or not is_in_blocks(text):
            return None
        packed = replace(self, layout=text, channels=given.extents()[1])
        return LayoutChoice(packed, (text,), text)

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        layout = parse_layout(self.layout)
        image = transform(data, layout, PLAIN)[:, : self.channels]
        batch, count, *rest = image.shape
        groups = image.reshape(batch, self.groups, count // self.groups, *rest)
        return transform(groups.swapaxes(1, 2).reshape(image.shape), PLAIN, layout)

    def compute(self, data: te.Tensor) -> te.Tensor:
        layout = parse_layout(self.layout)
        held: Any = channels_of(layout, data.extents())
        count = held if self.channels is None else self.channels
        size = count // self.groups

        def read(channel: Any, at: Callable[[Any], Any]) -> Any:
            return data[at(channel % self.groups * size + channel // self.groups)]

        return moved(layout, data.extents(), count, read, "channel_shuffle")


@register
@dataclass(frozen=True, slots=True)
class SliceChannels(Op):
    """`count` channels of a packed tensor from `begin` on."""

    name = "nn.slice_channels"
    pattern = Pattern.INJECTIVE
    layouts = ("layout",)
    clears_padding = True

    begin: int
    count: int
    layout: str

    def infer(self, data: TensorType) -> TensorType:
        layout = image_layout(self, self.layout, data)
        held = channels_of(layout, data.shape)
        if not isinstance(held, int):
            raise self.fail((data,), "the number of channels must be known")
        if self.begin < 0 or self.count < 1 or self.begin + self.count > held:
            end = self.begin + self.count
            raise self.fail((data,), f"the data has no channels from {self.begin} to {end}")
        return TensorType(with_channels(layout, data.shape, self.count), data.dtype)

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        layout = parse_layout(self.layout)
        image = transform(data, layout, PLAIN)
        return transform(image[:, self.begin : self.begin + self.count], PLAIN, layout)

    def compute(self, data: te.Tensor) -> te.Tensor:
        layout = parse_layout(self.layout)

        def read(channel: Any, at: Callable[[Any], Any]) -> Any:
            return data[at(channel + self.begin)]

        shape = with_channels(layout, data.extents(), self.count)
        return moved(layout, shape, self.count, read, "slice_channels")


@register
@dataclass(frozen=True, slots=True)
class ConcatenateChannels(Op):
    """The first `sizes[k]` channels of each packed tensor k, one after another."""

    name = "nn.concatenate_channels"
    pattern = Pattern.INJECTIVE
    arity = None
    layouts = ("layout",)
    clears_padding = True

    sizes: tuple[int, ...]
    layout: str

    def infer(self, *types: TensorType) -> TensorType:
        if not types or len(types) != len(self.sizes):
            raise self.fail(types, f"{len(self.sizes)} sizes need as many tensors, at least one")
        layout = image_layout(self, self.layout, types[0])
        for given, size in zip(types, self.sizes, strict=True):
            wanted = TensorType(with_channels(layout, types[0].shape, size), types[0].dtype)
            if size < 1 or given != wanted:
                raise self.fail(types, f"with {size} channels, {given} must be {wanted}")
        return TensorType(with_channels(layout, types[0].shape, sum(self.sizes)), types[0].dtype)

    def evaluate(self, *values: np.ndarray) -> np.ndarray:
        layout = parse_layout(self.layout)
        images = (transform(value, layout, PLAIN)[:, :size]
                  for value, size in zip(values, self.sizes, strict=True))
        return transform(np.concatenate(tuple(images), 1), PLAIN, layout)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        layout = parse_layout(self.layout)
        ends = list(accumulate(self.sizes))

        def read(channel: Any, at: Callable[[Any], Any]) -> Any:
            def piece(number: int) -> Any:
                return inputs[number][at(channel - (ends[number] - self.sizes[number]))]

            return choose(channel, ends, piece, 0, len(inputs))

        shape = with_channels(layout, inputs[0].extents(), ends[-1])
        return moved(layout, shape, ends[-1], read, "concatenate_channels")


def moved(
    layout: Layout, shape: Sequence[Any], count: int,
    read: Callable[[Any, Callable[[Any], Any]], Any], name: str,
) -> te.Tensor:
    """A tensor of `count` true channels: `read(channel, at)` is one of its elements, where
    `at(other)` is the place of another channel at the same point. Zeros behind them."""

    def element(*i: Expr) -> Any:
        logical = layout.join(i)

        def at(channel: Any) -> tuple[Any, ...]:
            return layout.split({**logical, "C": channel})

        value = read(logical["C"], at)
        if count % layout.block("C") == 0:
            return value
        return te.if_then_else(logical["C"] < count, value, 0)

    tag = CHANNELS if layout.is_packed() else "injective"
    result: te.Tensor = te.compute(tuple(shape), element, name=name, tag=tag)
    return result


def is_in_blocks(text: str) -> bool:
    """Whether a layout is that of images in blocks of channels: NCHW16c."""
    layout = parse_layout(text)
    return layout.block("C") > 1 and text == f"NCHW{layout.block('C')}c"


def channels_of(layout: Layout, shape: Sequence[Any]) -> Any:
    """The channels of a tensor in a layout, padding included."""
    return dict(zip(layout.logical, layout.unpack_shape(shape), strict=True))["C"]


def with_channels(layout: Layout, shape: Sequence[Any], count: int) -> tuple[Any, ...]:
    """The shape of a tensor with `count` channels and all else alike."""
    extents = {**dict(zip(layout.logical, layout.unpack_shape(shape), strict=True)), "C": count}
    return layout.pack_shape([extents[name] for name in layout.logical])
