"""Where stages may be computed: the tree that compute_at and compute_inline build.

A stage that is computed inside a loop of another must have all its readers inside that loop too.
The readers that count are those that remain once inlined stages have vanished into theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitvm.te.stage import At, Stage, StageGraph
from minitvm.te.tensor import IterVar

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


def enclosing(stage: Stage) -> dict[Stage, int]:
    """The stages whose loops stand around the body of `stage`, with the depth of the innermost
    such loop; `stage` itself included."""
    depths = {stage: INNERMOST}
    attach = stage.attach
    while isinstance(attach, At) and attach.stage not in depths:
        depths[attach.stage] = attach.stage.position(attach.axis)
        attach = attach.stage.attach
    return depths


def legal_places(graph: StageGraph, stage: Stage) -> list[tuple[Stage, IterVar]]:
    """Every (stage, axis) that `stage` could be computed at, consumers' outermost loops first."""
    readers = remaining_readers(graph)[stage]
    if not readers or stage.is_output:
        return []
    chains = [enclosing(reader) for reader in readers]
    return [
        (parent, axis)
        for parent in chains[0]
        for position, axis in enumerate(parent.leaves)
        if position <= min(chain.get(parent, -1) for chain in chains)
        and parent.annotations.get(axis) != "vectorized"
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
                if enclosing(reader).get(stage.attach.stage, -1) < depth:
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
