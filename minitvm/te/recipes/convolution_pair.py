"""A convolution and the depthwise one that reads it, in one kernel: by rows, in tiles of channels.

    for each piece of rows of the output         threads share these
        for each tile of channels
            expanded = memory for the rows of a window
            for each row of the piece
                expanded = the rows that are new     tile by tile of positions, in registers
                for each block of channels
                    output row = epilogue(depthwise(expanded))

The result of the first convolution is so never in memory as a whole: its rows lie in a rolling
buffer that fits the first or second cache. A piece starts with the rows that the one before ended
with, computed once more; in return its inputs stay in the second cache for all channels, and a
thread works on the rows that it has worked on in the layers before. Padding of the first
convolution is copied row by row, that of the depthwise one is a guard.
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
    rolls = _rolls(pair)

    out = s[output]
    n, co, y, x, ci = out.op.axis
    co_outer, co_inner = split(out, co, tile.blocks)
    rows = extent_of(y) if rolls is None else _decide_rows(depthwise, blocks // tile.blocks, target)
    y_outer, y = split(out, y, rows)
    x_outer, x_inner = split(out, x, decide_depthwise_points(depthwise, target))
    reorder(out, n, y_outer, co_outer, y, co_inner, x_outer, x_inner, ci)
    out.vectorize(ci)
    unroll(out, x_inner)
    place_epilogue(of_output, out, depthwise)
    taps.compute_at(out, x_outer or co_inner)
    reorder_depthwise(taps)

    expanded = s[pair.expanded]
    expanded.compute_at(out, y if rolls is not None else co_outer or n)
    share(out, [n, y_outer, co_outer], work(first) + work(depthwise))
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
    shared, stride = _shared_rows(pair.depthwise)
    return None if shared + stride >= pair.expanded.extents()[2] else shared > 0


def _decide_tile(columns: int, blocks: int, reduction: int, target: Target) -> Tile:
    chosen = choose_pair_tile(columns, blocks, reduction, target)
    return Tile(*decide("tile", (chosen.points, chosen.blocks), lambda: [
        (tile.points, tile.blocks) for tile in _tiles(columns, blocks, target)]))


def _tiles(columns: int, blocks: int, target: Target) -> list[Tile]:
    """Tiles whose blocks divide those of the tensor: a tail would double the code."""
    return [tile for tile in fitting_tiles(columns, blocks, target) if blocks % tile.blocks == 0]


def choose_pair_tile(columns: int, blocks: int, reduction: int, target: Target) -> Tile:
    """The register tile with the fewest estimated cycles for rows of so many positions."""
    return min(_tiles(columns, blocks, target),
               key=lambda tile: total_cycles(tile, columns, blocks, reduction))


def _shared_rows(depthwise: Compute) -> tuple[int, int]:
    """How many rows of the input neighbouring rows of the output have in common (or that lie
    between them, as a negative number), and the stride."""
    (kernel, _), (stride, _), (dilation, _) = (
        depthwise.attrs[name] for name in ("kernel", "strides", "dilation"))
    return shared_rows(kernel, stride, dilation), stride


def shared_rows(kernel: int, stride: int, dilation: int) -> int:
    """The same, by the window."""
    return (kernel - 1) * dilation + 1 - stride


def _decide_rows(depthwise: Compute, tiles: int, target: Target) -> int:
    rows = extent_of(depthwise.axis[2])
    chosen = choose_piece(rows, *_shared_rows(depthwise), tiles, target)
    return int(decide("rows", chosen.rows, lambda: _divisors(rows)))


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of the output that are computed together. `again`: what share of the first convolution
    is computed twice for it. `uneven`: how much longer than their share threads take, on average
    over several numbers of them."""

    rows: int
    again: float
    uneven: float


def choose_piece(rows: int, shared: int, stride: int, tiles: int, target: Target) -> Piece:
    """The rows of a piece, a divisor of all, where neighbouring rows of the output have `shared`
    rows of the input in common: many pieces keep threads evenly busy, but compute more twice.
    Threads share tiles of channels where these are more even."""

    def piece(count: int) -> Piece:
        again = max(shared, 0) * (rows // count - 1) / (rows * stride)
        uneven = min(_mean_unevenness(pieces, target) for pieces in (rows // count, tiles))
        return Piece(count, again, uneven)

    return min(map(piece, _divisors(rows)), key=lambda found: (1 + found.again) * found.uneven)


def _divisors(rows: int) -> list[int]:
    return [count for count in range(1, rows + 1) if rows % count == 0]


def _mean_unevenness(pieces: int, target: Target) -> float:
    """For one thread, and for several up to the target's cores, or 4 where these are unknown. The
    last piece may be begun late, by half of one."""
    most = target.cores if target.cores > 1 else 4
    several = [(-(-pieces // count) + 0.5) * count / pieces for count in THREADS if count <= most]
    return (1 + sum(several)) / (1 + len(several))
