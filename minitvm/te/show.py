"""The loop nest of a schedule as text, and the refusal that shows it.

    for i.outer in parallel(32):
        # C.local: local (1, 16)
        for i.inner in vectorized(16): ...

Axes go by the names that steps use; bodies are left to `te.lower`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from minitvm.errors import ScheduleError
from minitvm.te.attach import attached_to
from minitvm.te.bounds import Bounds, Nest, infer_bounds
from minitvm.te.extent import extent_text
from minitvm.te.stage import At, Stage, StageGraph
from minitvm.te.tensor import Compute
from minitvm.tir.ir import Reduce

_INDENT = "    "


def show_graph(graph: StageGraph) -> str:
    """The loops of every stage, extents inferred, with attached stages in their places."""
    bounds = infer_bounds(graph)
    lines = []
    inlined = [stage.name for stage in graph.stages if stage.attach == "inline"]
    if inlined:
        lines.append(f"# inlined: {', '.join(inlined)}")
    for stage in graph.stages:
        if stage in bounds.nests and stage.attach == "root":
            lines += _stage_lines(bounds, bounds.nests[stage])
    return "\n".join(lines) + "\n"


def _stage_lines(bounds: Bounds, nest: Nest) -> list[str]:
    stage, lines, depth = nest.stage, [], 0
    if isinstance(stage.attach, At) and stage not in bounds.graph.owners:
        shape = ", ".join(extent_text(dimension.extent) for dimension in nest.region)
        loop = stage.attach.stage.labels[stage.attach.axis]
        rolls = f", rolling over {loop}" if nest.roll is not None else ""
        lines.append(f"# {stage.name}: {stage.scope or 'memory'} ({shape}){rolls}")
    for leaf in stage.leaves:
        kind = stage.annotations.get(leaf, "range")
        extent = extent_text(nest.extents[leaf])
        lines.append(f"{_INDENT * depth}for {stage.labels[leaf]} in {kind}({extent}):")
        depth += 1
        for producer in attached_to(bounds.graph, stage, leaf):
            inner = _stage_lines(bounds, bounds.nests[producer])
            lines += [_INDENT * depth + line for line in inner]
    return lines if stage.is_scan else [*lines, _INDENT * depth + _body_line(nest, nest.stage)]


def _body_line(nest: Nest, stage: Stage) -> str:
    assert isinstance(nest.op, Compute)
    body = nest.op.bodies[0]
    verb = body.reducer.name if isinstance(body, Reduce) else "compute"
    axes = ", ".join(stage.labels[axis] for axis in nest.op.axis)
    reads = ", ".join(tensor.name for tensor in stage.reads)
    return f"{stage.name}[{axes}] = {verb}({reads})"


def refuse(
    graph: StageGraph, stage: Stage | str, action: str, reason: str, choices: Iterable[str] = ()
) -> NoReturn:
    """Raises the `ScheduleError` of a primitive that would not be legal on a stage (or on one
    that doesn't exist, by name)."""
    legal = ", ".join(choices) or "none"
    name = stage if isinstance(stage, str) else stage.name
    raise ScheduleError(
        f"{action} of stage {name} is refused: {reason}. Legal choices: {legal}.\n"
        f"The loops so far:\n{show_graph(graph)}"
    )


def leaf_names(stage: Stage) -> list[str]:
    """The loops of a stage by name, outermost first."""
    return [stage.labels[leaf] for leaf in stage.leaves]
