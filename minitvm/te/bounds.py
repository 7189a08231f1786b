"""Bound inference: which part of each stage is computed, by which loops.

    StageGraph -> Bounds: for each stage with loops, a Nest =
        region: (low, extent) for each axis; low is in terms of the loops around the nest
        loops: for each leaf its variable and extent
        values: every axis (leaf or not) in terms of the loop variables
        guards: conditions that tails of splits and over-computed regions need
        bodies: what is stored, with inlined stages expanded

Consumers come first. The region of a stage computed at a loop of another is the bounding box of
what its readers read while the loops around that place stand still and all others run: exact for
indices affine in the loop variables, larger for others, never smaller. A stage at the root is
computed whole.

A stage that depends on a state of a scan is never whole: at a step only earlier ones can be read.
What is needed of it is what the updates of that step read, whatever the loops are (`needed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from minitvm import dtypes
from minitvm.origin import Origin, merge_all
from minitvm.te.attach import remaining_readers
from minitvm.te.extent import (
    Extent,
    as_index,
    at_least_one,
    extent_of,
    product,
    simplified,
)
from minitvm.te.inline import Expansion, expand
from minitvm.te.rolling import Roll, find_roll
from minitvm.te.span import Dimension, Span, relax, unite
from minitvm.te.stage import At, FuseRelation, SplitRelation, Stage, StageGraph, axis_extent
from minitvm.te.tensor import Compute, IterVar, Scan
from minitvm.tir import ir, walk
from minitvm.tir.ir import Const, Expr, Read, Var
from minitvm.tir.simplify import Analyzer


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """The loops of one stage. `points` is each axis of the operation in terms of the loops."""

    stage: Stage
    op: Compute | Scan
    region: tuple[Dimension, ...]
    extents: Mapping[IterVar, Extent]
    variables: Mapping[IterVar, Expr]
    values: Mapping[IterVar, Expr]
    points: Mapping[Var, Expr]
    guards: tuple[Expr, ...]
    bodies: tuple[Expr, ...]
    origin: Origin
    roll: Roll | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The nests of a graph, consumers first, and the analyzer that knows their variables."""

    graph: StageGraph
    analyzer: Analyzer
    nests: dict[Stage, Nest]
    needed: dict[Stage, tuple[Dimension, ...]] = field(default_factory=dict)


def infer_bounds(graph: StageGraph) -> Bounds:
    """The nests of every stage that has loops of its own."""
    bounds = Bounds(graph, Analyzer(), {})
    for size in graph.sizes:
        bounds.analyzer.bind(size, 0, dtypes.integer_range(size.dtype)[1])
    readers = remaining_readers(graph)
    for stage in reversed(graph.stages):
        if isinstance(stage.op, Scan):
            bounds.nests[stage] = _scan_nest(bounds, stage, stage.op)
        elif isinstance(stage.op, Compute) and stage.attach != "inline":
            region = _region(bounds, stage, readers[stage])
            bounds.nests[stage] = _nest(bounds, stage, stage.op, region)
    return bounds


def _scan_nest(bounds: Bounds, stage: Stage, op: Scan) -> Nest:
    """The loop over time: its variable is the step, from the first that is not given."""
    axis = op.scan_axis
    extent = simplified(extent_of(axis.extent), bounds.analyzer)
    time = Var("t", axis.var.dtype)
    least = max(extent, 1) if isinstance(extent, int) else extent
    bounds.analyzer.bind(time, axis.start, as_index(least, time.dtype))
    here: dict[IterVar, Expr] = {axis: axis.start if extent == 1 else time}
    return Nest(stage, op, (), {axis: extent}, here, here, {axis.var: here[axis]}, (), (),
                op.origin)


def _region(bounds: Bounds, stage: Stage, readers: Sequence[Stage]) -> tuple[Dimension, ...]:
    whole = bounds.needed[stage] = _needed(bounds, stage, readers)
    if not isinstance(stage.attach, At) or bounds.graph.is_update(stage):
        return whole
    bodies = [body for reader in readers for body in bounds.nests[reader].bodies]
    return _box(bounds, stage, bodies, _moving_extents(bounds, stage.attach), whole)


def _needed(bounds: Bounds, stage: Stage, readers: Sequence[Stage]) -> tuple[Dimension, ...]:
    """All that is ever needed of a stage: the whole tensor, or in a scan its part of a step."""
    assert isinstance(stage.op, Compute)
    whole = tuple(
        Dimension(Const(0, axis.var.dtype), simplified(axis_extent(axis), bounds.analyzer))
        for axis in stage.op.axis
    )
    scan = bounds.graph.scan_around(stage)
    if scan is None:
        return whole
    if bounds.graph.is_update(stage):
        (time,) = bounds.nests[scan].points.values()
        return (Dimension(time, 1), *whole[1:])
    bodies: list[Expr] = []
    moving: dict[Var, Extent] = {}
    for reader in readers:
        bodies += _needed_bodies(bounds, reader, moving)
    return _box(bounds, stage, bodies, moving, whole)


