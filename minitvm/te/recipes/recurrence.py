"""Recurrences: the steps one after the other, each in vectors over what it computes."""

from __future__ import annotations

from minitvm.target import Target
from minitvm.te.recipes.injective import schedule_default, share_outer, vectorize_inner
from minitvm.te.recipes.inline import extent_of
from minitvm.te.schedule import Schedule
from minitvm.te.tensor import Compute, Scan, Tensor


def schedule_recurrence(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """What reads the states of one recurrence, whose steps are of two axes."""
    scans = [tensor.op for tensor in output.op.inputs if isinstance(tensor.op, Scan)] if isinstance(
        output.op, Compute) else []
    if not scans:
        schedule_default(s, anchor, output, target)
        return
    for tensor in (*scans[0].init, *scans[0].update):
        _vectorize_step(s, tensor, target.lanes(tensor.dtype))
    vectorize_inner(s[output], target)
    share_outer(s[output])


def _vectorize_step(s: Schedule, tensor: Tensor, lanes: int) -> None:
    """Vectors along the last axis, or along the one before where the last one is of extent 1."""
    stage = s[tensor]
    _, outer, inner = tensor.axis
    lane = inner
    if extent_of(inner) == 1:
        stage.reorder(inner, outer)
        lane = outer
    if lanes == 1 or extent_of(lane) < lanes:
        return
    if extent_of(lane) > lanes:
        _, lane = stage.split(lane, factor=lanes)
    stage.vectorize(lane)
