"""A convolution and the depthwise one that reads it, in one kernel: by tiles of channels, in rows.

    for each tile of channels                    threads share these
        expanded = memory for the rows of a window
        for each row of the output
            expanded = the rows that are new     tile by tile of positions, in registers
            for each block of channels
                output row = epilogue(depthwise(expanded))

The result of the first convolution is so never in memory as a whole: its rows lie in a rolling
buffer that fits the first or second cache, and none is computed twice. Threads share tiles of
channels rather than rows, where each would have to compute the rows before its first one again.
Padding of the first convolution is copied row by row, that of the depthwise one is a guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from minitvm.target import Target
from minitvm.te.recipes.injective import place_epilogue
from minitvm.te.recipes.inline import computations, extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.nests import (
    accumulator,
    decide_depthwise_points,
    reorder,
    reorder_depthwise,
    same_image,
    split,
    unroll,
)
from minitvm.te.recipes.share import THREADS, share, work
from minitvm.te.recipes.tiles import Tile, fitting_tiles, total_cycles
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, Tensor

POINTWISE, DIRECT, DEPTHWISE = "conv2d_nchwc_pointwise", "conv2d_nchwc", "depthwise_conv2d_nchwc"


@dataclass(frozen=True, slots=True)
class Pair:
    """A packed convolution without groups, `expanded`, which is computed of it element by element,
    and the depthwise convolution of that."""

    first: Compute
    expanded: Tensor
    depthwise: Compute


def find_pair(output: Tensor) -> Pair | None:
    """The pair that ends in an output; None where the kernel has other reductions."""
    depthwise = find_tag(DEPTHWISE, [output])
    if depthwise is None:
        return None
    expanded = next(tensor for tensor in depthwise.inputs if tensor.ndim == 5)
    if isinstance(expanded.op, Compute) and expanded.op.tag == "pad":
        (expanded,) = expanded.op.inputs
    first = find_tag(POINTWISE, [expanded]) or find_tag(DIRECT, [expanded])
    reductions = [op for op in computations([output]) if op.reduce_axis]
    if first is None or reductions != [first, depthwise] or first.attrs["groups"] != 1:
        return None
    same = same_image(first, expanded) and same_image(depthwise, output)
    return Pair(first, expanded, depthwise) if same else None


def schedule_pair(s: Schedule, pair: Pair, output: Tensor, target: Target) -> None:
    """The schedule described above."""
    first, depthwise = pair.first, pair.depthwise
    pads = [op for op in computations(first.inputs) if op.tag == "pad"]
    conv, taps = accumulator(s, first, pair.expanded), accumulator(s, depthwise, output)
    left = inline_injective(s, [output], keep=[first, depthwise, pair.expanded.op, *pads])
    of_output = [stage for stage in left if depthwise in computations(stage.op.inputs)]
    _, blocks, _, columns, _ = pair.expanded.extents()
    tile = _decide_tile(columns, blocks, prod(map(extent_of, first.reduce_axis)), target)

    out = s[output]
    n, co, y, x, ci = out.op.axis
    co_outer, co_inner = split(out, co, tile.blocks)
    x_outer, x_inner = split(out, x, decide_depthwise_points(depthwise, target))
    reorder(out, n, co_outer, y, co_inner, x_outer, x_inner, ci)
    out.vectorize(ci)
    unroll(out, x_inner)
    place_epilogue(of_output, out, depthwise)
    taps.compute_at(out, x_outer or co_inner)
    reorder_depthwise(taps)

    expanded = s[pair.expanded]
    rolls = _rolls(pair)
    expanded.compute_at(out, y if rolls is not None else co_outer or n)
    share(out, [n, co_outer], work(first) + work(depthwise))
    _schedule_expanded(expanded, conv, pads, tile)
    place_epilogue([stage for stage in left if stage not in of_output], expanded, first)
    for pad in pads:
        if len(pad.axis) == 5:
            s[pad].vectorize(pad.axis[-1])
        s[pad].compute_at(expanded, expanded.op.axis[2])
    if rolls:
        expanded.rolling_buffer()  # last, as each step after it checks it again


def _schedule_expanded(expanded: StageHandle, conv: StageHandle, pads: Sequence[Compute],
                       tile: Tile) -> None:
    """Row by row, each in tiles of positions that the first convolution keeps in registers."""
    n, fo, y, x, fi = expanded.op.axis
    x_outer, x_inner = split(expanded, x, tile.points)
    reorder(expanded, n, y, x_outer, fo, x_inner, fi)
    expanded.vectorize(fi)
    unroll(expanded, fo, x_inner)
    conv.compute_at(expanded, x_outer or y)
    n, fo, *positions, fi = conv.op.axis
    *rows, x = positions
    conv.reorder(n, *rows, *conv.op.reduce_axis, x, fo, fi)
    conv.vectorize(fi)
    unroll(conv, x, fo)


def _rolls(pair: Pair) -> bool | None:
    """Whether a row of the output needs rows that the one before needed; None where it may need all
    that there are."""
    kernel, stride, dilation = (
        pair.depthwise.attrs[name][0] for name in ("kernel", "strides", "dilation"))
    span = (kernel - 1) * dilation + 1
    return None if span >= pair.expanded.extents()[2] else bool(span > stride)


def _decide_tile(columns: int, blocks: int, reduction: int, target: Target) -> Tile:
    chosen = choose_pair_tile(columns, blocks, reduction, target)[0]
    return Tile(*decide("tile", (chosen.points, chosen.blocks), lambda: [
        (tile.points, tile.blocks) for tile in _tiles(columns, blocks, target)]))


def _tiles(columns: int, blocks: int, target: Target) -> list[Tile]:
    """Tiles whose blocks divide those of the tensor: a tail would double the code."""
    return [tile for tile in fitting_tiles(columns, blocks, target) if blocks % tile.blocks == 0]


def choose_pair_tile(columns: int, blocks: int, reduction: int,
                     target: Target) -> tuple[Tile, float]:
    """The register tile for rows of so many positions, and the estimated cycles for one row, as
    they are on average over several numbers of threads that share the tiles of blocks: relative to
    as many that could share all evenly."""

    def cycles(tile: Tile) -> float:
        row = total_cycles(tile, columns, blocks, reduction)
        return row * mean_unevenness(blocks // tile.blocks, target)

    best = min(_tiles(columns, blocks, target), key=cycles)
    return best, cycles(best)


def mean_unevenness(units: int, target: Target) -> float:
    """How much longer than their share threads take for so many equal units, on average: for one
    thread, and for several up to the target's cores, or 4 where these are unknown. The last unit
    may be begun late, by half of one."""
    most = target.cores if target.cores > 1 else 4
    several = [(-(-units // count) + 0.5) * count / units for count in THREADS if count <= most]
    return (1 + sum(several)) / (1 + len(several))
