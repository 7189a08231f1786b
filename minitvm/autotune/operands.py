"""A reduction -> what it reads, and what each register tile of it would cost.

A *tile* has an extent for each axis of a reduction. One axis, the *lanes*, lies in vectors. With
each step of the reduction an operand that has the lanes gives vectors, if its neighbours along them
are neighbours in memory, and single elements otherwise; any other gives elements for all lanes.
The tile must fit the registers: its accumulators, the smallest set of vectors that a step keeps,
and one more. Of the tiles that fit, the one of the fewest estimated cycles is the default, and
those that come near it are worth measuring.

The estimate is like that of the operators' recipes (`te/recipes/tiles.py`), for any reduction.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, prod

from minitvm.autotune.features import index_value
from minitvm.target import Target
from minitvm.te.recipes.inline import extent_of
from minitvm.te.recipes.tiles import FMA_LATENCY, FMA_PER_CYCLE
from minitvm.te.tensor import Compute, Operation, Tensor
from minitvm.tir import ir, walk

VECTOR_CYCLES, ELEMENT_CYCLES = 0.3, 0.04
"""Of a step, for each vector and each single element that comes from beyond the first cache."""
LINE_CYCLES, LINE_ELEMENTS = 0.6, 16
"""Of a step, for each line of the cache that single elements come from and did not before; and how
many elements a line has."""
MOST_VECTORS = 6
"""The most vectors of the axis in lanes that a tile has."""
PACK_CYCLES, STORE_CYCLES = 1.0, 1.0
"""Of an element that is copied to where vectors find it, and of a result that is stored apart from
its neighbours in lanes."""
ENOUGH_REUSE = 8
"""An operand is copied where each of its elements is used at least so often."""
NEAR = 1.6
"""A tile is worth measuring whose estimate is at most so many times the best one."""
NEAR_LANES = 1.5
"""The same for the axis that lies in lanes."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a reduction reads: the places of the axes that move it, those along which
    neighbours are neighbours in memory, those that alone move one dimension of it (and which
    dimension), how many elements it has, and how many steps of the reduction in a row go from one
    to its neighbour."""

    axes: tuple[int, ...]
    contiguous: tuple[int, ...]
    dimensions: tuple[tuple[int, int], ...]
    elements: int
    run: int = 1

    def dimension(self, axis: int) -> int | None:
        """The one dimension that an axis moves, by as much; None where there is no such."""
        return dict(self.dimensions).get(axis)


@dataclass(frozen=True, slots=True)
class Reduction:
    """The extents of a reduction's axes, how many terms it sums up, and its operands."""

    extents: tuple[int, ...]
    depth: int
    operands: tuple[Operand, ...]

    def reuse(self, operand: Operand) -> int:
        """How often each element is used, over the axes that don't move the operand."""
        return prod(extent for axis, extent in enumerate(self.extents) if axis not in operand.axes)

    def is_packable(self, operand: Operand, lane: int) -> bool:
        """Whether a copy can have the lanes side by side, and pays."""
        return operand.dimension(lane) is not None and self.reuse(operand) >= ENOUGH_REUSE


@dataclass(frozen=True, slots=True)
class Machine:
    """What a tile must know of the target."""

    lanes: int
    registers: int


def machine_of(op: Compute, target: Target) -> Machine:
    """The vectors that a computation is made of."""
    return Machine(target.lanes(op.bodies[0].dtype), target.vector_registers)


# --- what is read -------------------------------------------------------------------------------


def reduction_of(op: Compute, fixed: Collection[Operation] = ()
                 ) -> tuple[Reduction, dict[Tensor, Operand]]:
    """What a reduction is made of; each tensor that it reads as an operand. Those of `fixed` are
    never copied."""
    extents = tuple(map(extent_of, op.axis))
    reads: dict[Tensor, list[ir.Read]] = {}
    for body in op.bodies:
        for node in walk.walk(body):
            if isinstance(node, ir.Read):
                reads.setdefault(node.tensor, []).append(node)
    found = {tensor: _operand(tensor, nodes, op) for tensor, nodes in reads.items()}
    found = {tensor: replace(operand, dimensions=()) if tensor.op in fixed else operand
             for tensor, operand in found.items()}
    depth = prod(map(extent_of, op.reduce_axis))
    return Reduction(extents, depth, tuple(found.values())), found


def _operand(tensor: Tensor, reads: Sequence[ir.Read], op: Compute) -> Operand:
    axes, contiguous, dimensions = [], [], []
    rank = len(tensor.shape)
    for place, axis in enumerate(op.axis):
        moved = [dimension for dimension in range(rank) if any(
            axis.var in walk.walk(read.indices[dimension]) for read in reads)]
        if not moved:
            continue
        axes.append(place)
        if len(moved) == 1 and all(_is_step(read.indices[moved[0]], axis.var) for read in reads):
            dimensions.append((place, moved[0]))
            if moved[0] == rank - 1:
                contiguous.append(place)
    elements = prod(extent.value if isinstance(extent, ir.Const) else 0 for extent in tensor.shape)
    return Operand(tuple(axes), tuple(contiguous), tuple(dimensions), int(elements),
                   _run(reads, op))


def _run(reads: Sequence[ir.Read], op: Compute) -> int:
    """How many steps in a row read neighbours: those of the innermost axis that has any."""
    inner = next((axis for axis in reversed(op.reduce_axis) if extent_of(axis) > 1), None)
    if inner is None or not all(
            _is_step(read.indices[-1], inner.var)
            and not any(inner.var in walk.walk(index) for index in read.indices[:-1])
            for read in reads):
        return 1
    return extent_of(inner)


