"""Statistics of rows: a few rows at a time, each read from the first cache.

    for each tile of rows                                  threads share these
        copy the rows                                      what is fused in front happens here
        sums, mean; squares, factor                        in vectors, then over their lanes
        output = epilogue((row - mean) * factor)

Several rows together, so that the sums over lanes, which are chains of additions, overlap.
"""

from __future__ import annotations

from minitvm.target import Target
from minitvm.te.recipes.injective import schedule_default
from minitvm.te.recipes.inline import extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.matmul import fuse_rows, split_by
from minitvm.te.recipes.share import share, work
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Tensor

ROWS = 4
"""Rows together."""
ROW_BYTES = 32 * 1024
"""The most memory of the rows together: they should stay in the first cache."""
PREFIX = "standardize_"


def schedule_standardize(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """The nest above, where the output has the elements of the data; else the default."""
    result = find_tag("standardize", [output])
    rows = find_tag(PREFIX + "rows", [output])
    same = result is not None and [*map(extent_of, result.axis)] == [*output.extents()]
    if result is None or rows is None or not same:
        schedule_default(s, anchor, output, target)
        return
    names = ("factor", "factor_sum", "squares", "mean", "mean_sum", "sums", "rows")
    parts = [op for name in names if (op := find_tag(PREFIX + name, [output])) is not None]
    inline_injective(s, [output], keep=parts)
    count, length = (extent_of(axis) for axis in rows.axis)
    most = max(1, ROW_BYTES // (4 * length))
    together = decide("rows", min(ROWS, most), range(1, min(most, 2 * ROWS) + 1))

    out = s[output]
    axes, left = [*out.op.axis], count
    leading = []
    while left > 1:
        leading.append(axes.pop(0))
        left //= extent_of(leading[-1])
    place = None
    if leading:
        place, inner = split_by(out, fuse_rows(out, leading), together)
        place = inner if place is None else place
    lanes = target.lanes(output.dtype)
    _vectorize(out, lanes)
    if place is None:
        for op in parts:
            _vectorize(s[op], lanes)
        return
    for op in parts:
        s[op].compute_at(out, place)
        _vectorize(s[op], lanes)
    share(out, [place], work(rows))


def _vectorize(stage: StageHandle, lanes: int) -> None:
    """Vectors along the last axis where it holds some, outside of what is reduced."""
    if len(stage.op.axis) < 2 or lanes == 1:
        return
    lane = stage.op.axis[-1]
    if extent_of(lane) < lanes:
        return
    if extent_of(lane) > lanes:
        _, lane = stage.split(lane, factor=lanes)
    if stage.op.reduce_axis:
        stage.reorder(*stage.op.reduce_axis, lane)
    stage.vectorize(lane)
