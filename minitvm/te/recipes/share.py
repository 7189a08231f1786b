"""Which loop of a kernel threads share: one that divides evenly among them, moved outside.

Threads take contiguous parts of it. The first loop that is even enough keeps the order of the nest
as far as it goes. An inner one is cut into a few pieces first, so that what the loops between reuse
(the weights of a channel block) is still reused within a piece.

How many threads there will be is not known. A loop of `n` equal iterations takes t threads the time
of ceil(n / t); what that is over n / t, on average over a few t, is its unevenness.
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
THREADS = (2, 4, 8)
"""The numbers of threads that loops are judged for."""
EVEN = 1.15
"""The unevenness at which a loop is taken without looking at inner ones."""
PIECES = range(8, 33)
"""Into how many equal pieces an inner loop is cut, if it can be; otherwise, into iterations."""


def work(op: Compute) -> int:
    """How many elements a computation adds up or writes; 0 where that is symbolic."""
    return prod(extent_of(axis) for axis in (*op.axis, *op.reduce_axis))


def unevenness(extent: int) -> float:
    """How much longer than their share the slowest of several threads takes, 1 for none."""
    return sum(-(-extent // count) * count / extent for count in THREADS) / len(THREADS)


def share(stage: StageHandle, axes: Sequence[IterVar | None], operations: int) -> None:
    """Has threads share one of these loops, given outermost first, which must follow one another in
    the nest; None where they are too short or `operations` are too few."""
    loops = [axis for axis in axes if axis is not None and extent_of(axis) > 1]
    if not loops or operations < WORTHWHILE:
        return
    extents = [extent_of(axis) if axis is loops[0] else _pieces(extent_of(axis)) for axis in loops]
    uneven = [unevenness(extent) for extent in extents]
    enough = [number for number, found in enumerate(uneven) if found <= EVEN]
    chosen = loops[enough[0] if enough else uneven.index(min(uneven))]
    given = [axis for axis in axes if axis is not None]
    before = given[:given.index(chosen)]
    if chosen is not loops[0]:
        chosen = _cut(stage, chosen)
    if before:
        stage.reorder(chosen, *before)
    stage.parallel(chosen)


def _pieces(extent: int) -> int:
    """As many equal pieces as there may be, single iterations where there are too few."""
    return max((count for count in PIECES if extent % count == 0), default=extent)


def _cut(stage: StageHandle, axis: IterVar) -> IterVar:
    """The outer of the two loops that one becomes. What is computed at the loop is so at the inner
    one."""
    extent = extent_of(axis)
    outer, _ = stage.split(axis, factor=extent // _pieces(extent))
    return outer
