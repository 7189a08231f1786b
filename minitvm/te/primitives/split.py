"""split: one loop becomes two."""

from __future__ import annotations

from minitvm.te.primitives.checks import check_plain, find_leaf, find_stage
from minitvm.te.show import refuse
from minitvm.te.stage import At, SplitRelation, StageGraph, axis_extent, split_extents
from minitvm.te.steps import Split
from minitvm.te.tensor import IterVar


def apply_split(graph: StageGraph, step: Split) -> tuple[IterVar, IterVar]:
    """Splits a loop in two; the inner one runs `factor` times, or the outer one `nparts` times.

    A tail is guarded. An extent is never larger than its loop needs. A stage computed at the loop
    is then computed at the inner one.

    Step: s[B].split("i", factor=4)
    Before:
        for i in range(10):
            B[i] = A[i] + 1.0
    After:
        for i_outer in range(3):
            for i_inner in range(4):
                if likely(i_outer * 4 + i_inner < 10):
                    B[i_outer * 4 + i_inner] = A[i_outer * 4 + i_inner] + 1.0
    """
    action = f"split({step.axis})"
    stage = find_stage(graph, step.stage, action)
    parent = find_leaf(graph, stage, step.axis, action)
    check_plain(graph, stage, parent, action)
    if (step.factor is None) == (step.nparts is None):
        refuse(graph, stage, action, "it takes a factor or a number of parts, one of the two",
               ["factor=...", "nparts=..."])
    size = step.factor if step.factor is not None else step.nparts
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        refuse(graph, stage, action, f"{size!r} is not a positive integer", ["1, 2, 3, ..."])
    extent, label = axis_extent(parent), stage.labels[parent]
    outer_extent, inner_extent = split_extents(extent, step.factor, step.nparts)
    outer = stage.derive(f"{label}.outer", outer_extent, parent)
    inner = stage.derive(f"{label}.inner", inner_extent, parent)
    stage.relations.append(SplitRelation(parent, outer, inner, step.factor, step.nparts))
    position = stage.position(parent)
    stage.leaves[position : position + 1] = [outer, inner]
    for other in graph.stages:
        if isinstance(other.attach, At) and other.attach.axis is parent:
            other.attach = At(stage, inner)
    return outer, inner
