"""Products of matrices: register tiles of rows by blocks of columns, one vector of lanes each.

    for each tile of column blocks           weights are read once, in order
        for each tile of rows                rows come from the cache
            tile = 0
            for each k                       tile += row[k] * weights[k]  (unrolled over the tile)
            output tile = epilogue(tile)

What is fused behind the product (bias, activation, residual) is applied to a tile as it is stored.
Rows and columns that tiles do not divide get tiles of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minitvm.target import Target
from minitvm.te.recipes.injective import place_epilogue, schedule_default
from minitvm.te.recipes.inline import computations, extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.share import share, work
from minitvm.te.recipes.tiles import FMA_LATENCY, FMA_PER_CYCLE, Tile
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.tir import ir, walk

ROW_CYCLES, BLOCK_CYCLES = 0.04, 0.06
"""What a step of the reduction costs for each row, whose elements lie in a line and often a page of
their own, and for each block, a vector of weights from beyond the first cache."""
MOST_BLOCKS = 6
ENOUGH_COLUMNS = 4
"""With so many tiles of columns, threads share these, and each reads only its own weights."""
EPILOGUE_REGISTERS = 2
"""What a tile leaves for constants of an epilogue that has a loop of its own: compilers keep some
in registers all the time."""
CHEAP = ("abs", "sqrt", "fma", "floor", "ceil", "trunc", "round", "likely", "if_then_else", "isnan")
"""Intrinsics that are an instruction or so."""


@dataclass(frozen=True, slots=True)
class Extents:
    """Of a product: rows, blocks of columns, and products summed up."""

    rows: int
    blocks: int
    depth: int


def product_cycles(tile: Tile, depth: int) -> float:
    """Estimated cycles of one tile."""
    products = tile.points * tile.blocks
    loads = (tile.points + tile.blocks) / 2 if tile.blocks > 1 else 1.15 * products / 2
    step = max(products / FMA_PER_CYCLE, loads, FMA_LATENCY)
    step += ROW_CYCLES * tile.points + BLOCK_CYCLES * tile.blocks
    return depth * step + 2 * products + 12


def product_total(tile: Tile, extents: Extents) -> float:
    """Estimated cycles of a product in such tiles, and smaller ones for what they leave."""
    full_rows, tail_rows = divmod(extents.rows, tile.points)
    full_blocks, tail_blocks = divmod(extents.blocks, tile.blocks)
    rows = ((tile.points, full_rows), (tail_rows, int(tail_rows > 0)))
    blocks = ((tile.blocks, full_blocks), (tail_blocks, int(tail_blocks > 0)))
    return sum(
        row_count * block_count * product_cycles(Tile(r, b), extents.depth)
        for r, row_count in rows for b, block_count in blocks if row_count * block_count
    )


def product_tiles(extents: Extents, target: Target, spare: int = 0) -> list[Tile]:
    """The tiles that fit the registers and leave `spare` of them."""
    registers = target.vector_registers - spare
    return [
        tile
        for b in range(1, min(extents.blocks, MOST_BLOCKS) + 1)
        for r in range(1, min(extents.rows, registers) + 1)
        if (tile := Tile(r, b)).registers() <= registers
    ]


def choose_product_tile(extents: Extents, target: Target, spare: int = 0) -> Tile:
    """The tile of rows (its points) by blocks with the fewest estimated cycles."""
    tiles = product_tiles(extents, target, spare)
    return min(tiles, key=lambda tile: product_total(tile, extents))


def decide_product_tile(extents: Extents, target: Target, spare: int = 0) -> Tile:
    """The tile that a tuner decides on, as the knob `tile`; by default `choose_product_tile`'s."""
    chosen = choose_product_tile(extents, target, spare)
    return Tile(*decide("tile", (chosen.points, chosen.blocks), lambda: [
        (tile.points, tile.blocks) for tile in product_tiles(extents, target)]))


def split_by(stage: StageHandle, axis: IterVar, factor: int) -> tuple[IterVar | None, IterVar]:
    """(outer, inner), or no outer axis where one tile covers the extent."""
    if extent_of(axis) <= factor:
        return None, axis
    return stage.split(axis, factor=factor)


def fuse_rows(stage: StageHandle, axes: Sequence[IterVar]) -> IterVar:
    """One axis over all rows; those of extent 1, which have no loop, stay outside."""
    long = [axis for axis in axes if extent_of(axis) != 1] or list(axes[-1:])
    if len(long) < len(axes):
        stage.reorder(*(axis for axis in axes if axis not in long), *long)
    return stage.fuse(*long)


