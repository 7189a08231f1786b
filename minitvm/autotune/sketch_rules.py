"""The rules of sketches: a te program -> its schedule, with choices as knobs.

- *inline* what is elementwise and cheap to repeat; padding is copied whole, copied for each tile of
  what reads it, or inlined;
- *tile* a reduction in levels "SSRSRS" (S: its axes, R: what it sums over): under what alone reads
  it element by element, under a copy of its result (*cache write*), or in place;
- *factor* a long reduction with few results into partial ones (*rfactor*), or not;
- the rest in vectors, shared among threads.

A tile of the innermost level is meant to stay in registers, the next one in the first cache.
Source: Ansor (OSDI 2020), whose sketches and annotations these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from minitvm import te
from minitvm.target import Target
from minitvm.te.recipes.injective import share_outer, vectorize_inner
from minitvm.te.recipes.inline import computations, extent_of, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.share import WORTHWHILE, work
from minitvm.te.schedule import StageHandle
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.tir import ir, walk

MOST_INNER = 64
"""The greatest extent of an innermost level."""
MOST_UNROLLED = 256
"""How many copies unrolling may make of a statement."""
FEW_RESULTS, LONG_REDUCTION = 64, 512
"""A reduction is factored that gives so few results of so many terms each."""

Host = tuple[StageHandle, IterVar]
"""A stage, and the outermost loop over its tiles."""


def derive(outputs: Sequence[Tensor], target: Target) -> te.Schedule:
    """A schedule by the rules; within `deciding` with knobs as they are decided."""
    s = te.create_schedule(list(outputs))
    ops = computations(outputs)
    readers = _readers(ops)
    pads = _copied_padding(ops, readers, outputs)
    left = [stage.op for stage in inline_injective(s, outputs, keep=list(pads))]
    ends = [output.op for output in outputs if isinstance(output.op, Compute)]
    fusable = _elementwise_consumers(ops, readers, ends)
    hosts: dict[Compute, Host] = {}
    done: set[Compute] = set()
    for op in [*left, *(end for end in ends if end.reduce_axis)]:
        if not op.reduce_axis:
            _annotate_elementwise(s[op], target)
        elif _factor(s, op):
            continue
        elif not _is_tileable(op):
            share_outer(s[op])
        else:
            consumer = fusable.get(op)
            free = consumer is not None and consumer not in done
            hosts[op] = _tile(s, op, s[consumer] if free and consumer else None, target)
            done |= {consumer} if free and consumer else set()
    for end in ends:
        if end not in done and not end.reduce_axis:
            _annotate_elementwise(s[end], target)
    for pad, place in pads.items():
        _place_padding(s[pad], hosts.get(readers[pad][0]) if place == "tile" else None, target)
    return s


# --- what a program is made of ------------------------------------------------------------------


def _readers(ops: Sequence[Compute]) -> dict[Compute, list[Compute]]:
    """Who reads each computation."""
    readers: dict[Compute, list[Compute]] = {}
    for op in ops:
        read = dict.fromkeys(n.tensor.op for b in op.bodies for n in walk.walk(b)
                             if isinstance(n, ir.Read))
        for source in read:
            if isinstance(source, Compute):
                readers.setdefault(source, []).append(op)
    return readers


def _copied_padding(ops: Sequence[Compute], readers: dict[Compute, list[Compute]],
                    outputs: Sequence[Tensor]) -> dict[Compute, str]:
    """Where padding is computed that a reduction alone reads: "root" or "tile". Padding is what
    chooses between elements by their place."""
    found: dict[Compute, str] = {}
    ends = {output.op for output in outputs}
    for op in ops:
        chooses = any(isinstance(node, ir.Select) or (
            isinstance(node, ir.Call) and node.name == "if_then_else")
            for body in op.bodies for node in walk.walk(body))
        following = readers.get(op, [])
        if (op in ends or op.reduce_axis or not chooses or len(op.bodies) > 1
                or len(following) != 1 or not following[0].reduce_axis):
            continue
        place = decide(f"{op.name}.place", "root", ("root", "tile", "inline"), structure=True)
        if place != "inline":
            found[op] = place
    return found


def _is_tileable(op: Compute) -> bool:
    """A reduction with axes of its own, of extents that are known."""
    extents = [extent_of(axis) for axis in (*op.axis, *op.reduce_axis)]
    return bool(op.reduce_axis) and bool(op.axis) and len(op.bodies) == 1 and all(extents)


def _elementwise_consumers(ops: Sequence[Compute], readers: dict[Compute, list[Compute]],
                           ends: Sequence[Compute]) -> dict[Compute, Compute]:
    """For each computation the output that alone reads it, element by element, maybe through
    others that will be inlined."""
    found: dict[Compute, Compute] = {}
    for op in ops:
        current = op
        while current not in ends and len(readers.get(current, ())) == 1:
            following = readers[current][0]
            if following.reduce_axis or not _reads_in_place(following, current):
                break
            current = following
        if current is not op and current in ends:
            found[op] = current
    return found


def _reads_in_place(reader: Compute, read: Compute) -> bool:
    """Whether each element needs the element at the same place alone."""
    place = tuple(axis.var for axis in reader.axis)
    reads = [node for body in reader.bodies for node in walk.walk(body)
             if isinstance(node, ir.Read) and node.tensor.op is read]
    return all(tuple(node.indices) == place for node in reads)


# --- tiling -------------------------------------------------------------------------------------


def _tile(s: te.Schedule, op: Compute, consumer: StageHandle | None, target: Target) -> Host:
    """A reduction in tiles, by one of the structures that it may have."""
    other = "fused" if consumer else "copied"
    structure = decide(f"{op.name}.sums", other, (other, "in place"), structure=True)
    if structure == "in place":
        if consumer is not None:
            _annotate_elementwise(consumer, target)
        return _tile_alone(s[op], target)
    if consumer is not None:
        return _tile_under(s[op], consumer, target)
    copy = s.cache_write(op.name, "local")
    return _tile_under(s[copy], s[op.name], target)


def _levels(stage: StageHandle, axis: IterVar, most: int) -> tuple[int, int, int]:
    """The extents of the three inner levels of an axis; by default one, of at most `most`."""
    extent = extent_of(axis)
    divisors = [n for n in range(1, extent + 1) if extent % n == 0]
    default = (1, 1, max(n for n in divisors if n <= most))

    def ways() -> list[tuple[int, int, int]]:
        exact = [(a, b, c) for c in divisors if c <= MOST_INNER
                 for b in divisors if extent % (b * c) == 0
                 for a in divisors if extent % (a * b * c) == 0]
        ragged = [(a, 1, c) for a in (1, 4) for c in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
                  if a * c < extent and extent % c]
        return [*exact, *ragged]

    return decide(f"{stage.name}.{axis.name}", default, ways)


def _inner_levels(stage: StageHandle, target: Target) -> list[tuple[int, int, int]]:
    """The levels of all axes: by default a register tile of the last axis and the longest other."""
    op = stage.op
    lanes = 2 * target.lanes(op.bodies[0].dtype)
    most = {len(op.axis) - 1: lanes}
    if len(op.axis) > 1:
        most[max(range(len(op.axis) - 1), key=lambda place: extent_of(op.axis[place]))] = 4
    return [_levels(stage, axis, most.get(place, 1)) for place, axis in enumerate(op.axis)]


def _split_twice(stage: StageHandle,
                 levels: Sequence[tuple[int, int, int]]) -> tuple[list[IterVar], ...]:
    """The two outer levels of each axis, and what is inside."""
    outer, middle, inner = [], [], []
    for axis, (first, second, third) in zip(list(stage.op.axis), levels, strict=True):
        top, rest = stage.split(axis, factor=first * second * third)
        mid, low = stage.split(rest, factor=second * third)
        outer.append(top)
        middle.append(mid)
        inner.append(low)
    return outer, middle, inner


def _tile_under(reduction: StageHandle, consumer: StageHandle, target: Target) -> Host:
    """S S of the consumer around R S R S of the reduction."""
    levels = _inner_levels(consumer, target)
    outer, middle, inner = _split_twice(consumer, levels)
    consumer.reorder(*outer, *middle, *inner)
    place = decide(f"{_own_name(reduction.op)}.place", "middle", ("middle", "outer"))
    fused = _share_tiles(consumer, outer, work(reduction.op))
    reduction.compute_at(consumer, fused if place == "outer" else middle[-1])
    _vectorize(consumer, inner[-1], levels[-1][1] * levels[-1][2], target)
    _sum_up(reduction, [], list(reduction.op.axis), [level[2] for level in levels])
    return consumer, fused


def _tile_alone(stage: StageHandle, target: Target) -> Host:
    """S S R S R S of a reduction that is summed up where its result is."""
    levels = _inner_levels(stage, target)
    outer, middle, inner = _split_twice(stage, levels)
    _sum_up(stage, [*outer, *middle], inner, [level[2] for level in levels])
    return stage, _share_tiles(stage, outer, work(stage.op))


def _share_tiles(stage: StageHandle, outer: Sequence[IterVar], operations: int) -> IterVar:
    """One loop over the outermost tiles, which threads share where there is enough to do."""
    fused = stage.fuse(*outer)
    if operations >= WORTHWHILE:
        stage.parallel(fused)
    return fused


def _own_name(op: Compute) -> str:
    """The name of a reduction, also for the copy that it is summed up in."""
    return op.name.removesuffix(".local")


def _sum_up(stage: StageHandle, around: Sequence[IterVar], axes: Sequence[IterVar],
            extents: Sequence[int]) -> None:
    """R S R S over axes, of which `extents` are the innermost level."""
    op = stage.op
    reduced = list(op.reduce_axis)
    pairs = [stage.split(axis, factor=extent) for axis, extent in zip(axes, extents, strict=True)]
    middle, inner = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    outside, within, steps = [], [], 1
    for axis in reduced:
        length = extent_of(axis)
        factors = [n for n in range(1, min(length, MOST_INNER) + 1) if length % n == 0]
        factor = decide(f"{_own_name(op)}.{axis.name}", 1, factors)
        top, low = stage.split(axis, factor=factor)
        outside.append(top)
        within.append(low)
        steps *= factor
    stage.reorder(*around, *outside, *middle, *within, *inner)
    unrolled = decide(f"{_own_name(op)}.unroll", "tile", ("tile", "none", "all"))
    copies = prod(extents[:-1])
    if unrolled != "none" and copies <= MOST_UNROLLED:
        for axis in inner[:-1]:
            stage.unroll(axis)
        if unrolled == "all" and copies * steps <= MOST_UNROLLED:
            for axis in within:
                stage.unroll(axis)
    if extents[-1] > 1:
        stage.vectorize(inner[-1])


def _vectorize(stage: StageHandle, axis: IterVar, extent: int, target: Target) -> None:
    """The innermost loop in vectors, cut to a few registers where it is longer."""
    most = 4 * target.lanes(stage.op.bodies[0].dtype)
    if extent > most:
        _, axis = stage.split(axis, factor=most)
    if extent > 1:
        stage.vectorize(axis)


# --- what is not tiled --------------------------------------------------------------------------


def _factor(s: te.Schedule, op: Compute) -> bool:
    """Partial reductions, where they pay and are decided; whether they are."""
    results, terms = (prod(map(extent_of, axes)) for axes in (op.axis, op.reduce_axis))
    if len(op.bodies) > 1 or not results or results > FEW_RESULTS or terms < LONG_REDUCTION:
        return False
    last = op.reduce_axis[-1]
    length = extent_of(last)
    parts = decide(f"{op.name}.parts", 0, lambda: [
        0, *(n for n in (4, 8, 16, 32, 64) if length % n == 0)], structure=True)
    if not parts:
        return False
    _, low = s[op].split(last, factor=parts)
    partial = s.rfactor(op.name, low, len(op.axis))
    assert isinstance(partial, Tensor)
    handle = s[partial]
    spatial = list(handle.op.axis)
    handle.reorder(*spatial[:-1], *handle.op.reduce_axis, spatial[-1])
    handle.vectorize(spatial[-1])
    share_outer(handle)
    return True


def _annotate_elementwise(stage: StageHandle, target: Target) -> None:
    """Vectors, and threads."""
    vectorize_inner(stage, target)
    share_outer(stage)


def _place_padding(pad: StageHandle, host: Host | None, target: Target) -> None:
    """A copy with padding: whole, or what a tile reads of it, beside the tile."""
    if host is None:
        _annotate_elementwise(pad, target)
        return
    pad.compute_at(*host)
    lanes = target.lanes(pad.op.bodies[0].dtype)
    if extent_of(pad.op.axis[-1]) >= lanes > 1:
        _, lane = pad.split(pad.op.axis[-1], factor=lanes)
        pad.vectorize(lane)
