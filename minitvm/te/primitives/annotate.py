"""vectorize, unroll, parallel, pragma: how a loop runs, and remarks on it."""

from __future__ import annotations

from minitvm.te.attach import attached_to
from minitvm.te.primitives.checks import check_plain, find_leaf, find_stage
from minitvm.te.show import leaf_names, refuse
from minitvm.te.stage import At, Stage, StageGraph
from minitvm.te.steps import Annotate, Pragma
from minitvm.te.tensor import IterVar

PRIMITIVES = {"vectorized": "vectorize", "unrolled": "unroll", "parallel": "parallel"}


def apply_annotate(graph: StageGraph, step: Annotate) -> None:
    """Says how a loop runs. A vectorized loop is innermost and spatial; a parallel one is spatial
    and inside no other parallel loop of its stage.

    Step: s[B].vectorize("i")
    Before:
        for i in range(10):
            B[i] = A[i] + 1.0
    After:
        for i in vectorized(10):
            B[i] = A[i] + 1.0
    """
    action = f"{PRIMITIVES.get(step.kind, step.kind)}({step.axis})"
    stage = find_stage(graph, step.stage, action)
    axis = find_leaf(graph, stage, step.axis, action)
    check_plain(graph, stage, axis, action)
    match step.kind:
        case "vectorized":
            _check_vectorized(graph, stage, axis, action)
        case "parallel":
            _check_parallel(graph, stage, axis, action)
        case "unrolled":
            pass
        case _:
            refuse(graph, stage, action, f"{step.kind!r} is no kind of loop", PRIMITIVES)
    stage.annotations[axis] = step.kind


def _check_vectorized(graph: StageGraph, stage: Stage, axis: IterVar, action: str) -> None:
    innermost = stage.leaves[-1]
    choices = [stage.labels[innermost]] if innermost.kind == "spatial" else []
    if axis.kind == "reduce":
        refuse(graph, stage, action, "the lanes of a vector can't all add to one element", choices)
    if axis is not innermost:
        refuse(graph, stage, action, "only the innermost loop can be vectorized; reorder first",
               choices)
    attached = attached_to(graph, stage, axis)
    if attached:
        refuse(graph, stage, action,
               f"{attached[0].name} is computed at this axis, and would need a copy for each lane")


def _check_parallel(graph: StageGraph, stage: Stage, axis: IterVar, action: str) -> None:
    spatial = [stage.labels[leaf] for leaf in stage.leaves if leaf.kind == "spatial"]
    if axis.kind == "reduce":
        refuse(graph, stage, action, "threads would race on the elements that they add to", spatial)
    if "parallel" in stage.annotations.values():
        refuse(graph, stage, action, "another loop of the stage is parallel already; fuse the two")
    if isinstance(stage.attach, At):
        refuse(graph, stage, action,
               f"the stage is computed inside a loop of {stage.attach.stage.name}",
               [f"parallel on an axis of {stage.attach.stage.name}"])


def apply_pragma(graph: StageGraph, step: Pragma) -> None:
    """Records a name and a value on a loop; it changes no code."""
    action = f"pragma({step.axis}, {step.name})"
    stage = find_stage(graph, step.stage, action)
    axis = find_leaf(graph, stage, step.axis, action)
    if not step.name.isidentifier():
        refuse(graph, stage, action, f"{step.name!r} is not a name", leaf_names(stage))
    stage.pragmas.append((axis, step.name, step.value))