def _needed_bodies(
    bounds: Bounds, reader: Stage, moving: dict[Var, Extent]
) -> Iterator[Expr]:
    """What a stage computes where it is needed, by variables that are added to `moving`."""
    op = reader.op
    assert isinstance(op, Compute)
    needed = list(bounds.needed[reader])
    needed += [Dimension(axis.start, axis_extent(axis)) for axis in op.reduce_axis]
    points: dict[Var, Expr] = {}
    for axis, dimension in zip((*op.axis, *op.reduce_axis), needed):
        at = loop_variables([axis], {axis: dimension.extent}, bounds.analyzer)[axis]
        points[axis.var] = dimension.low + at
        if isinstance(at, Var):
            moving[at] = dimension.extent
    for body in op.bodies:
        yield expand(body, points, bounds.graph, bounds.analyzer).value


def _box(
    bounds: Bounds, stage: Stage, bodies: Iterable[Expr], moving: Mapping[Var, Extent],
    whole: Sequence[Dimension],
) -> tuple[Dimension, ...]:
    """The bounding box of what some values read of a stage; `whole` where that has no bound."""
    reads = [node.indices for body in bodies for node in walk.walk(body)
             if isinstance(node, Read) and bounds.graph.by_op[node.tensor.op] is stage]
    return tuple(
        _dimension(bounds, [indices[position] for indices in reads], moving, full)
        for position, full in enumerate(whole)
    )


def _moving_extents(bounds: Bounds, attach: At) -> dict[Var, Extent]:
    """The loop variables so far that run inside the place `attach`, with their extents."""
    moving: dict[Var, Extent] = {
        variable: nest.extents[leaf]
        for nest in bounds.nests.values()
        for leaf, variable in nest.variables.items()
        if isinstance(variable, Var)
    }
    place: At | None = attach
    while place is not None:
        nest = bounds.nests[place.stage]
        for leaf in place.stage.leaves[: place.stage.position(place.axis) + 1]:
            variable = nest.variables[leaf]
            if isinstance(variable, Var):
                moving.pop(variable, None)
        place = place.stage.attach if isinstance(place.stage.attach, At) else None
    return moving


def _dimension(
    bounds: Bounds, indices: list[Expr], moving: Mapping[Var, Extent], full: Dimension
) -> Dimension:
    dtype = full.low.dtype
    span: Span | None = None
    for index in dict.fromkeys(indices):
        read = relax(ir.cast(index, dtype), moving, bounds.analyzer)
        span = read if span is None or read is None else unite(span, read, bounds.analyzer)
        if span is None or span.width + 1 >= _most(full.extent):
            return full
    if span is None:
        return full
    low, start = bounds.analyzer.simplify(span.low), full.low
    if isinstance(low, Const) and isinstance(start, Const) and isinstance(full.extent, int):
        least, most = int(start.value), int(start.value) + full.extent - 1
        first = min(max(int(low.value), least), most)
        last = max(min(int(low.value) + span.width, most), first)
        return Dimension(Const(first, dtype), last - first + 1)
    return Dimension(low, span.width + 1)


MOST_WIDTH = 1 << 16
"""A region of constant extent in a dimension of symbolic size is no larger than this."""


def _most(extent: Extent) -> int:
    return extent if isinstance(extent, int) else MOST_WIDTH


def _nest(bounds: Bounds, stage: Stage, op: Compute, region: tuple[Dimension, ...]) -> Nest:
    root = {axis: dimension.extent for axis, dimension in zip(op.axis, region)}
    root |= {axis: simplified(axis_extent(axis), bounds.analyzer) for axis in op.reduce_axis}
    extents = axis_extents(stage, root, bounds.analyzer)
    variables = loop_variables(stage.leaves, extents, bounds.analyzer)
    lows = {axis: dimension.low for axis, dimension in zip(op.axis, region)}
    lows |= {axis: axis.start for axis in op.reduce_axis}
    values = axis_values(stage, extents, variables, bounds.analyzer)
    points = {
        axis.var: bounds.analyzer.simplify(lows[axis] + values[axis])
        for axis in (*op.axis, *op.reduce_axis)
    }
    expansions = [expand(body, points, bounds.graph, bounds.analyzer) for body in op.bodies]
    roll = roll_of(bounds, stage, region)
    guards = (*_region_guards(op, region, bounds.needed[stage], points),
              *split_guards(stage, extents, values))
    if isinstance(roll, Roll):
        guards = (roll.is_new(values[op.axis[roll.dimension]]), *guards)
    return Nest(
        stage, op, region, extents, variables, values, points, guards,
        tuple(expansion.value for expansion in expansions), _origin(op, expansions),
        roll if isinstance(roll, Roll) else None,
    )


