"""A tile of integer dot products: its compute, the loop that does it anywhere, and the bodies that
add one vector of lanes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from minitvm import dtypes
from minitvm.errors import ScheduleError
from minitvm.te.functions import sum
from minitvm.te.tensor import Compute, compute, placeholder, reduce_axis
from minitvm.te.tensor_intrin import (
    BufferView,
    Parts,
    TensorIntrin,
    Views,
    decl_tensor_intrin,
)
from minitvm.tir import ir
from minitvm.tir.ir import Broadcast, Call, Const, Expr, Stmt

ACCUMULATOR = "int32"
Add = Callable[[Expr, Expr, Expr], Expr]
"""Of vectors c, a and b, where a and b have a group for each lane of c: c and their products."""


@dataclass(frozen=True, slots=True)
class Way:
    """So many lanes at once by `add`, on targets with one of these sets of features."""

    lanes: int
    features: tuple[str, ...]
    add: Add


def unchanged(weight: Expr) -> Expr:
    """What most tiles make of an element of b."""
    return weight


@dataclass(frozen=True, slots=True)
class DotTile:
    """c[i, j] += the products of group i of a and group j of b, of which it takes `weight`."""

    rows: int
    lanes: int
    group: int
    a: str
    b: str
    weight: Callable[[Expr], Expr] = unchanged

    def declare(self, name: str, ways: Sequence[Way]) -> TensorIntrin:
        """The tensor intrinsic: the first of the ways that a target has, else a loop.

        Raises `ScheduleError` if the tile is not of whole vectors of any instruction.
        """
        if self.rows < 1 or not ways:
            raise ScheduleError(f"there is no {name} of {self.rows} rows and {self.lanes} lanes: "
                                "the lanes of an instruction must divide those of the tile")
        first, *others = ((way.features, partial(self.vectors, way)) for way in ways)
        whole = f"{name}_{self.a}_{self.b}_{self.rows}x{self.lanes}"
        return decl_tensor_intrin(self.meaning(), first[1], whole, first[0],
                                  [*others, ((), self.loops)])

    def meaning(self) -> Compute:
        """The compute."""
        a = placeholder((self.rows, self.group), self.a, name="a")
        b = placeholder((self.lanes * self.group,), self.b, name="b")
        k = reduce_axis((0, self.group), name="k")

        def element(i: Expr, j: Expr) -> Expr:
            weight = self.weight(b[j * self.group + k.var])
            product = ir.cast(a[i, k], ACCUMULATOR) * ir.cast(weight, ACCUMULATOR)
            total: Expr = sum(product, axis=k)
            return total

        op = compute((self.rows, self.lanes), element, name="c").op
        assert isinstance(op, Compute)
        return op

    def vectors(self, way: Way, inputs: Views, outputs: Views) -> Parts:
        """The body for a target that has the instruction."""
        (a, b), (c,) = inputs, outputs
        update = []
        for row in range(self.rows):
            group = a.vload((row, 0), dtypes.vector(self.a, self.group))
            repeated = replicate(group, way.lanes)
            for lane in range(0, self.lanes, way.lanes):
                weights = b.vload((lane * self.group,),
                                  dtypes.vector(self.b, way.lanes * self.group))
                sums = c.vload((row, lane), dtypes.vector(ACCUMULATOR, way.lanes))
                update.append(c.vstore((row, lane), way.add(sums, repeated, weights)))
        return None, self._reset(c, way.lanes), ir.seq(*update)

    def loops(self, inputs: Views, outputs: Views) -> Parts:
        """The body for any target: a loop over the lanes of each row."""
        (a, b), (c,) = inputs, outputs
        update = [self._row(a, b, c, row) for row in range(self.rows)]
        return None, None, ir.seq(*update)

    def _row(self, a: BufferView, b: BufferView, c: BufferView, row: int) -> Stmt:
        lane = ir.Var("lane", c.base[-1].dtype)
        total = c[row, lane]
        for at in range(self.group):
            weight = self.weight(b[lane * self.group + at])
            total = total + ir.cast(a[row, at], ACCUMULATOR) * ir.cast(weight, ACCUMULATOR)
        start, extent = Const(0, lane.dtype), Const(self.lanes, lane.dtype)
        return ir.For(lane, start, extent, "serial", c.vstore((row, lane), total))

    def _reset(self, c: BufferView, lanes: int) -> Stmt:
        zeros = splat(0, ACCUMULATOR, lanes)
        return ir.seq(*(c.vstore((row, lane), zeros) for row in range(self.rows)
                        for lane in range(0, self.lanes, lanes)))


def splat(value: int, dtype: str, lanes: int) -> Expr:
    """A vector of one number."""
    return Broadcast(Const(value, dtype), lanes)


def replicate(vector: Expr, times: int) -> Expr:
    """The lanes of a vector, so often one after the other."""
    dtype = dtypes.vector(vector.dtype, dtypes.lanes(vector.dtype) * times)
    return Call("replicate", (vector, Const(times)), dtype)
