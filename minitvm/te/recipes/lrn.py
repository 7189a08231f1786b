"""Local response normalisation on packed channels: a row of pixels at a time.

    for each row, or piece of one that stays in the first cache      threads share the rows
        squares, all channels of a pixel in a row
        for each block of channels and pixel      a vector: the sum of its neighbours, the quotient
"""

from __future__ import annotations

from minitvm import dtypes
from minitvm.target import Target
from minitvm.te.recipes.injective import schedule_default
from minitvm.te.recipes.inline import extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.share import share, work
from minitvm.te.schedule import Schedule
from minitvm.te.tensor import Tensor


def schedule_lrn(s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
    """The nest above for NCHW16c and the like; the default for everything else."""
    squares = find_tag("lrn_squares", [output])
    if squares is None or output.extents() != anchor.extents():
        schedule_default(s, anchor, output, target)
        return
    left = inline_injective(s, [output], keep=[squares])
    channels = extent_of(squares.axis[3]) * extent_of(squares.axis[4])
    most = target.l1_bytes // 2 // (channels * dtypes.size_bytes(output.dtype))
    pixels = decide("pixels", max(1, most), (4, 8, 16, 32, 64))

    out = s[output]
    n, co, y, x, ci = out.op.axis
    x_outer, x_inner = (y, x) if extent_of(x) <= pixels else out.split(x, factor=pixels)
    out.reorder(n, y, *([] if x_outer is y else [x_outer]), co, x_inner, ci)
    out.vectorize(ci)
    for stage in left:
        stage.compute_at(out, x_inner)
        stage.vectorize(stage.op.axis[-1])
    s[squares].compute_at(out, x_outer)
    s[squares].vectorize(squares.axis[4])
    share(out, [n, y], work(squares))
