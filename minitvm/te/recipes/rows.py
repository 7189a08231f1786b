"""Statistics of rows: a few rows at a time, each read from the first cache.

    for each tile of rows                                  threads share these
        copy the rows, if anything is fused in front       which happens here
        sums, mean; squares, factor                        in vectors, then over their lanes
        output = epilogue((row - mean) * factor)

Several rows together, so that their sums, which are chains of additions, overlap. Rows of an input
are read where they lie, what whole vectors leave of one under a mask.
"""

from __future__ import annotations

from collections.abc import Mapping

from minitvm.target import Target
from minitvm.te.recipes.injective import place_epilogue, schedule_default
from minitvm.te.recipes.inline import computations, extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.matmul import fuse_rows, split_by
from minitvm.te.recipes.share import share
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, IterVar, Placeholder, Tensor
from minitvm.tir import ir

ROWS = 4
"""Rows together."""
ROW_BYTES = 32 * 1024
"""The most memory of the rows together: they should stay in the first cache."""


def schedule_standardize(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """The nest above, where the output has the elements of the data; else the default."""
    result, parts = find_tag("standardize", [output]), parts_of(output, "standardize_")
    if result is None or [*map(extent_of, result.axis)] != [*output.extents()]:
        schedule_default(s, anchor, output, target, keep=copies(parts))
        return
    schedule_rows(s, output, parts, target)


def parts_of(output: Tensor, prefix: str) -> dict[str, Compute]:
    """The stages whose tags have a prefix, without it, the last one first."""
    return {op.tag.removeprefix(prefix): op for op in reversed(computations([output]))
            if op.tag.startswith(prefix)}


def copies(parts: Mapping[str, Compute]) -> list[Compute]:
    """The copied data, unless it is an input as it is. Computed again for each stage that reads it,
    it would be rounded differently: with the operation behind, as one."""
    return [op for name, op in parts.items() if name in ("data", "plain") and not is_input(op)]


def is_input(data: Compute) -> bool:
    """Whether a computation is an input as it is, perhaps with a constant behind each row."""
    match data.bodies:
        case (ir.Call("if_then_else", (_, body, ir.Const())),) | (body,):
            return isinstance(body, ir.Read) and isinstance(body.tensor.op, Placeholder)
    return False


def schedule_rows(s: Schedule, output: Tensor, parts: Mapping[str, Compute], target: Target,
                  operations: int = 1) -> None:
    """Computes a few rows of the output together, and for these the `parts`, last one first, of
    which `data` says how many rows there are, and how long they are; so many `operations` for each
    element."""
    count, length = map(extent_of, parts["data"].axis)
    stages = [op for name, op in parts.items() if name != "data" or not is_input(op)]
    repeated = inline_injective(s, [output], keep=stages)
    most = max(1, ROW_BYTES // (4 * length))
    together = decide("rows", min(ROWS, most), range(1, min(most, 2 * ROWS) + 1))

    out = s[output]
    axes, left = [*out.op.axis], count
    leading: list[IterVar] = []
    while left > 1:
        leading.append(axes.pop(0))
        left //= extent_of(leading[-1])
    row = out.fuse(*axes)
    place = None
    if leading:
        place, inner = split_by(out, fuse_rows(out, leading), together)
        place = inner if place is None else place
    lanes = target.lanes(output.dtype)
    if extent_of(row) >= lanes > 1:
        if extent_of(row) > lanes:
            _, row = out.split(row, factor=lanes)
        out.vectorize(row)
    if place is not None:
        place_epilogue(repeated, out, stages[0])
    for op in stages:
        if place is not None:
            s[op].compute_at(out, place)
        _vectorize(s[op], lanes)
    if place is not None:
        share(out, [place], operations * count * length)


def _vectorize(stage: StageHandle, lanes: int) -> None:
    """Vectors along the last axis where it holds some. What is reduced is outside of them, and of
    the rows, whose sums are then in registers."""
    if len(stage.op.axis) < 2 or lanes == 1:
        return
    lane = stage.op.axis[-1]
    if extent_of(lane) > lanes:
        _, lane = stage.split(lane, factor=lanes)
    elif not stage.op.reduce_axis and extent_of(lane) < lanes:
        return
    if stage.op.reduce_axis:
        rows = stage.op.axis[0]
        stage.reorder(*stage.op.reduce_axis, rows, lane)
        stage.unroll(rows)
    stage.vectorize(lane)
