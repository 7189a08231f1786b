"""Attention: a tile of rows at a time, from their scores to the mixture of values.

    keys, values = packed                                  once
    for each head and tile of rows                         threads share these
        for each tile of key blocks                        scores in registers
            masked = scores + mask
        maximum, powers, sum                               in a cache, in vectors of keys
        for each tile of value blocks                      the mixture in registers
            output = mixture / sum

The tile has as many rows as makes both products together the fastest: all its scores are there at
once, and the second cache holds them where the first can't. For a few thousand keys that costs less
than rows that are too few for the registers. Blocks of keys, each of which changes the maximum
(Milakov and Gimelshein 2018, Dao et al. 2022), would need less memory still.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minitvm.target import Target
from minitvm.te.recipes.injective import place_epilogue, schedule_default
from minitvm.te.recipes.inline import extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.matmul import Extents, product_tiles, product_total
from minitvm.te.recipes.share import share, work
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, IterVar, Tensor

SCORE_BYTES = 8
"""The memory of a score, which is there as it is and as a power."""
FIRST_SHARE, SECOND_SHARE = 2, 4
"""The scores of a tile take no more of the second cache than one part in so many, while they leave
it more than one row; those that take more of the first one cost `AWAY_CYCLES`."""
AWAY_CYCLES = 4
"""Of a vector of scores in the second cache, which is written and read six times in all."""
PREFIX = "attention_"


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """`rows` together, with `keys` blocks of keys and `columns` blocks of columns of values."""

    rows: int
    keys: int
    columns: int


def choose_attention_tile(scores: Extents, mixture: Extents, target: Target) -> AttentionTile:
    """The tile with the fewest estimated cycles for both products, and for scores between them that
    are not in the first cache."""
    lanes = target.lanes("float32")
    row_bytes = SCORE_BYTES * scores.blocks * lanes
    most_rows = min(target.l2_bytes // SECOND_SHARE // row_bytes, scores.rows,
                    target.vector_registers // 2 - 1)

    def fastest(extents: Extents, rows: int) -> tuple[float, int]:
        fitting = [tile for tile in product_tiles(extents, target) if tile.points == rows]
        cycles, blocks = min((product_total(tile, extents), tile.blocks) for tile in fitting)
        packed_bytes = 4 * lanes * extents.blocks * extents.depth
        if packed_bytes <= target.l1_bytes // FIRST_SHARE:
            return cycles, blocks
        read = -(-extents.rows // rows) * packed_bytes
        return max(cycles, read / target.l2_bytes_per_cycle), blocks

    choices = {}
    for rows in range(1, max(1, most_rows) + 1):
        (first, left), (second, right) = fastest(scores, rows), fastest(mixture, rows)
        away = rows * row_bytes > target.l1_bytes // FIRST_SHARE
        between = away * AWAY_CYCLES * scores.rows * scores.blocks
        choices[rows] = first + second + between, AttentionTile(rows, left, right)
    rows = decide("rows", min(choices, key=lambda rows: choices[rows][0]), choices)
    return choices[rows][1]


def schedule_attention(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """The nest above, where the output has the elements of the attention; else the default."""
    parts = _parts(output)
    result = find_tag("attention", [output])
    if result is None or [*map(extent_of, result.axis)] != [*output.extents()]:
        schedule_default(s, anchor, output, target)
        return
    left = inline_injective(s, [output], keep=parts.values())
    scores, mix = parts["scores"], parts["mix"]
    rows, key_blocks, lanes = (extent_of(axis) for axis in scores.axis[2:])
    depth, keys = extent_of(scores.reduce_axis[0]), extent_of(mix.reduce_axis[0])
    tile = choose_attention_tile(
        Extents(rows, key_blocks, depth), Extents(rows, extent_of(mix.axis[3]), keys), target)

    out = s[output]
    outer, columns = _output_tile(out, tile, lanes)
    place = outer[-1]
    place_epilogue(left, out, mix)
    for tag in ("keys", "values"):
        _pack(s[parts[tag]])
    _mixture(s[mix], out, columns or place)
    for tag in ("sum", "sums", "powers", "maximum", "maxima", "masked"):
        s[parts[tag]].compute_at(out, place)
        if tag in ("sums", "powers", "maxima"):
            _rows_of_vectors(s[parts[tag]], lanes)
    _scores(s[scores], s[parts["masked"]], tile)
    s[parts["queries"]].compute_at(out, place)
    _rows_of_vectors(s[parts["queries"]], lanes)
    share(out, outer, work(scores) + work(mix))


def _parts(output: Tensor) -> dict[str, Compute]:
    """The stages behind the output by their tags."""
    names = ("keys", "values", "queries", "scores", "masked", "maxima", "maximum", "powers",
             "sums", "sum", "mix")
    found = {name: find_tag(PREFIX + name, [output]) for name in names}
    return {name: op for name, op in found.items() if op is not None}


def _output_tile(out: StageHandle, tile: AttentionTile,
                 lanes: int) -> tuple[list[IterVar], IterVar | None]:
    """The loops down to that of a tile of rows, and that of its tiles of columns if there are
    several."""
    b, t, h, e = out.op.axis
    outer, t_inner = out.split(t, factor=tile.rows)
    e_outer: IterVar | None = None
    if extent_of(e) > tile.columns * lanes:
        e_outer, e = out.split(e, factor=tile.columns * lanes)
    block, lane = out.split(e, factor=lanes)
    columns = [] if e_outer is None else [e_outer]
    out.reorder(b, h, outer, *columns, t_inner, block, lane)
    out.vectorize(lane)
    return [b, h, outer], e_outer


def _pack(stage: StageHandle) -> None:
    *outer, _, lane = stage.op.axis
    stage.vectorize(lane)
    share(stage, outer, prod(map(extent_of, stage.op.axis)))


def _mixture(mix: StageHandle, out: StageHandle, place: IterVar) -> None:
    mix.compute_at(out, place)
    b, h, t, eo, ei = mix.op.axis
    mix.reorder(b, h, mix.op.reduce_axis[0], t, eo, ei)
    mix.vectorize(ei)
    mix.unroll(t)
    mix.unroll(eo)


def _rows_of_vectors(stage: StageHandle, lanes: int) -> None:
    """Vectors along the last axis, innermost; a reduction outside of them."""
    lane = stage.op.axis[-1]
    if extent_of(lane) > lanes:
        _, lane = stage.split(lane, factor=lanes)
    if stage.op.reduce_axis:
        stage.reorder(*stage.op.reduce_axis, lane)
    stage.vectorize(lane)


def _scores(scores: StageHandle, masked: StageHandle, tile: AttentionTile) -> None:
    """Scores in registers, for a tile of blocks of keys, and from there to their memory."""
    b, h, t, so, si = masked.op.axis
    place = so
    if extent_of(so) > tile.keys:
        place, inner = masked.split(so, factor=tile.keys)
        masked.reorder(b, h, place, t, inner, si)
        masked.unroll(inner)
    else:
        masked.reorder(b, h, t, so, si)
        place = h
        masked.unroll(so)
    masked.unroll(t)
    masked.vectorize(si)
    scores.compute_at(masked, place)
    b, h, t, so, si = scores.op.axis
    scores.reorder(b, h, scores.op.reduce_axis[0], t, so, si)
    scores.vectorize(si)
    scores.unroll(t)
    scores.unroll(so)
