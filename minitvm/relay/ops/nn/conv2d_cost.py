"""Convolution, target -> the time that a model says it takes, to choose among its layouts.

    packed     products of vectors, one for each pixel, block of channels, input channel and tap,
               then the bytes read and written, and the weights
    plain      products of vectors along a row where it holds one, else of numbers

What is modelled is what the recipes make (`te.recipes.convolution`), in cycles. The constants are
fitted to some 20 shapes on a machine with AVX-512, for vectors of 16 and of 8 lanes; they need not
be exact, but must rank the forms of one convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from minitvm.relay.ops.nn.windows import Window

if TYPE_CHECKING:
    from minitvm.target import Target

KERNEL_CYCLES = 500.0
"""For each kernel: its call, and what it sets up."""
ONE_BLOCK = 1.3
"""Of a product where only one block of channels shares each input, which then is loaded for it,
from a line of its own."""
FAR_INPUT_CYCLES = 10.0
"""For each tile and each channel of plain data, where each lies in a page of its own."""
NEAR_PAGES, FAR_PAGES = 0.75, 1.5
"""Up to that share of the pages that are free for the target it is free, and from that share on it
costs that."""
PAGE_BYTES = 4096
TILE_POINTS = 12
PLAIN_CYCLES, PLAIN_TAPS_CYCLES, STRIDED_CYCLES, SCALAR_CYCLES = 0.19, 0.47, 0.87, 2.5
"""For each product over plain data: of one lane of vectors, of vectors with several taps, whose
loads are not aligned, of vectors whose elements lie apart, and of a number alone."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A convolution in some form: extents as in memory, blocks of 1 where it is plain.

    `inputs` are the input channels that a result adds up, `channels` those that the data holds.
    """

    batch: int
    channels: int
    inputs: int
    filters: int
    image: tuple[int, int]
    window: Window
    input_block: int
    output_block: int
    depthwise: bool
    element_bytes: int
    excess: float = 1.0
    """How many lanes are computed for each one of the result."""

    @property
    def positions(self) -> tuple[int, int]:
        """The rows and columns of the result."""
        rows, columns = self.window.positions(*self.image)
        return rows, columns


def cycles(shape: Shape, target: Target, lanes: int) -> float:
    """Cycles that the convolution takes, on vectors of `lanes` elements."""
    taps = prod(shape.window.kernel)
    points = shape.batch * prod(shape.positions)
    read = shape.batch * shape.channels * prod(shape.image) * shape.element_bytes
    written = points * shape.filters * shape.element_bytes
    memory = read / target.bytes_per_cycle(read) + written / target.bytes_per_cycle(written)
    if shape.output_block == 1:
        return _plain(shape, points * shape.filters * shape.inputs * taps, lanes) + memory
    blocks = shape.filters // shape.output_block
    products = points * blocks * taps * (1 if shape.depthwise else shape.inputs)
    multiply = products * shape.excess / target.fma_per_cycle
    if shape.depthwise:
        return max(multiply, memory) * 1.3 + KERNEL_CYCLES
    if blocks == 1 and shape.input_block > 1:
        multiply *= ONE_BLOCK
    if shape.input_block == 1:
        multiply += points / TILE_POINTS * shape.inputs * _far_cycles(shape, target)
    weight_bytes = shape.filters * shape.inputs * taps * shape.element_bytes
    weights = weight_bytes / target.weight_bytes_per_cycle
    return multiply + memory + weights + KERNEL_CYCLES


def _far_cycles(shape: Shape, target: Target) -> float:
    """For each tile and each channel of plain data, what it costs that its pixels are far from
    those of the next channel."""
    plane = prod(shape.image) * shape.element_bytes
    pages = shape.inputs * min(1.0, plane / PAGE_BYTES)
    share = (pages / target.tlb_pages - NEAR_PAGES) / (FAR_PAGES - NEAR_PAGES)
    return FAR_INPUT_CYCLES * min(1.0, max(0.0, share))


def _plain(shape: Shape, products: float, lanes: int) -> float:
    """Of a convolution that is not packed."""
    _, columns = shape.positions
    if columns < lanes:
        return products * SCALAR_CYCLES + KERNEL_CYCLES
    computed = products / columns * -(-columns // lanes) * lanes
    if shape.window.strides[1] > 1:
        each = STRIDED_CYCLES
    else:
        each = PLAIN_CYCLES if prod(shape.window.kernel) == 1 else PLAIN_TAPS_CYCLES
    return computed * each + KERNEL_CYCLES
