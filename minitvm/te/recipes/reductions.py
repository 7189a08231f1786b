"""Reductions along rows: vectors of a row, then over their lanes, a few at a time.

    for each row
        parts = 0                                 several vectors, so that their sums overlap
        for each group of vectors of the row      parts += group
        parts of one vector, of four lanes, of one
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from minitvm import dtypes
from minitvm.te.recipes.inline import extent_of
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.share import share, work
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.tir import walk
from minitvm.tir.ir import Expr, Read, Var

LONG = 4
"""So many vectors a row must hold: of a shorter one, lanes cost more to add up than elements of as
many rows to gather."""
MOST_VECTORS = 4
"""Of a row together."""
QUARTER = 4
"""So many lanes are reduced one by one."""


def reduce_along_rows(s: Schedule, stage: StageHandle, lanes: int) -> bool:
    """Schedules a reduction of rows that lie in a line, if they are long; else it says no."""
    op = stage.op
    assert isinstance(op, Compute)
    rows = _rows(op)
    length = prod(map(extent_of, rows))
    if not rows or length < LONG * lanes or lanes <= QUARTER:
        return False
    vectors = decide(f"{stage.name}.vectors", MOST_VECTORS, (1, 2, 4))
    operations = work(op)
    row = stage.fuse(*rows)
    parts = []
    for width in [vectors * lanes, *([lanes] if vectors > 1 else []), QUARTER]:
        _, part = stage.split(row, factor=width)
        factored = s.rfactor(stage.name, part, factor_axis=-1)
        assert isinstance(factored, Tensor)
        parts.append(s[factored])
        assert isinstance(stage.op, Compute)
        (row,) = stage.op.reduce_axis
    axes = stage.op.axis
    for partial in reversed(parts):  # a stage stands where those that read it do
        assert isinstance(partial.op, Compute)
        partial.compute_at(stage, axes[-1])
        partial.reorder(*partial.op.reduce_axis, partial.op.axis[-1])
        partial.vectorize(partial.op.axis[-1])
    share(stage, axes, operations)
    return True


def _rows(op: Compute) -> list[IterVar]:
    """The reduction's last axes, which everything that is read has as its last ones, if it has any
    of the reduction; none of unknown extent, or where that is not so."""
    if len(op.bodies) > 1 or dtypes.is_bool(op.bodies[0].dtype):
        return []
    count = len(op.reduce_axis)
    for indices in _indices_of_inputs(op.bodies[0], {}):
        count = min(count, _trailing(indices, op.reduce_axis))
    rows = list(op.reduce_axis[len(op.reduce_axis) - count:])
    return rows if all(map(extent_of, rows)) else []


def _trailing(indices: tuple[Expr, ...], axes: Sequence[IterVar]) -> int:
    """How many axes, counted from the last, are the last indices in the same order."""
    found = 0
    for index, axis in zip(reversed(indices), reversed(axes), strict=False):
        if index is not axis.var:
            break
        found += 1
    variables = {axis.var for axis in axes}
    if not any(node in variables for index in indices for node in walk.walk(index)):
        return len(axes)
    return found


def _indices_of_inputs(expr: Expr, values: Mapping[Var, Expr]) -> Iterator[tuple[Expr, ...]]:
    """The indices of what is read, through what is computed on the way."""
    for node in walk.walk(expr):
        if not isinstance(node, Read):
            continue
        indices = tuple(walk.substitute(index, values) for index in node.indices)
        made = node.tensor.op
        if isinstance(made, Compute) and not made.reduce_axis:
            points = dict(zip((axis.var for axis in made.axis), indices, strict=True))
            yield from _indices_of_inputs(made.bodies[node.tensor.index], points)
        else:
            yield indices
