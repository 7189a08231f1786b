"""Rolling: a region that slides along a loop, of which each iteration computes what is new.

    region of C in the loop i: C[i : i + 3]     ->     Roll(dimension 0, stride 1, extent 3)

    i = 0     C[0], C[1], C[2]      the first iteration computes all of it
    i = 1     C[3]                  those after it what has entered; C[1] and C[2] are kept
    i = 2     C[4]                  in place of C[1], which no iteration reads any more

Memory that is as long as the region is enough: element p lies at p modulo its extent, and of any
two elements with one place, one has left when the other enters. The memory stands around the loop.
(This is the sliding window of Halide, `store_at` outside of `compute_at`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minitvm.te.span import Dimension
from minitvm.tir import walk
from minitvm.tir.ir import Const, Expr, Or, Var
from minitvm.tir.simplify import Analyzer


@dataclass(frozen=True, slots=True)
class Roll:
    """Dimension `dimension` of a region moves by `stride` in each iteration of `loop`.

    `base` is its low end in the first iteration, in which the loop is at `first`.
    """

    dimension: int
    stride: int
    extent: int
    loop: Var
    first: Expr
    base: Expr

    def is_new(self, offset: Expr) -> Expr:
        """Whether an element, `offset` from the low end, was in no region before."""
        at_start = self.loop < self.first + 1
        if self.stride > 0:
            return Or(at_start, offset >= self.extent - self.stride)
        return Or(at_start, offset < -self.stride)

    def place(self, index: Expr) -> Expr:
        """Where an element of the tensor lies in the dimension of the memory."""
        return (index - self.base) % self.extent


def find_roll(
    region: Sequence[Dimension], loop: Var, first: Expr, analyzer: Analyzer
) -> Roll | str:
    """How a region moves along a loop; or why it doesn't roll, in words."""
    strides: dict[int, int] = {}
    for position, dimension in enumerate(region):
        after = walk.substitute(dimension.low, {loop: loop + 1})
        stride = analyzer.simplify(after - dimension.low)
        if not isinstance(stride, Const):
            return f"what {loop.name} needs of it does not move by the same distance each time"
        if stride.value:
            strides[position] = int(stride.value)
    if len(strides) != 1:
        return (f"what {loop.name} needs of it moves in {len(strides)} dimensions, not in one")
    ((position, distance),) = strides.items()
    extent = region[position].extent
    if not isinstance(extent, int):
        return "the memory would have a symbolic extent"
    if abs(distance) >= extent:
        return (f"{loop.name} needs {extent} of it, {abs(distance)} further each time: nothing "
                f"that was computed before")
    base = analyzer.simplify(walk.substitute(region[position].low, {loop: first}))
    return Roll(position, distance, extent, loop, first, base)
