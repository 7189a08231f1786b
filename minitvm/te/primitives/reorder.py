"""reorder: loops change places."""

from __future__ import annotations

from minitvm.te.primitives.checks import attempt, check_places, find_leaf, find_stage
from minitvm.te.show import leaf_names, refuse
from minitvm.te.stage import StageGraph
from minitvm.te.steps import Reorder


def apply_reorder(graph: StageGraph, step: Reorder) -> None:
    """Puts loops into the given order, in the places that they had between them.

    Step: s[D].reorder("j", "i")
    Before:
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    After:
        for j in range(8):
            for i in range(4):
                D[i, j] = C[i, j] + 1.0
    """
    action = f"reorder({', '.join(step.axes)})"
    stage = find_stage(graph, step.stage, action)
    axes = [find_leaf(graph, stage, axis, action) for axis in step.axes]
    if len(set(axes)) != len(axes):
        refuse(graph, stage, action, "an axis is named twice", leaf_names(stage))
    positions = sorted(stage.position(axis) for axis in axes)
    leaves = list(stage.leaves)
    for position, axis in zip(positions, axes):
        leaves[position] = axis
    for leaf in leaves[:-1]:
        if stage.annotations.get(leaf) == "vectorized":
            refuse(graph, stage, action,
                   f"axis {stage.labels[leaf]} is vectorized and must stay innermost",
                   [f"{stage.labels[leaf]} last"])
    with attempt(graph, stage, action, stage):
        stage.leaves = leaves
        check_places(graph)
