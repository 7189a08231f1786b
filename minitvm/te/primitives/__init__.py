"""The schedule primitives: each takes a step and changes the stages, or refuses.

`apply(graph, step)` finds the primitive of a step. A further primitive is a step in `steps.py`, a
function here, a row in the table, and a method of `Stage` or `Schedule`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minitvm.te import steps
from minitvm.te.primitives.annotate import apply_annotate, apply_pragma
from minitvm.te.primitives.cache import apply_cache_read, apply_cache_write
from minitvm.te.primitives.fuse import apply_fuse
from minitvm.te.primitives.place import (
    apply_compute_at,
    apply_compute_inline,
    apply_compute_root,
    apply_set_scope,
)
from minitvm.te.primitives.reorder import apply_reorder
from minitvm.te.primitives.split import apply_split
from minitvm.te.stage import StageGraph

PRIMITIVES: Mapping[type[steps.Step], Callable[[StageGraph, Any], Any]] = {
    steps.Split: apply_split,
    steps.Fuse: apply_fuse,
    steps.Reorder: apply_reorder,
    steps.Annotate: apply_annotate,
    steps.Pragma: apply_pragma,
    steps.ComputeAt: apply_compute_at,
    steps.ComputeInline: apply_compute_inline,
    steps.ComputeRoot: apply_compute_root,
    steps.SetScope: apply_set_scope,
    steps.CacheRead: apply_cache_read,
    steps.CacheWrite: apply_cache_write,
}


def apply(graph: StageGraph, step: steps.Step) -> Any:
    """Runs the primitive of `step`; gives the axes or tensors that it makes."""
    return PRIMITIVES[type(step)](graph, step)
