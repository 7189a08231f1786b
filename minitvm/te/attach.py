"""Where stages may be computed: the tree that compute_at and compute_inline build.

A stage that is computed inside a loop of another must have all its readers inside that loop too.
The readers that count are those that remain once inlined stages have vanished into theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minitvm.te.stage import At, Stage, StageGraph
from minitvm.te.tensor import Compute, IterVar
from minitvm.tir import walk
from minitvm.tir.ir import Expr, Read, Reduce

INNERMOST = 1 << 30
"""The depth of what stands inside all loops of a stage."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A stage that is placed where one of its readers can't see it."""

    stage: Stage
    reader: Stage


def remaining_readers(graph: StageGraph) -> dict[Stage, list[Stage]]:
    """For each stage, the stages with loops of their own that read it, directly or through
    inlined ones."""
    result: dict[Stage, dict[Stage, None]] = {stage: {} for stage in graph.stages}
    for reader in reversed(graph.stages):
        seen_by = result[reader] if reader.attach == "inline" else {reader: None}
        for producer in graph.producers(reader):
            result[producer].update(seen_by)
    return {stage: list(readers) for stage, readers in result.items()}


def readers_with_loops(graph: StageGraph, stage: Stage) -> list[Stage]:
    """The remaining readers of one stage."""
    seen: set[Stage] = {stage}
    found = []
    for other in graph.stages[graph.stages.index(stage) + 1 :]:
        if any(graph.by_op[tensor.op] in seen for tensor in other.reads):
            if other.attach == "inline":
                seen.add(other)
            else:
                found.append(other)
    return found


def reading_depth(graph: StageGraph, reader: Stage, stage: Stage) -> int:
    """The depth in the loops of `reader` at which it reads `stage`: innermost, unless that is for
    the initial value of a reduction, which stands before the first reduce loop."""
    initial = [
        value
        for body in (reader.op.bodies if isinstance(reader.op, Compute) else ())
        if isinstance(body, Reduce)
        for value in body.init
    ]
    if not initial or not _reads(graph, initial, stage):
        return INNERMOST
    return next(at for at, leaf in enumerate(reader.leaves) if leaf.kind == "reduce") - 1


def _reads(graph: StageGraph, exprs: Sequence[Expr], stage: Stage) -> bool:
    """Whether the expressions read `stage`, directly or through inlined stages."""
    seen: set[Stage] = set()
    stack = list(exprs)
    while stack:
        for node in walk.walk(stack.pop()):
            if isinstance(node, Read):
                producer = graph.by_op[node.tensor.op]
                if producer is stage:
                    return True
                if producer.attach == "inline" and producer not in seen:
                    seen.add(producer)
                    assert isinstance(producer.op, Compute)
                    stack.extend(producer.op.bodies)
    return False


def enclosing(stage: Stage, depth: int = INNERMOST) -> dict[Stage, int]:
    """The stages whose loops stand around the body of `stage`, with the depth of the innermost
    such loop; `stage` itself included, at `depth`."""
    depths = {stage: depth}
    attach = stage.attach
    while isinstance(attach, At) and attach.stage not in depths:
        depths[attach.stage] = attach.stage.position(attach.axis)
        attach = attach.stage.attach
    return depths


def legal_places(graph: StageGraph, stage: Stage) -> list[tuple[Stage, IterVar]]:
    """Every (stage, axis) that `stage` could be computed at, consumers' outermost loops first."""
    readers = remaining_readers(graph)[stage]
    if not readers or stage.is_output or stage in graph.owners or stage.is_scan:
        return []
    chains = [enclosing(reader, reading_depth(graph, reader, stage)) for reader in readers]
    return [
        (parent, axis)
        for parent in chains[0]
        for position, axis in enumerate(parent.leaves)
        if position <= min(chain.get(parent, -1) for chain in chains)
        and parent.annotations.get(axis) != "vectorized"
        and not parent.in_tensorized(axis)
    ]


def first_broken(graph: StageGraph) -> Broken | None:
    """A stage placed where not all of its readers are; None if every place is legal."""
    if not any(isinstance(stage.attach, At) for stage in graph.stages):
        return None
    readers = remaining_readers(graph)
    for stage in graph.stages:
        if isinstance(stage.attach, At):
            depth = stage.attach.stage.position(stage.attach.axis)
            for reader in readers[stage]:
                chain = enclosing(reader, reading_depth(graph, reader, stage))
                if chain.get(stage.attach.stage, -1) < depth:
                    return Broken(stage, reader)
    return None


def attached_to(graph: StageGraph, stage: Stage, axis: IterVar | None = None) -> list[Stage]:
    """The stages computed at `axis` of `stage` (at any of its axes if None), producers first."""
    return [
        other
        for other in graph.stages
        if isinstance(other.attach, At) and other.attach.stage is stage
        and (axis is None or other.attach.axis is axis)
    ]
