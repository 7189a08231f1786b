"""tensorize: a tensor intrinsic stands for the inner loops of a stage."""

from __future__ import annotations

from minitvm.te.attach import attached_to
from minitvm.te.primitives.checks import (
    Illegal,
    attempt,
    check_compute,
    check_plain,
    find_leaf,
    find_stage,
)
from minitvm.te.show import leaf_names, refuse
from minitvm.te.stage import StageGraph
from minitvm.te.steps import Tensorize
from minitvm.te.tensor_intrin import INTRINSICS
from minitvm.te.tensorize import mismatch


def apply_tensorize(graph: StageGraph, step: Tensorize) -> None:
    """Puts the body of a tensor intrinsic in place of the loops from `axis` inwards.

    They must do what the intrinsic's compute says: the same extents, the same expression up to
    names, no tail. From then on, a step that would end this is refused.
    """
    action = f"tensorize({step.axis}, {step.intrin})"
    stage = find_stage(graph, step.stage, action)
    check_compute(graph, stage, action)
    intrin = INTRINSICS.get(step.intrin)
    if intrin is None:
        refuse(graph, stage, action, f"no intrinsic {step.intrin!r} was declared", INTRINSICS)
    axis = find_leaf(graph, stage, step.axis, action)
    if stage.tensorized is not None:
        refuse(graph, stage, action, "another intrinsic stands for inner loops already", ["none"])
    for leaf in stage.leaves[stage.position(axis) :]:
        check_plain(graph, stage, leaf, action)
        inside = attached_to(graph, stage, leaf)
        if inside:
            refuse(graph, stage, action, f"{inside[0].name} is computed inside of these loops",
                   [f"compute_root {inside[0].name} first"])
    extents = [int(at.extent.value) for at in (*intrin.op.axis, *intrin.op.reduce_axis)]  # type: ignore[attr-defined]
    with attempt(graph, stage, action, stage):
        stage.tensorized = (axis, intrin)
        reason = mismatch(graph, stage)
        if reason is not None:
            raise Illegal(reason, [f"loops over {extents} from one of {leaf_names(stage)} inwards"])


def broken_intrinsic(graph: StageGraph) -> str | None:
    """Why an intrinsic no longer stands for its loops."""
    for stage in graph.stages:
        if stage.tensorized is not None and stage.attach != "inline":
            reason = mismatch(graph, stage)
            if reason is not None:
                return f"{stage.name} is tensorized by {stage.tensorized[1].name}: {reason}"
    return None
