"""Rows of a tensor in te: padded, and reduced by vectors of lanes.

The stages, by tag; L lanes, QUARTER of them in the end:

    data            r, n to lanes      the rows, each padded to whole blocks of lanes
    *_parts         r, L               reduces over blocks
    *_lanes         r, QUARTER         reduces over what is left but QUARTER lanes
    *               r                  reduces over these
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from minitvm import te
from minitvm.relay.ops.nn.dense import split_index
from minitvm.relay.ops.nn.windows import stage
from minitvm.tir.ir import Expr

greater = te.comm_reducer(lambda a, b: te.select(a > b, a, b), te.min_value, name="greater")
"""The maximum, in one instruction; of a NaN and a number it is either. That will do for what shifts
a softmax, as the NaN makes the sum of the powers NaN."""

QUARTER = 4
"""So many lanes are reduced one by one."""


def copy_rows(x: te.Tensor, axes: int, lanes: int, padding: Expr, tag: str) -> te.Tensor:
    """The last `axes` axes of x as rows, `padding` behind each."""
    extents = x.extents()
    leading, row = extents[:x.ndim - axes], extents[x.ndim - axes:]
    length = prod(row)
    padded = -(-length // lanes) * lanes

    def element(r: Expr, n: Expr) -> Expr:
        value = x[(*split_index(r, leading), *split_index(n, row))]
        return value if padded == length else te.if_then_else(n < length, value, padding)

    return stage((prod(leading), padded), element, tag)


def reduce_rows(extents: Sequence[int], lanes: int, reducer: Any,
                value: Callable[[Expr, Expr], Expr], tag: str) -> te.Tensor:
    """A value reduced over each row; rows are whole blocks of lanes."""
    rows, length = extents
    blocks = te.reduce_axis((0, length // lanes), "no")
    parts = stage((rows, lanes),
                  lambda r, ni: reducer(value(r, blocks.var * lanes + ni), axis=blocks),
                  f"{tag}_parts")
    left = lanes
    if lanes > QUARTER and lanes % QUARTER == 0:
        left = QUARTER
        groups = te.reduce_axis((0, lanes // QUARTER), "nq")
        whole = parts
        parts = stage((rows, left),
                      lambda r, ni: reducer(whole[r, groups.var * left + ni], axis=groups),
                      f"{tag}_lanes")
    last = te.reduce_axis((0, left), "ni")
    return stage((rows,), lambda r: reducer(parts[r, last], axis=last), tag)
