"""Convolutions in packed layouts: register tiles over the output.

The output's loop nest is (batch, channel blocks by tile, [rows], positions by tile); inside it the
reduction accumulates a tile in a local buffer, which the compiler keeps in registers, and the
epilogue (bias, clip, residual) is applied to the tile as it is stored:

    for each tile of channel blocks          weights are read once
        for each tile of positions           inputs come from the cache
            tile = 0
            for each input channel and tap   tile += input * weights   (unrolled over the tile)
            output tile = epilogue(tile)

Threads share one of the outer loops (`share`). A convolution of one tap runs over rows and columns
as one axis; others compute several rows of a small image together. Zero padding is a copy of the
input with a border, made once for all taps; for depthwise convolutions it is a guard at the border.
"""

from __future__ import annotations

from math import prod

from minitvm import dtypes
from minitvm.target import Target
from minitvm.te.pragmas import PREFETCH
from minitvm.te.recipes.convolution_pair import find_pair, schedule_pair
from minitvm.te.recipes.injective import place_epilogue, schedule_default
from minitvm.te.recipes.inline import extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.nests import (
    accumulator,
    also,
    decide_depthwise_points,
    reorder,
    reorder_depthwise,
    same_image,
    split,
    unroll,
)
from minitvm.te.recipes.share import share, work
from minitvm.te.recipes.tiles import Tile, decide_rows, decide_tile, prefetch_steps
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, IterVar, Tensor