def roll_of(bounds: Bounds, stage: Stage, region: Sequence[Dimension]) -> Roll | str | None:
    """How a stage with a rolling buffer rolls; None without one, or where the loop runs once; in
    words why it can't."""
    if not stage.rolls or not isinstance(stage.attach, At):
        return None
    axis = stage.attach.axis
    loop = bounds.nests[stage.attach.stage].variables[axis]
    if not isinstance(loop, Var):
        return None
    return find_roll(region, loop, loop_start(axis), bounds.analyzer)


def loop_start(leaf: IterVar) -> Expr:
    """Where a loop starts: at zero, but for one over time."""
    return leaf.start if leaf.kind == "scan" else Const(0, leaf.var.dtype)


def _origin(op: Compute, expansions: Sequence[Expansion]) -> Origin:
    return merge_all([op.origin, *(origin for item in expansions for origin in item.origins)])


def axis_extents(
    stage: Stage, root: Mapping[IterVar, Extent], analyzer: Analyzer
) -> dict[IterVar, Extent]:
    """The extent of every axis, from those of the operation's own axes."""
    extents = dict(root)
    for relation in stage.relations:
        match relation:
            case SplitRelation(parent, outer, inner):
                pair = relation.extents(extents[parent])
                extents[outer], extents[inner] = (simplified(part, analyzer) for part in pair)
            case FuseRelation(parts, fused):
                extents[fused] = simplified(product(extents[part] for part in parts), analyzer)
    return extents


def loop_variables(
    leaves: Sequence[IterVar], extents: Mapping[IterVar, Extent], analyzer: Analyzer,
    suffix: str = "",
) -> dict[IterVar, Expr]:
    """A fresh variable for each loop; the constant 0 where the loop would run once."""
    variables: dict[IterVar, Expr] = {}
    for leaf in leaves:
        dtype = leaf.var.dtype
        extent = extents[leaf]
        if extent == 1:
            variables[leaf] = Const(0, dtype)
            continue
        variable = Var(identifier(leaf.name) + suffix, dtype)
        least = max(extent, 1) if isinstance(extent, int) else extent
        analyzer.bind(variable, Const(0, dtype), as_index(least, dtype))
        variables[leaf] = variable
    return variables


def identifier(name: str) -> str:
    """A name that the text of tir can hold: `i.outer` -> `i_outer`."""
    text = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)
    return text if text and not text[0].isdigit() else f"_{text}"


def axis_values(
    stage: Stage, extents: Mapping[IterVar, Extent], variables: Mapping[IterVar, Expr],
    analyzer: Analyzer,
) -> dict[IterVar, Expr]:
    """Every axis, counted from 0, in terms of the loop variables."""
    values = dict(variables)
    for relation in reversed(stage.relations):
        match relation:
            case SplitRelation(parent, outer, inner):
                values[parent] = analyzer.simplify(values[outer] * extents[inner] + values[inner])
            case FuseRelation(parts, fused):
                values |= _unfuse(parts, values[fused], extents, analyzer)
    return values


def _unfuse(
    parts: Sequence[IterVar], fused: Expr, extents: Mapping[IterVar, Extent], analyzer: Analyzer
) -> dict[IterVar, Expr]:
    values: dict[IterVar, Expr] = {}
    stride: Extent = 1
    for part in reversed(parts):
        extent = at_least_one(extents[part])
        value = fused // stride
        if part is not parts[0]:
            value = value % extent
        values[part] = analyzer.simplify(value)
        stride = stride * extent
    return values


def split_guards(
    stage: Stage, extents: Mapping[IterVar, Extent], values: Mapping[IterVar, Expr]
) -> list[Expr]:
    """Where a split may not divide: the parent stays below its extent."""
    return [
        values[relation.parent] < extents[relation.parent]
        for relation in stage.relations
        if isinstance(relation, SplitRelation)
        and _may_exceed(extents[relation.outer] * extents[relation.inner],
                        extents[relation.parent])
    ]


def _may_exceed(product_: Extent, extent: Extent) -> bool:
    if isinstance(product_, int) and isinstance(extent, int):
        return product_ > extent
    return product_ != extent


def _region_guards(
    op: Compute, region: Sequence[Dimension], needed: Sequence[Dimension],
    points: Mapping[Var, Expr],
) -> list[Expr]:
    """Where a region may reach over the tensor's edge, or what is needed: the point is inside."""
    guards = []
    for axis, dimension, whole in zip(op.axis, region, needed):
        point = points[axis.var]
        clipped = isinstance(dimension.low, Const) and (
            isinstance(axis.extent, Const) or not isinstance(dimension.extent, int))
        if not clipped:
            guards += [point >= 0, point < axis.extent]
        if dimension is not whole and not isinstance(whole.low, Const):
            guards += [point >= whole.low,
                       point < whole.low + as_index(whole.extent, whole.low.dtype)]
    return guards