def schedule_dense(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """A packed dense layer: a register tile of rows by blocks; others as any reduction."""
    op = find_tag("dense_packed", [output])
    unpacked = find_tag("dense_unpack", [output])
    if op is None or unpacked is None or output.extents() != tuple(map(extent_of, unpacked.axis)):
        schedule_default(s, anchor, output, target)
        return
    long = unpacked is not output.op and calls_functions(output, op)
    left = inline_injective(s, [output], keep=[op, unpacked] if long else [op])
    rows, blocks, lanes = (extent_of(axis) for axis in op.axis)
    extents = Extents(rows, blocks, extent_of(op.reduce_axis[0]))
    tile = decide_product_tile(extents, target, EPILOGUE_REGISTERS if long else 0)

    out = s[output]
    outer = _output_tiles(out, tile, lanes)
    if not outer:
        return
    place_epilogue(left, out, op)
    if long:
        _copy_tile(s[unpacked], out, outer[-1], lanes)
    dense = s[op]
    dense.compute_at(out, outer[-1])
    share(out, _shared_loops(op, outer, tile, target), work(op))
    m, no, ni = op.axis
    dense.reorder(op.reduce_axis[0], m, no, ni)
    dense.vectorize(ni)
    dense.unroll(m)
    dense.unroll(no)


def calls_functions(output: Tensor, product: Compute) -> bool:
    """Whether what follows a product computes a function such as erf: code too long to repeat for
    every vector of a tile."""
    return any(
        isinstance(node, ir.Call) and node.name not in CHEAP
        for op in computations([output]) if op is not product
        for body in op.bodies for node in walk.walk(body)
    )


def _shared_loops(op: Compute, outer: list[IterVar], tile: Tile, target: Target) -> list[IterVar]:
    """The loops that threads may share: that over tiles of rows only where it may stand outside,
    because each tile can read all weights from the cache, and where there are few of columns."""
    _, blocks, lanes = (extent_of(axis) for axis in op.axis)
    weights = 4 * blocks * lanes * extent_of(op.reduce_axis[0])
    tiles = -(-blocks // tile.blocks)
    whole = tiles >= ENOUGH_COLUMNS or (tiles > 1 and weights > target.l2_bytes // 4)
    return outer[:1] if decide("share", whole, (False, True)) else outer


def _output_tiles(out: StageHandle, tile: Tile, lanes: int) -> list[IterVar]:
    """Makes loops over tiles, which it gives, and over the rows, blocks of columns and lanes of
    one."""
    *leading, n = out.op.axis
    m_outer, m_inner = split_by(out, fuse_rows(out, leading), tile.points)
    n_outer, n_inner = split_by(out, n, tile.blocks * lanes)
    n_block, lane = out.split(n_inner, factor=lanes)
    outer = [axis for axis in (n_outer, m_outer) if axis is not None]
    out.reorder(*outer, m_inner, n_block, lane)
    out.vectorize(lane)
    return outer


def _copy_tile(copy: StageHandle, out: StageHandle, place: IterVar, lanes: int) -> None:
    """Puts a tile of the product into memory of its own, where a loop can go through it."""
    copy.compute_at(out, place)
    *rows, n = copy.op.axis
    block, lane = copy.split(n, factor=lanes)
    copy.vectorize(lane)
    copy.unroll(block)
    for axis in rows:
        copy.unroll(axis)


def schedule_matmul(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """A stack of products, whose second factor is copied into blocks; others as any reduction."""
    op, right = find_tag("matmul_packed", [output]), find_tag("matmul_right", [output])
    unpacked = find_tag("matmul_unpack", [output])
    if op is None or right is None or unpacked is None or (
        output.extents() != tuple(map(extent_of, unpacked.axis))
    ):
        schedule_default(s, anchor, output, target)
        return
    left = inline_injective(s, [output], keep=[op, right])
    rows, blocks, lanes = (extent_of(axis) for axis in op.axis[-3:])
    tile = decide_product_tile(Extents(rows, blocks, extent_of(op.reduce_axis[0])), target)

    out = s[output]
    *batch, m, n = out.op.axis
    m_outer, m_inner = split_by(out, m, tile.points)
    n_outer, n_inner = split_by(out, n, tile.blocks * lanes)
    n_block, lane = out.split(n_inner, factor=lanes)
    outer = [*batch, *(axis for axis in (n_outer, m_outer) if axis is not None)]
    out.reorder(*outer, m_inner, n_block, lane)
    out.vectorize(lane)
    place_epilogue(left, out, op)

    copy = s[right]
    *places, _, lane = copy.op.axis
    copy.vectorize(lane)
    share(copy, places, work(right))
    product = s[op]
    *batch, m, no, ni = op.axis
    if outer:
        product.compute_at(out, outer[-1])
        share(out, outer, work(op))
    product.reorder(*batch, op.reduce_axis[0], m, no, ni)
    product.vectorize(ni)
    product.unroll(m)
    product.unroll(no)