def schedule_conv2d(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """Chooses the recipe by what the convolution computes."""
    pair = find_pair(output)
    if pair is not None:
        schedule_pair(s, pair, output, target)
        return
    for tag, recipe in _RECIPES.items():
        op = find_tag(tag, [output])
        if op is not None and same_image(find_tag("conv2d_nchwc_merge", [output]) or op, output):
            recipe(s, op, output, target)
            return
    schedule_default(s, anchor, output, target)


def _outer_loops(op: Compute, outer: list[IterVar | None], positions: IterVar | None,
                 target: Target) -> list[IterVar | None]:
    """The loops that threads may share: that over positions only where it may stand outside of the
    others, because each piece of it can read all weights from the cache."""
    only = all(axis is None or extent_of(axis) < 2 for axis in outer)
    return [*outer, positions] if only or _weight_bytes(op) <= target.l2_bytes // 2 else outer


def _weight_bytes(op: Compute) -> int:
    """The bytes of a packed convolution's weights."""
    _, blocks, *_, lanes = op.axis
    channels = extent_of(blocks) * extent_of(lanes) * prod(map(extent_of, op.reduce_axis))
    return channels * dtypes.size_bytes(op.bodies[0].dtype)


def _prefetch_weights(
    conv: StageHandle, axis: IterVar, op: Compute, tile: Tile, target: Target
) -> None:
    """Asks for weights ahead of the products with them. They lie in the order of the reduction, but
    a network's come from beyond the second cache, later than a core looks ahead by itself."""
    if decide("prefetch", _weight_bytes(op) > target.l1_bytes, (False, True)):
        vector_bytes = target.vector_bits // 8
        conv.pragma(axis, PREFETCH, prefetch_steps(tile) * vector_bytes)


def _pointwise(s: Schedule, op: Compute, output: Tensor, target: Target) -> None:
    conv = accumulator(s, op, output)
    left = inline_injective(s, [output], keep=[op])
    co, ky, kx, ci = op.reduce_axis
    _, blocks, points, _ = (extent_of(axis) for axis in op.axis)
    tile = decide_tile(points, blocks, extent_of(co) * extent_of(ci), target, op.attrs["groups"])

    out = s[output]
    n, fo, y, x, fi = out.op.axis
    p_outer, p_inner = split(out, out.fuse(y, x), tile.points)
    fo_outer, fo_inner = split(out, fo, tile.blocks)
    points_outside = decide("outer", "blocks", ("blocks", "points")) == "points"
    if points_outside:
        reorder(out, n, p_outer, fo_outer, fo_inner, p_inner, fi)
    else:
        reorder(out, n, fo_outer, p_outer, fo_inner, p_inner, fi)
    out.vectorize(fi)
    unroll(out, fo_inner, p_inner)
    place_epilogue(left, out, op)

    inner = (fo_outer or p_outer) if points_outside else (p_outer or fo_outer)
    conv.compute_at(out, inner or n)
    shared = [n, p_outer] if points_outside else _outer_loops(op, [n, fo_outer], p_outer, target)
    share(out, shared, work(op))
    n, fo, p, fi = conv.op.axis
    co, ky, kx, ci = conv.op.reduce_axis
    conv.reorder(n, co, ky, kx, ci, p, fo, fi)
    conv.vectorize(fi)
    unroll(conv, *also(ci, "unroll_channels"), p, fo)
    _prefetch_weights(conv, ci, op, tile, target)


def _direct(s: Schedule, op: Compute, output: Tensor, target: Target) -> None:
    conv = accumulator(s, op, output)
    pad = find_tag("pad", [output])
    if pad is not None and decide("padding", "copied", ("copied", "guarded")) == "guarded":
        pad = None
    left = inline_injective(s, [output], keep=[op, *([pad] if pad else [])])
    co, ky, kx, ci = op.reduce_axis
    _, blocks, rows, columns, _ = (extent_of(axis) for axis in op.axis)
    reduction = extent_of(co) * extent_of(ci) * extent_of(ky) * extent_of(kx)
    tile, together = decide_tile(columns, blocks, reduction, target), 1
    if tile.points >= columns:
        together, tile = decide_rows(rows, columns, blocks, reduction, target)

    out = s[output]
    n, fo, y, x, fi = out.op.axis
    x_outer, x_inner = split(out, x, tile.points)
    fo_outer, fo_inner = split(out, fo, tile.blocks)
    y_outer, y_inner = split(out, y, together) if together > 1 else (y, None)
    tile_axes = [axis for axis in (fo_inner, y_inner, x_inner) if axis is not None]
    reorder(out, n, fo_outer, y_outer, x_outer, *tile_axes, fi)
    out.vectorize(fi)
    unroll(out, *tile_axes)
    place_epilogue(left, out, op)

    conv.compute_at(out, x_outer or y_outer or fo_outer or n)
    share(out, _outer_loops(op, [fo_outer], y_outer, target), work(op))
    if pad is not None:
        _place_padding(s[pad], out, n)
    n, fo, y, x, fi = conv.op.axis
    co, ky, kx, ci = conv.op.reduce_axis
    inner = [y, x, fo] if together > 1 else [x, fo]
    conv.reorder(n, *([] if together > 1 else [y]), co, ky, kx, ci, *inner, fi)
    conv.vectorize(fi)
    unroll(conv, *also(kx, "unroll_kernel"), *also(ci, "unroll_channels"), *inner)
    _prefetch_weights(conv, ci, op, tile, target)


def _place_padding(pad: StageHandle, out: StageHandle, axis: IterVar) -> None:
    """Copies the padded input, at the loop of the output over several images, in vectors where it
    has lanes."""
    _, *axes = pad.op.axis
    if len(axes) == 4:
        pad.vectorize(axes[-1])
    if extent_of(axis) > 1:
        pad.compute_at(out, axis)
    else:
        share(pad, axes[:2], work(pad.op))


def _depthwise(s: Schedule, op: Compute, output: Tensor, target: Target) -> None:
    """One row of the window at a time: a tile of positions, that row's weights and the few inputs
    that they share fit the registers, which the whole window's weights would not.

    The padding is inlined: loop partition keeps its guards out of the interior, and a copy with a
    border would cost a third more.
    """
    conv = accumulator(s, op, output)
    left = inline_injective(s, [output], keep=[op])
    points = decide_depthwise_points(op, target)

    out = s[output]
    n, co, y, x, ci = out.op.axis
    x_outer, x_inner = split(out, x, points)
    reorder(out, n, co, y, x_outer, x_inner, ci)
    out.vectorize(ci)
    unroll(out, x_inner)
    place_epilogue(left, out, op)

    conv.compute_at(out, x_outer or y)
    share(out, [n, co, y], work(op))
    reorder_depthwise(conv)


def _grouped(s: Schedule, op: Compute, output: Tensor, target: Target) -> None:
    """Groups that don't fill whole blocks: for a tile of positions of all groups, each group's
    blocks in registers, written to memory that stays in the first cache; from there each channel
    takes its own group's."""
    pad = find_tag("pad", [output])
    merged = find_tag("conv2d_nchwc_merge", [output])
    assert merged is not None
    left = inline_injective(s, [output], keep=[op, merged, *([pad] if pad else [])])
    pointwise = op.tag == "conv2d_nchwc_groups_pointwise"
    blocks, columns = extent_of(op.axis[2]), extent_of(op.axis[-2])
    tile = decide_tile(columns, blocks, prod(map(extent_of, op.reduce_axis)), target)

    out = s[output]
    n, fo, y, x, fi = out.op.axis
    row = None if pointwise else y
    x_outer, x_inner = split(out, out.fuse(y, x) if pointwise else x, tile.points)
    reorder(out, n, row, x_outer, fo, x_inner, fi)
    out.vectorize(fi)
    unroll(out, x_inner)
    place_epilogue(left, out, op)
    if merged is not output.op:
        s[merged].compute_at(out, fo)
        s[merged].vectorize(merged.axis[-1])
        unroll(s[merged], merged.axis[-2])

    conv = s[s.cache_write(op.name, "local")]
    groups = s[op.name]
    groups.compute_at(out, x_outer or row or n)
    share(out, [n, row, x_outer], work(op))
    n, g, k, *rows, x, fi = groups.op.axis
    k_outer, k_inner = split(groups, k, tile.blocks)
    reorder(groups, n, *rows, g, k_outer, k_inner, x, fi)
    groups.vectorize(fi)
    unroll(groups, k_inner, x)

    conv.compute_at(groups, k_outer or g)
    if pad is not None:
        _place_padding(s[pad], out, out.op.axis[0])
    n, g, k, *rows, x, fi = conv.op.axis
    ky, kx, c = conv.op.reduce_axis
    conv.reorder(n, g, *rows, ky, kx, c, x, k, fi)
    conv.vectorize(fi)
    unroll(conv, x, k)


_RECIPES = {
    "conv2d_nchwc_pointwise": _pointwise,
    "conv2d_nchwc": _direct,
    "depthwise_conv2d_nchwc": _depthwise,
    "conv2d_nchwc_groups": _grouped,
    "conv2d_nchwc_groups_pointwise": _grouped,
}
