"""fuse: neighbouring loops become one."""

from __future__ import annotations

from minitvm.te.extent import product
from minitvm.te.primitives.checks import check_plain, find_leaf, find_stage
from minitvm.te.show import leaf_names, refuse
from minitvm.te.stage import At, FuseRelation, StageGraph, axis_extent
from minitvm.te.steps import Fuse
from minitvm.te.tensor import IterVar


def apply_fuse(graph: StageGraph, step: Fuse) -> IterVar:
    """Fuses loops that stand directly inside one another, outermost first, into one.

    A stage computed at one of the loops is then computed at the fused one.

    Step: s[D].fuse("i", "j")
    Before:
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    After:
        for i_j_fused in range(32):
            D[i_j_fused // 8, i_j_fused % 8] = C[i_j_fused // 8, i_j_fused % 8] + 1.0
    """
    action = f"fuse({', '.join(step.axes)})"
    stage = find_stage(graph, step.stage, action)
    parts = [find_leaf(graph, stage, axis, action) for axis in step.axes]
    for part in parts:
        check_plain(graph, stage, part, action)
    if len(parts) < 2:
        refuse(graph, stage, action, "it takes two axes or more", leaf_names(stage))
    position = stage.position(parts[0])
    if stage.leaves[position : position + len(parts)] != parts:
        refuse(graph, stage, action,
               "the axes do not stand directly inside one another in that order; reorder first",
               leaf_names(stage))
    if len({part.kind for part in parts}) > 1:
        refuse(graph, stage, action, "a spatial axis and a reduce axis can't be one loop",
               [f"{stage.labels[leaf]} ({leaf.kind})" for leaf in stage.leaves])
    if len({part.var.dtype for part in parts}) > 1:
        refuse(graph, stage, action, "the axes have different dtypes", leaf_names(stage))
    name = ".".join(stage.labels[part] for part in parts) + ".fused"
    fused = stage.derive(name, product(axis_extent(part) for part in parts), parts[0])
    stage.relations.append(FuseRelation(tuple(parts), fused))
    stage.leaves[position : position + len(parts)] = [fused]
    for other in graph.stages:
        if isinstance(other.attach, At) and other.attach.axis in parts:
            other.attach = At(stage, fused)
    return fused
