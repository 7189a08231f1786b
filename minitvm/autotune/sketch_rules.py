"""The rules of sketches: a te program -> its schedule, with choices as knobs.

- *inline* what is elementwise and cheap to repeat; padding is copied whole, copied for each tile of
  what reads it, or inlined where few do;
- *tile* a reduction in levels "SSRSRS" (`sketch_tiles`): under what alone reads it element by
  element, or under a copy of its result (*cache write*);
- *factor* a long reduction with few results into partial ones (*rfactor*), or not;
- the rest in vectors, shared among threads.

Source: Ansor (OSDI 2020), whose sketches and annotations these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from minitvm import te
from minitvm.autotune.operands import ENOUGH_REUSE, reduction_of
from minitvm.autotune.sketch_tiles import Host, tile_reduction
from minitvm.target import Target
from minitvm.te.recipes.injective import share_outer, vectorize_inner
from minitvm.te.recipes.inline import computations, extent_of, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.schedule import StageHandle
from minitvm.te.tensor import Compute, Tensor
from minitvm.tir import ir, walk

FEW_RESULTS, LONG_REDUCTION = 64, 512
"""A reduction is factored that gives so few results of so many terms each."""


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
            hosts[op] = tile_reduction(s, op, s[consumer] if free and consumer else None, target,
                                       pads)
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
    chooses between elements by their place. It may be inlined where few read an element: as
    conditions are then repeated with each."""
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
        reduction, operands = reduction_of(following[0])
        few = all(reduction.reuse(operand) < ENOUGH_REUSE
                  for tensor, operand in operands.items() if tensor.op is op)
        ways = ("root", "tile", "inline") if few else ("root", "tile")
        place = decide(f"{op.name}.place", "root", ways, structure=True)
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
    """A copy with padding: whole, or what a tile reads of it, beside the tile. Its rows are in
    vectors by themselves: across their ends neighbours have conditions of their own."""
    if host is not None:
        pad.compute_at(*host)
    lanes = target.lanes(pad.op.bodies[0].dtype)
    *_, row = pad.op.axis
    if extent_of(row) > lanes:
        _, row = pad.split(row, factor=lanes)
    if lanes > 1:
        pad.vectorize(row)
    if host is None:
        share_outer(pad)
