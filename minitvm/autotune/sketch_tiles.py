"""Sketches of a reduction: levels of tiles "SSRSRS" (S: its axes, R: what it sums over).

    for each outer tile                     S   shared among threads
        panel = part of an operand              copied so that lanes lie side by side
        for each register tile in it        S
            sums = 0
            for each outer, inner term      R R
                sums += ...                     unrolled over the tile, its lanes in vectors
            output = what follows (sums)

The sums are a stage of their own: the reduction, under what alone reads it element by element, or a
copy of it under its result (*cache write*). They lie with the lanes innermost, so that LLVM keeps a
tile in registers. `operands` tells which axis may lie in lanes, which tiles fit the registers and
which operands are worth a copy; what it estimates best is the default.

Source: Ansor (OSDI 2020), whose sketches these are; copies into panels are those of GotoBLAS.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from minitvm import te
from minitvm.autotune.operands import (
    ENOUGH_REUSE,
    Operand,
    Reduction,
    lane_axes,
    machine_of,
    reduction_of,
    tiles_of,
)
from minitvm.target import Target
from minitvm.te.recipes.inline import extent_of
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.share import WORTHWHILE, work
from minitvm.te.schedule import StageHandle
from minitvm.te.tensor import Compute, IterVar, Operation, Tensor

MOST_TERMS = 64
"""The greatest extent of the inner level of what is summed up."""
MOST_UNROLLED = 128
"""How many copies unrolling may make of a statement."""

Host = tuple[StageHandle, IterVar]
"""A stage, and the loop over its outer tiles."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided of a reduction: the place of the axis in lanes, the register tile, how many
    of these an outer tile has along each axis, the axes in the order of their loops, where operands
    are copied, and the axes that move an operand in lanes."""

    name: str
    lane: int
    lanes: int
    tile: tuple[int, ...]
    tiles: tuple[int, ...]
    order: tuple[int, ...]
    copies: dict[Tensor, str]
    wide: tuple[int, ...]

    @property
    def inner_order(self) -> list[int]:
        """The axes of a register tile: those that need other single elements first, as each of
        these is then used up at once while vectors are kept; that of the lanes last."""
        others = [place for place in range(len(self.tile)) if place != self.lane]
        return [*sorted(others, key=lambda place: place in self.wide), self.lane]


def tile_reduction(s: te.Schedule, op: Compute, consumer: StageHandle | None, target: Target,
                   fixed: Collection[Operation] = ()) -> Host:
    """A reduction in tiles, under its consumer or its own result. The stages of `fixed` are not
    copied."""
    plan = _decide(op, target, fixed)
    if consumer is None:
        sums, result = s[s.cache_write(op.name, "local")], s[op.name]
    else:
        sums, result = s[op], consumer
    outer, middle, inner = _levels(result, plan)
    result.reorder(*(outer[place] for place in plan.order),
                   *(middle[place] for place in plan.order), *inner)
    fused = _share(result, op, outer, plan, work(sums.op))
    whole = decide(f"{plan.name}.place", "tile", ("tile", "outer")) == "outer"
    sums.compute_at(result, fused if whole else middle[plan.order[-1]])
    if plan.lane != len(plan.tile) - 1:
        axes = sums.op.axis
        sums.reorder_storage(*(axes[place] for place in plan.inner_order))
    for tensor, where in plan.copies.items():
        _copy(s, tensor, sums, (result, fused) if where == "panel" else None, plan)
    _store(result, inner, plan)
    _sum_up(sums, plan)
    return result, fused


# --- what is decided ----------------------------------------------------------------------------


def _decide(op: Compute, target: Target, fixed: Collection[Operation]) -> Plan:
    reduction, operands = reduction_of(op, fixed)
    machine = machine_of(op, target)
    axes = lane_axes(reduction, machine)
    names = [axis.name for axis in op.axis]
    lane = names.index(decide(f"{op.name}.lanes", names[axes[0]], [names[a] for a in axes],
                              structure=True))
    copies = {tensor: where for tensor, operand in operands.items()
              if (where := _decide_copy(op, tensor, operand, reduction, lane)) != "none"}
    tiles = tiles_of(reduction, lane, machine)
    tile = decide(f"{op.name}.tile.{names[lane]}", tiles[0], tiles)
    wide = {axis for operand in reduction.operands if lane in operand.axes for axis in operand.axes}
    order = _order(op.name, reduction, lane, wide)
    panels = [operands[tensor] for tensor, where in copies.items() if where == "panel"]
    counts = _outer_tiles(op, tile, panels, target)
    return Plan(op.name, lane, machine.lanes, tile, counts, order, copies, tuple(sorted(wide)))


def _decide_copy(op: Compute, tensor: Tensor, operand: Operand, reduction: Reduction,
                 lane: int) -> str:
    """Where an operand is copied: whole, a panel for each outer tile, or nowhere."""
    if lane not in operand.axes or not reduction.is_packable(operand, lane):
        return "none"
    dimension = operand.dimension(lane)
    assert dimension is not None
    apart = lane not in operand.contiguous
    short = extent_of(op.axis[lane]) <= ENOUGH_REUSE and not apart
    ways = ("panel", "whole") if apart else ("none", "panel", "whole")
    default = "none" if short or _lies_together(reduction, operand, lane) else "panel"
    return decide(f"{op.name}.{tensor.name}", default if default in ways else "panel", ways,
                  structure=True)


def _lies_together(reduction: Reduction, operand: Operand, lane: int) -> bool:
    """Whether all that an operand has along the lanes is a few vectors at most, so that one step of
    the reduction reads what is beside the step before."""
    return lane in operand.contiguous and reduction.extents[lane] <= 64


def _order(name: str, reduction: Reduction, lane: int, wide: Collection[int]) -> tuple[int, ...]:
    """The axes in the order of the loops over tiles: those that all operands have, then those of
    the operands in lanes, and then the others; or these two the other way round."""
    count = len(reduction.extents)
    narrow = {axis for operand in reduction.operands if lane not in operand.axes
              for axis in operand.axes}
    first = decide(f"{name}.order", "lanes", ("lanes", "points"))

    def rank(axis: int) -> int:
        if axis in wide and axis in narrow:
            return 0
        return 1 if (axis in wide) == (first == "lanes") else 2

    return tuple(sorted(range(count), key=rank))


def _outer_tiles(op: Compute, tile: Sequence[int], panels: Sequence[Operand],
                 target: Target) -> tuple[int, ...]:
    """How many register tiles an outer tile has along each axis, or the next divisor of all there
    are. By default one, and all of them along the axes that use a panel again, if the others give
    each core something to do."""
    extents = [extent_of(axis) for axis in op.axis]
    most = [-(-extent // size) for extent, size in zip(extents, tile, strict=True)]
    again = [place for place in range(len(tile)) if any(place not in p.axes for p in panels)]
    pieces = prod(count for place, count in enumerate(most) if place not in again)
    default = [most[place] if place in again else 1 for place in range(len(tile))]
    if pieces < target.cores and again:
        default[again[0]] = -(-most[again[0]] // target.cores)
    found = []
    for place, axis in enumerate(op.axis):
        ways = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n < extents[place]]
        wanted = "all" if default[place] == most[place] > 1 else min(
            [n for n in ways if n >= default[place]] or ways or [1])
        chosen = decide(f"{op.name}.{axis.name}.tiles", wanted, [*ways, "all"] if ways else [1])
        count = most[place] if chosen == "all" else int(chosen)
        found.append(max(n for n in range(1, count + 1) if most[place] % n == 0))
    return tuple(found)


# --- the loops ----------------------------------------------------------------------------------


def _levels(result: StageHandle, plan: Plan) -> tuple[list[IterVar], ...]:
    """For each axis the loops over outer tiles and over register tiles in them; and the loops of a
    tile, in the order in which it is stored."""
    outer, middle, inner = [], [], []
    for axis, size, count in zip(list(result.op.axis), plan.tile, plan.tiles, strict=True):
        top, rest = result.split(axis, factor=size * count)
        mid, low = result.split(rest, factor=size)
        outer.append(top)
        middle.append(mid)
        inner.append(low)
    return outer, middle, inner


def _share(stage: StageHandle, op: Compute, outer: Sequence[IterVar], plan: Plan,
           operations: int) -> IterVar:
    """One loop over the outer tiles, which threads share where there is enough to do; but that
    along an axis whose tiles leave a rest stays a loop of its own inside, as what is fused can't be
    cut where the rest begins. Gives the innermost."""
    sizes = [size * count for size, count in zip(plan.tile, plan.tiles, strict=True)]
    turns = [-(-extent_of(axis) // size) for axis, size in zip(op.axis, sizes, strict=True)]
    ragged = [place for place in plan.order
              if turns[place] > 1 and extent_of(op.axis[place]) % sizes[place]]
    whole = [place for place in plan.order if place not in ragged]
    if ragged and prod(turns[place] for place in whole) == 1:
        whole, ragged = ragged, whole
    stage.reorder(*(outer[place] for place in (*whole, *ragged)))
    first = [outer[place] for place in whole]
    shared = stage.fuse(*first) if len(first) > 1 else first[0]
    if operations >= WORTHWHILE:
        stage.parallel(shared)
    return outer[ragged[-1]] if ragged else shared


def _store(result: StageHandle, inner: Sequence[IterVar], plan: Plan) -> None:
    """The loops that store a tile: vectors along the rows of the result, or along the lanes."""
    last = len(inner) - 1
    along = last
    if plan.lane != last and decide(f"{plan.name}.stores", "rows", ("rows", "lanes")) == "lanes":
        along = plan.lane
        result.reorder(*(axis for place, axis in enumerate(inner) if place != along), inner[along])
    axis, extent = inner[along], plan.tile[along]
    if extent > plan.lanes:
        _, axis = result.split(axis, factor=plan.lanes)
    if extent > 1:
        result.vectorize(axis)


def _sum_up(sums: StageHandle, plan: Plan) -> None:
    """R S R S: the register tiles of a place, within the outer level of what is summed up."""
    op = sums.op
    middle, inner, outside, within, steps = [], [], [], [], 1
    for place in plan.inner_order:
        top, low = sums.split(op.axis[place], factor=plan.tile[place])
        middle.append(top)
        inner.append(low)
    for axis in op.reduce_axis:
        length = extent_of(axis)
        factors = [n for n in range(1, min(length, MOST_TERMS) + 1) if length % n == 0]
        factor = decide(f"{plan.name}.{axis.name}", 1, factors)
        top, low = sums.split(axis, factor=factor)
        outside.append(top)
        within.append(low)
        steps *= factor
    vectors, lane = [], inner.pop()
    if plan.tile[plan.lane] > plan.lanes:
        block, lane = sums.split(lane, factor=plan.lanes)
        vectors.append(block)
    sums.reorder(*outside, *middle, *within, *inner, *vectors, lane)
    copies = prod(plan.tile) // min(plan.tile[plan.lane], plan.lanes)
    unrolled = decide(f"{plan.name}.unroll", "tile", ("tile", "terms"))
    if copies <= MOST_UNROLLED:
        terms = within if unrolled == "terms" and copies * steps <= MOST_UNROLLED else []
        for axis in (*terms, *inner, *vectors):
            sums.unroll(axis)
    if plan.tile[plan.lane] > 1:
        sums.vectorize(lane)


# --- copies of operands -------------------------------------------------------------------------


def _copy(s: te.Schedule, tensor: Tensor, sums: StageHandle, host: Host | None,
          plan: Plan) -> None:
    """An operand whose lanes lie side by side, in blocks as wide as a tile, in the order in which
    the reduction goes through it: a panel beside an outer tile, or the whole before all."""
    operand = reduction_of(sums.op)[1][tensor]
    dimension = operand.dimension(plan.lane)
    assert dimension is not None
    copy = s[s.cache_read(tensor, "global", [sums.name])]
    axes = list(copy.op.axis)
    lane = axes.pop(dimension)
    spatial = [axis for place, axis in enumerate(copy.op.axis) if axis is not lane
               and place in {d for _, d in operand.dimensions}]
    rest = [axis for axis in axes if axis not in spatial]
    width = plan.tile[plan.lane]
    copy.reorder_storage(*spatial, *rest, lane, factor=width)
    block, lane = copy.split(lane, factor=width)
    copy.reorder(block, *spatial, *rest, lane)
    if width > plan.lanes:
        _, lane = copy.split(lane, factor=plan.lanes)
    if width > 1:
        copy.vectorize(lane)
    if host is not None:
        copy.compute_at(*host)
    elif work(copy.op) >= WORTHWHILE:
        copy.parallel(block)
