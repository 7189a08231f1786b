"""Which loop of a kernel threads share: one that is long enough for even pieces, moved outside.

Each thread then takes one contiguous piece of it. The first loop that is long enough keeps the
order of the nest as far as it goes. An inner one is cut into a few pieces first, so that what the
loops between reuse (the weights of a channel block) is still reused within a piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from minitvm.te.recipes.inline import extent_of
from minitvm.te.schedule import StageHandle
from minitvm.te.tensor import Compute, IterVar

WORTHWHILE = 50_000
"""The fewest operations of a kernel that is shared: some microseconds, a few times what it costs
to wake a thread that still looks for work."""
ENOUGH = 8
"""A loop of so many iterations is divided evenly enough."""
MOST = 4 * ENOUGH
"""Into how many pieces an inner loop is cut at most."""


def work(op: Compute) -> int:
    """How many elements a computation adds up or writes; 0 where that is symbolic."""
    return prod(extent_of(axis) for axis in (*op.axis, *op.reduce_axis))


def share(stage: StageHandle, axes: Sequence[IterVar | None], operations: int) -> None:
    """Has threads share one of these loops, given outermost first, which must follow one another in
    the nest; None where they are too short or `operations` are too few."""
    loops = [axis for axis in axes if axis is not None]
    longest = max(loops, key=extent_of, default=None)
    if longest is None or extent_of(longest) < 2 or operations < WORTHWHILE:
        return
    chosen = next((axis for axis in loops if extent_of(axis) >= ENOUGH), longest)
    before = loops[:loops.index(chosen)]
    if any(extent_of(axis) > 1 for axis in before):
        chosen = _cut(stage, chosen)
    if before:
        stage.reorder(chosen, *before)
    stage.parallel(chosen)


def _cut(stage: StageHandle, axis: IterVar) -> IterVar:
    """The outer of the two loops that one becomes: as many equal pieces as there may be, single
    iterations where there are too few. What is computed at the loop is so at the inner one."""
    extent = extent_of(axis)
    pieces = max(count for count in range(1, MOST + 1) if extent % count == 0)
    outer, _ = stage.split(axis, factor=extent // pieces if pieces >= ENOUGH else 1)
    return outer
