"""Register tiles: how many accumulators of a convolution or matrix product stay in registers.

A tile is `points x blocks` vector accumulators. Each step of the reduction loads `blocks` weight
vectors and multiplies each with `points` broadcast inputs, so the tile must fit the register file
with one vector for each block and one for the input. Among the tiles that fit, `choose_tile` takes
the one with the fewest estimated cycles over the whole extent, tails included.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitvm.target import Target
from minitvm.te.recipes.knobs import decide

FMA_PER_CYCLE = 2
FMA_LATENCY = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """`points` output positions by `blocks` vectors of output channels."""

    points: int
    blocks: int

    def registers(self) -> int:
        """Vector registers: the accumulators, the weights, and the broadcast input."""
        return self.points * self.blocks + self.blocks + 1

    def cycles(self, reduction: int) -> float:
        """Estimated cycles to reduce over `reduction` steps and to store the result."""
        products = self.points * self.blocks
        multiply = products / FMA_PER_CYCLE
        # With one block every product needs a load of its own, which LLVM folds into the FMA.
        load = (products if self.blocks == 1 else self.points) + self.blocks
        step = max(multiply, load / 2 * (1.15 if self.blocks == 1 else 1), FMA_LATENCY)
        return reduction * step + 2 * products + 12


def decide_tile(points: int, blocks: int, reduction: int, target: Target,
                groups: int = 1) -> Tile:
    """The tile that a tuner decides on, as the knob `tile`; by default `choose_tile`'s."""
    chosen = choose_tile(points, blocks, reduction, target, groups)
    return Tile(*decide("tile", (chosen.points, chosen.blocks), lambda: [
        (tile.points, tile.blocks) for tile in fitting_tiles(points, blocks, target, groups)]))


def decide_rows(rows: int, columns: int, blocks: int, reduction: int,
                target: Target) -> tuple[int, Tile]:
    """Rows and tile that a tuner decides on, as the knob `rows`; by default `choose_rows`'."""
    together, tile = choose_rows(rows, columns, blocks, reduction, target)
    together, channels = decide("rows", (together, tile.blocks), lambda: [
        (count, tile.blocks) for count, tile in _fitting_rows(rows, columns, blocks, target)])
    return together, Tile(together * columns, channels)


def fitting_tiles(points: int, blocks: int, target: Target, groups: int = 1) -> list[Tile]:
    """The tiles that fit the registers. Several groups: no tile has blocks of two, which share no
    inputs."""
    of_group = blocks // groups
    return [
        tile
        for b in range(1, min(of_group, 6) + 1)
        if groups == 1 or of_group % b == 0
        for p in range(1, min(points, 30) + 1)
        if (tile := Tile(p, b)).registers() <= target.vector_registers
    ]


def _fitting_rows(rows: int, columns: int, blocks: int, target: Target) -> list[tuple[int, Tile]]:
    return [
        (together, tile)
        for b in range(1, min(blocks, 6) + 1)
        for together in range(1, rows + 1)
        if (tile := Tile(together * columns, b)).registers() <= target.vector_registers
    ]


def choose_tile(points: int, blocks: int, reduction: int, target: Target,
                groups: int = 1) -> Tile:
    """The tile with the fewest estimated cycles for so many positions and channel blocks."""
    return min(fitting_tiles(points, blocks, target, groups),
               key=lambda tile: total_cycles(tile, points, blocks, reduction))


def total_cycles(tile: Tile, points: int, blocks: int, reduction: int) -> float:
    """The estimated cycles of a tile and its tails, for so many positions and channel blocks."""
    full_points, tail_points = divmod(points, tile.points)
    full_blocks, tail_blocks = divmod(blocks, tile.blocks)
    return sum(
        count * Tile(p, b).cycles(reduction)
        for p, p_count in ((tile.points, full_points), (tail_points, int(tail_points > 0)))
        for b, b_count in ((tile.blocks, full_blocks), (tail_blocks, int(tail_blocks > 0)))
        if (count := p_count * b_count)
    )


PREFETCH_CYCLES = 800
"""How far ahead of their use weights are asked for: a few times the latency of the third cache."""


def prefetch_steps(tile: Tile) -> int:
    """How many steps of the reduction ahead to ask for weights."""
    return -(-PREFETCH_CYCLES * FMA_PER_CYCLE // (tile.points * tile.blocks))


WEIGHT_CYCLES = 1.2
"""Of one vector of weights that comes from beyond the first cache."""


def choose_rows(rows: int, columns: int, blocks: int, reduction: int,
                target: Target) -> tuple[int, Tile]:
    """How many whole rows to compute together, and the tile for it, where at least one fits: the
    weights, most of what a small image reads, are then loaded once for several rows."""

    def total(choice: tuple[int, Tile]) -> float:
        together, tile = choice
        full_blocks, tail_blocks = divmod(blocks, tile.blocks)
        full_rows, tail_rows = divmod(rows, together)
        return sum(
            count * (Tile(r * columns, b).cycles(reduction) + reduction * WEIGHT_CYCLES * b)
            for r, r_count in ((together, full_rows), (tail_rows, int(tail_rows > 0)))
            for b, b_count in ((tile.blocks, full_blocks), (tail_blocks, int(tail_blocks > 0)))
            if (count := r_count * b_count)
        )

    return min(_fitting_rows(rows, columns, blocks, target), key=total)
