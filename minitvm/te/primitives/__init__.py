"""The schedule primitives: each takes a step and changes the stages, or refuses.

`apply(graph, step)` finds the primitive of a step. A further primitive is a step in `steps.py`, a
function here, a row in the table, and a method of `Stage` or `Schedule`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minitvm.te import steps
from minitvm.te.bounds import infer_bounds
from minitvm.te.extent import extent_text
from minitvm.te.primitives.annotate import apply_annotate, apply_bind, apply_pragma
from minitvm.te.primitives.cache import apply_cache_read, apply_cache_write
from minitvm.te.primitives.fuse import apply_fuse
from minitvm.te.primitives.place import (
    apply_compute_at,
    apply_compute_inline,
    apply_compute_root,
    apply_reorder_storage,
    apply_rolling_buffer,
    apply_set_scope,
    apply_storage_align,
    broken_roll,
)
from minitvm.te.primitives.reorder import apply_reorder
from minitvm.te.primitives.rfactor import apply_rfactor
from minitvm.te.primitives.split import apply_split
from minitvm.te.primitives.tensorize import apply_tensorize, broken_intrinsic
from minitvm.te.show import refuse
from minitvm.te.stage import At, StageGraph

PRIMITIVES: Mapping[type[steps.Step], Callable[[StageGraph, Any], Any]] = {
    steps.Split: apply_split,
    steps.Fuse: apply_fuse,
    steps.Reorder: apply_reorder,
    steps.Annotate: apply_annotate,
    steps.Bind: apply_bind,
    steps.Pragma: apply_pragma,
    steps.ComputeAt: apply_compute_at,
    steps.ComputeInline: apply_compute_inline,
    steps.ComputeRoot: apply_compute_root,
    steps.SetScope: apply_set_scope,
    steps.StorageAlign: apply_storage_align,
    steps.ReorderStorage: apply_reorder_storage,
    steps.RollingBuffer: apply_rolling_buffer,
    steps.CacheRead: apply_cache_read,
    steps.CacheWrite: apply_cache_write,
    steps.Rfactor: apply_rfactor,
    steps.Tensorize: apply_tensorize,
}


def apply(graph: StageGraph, step: steps.Step) -> Any:
    """Runs the primitive of `step`; gives the axes or tensors that it makes.

    In a graph with symbolic sizes, tensorized stages or rolling buffers, a step may break what
    other steps did: then it is undone, and refused.
    """
    fragile = any(stage.tensorized or stage.rolls for stage in graph.stages)
    if not graph.sizes and not fragile:
        return PRIMITIVES[type(step)](graph, step)
    restore = graph.snapshot(graph.stages)
    result = PRIMITIVES[type(step)](graph, step)
    reason = broken_intrinsic(graph) or broken_roll(graph) or _symbolic_memory(graph)
    if reason is not None:
        restore()
        action = f"{type(step).__name__} {step}"
        refuse(graph, step.stage, action, reason, ["the same step before the other"])
    return result


def _symbolic_memory(graph: StageGraph) -> str | None:
    """Why a stage can't be computed at its loop: its memory there has no constant size."""
    for stage, nest in infer_bounds(graph).nests.items():
        if isinstance(stage.attach, At) and stage not in graph.owners:
            for dimension in nest.region:
                if not isinstance(dimension.extent, int):
                    return (f"the memory of {stage.name} inside the loop {stage.attach.axis.name} "
                            f"would have the symbolic extent {extent_text(dimension.extent)}")
    return None