def _is_step(index: ir.Expr, var: ir.Var) -> bool:
    """Whether an index goes on by one with a variable."""
    at = [index_value(index, {var: value}) for value in range(3)]
    return (at[1] - at[0], at[2] - at[1]) == (1, 1)


# --- what a tile costs --------------------------------------------------------------------------


def _registers(reduction: Reduction, tile: Sequence[int], lane: int, machine: Machine) -> int:
    """The vector registers of a tile."""
    vectors = ceil(tile[lane] / machine.lanes)
    held = [_across(operand, tile, lane) * vectors
            for operand in reduction.operands if lane in operand.axes]
    return prod(tile) // tile[lane] * vectors + min(held, default=0) + 1


def _across(operand: Operand, tile: Sequence[int], lane: int) -> int:
    """The elements, or vectors of lanes, of an operand in a tile."""
    return prod(tile[axis] for axis in operand.axes if axis != lane)


def cycles_of(reduction: Reduction, tile: Sequence[int], lane: int, lanes: int) -> float:
    """Estimated cycles of one tile."""
    vectors = ceil(tile[lane] / lanes)
    # What is no whole register is loaded in pieces, powers of two, that are put together.
    pieces = (tile[lane] % lanes).bit_count()
    products = prod(tile) // tile[lane] * vectors
    loads, joins, extra = 0, 0, 0.0
    for operand in reduction.operands:
        count = _across(operand, tile, lane)
        if lane not in operand.axes:
            loads += count
            extra += ELEMENT_CYCLES * count
            lines = prod(tile[axis] for axis in operand.axes if axis not in operand.contiguous)
            extra += LINE_CYCLES * lines / min(operand.run, LINE_ELEMENTS)
        elif lane in operand.contiguous or reduction.is_packable(operand, lane):
            loads += count * (tile[lane] // lanes + pieces)
            joins += count * max(0, pieces - 1)
            extra += VECTOR_CYCLES * count * vectors
        else:
            loads += count * tile[lane]
    step = max((products + joins) / FMA_PER_CYCLE, loads / 2, FMA_LATENCY) + extra
    return reduction.depth * step + 2 * products + 12


def total_cycles(reduction: Reduction, tile: Sequence[int], lane: int, lanes: int) -> float:
    """Estimated cycles of a whole reduction in such tiles, smaller ones for what they leave, and
    the copies that it takes."""
    ways = []
    for extent, size in zip(reduction.extents, tile, strict=True):
        full, rest = divmod(extent, size)
        ways.append([(size, full)] * (full > 0) + [(rest, 1)] * (rest > 0))
    tiles = sum(
        prod(count for _, count in way)
        * cycles_of(reduction, [size for size, _ in way], lane, lanes)
        for way in itertools.product(*ways))
    packed = sum(operand.elements for operand in reduction.operands
                 if lane in operand.axes and lane not in operand.contiguous
                 and reduction.is_packable(operand, lane))
    apart = prod(reduction.extents) if lane != len(tile) - 1 else 0
    return tiles + PACK_CYCLES * packed + STORE_CYCLES * apart


@lru_cache(maxsize=256)
def tiles_of(reduction: Reduction, lane: int, machine: Machine) -> tuple[tuple[int, ...], ...]:
    """The tiles that fit the registers and are worth measuring, the best by estimate first. At most
    one axis leaves a rest: each rest is code of its own, twice as much with every further one."""
    costs = {tile: total_cycles(reduction, tile, lane, machine.lanes)
             for tile in _fitting(reduction, lane, machine)
             if sum(extent % size > 0
                    for extent, size in zip(reduction.extents, tile, strict=True)) <= 1}
    ordered = sorted(costs, key=lambda tile: (costs[tile], tile))
    return tuple(tile for tile in ordered if costs[tile] <= NEAR * costs[ordered[0]])


def _fitting(reduction: Reduction, lane: int, machine: Machine) -> Iterable[tuple[int, ...]]:
    """All tiles within the registers."""
    tiles = [[1] * len(reduction.extents)]
    for axis, extent in enumerate(reduction.extents):
        sizes = (_lane_sizes(extent, machine.lanes) if axis == lane
                 else range(1, min(extent, machine.registers) + 1))
        tiles = [wider for tile in tiles for size in sizes
                 if _registers(reduction, wider := [*tile[:axis], size, *tile[axis + 1:]],
                               lane, machine) <= machine.registers]
    return map(tuple, tiles)


def _lane_sizes(extent: int, lanes: int) -> list[int]:
    """Extents of the axis in lanes: whole vectors, or all of a short axis."""
    whole = [count * lanes for count in range(1, MOST_VECTORS + 1) if count * lanes <= extent]
    return sorted({*whole, *([extent] if extent <= MOST_VECTORS * lanes else [])})


@lru_cache(maxsize=256)
def lane_axes(reduction: Reduction, machine: Machine) -> tuple[int, ...]:
    """The axes that may lie in lanes and are worth measuring, the best by estimate first."""
    last = len(reduction.extents) - 1
    costs = {}
    for axis, extent in enumerate(reduction.extents):
        if extent > 1 or axis == last:
            best = tiles_of(reduction, axis, machine)[0]
            costs[axis] = total_cycles(reduction, best, axis, machine.lanes)
    least = min(costs.values(), default=inf)
    ordered = sorted(costs, key=lambda axis: (costs[axis], -axis))
    return tuple(axis for axis in ordered if costs[axis] <= NEAR_LANES * least)
