"""Convolutions in groups that don't fill whole blocks of channels, on packed tensors.

    tag                              axes                     reduces over
    conv2d_nchwc_groups              n, g, k, y, x, fi        ky, kx, c
    conv2d_nchwc_groups_pointwise    n, g, k, p, fi           ky, kx, c       (p = y * W + x)
    conv2d_nchwc_merge               n, fo, y, x, fi          reads one of those above;
                                     n, fo, p, fi             zeros in padding lanes
    conv2d_nchwc_unflatten           n, fo, y, x, fi          reads the one of positions p

A block of output channels may belong to several groups, which see different inputs. So each group g
computes every block that it touches, the k-th of which is block `first(g) + k`, whole: with the
weights that are there, its own and its neighbours'. What it makes of a neighbour's weights is never
looked at: each lane of the result is taken from the group that it belongs to. No weight is padded,
and no product reaches a result that it does not belong to.

With 4 groups of 6 channels in blocks of 4, six blocks become eight:

    block       0     1      2     3     4      5
    group    0000  0011   1111  2222  2233   3333
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minitvm import te
from minitvm.relay.ops.nn.windows import Window, stage
from minitvm.tir import ir
from minitvm.tir.ir import Expr


@dataclass(frozen=True, slots=True)
class Blocks:
    """How `groups` groups of `size` channels lie in blocks of `lanes`."""

    groups: int
    size: int
    lanes: int

    @property
    def count(self) -> int:
        """The number of blocks."""
        return -(-self.groups * self.size // self.lanes)

    @property
    def of_group(self) -> int:
        """The most blocks that a group touches."""
        ends = ((g * self.size, (g + 1) * self.size - 1) for g in range(self.groups))
        return max(last // self.lanes - first // self.lanes + 1 for first, last in ends)

    @property
    def in_block(self) -> int:
        """The most groups that touch a block."""
        last = self.groups * self.size - 1
        starts = range(0, self.count * self.lanes, self.lanes)
        return max(min(start + self.lanes - 1, last) // self.size - start // self.size + 1
                   for start in starts)

    @property
    def excess(self) -> float:
        """How many lanes are computed for each channel."""
        return self.of_group * self.lanes / self.size

    def first(self, group: Any) -> Any:
        """The first block that a group touches."""
        return group * self.size // self.lanes


def grouped_packed(
    data: te.Tensor, weight: te.Tensor, window: Window, blocks: Blocks
) -> te.Tensor:
    """NCHW[c]c with OIHW[i]i[o]o, where i is all channels of a group."""
    batch, _, height, width, block = data.extents()
    _, _, rows, columns, inputs, lanes = weight.extents()
    outputs = window.positions(height, width)
    padded = window.pad_stage(data, (2, 3), outputs)
    axes = [te.reduce_axis((0, extent), name)
            for extent, name in ((rows, "ky"), (columns, "kx"), (inputs, "c"))]
    ky, kx, c = axes

    def product(n: Expr, g: Expr, k: Expr, y: Expr, x: Expr, fi: Expr) -> Any:
        channel = g * inputs + c.var
        row, column = window.position(0, y, ky), window.position(1, x, kx)
        pixel = padded[n, channel // block, row, column, channel % block]
        written = ir.minimum(blocks.first(g) + k, blocks.count - 1)
        return te.sum(pixel * weight[written, 0, ky, kx, c, fi], axis=axes)

    def flattened(n: Expr, g: Expr, k: Expr, p: Expr, fi: Expr) -> Any:
        return product(n, g, k, p // width, p % width, fi)

    shape: tuple[int, ...] = (batch, blocks.groups, blocks.of_group, *outputs, lanes)
    if not window.is_pointwise:
        return _merged(stage(shape, product, "conv2d_nchwc_groups"), blocks)
    shape = (*shape[:3], height * width, lanes)
    flat = _merged(stage(shape, flattened, "conv2d_nchwc_groups_pointwise"), blocks)

    def in_rows(n: Expr, fo: Expr, y: Expr, x: Expr, fi: Expr) -> Any:
        return flat[n, fo, y * width + x, fi]

    return stage((batch, blocks.count, height, width, lanes), in_rows, "conv2d_nchwc_unflatten")


def _merged(product: te.Tensor, blocks: Blocks) -> te.Tensor:
    """Each channel from its own group, and zeros in padding lanes."""
    batch, _, _, *positions, lanes = product.extents()
    channels = blocks.groups * blocks.size

    def element(n: Expr, fo: Expr, *rest: Expr) -> Any:
        start, channel = fo * lanes // blocks.size, fo * lanes + rest[-1]

        def of_group(number: int) -> Any:
            group = start if number == 0 else ir.minimum(start + number, blocks.groups - 1)
            block = 0 if blocks.of_group == 1 else ir.maximum(fo - blocks.first(group), 0)
            return product[(n, group, block, *rest)]

        value = of_group(0)
        for number in range(1, blocks.in_block):
            value = te.select(channel >= (start + number) * blocks.size, of_group(number), value)
        return te.select(channel < channels, value, 0) if channels % lanes else value

    return stage((batch, blocks.count, *positions, lanes), element, "conv2d_nchwc_merge")
