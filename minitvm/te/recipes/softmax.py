"""Softmax: a few rows at a time, from their maximum to the quotients, in the first cache.

    for each tile of rows                                  threads share these
        copy the rows, if anything is fused in front       which happens here
        maximum, powers, sum                               in vectors
        output = epilogue(powers / sum)

The vectors are parts of a row, or neighbouring rows: of another axis than the last, rows lie beside
each other in memory; short ones are packed so, and unpacked as they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from minitvm.target import Target
from minitvm.te.recipes.injective import place_epilogue, schedule_default
from minitvm.te.recipes.inline import extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.matmul import fuse_rows, split_by
from minitvm.te.recipes.rows import copies, is_input, parts_of, schedule_rows
from minitvm.te.recipes.share import share, work
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, IterVar, Tensor

PREFIX = "softmax_"
COLUMN_BYTES = 32 * 1024
"""The most memory of columns together."""
OPERATIONS = 16
"""About so many for each element."""
MOST_VECTORS = 4
"""Of columns together: their sums stay in registers."""


def schedule_softmax(s: Schedule, anchor: Tensor, output: Tensor, target: Target,
                     axis: int) -> None:
    """The nest above, where the output has the elements of the softmax along `axis`; else the
    default."""
    result = find_tag("softmax", [output])
    symbolic = [extent_of(along) == 0 for along in output.axis]
    if result is not None and any(symbolic[:axis]) and not any(symbolic[axis:]):
        _row_by_row(s, output, axis)
        return
    parts = parts_of(output, PREFIX)
    data = parts.get("data")
    if result is None or data is None or any(symbolic) or (
        [*map(extent_of, result.axis)] != [*output.extents()]
    ):
        schedule_default(s, anchor, output, target, keep=copies(parts))
        return
    if "sum_parts" in parts:
        schedule_rows(s, output, parts, target, OPERATIONS)
    elif "packed" in parts:
        _packed(s, output, parts, axis, extent_of(data.axis[-1]))
    else:
        if is_input(data):
            del parts["data"]
        _columns(s, output, parts, axis, target)


def _row_by_row(s: Schedule, output: Tensor, axis: int) -> None:
    """For each row by itself, which is of a known extent, though how many there are is not."""
    parts = parts_of(output, PREFIX)
    _inline(s, output, parts)
    for op in parts.values():
        s[op].compute_at(s[output], output.axis[axis - 1])


def _columns(s: Schedule, output: Tensor, parts: Mapping[str, Compute], axis: int,
             target: Target) -> None:
    """Some vectors of neighbours together, for all n elements of the axis."""
    out, lanes = s[output], target.lanes(output.dtype)
    leading, n, behind = out.op.axis[:axis], out.op.axis[axis], out.op.axis[axis + 1:]
    fitting = max(1, COLUMN_BYTES // (4 * lanes * extent_of(n)))
    vectors = decide("vectors", min(MOST_VECTORS, fitting), (1, 2, 4, 8))
    places: list[IterVar] = [fuse_rows(out, leading)] if leading else []
    outer, inner = split_by(out, out.fuse(*behind), vectors * lanes)
    places += [] if outer is None else [outer]
    block: list[IterVar] = []
    if extent_of(inner) > lanes:
        first, inner = out.split(inner, factor=lanes)
        block = [first]
    out.reorder(*places, n, *block, inner)
    out.vectorize(inner)
    _inline(s, output, parts)
    for op in parts.values():
        if places:
            s[op].compute_at(out, places[-1])
        _column_vectors(s[op], lanes)
    share(out, places, OPERATIONS * work(out.op))


def _inline(s: Schedule, output: Tensor, parts: Mapping[str, Compute]) -> None:
    """Inlines what is neither one of the parts nor used several times."""
    left = inline_injective(s, [output], keep=parts.values())
    place_epilogue(left, s[output], next(iter(parts.values())))


def _column_vectors(stage: StageHandle, lanes: int) -> None:
    """A reduction keeps a few vectors in registers."""
    *outer, lane = stage.op.axis
    block: list[IterVar] = []
    if extent_of(lane) > lanes:
        first, lane = stage.split(lane, factor=lanes)
        block = [first]
    if stage.op.reduce_axis:
        stage.reorder(*outer, *stage.op.reduce_axis, *block, lane)
        for axis in block:
            stage.unroll(axis)
    stage.vectorize(lane)


def _packed(s: Schedule, output: Tensor, parts: Mapping[str, Compute], axis: int,
            lanes: int) -> None:
    """A vector of rows together."""
    out = s[output]
    place, _ = split_by(out, fuse_rows(out, out.op.axis[:axis]), lanes)
    _inline(s, output, parts)
    for op in parts.values():
        if place is not None:
            s[op].compute_at(out, place)
        _column_vectors(s[op], lanes)
    share(out, [place], OPERATIONS * work(out.op))
