"""Reductions that are put together from others: means, variances, norms and logarithms of sums."""

from __future__ import annotations

from dataclasses import dataclass

from minitvm.relay.ir import Atom, TensorType, tensor_type
from minitvm.relay.op import Emit, register
from minitvm.relay.ops.axes import all_axes
from minitvm.relay.ops.broadcast import Add, Divide, Multiply, Subtract, Where
from minitvm.relay.ops.calculus import Exp, Log
from minitvm.relay.ops.composite import Composite, scalar
from minitvm.relay.ops.elementwise import Abs, IsFinite, Sqrt
from minitvm.relay.ops.families import FLOAT, NUMBER, require_kind
from minitvm.relay.ops.reduce import Max, Sum
from minitvm.relay.ops.transform import Squeeze


@dataclass(frozen=True, slots=True)
class CompositeReduction(Composite):
    """The base: `axis` and `keepdims` as for every reduction."""

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False

    def check(self, types: tuple[TensorType, ...]) -> None:
        require_kind(self, types, NUMBER)
        all_axes(self, types, self.axis, types[0].rank)

    def sum(self, emit: Emit, x: Atom) -> Atom:
        """The sum over the same axes."""
        return emit(Sum(self.axis, self.keepdims), x)


@dataclass(frozen=True, slots=True)
class FloatReduction(CompositeReduction):
    """Those that are for floats alone."""

    def check(self, types: tuple[TensorType, ...]) -> None:
        require_kind(self, types, FLOAT)
        all_axes(self, types, self.axis, types[0].rank)


def mean(emit: Emit, x: Atom, axis: int | tuple[int, ...] | None, keepdims: bool) -> Atom:
    """The sum divided by the number of elements; integers truncate."""
    given = tensor_type(x)
    reduction = Sum(axis, keepdims)
    count = 1
    for position in all_axes(reduction, (given,), axis, given.rank):
        extent = given.shape[position]
        if not isinstance(extent, int):
            raise reduction.fail((given,), f"a mean over {extent} elements needs its size")
        count *= extent
    return emit(Divide(), emit(reduction, x), scalar(count, given.dtype))


@register
@dataclass(frozen=True, slots=True)
class Mean(CompositeReduction):
    """The mean of the elements; of integers, truncated."""

    name = "mean"

    def legalize(self, emit: Emit, x: Atom) -> Atom:
        return mean(emit, x, self.axis, self.keepdims)


@register
@dataclass(frozen=True, slots=True)
class Variance(FloatReduction):
    """The mean square distance to the mean."""

    name = "variance"

    def legalize(self, emit: Emit, x: Atom) -> Atom:
        distance = emit(Subtract(), x, mean(emit, x, self.axis, keepdims=True))
        return mean(emit, emit(Multiply(), distance, distance), self.axis, self.keepdims)


@register
@dataclass(frozen=True, slots=True)
class ReduceL1(CompositeReduction):
    """The sum of absolute values."""

    name = "reduce_l1"

    def legalize(self, emit: Emit, x: Atom) -> Atom:
        return self.sum(emit, emit(Abs(), x))


@register
@dataclass(frozen=True, slots=True)
class ReduceSumSquare(CompositeReduction):
    """The sum of squares."""

    name = "reduce_sum_square"

    def legalize(self, emit: Emit, x: Atom) -> Atom:
        return self.sum(emit, emit(Multiply(), x, x))


@register
@dataclass(frozen=True, slots=True)
class ReduceL2(FloatReduction):
    """The square root of the sum of squares."""

    name = "reduce_l2"

    def legalize(self, emit: Emit, x: Atom) -> Atom:
        return emit(Sqrt(), self.sum(emit, emit(Multiply(), x, x)))


@register
@dataclass(frozen=True, slots=True)
class ReduceLogSum(FloatReduction):
    """The logarithm of the sum."""

    name = "reduce_log_sum"

    def legalize(self, emit: Emit, x: Atom) -> Atom:
        return emit(Log(), self.sum(emit, x))


@register
@dataclass(frozen=True, slots=True)
class LogSumExp(FloatReduction):
    """The logarithm of the sum of exponentials, the greatest element taken out first so that
    nothing overflows (where that is finite)."""

    name = "logsumexp"

    def legalize(self, emit: Emit, x: Atom) -> Atom:
        dtype = tensor_type(x).dtype
        greatest = emit(Max(self.axis, keepdims=True), x)
        pivot = emit(Where(), emit(IsFinite(), greatest), greatest, scalar(0, dtype))
        exponentials = emit(Exp(), emit(Subtract(), x, pivot))
        logarithm = emit(Log(), self.sum(emit, exponentials))
        if not self.keepdims:
            axes = all_axes(self, (x,), self.axis, tensor_type(x).rank)
            pivot = emit(Squeeze(axes), pivot)
        return emit(Add(), logarithm, pivot)
