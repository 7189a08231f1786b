"""The transforms around the products of a Winograd convolution: one tile of pixels in registers.

The loops over the elements of a tile stand innermost and are unrolled, so that each one's factors
are constants and the rows that elements share are computed once.
"""

from __future__ import annotations

from minitvm.target import Target
from minitvm.te.recipes.injective import place_epilogue, schedule_default
from minitvm.te.recipes.inline import extent_of, find_tag, inline_injective
from minitvm.te.recipes.share import share, work
from minitvm.te.schedule import Schedule
from minitvm.te.tensor import Tensor


def schedule_winograd_input(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """Tile by tile: a row of transformed pixels at a time, then its elements."""
    result = find_tag("winograd_input", [output])
    rows, pad = find_tag("winograd_rows", [output]), find_tag("pad", [output])
    if rows is None or result is not output.op:
        schedule_default(s, anchor, output, target)
        return
    inline_injective(s, [output], keep=[rows, *([pad] if pad else [])])
    size = result.attrs["size"]
    out = s[output]
    n, k, y, x, lane = out.op.axis
    row, rest = out.split(k, nparts=size)
    element, block = out.split(rest, nparts=size)
    out.reorder(n, block, y, x, row, element, lane)
    out.vectorize(lane)
    out.unroll(row)
    out.unroll(element)
    if pad is not None:
        border = s[pad]
        border.vectorize(pad.axis[-1])
        share(border, pad.axis[:2], work(pad))

    stage = s[rows]
    stage.compute_at(out, row)
    *_, column, lane = stage.op.axis
    stage.unroll(column)
    stage.vectorize(lane)
    share(out, [n, block, y], work(rows))


def schedule_winograd_output(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """Tile by tile: the columns of a row of results, then the results and what follows them."""
    columns, result = (find_tag(tag, [output]) for tag in ("winograd_columns", "winograd_output"))
    if columns is None or result is None or output.extents() != tuple(map(extent_of, result.axis)):
        schedule_default(s, anchor, output, target)
        return
    left = inline_injective(s, [output], keep=[columns, result])
    tile = result.attrs["tile"]
    out = s[output]
    n, block, y, x, lane = out.op.axis
    y_outer, y_inner = out.split(y, factor=tile)
    x_outer, x_inner = out.split(x, factor=tile)
    out.reorder(n, block, y_outer, x_outer, y_inner, x_inner, lane)
    out.vectorize(lane)
    out.unroll(y_inner)
    out.unroll(x_inner)
    place_epilogue(left, out, result)

    if result is not output.op:
        row = s[result]
        row.compute_at(out, y_inner)
        row.unroll(result.axis[3])
        row.vectorize(result.axis[4])
    stage = s[columns]
    stage.compute_at(out, y_inner)
    stage.unroll(columns.axis[2])
    stage.vectorize(columns.axis[-1])
    share(out, [n, block, y_outer], work(columns))
