"""`nn.softmax` and `nn.log_softmax`, shifted by the maximum so that exp does not overflow.

The te stages, by tag; the axis has n elements, with `outer` elements in front of it and `inner`
ones behind it:

    softmax_data        the data, padded, in one of the forms below; the plain one softmax_plain
    softmax_maximum     data without the axis; of rows by `rows.reduce_rows`, as the sum
    softmax_powers      as data       exp(data - maximum); softmax only
    softmax_sum         as the maximum
    softmax_factor      as the maximum; 1 / sum, softmax only
    softmax_logarithm   as the maximum; log(sum), log_softmax only
    softmax_packed      as data       the result, before it is unpacked; of packed rows only
    softmax             as x

    form      data               for
    plain     as x               no lanes
    rows      r, n to lanes      the last axis, if it is long: lanes are elements of a row
    columns   outer, n, inner    another axis: lanes are neighbours in memory
    packed    ro, n, inner, ri   the last axis, if it is short: lanes are different rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.families import compute_name
from minitvm.relay.ops.nn.dense import joint_index, split_index
from minitvm.relay.ops.nn.normalization import channel_axis
from minitvm.relay.ops.nn.rows import copy_rows, greater, reduce_rows
from minitvm.relay.ops.nn.windows import stage
from minitvm.te.recipes import schedule_softmax
from minitvm.tir import ir
from minitvm.tir.ir import Expr

if TYPE_CHECKING:
    from minitvm.target import Target

Indices = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class SoftmaxBase(Op):
    """What both have in common: an axis of a float tensor, and its maximum.

    `lanes`: how many elements are computed together (`alter_layout` says).
    """

    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    reads_through_copies = True

    axis: int = -1
    lanes: int = 1

    def infer(self, x: TensorType) -> TensorType:
        if not dtypes.is_float(x.dtype):
            raise self.fail((x,), "the argument must be floats; cast it")
        channel_axis(self, self.axis, (x,))
        return x

    def exp(self, x: Expr) -> Expr:
        """e to the power x, of at most 0."""
        return te.decay(x)

    def compute(self, x: te.Tensor) -> te.Tensor:
        rows = _copied(x, self.axis % x.ndim, self.lanes)
        value = self.normalised(rows)
        if rows.packed:
            value = stage(rows.data.shape, value, "softmax_packed")
        result: te.Tensor = te.compute(x.shape, lambda *i: value(*rows.place(i)),
                                       name=compute_name(self), tag="softmax")
        return result

    def normalised(self, rows: _Rows) -> Callable[..., Expr]:
        """The element of the result for an element of the copied data."""
        powers = stage(rows.data.shape, lambda *i: self.exp(rows.shifted(*i)), "softmax_powers")
        total = rows.reduced(te.sum, powers, "softmax_sum")
        one = ir.convert(1.0, total.dtype)
        factor = stage(total.shape, lambda *i: one / total[i], "softmax_factor")
        return lambda *i: powers[i] * factor[rows.rest(i)]

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_softmax(s, anchor, output, target, self.axis % anchor.ndim)

    def alter_layout(self, types: tuple[Any, ...], target: Target) -> LayoutChoice | None:
        (given,) = types
        lanes = target.lanes(given.dtype)
        extents = [dim for dim in given.shape if isinstance(dim, int) and dim > 0]
        if self.lanes != 1 or lanes == 1 or len(extents) < given.rank:
            return None
        outer, _, inner = _around(extents, self.axis % given.rank)
        if inner > 1 and max(outer, inner) < lanes:
            return None
        return LayoutChoice(replace(self, lanes=lanes), (None,), None)


@register
@dataclass(frozen=True, slots=True)
class Softmax(SoftmaxBase):
    """exp(x) / sum(exp(x)) along an axis."""

    name = "nn.softmax"

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            powers = np.exp(x - x.max(self.axis, keepdims=True, initial=-np.inf))
            return np.asarray(powers / powers.sum(self.axis, keepdims=True))


@register
@dataclass(frozen=True, slots=True)
class LogSoftmax(SoftmaxBase):
    """The logarithm of softmax: x - log(sum(exp(x))) along an axis."""

    name = "nn.log_softmax"

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            shifted = x - x.max(self.axis, keepdims=True, initial=-np.inf)
            return np.asarray(shifted - np.log(np.exp(shifted).sum(self.axis, keepdims=True)))

    def normalised(self, rows: _Rows) -> Callable[..., Expr]:
        total = rows.reduced(
            te.sum, lambda *i: self.exp(rows.shifted(*i)), "softmax_sum")
        logarithm = stage(total.shape, lambda *i: te.log(total[i]), "softmax_logarithm")
        return lambda *i: rows.shifted(*i) - logarithm[rows.rest(i)]


# --- the data in the forms above ----------------------------------------------------------------


class _Rows:
    """The data to be normalised along `axis`, in blocks of `lanes` along it unless that is 1.

    `place` leads from the indices of the result to those of the data. `packed`: elements that
    follow one another in the result do not do so in the data.
    """

    def __init__(self, data: te.Tensor, axis: int, place: Callable[[Indices], Indices],
                 lanes: int = 1, packed: bool = False) -> None:
        self.data, self.axis, self.place = data, axis, place
        self.lanes, self.packed = lanes, packed
        self.greatest = self.reduced(greater, data, "softmax_maximum")

    def rest(self, indices: Indices) -> Indices:
        """The indices without that of the axis."""
        return (*indices[:self.axis], *indices[self.axis + 1:])

    def shifted(self, *indices: Expr) -> Expr:
        """The element less the maximum."""
        return self.data[indices] - self.greatest[self.rest(indices)]

    def reduced(self, reducer: Any, value: Callable[..., Expr], tag: str) -> te.Tensor:
        """The reduction of `value(*indices)` along the axis."""
        if self.lanes > 1:
            return reduce_rows(self.data.extents(), self.lanes, reducer, value, tag)
        axis, shape = self.axis, self.data.shape
        k = te.reduce_axis((0, shape[axis]), "k")
        return stage(self.rest(shape),
                     lambda *i: reducer(value(*i[:axis], k.var, *i[axis:]), axis=k), tag)


def _around(extents: Sequence[int], axis: int) -> tuple[int, int, int]:
    """How many elements are in front of, along and behind an axis."""
    return prod(extents[:axis]), extents[axis], prod(extents[axis + 1:])


def _copied(x: te.Tensor, axis: int, lanes: int) -> _Rows:
    """The data in the form that suits its extents."""
    if lanes == 1:
        return _Rows(stage(x.shape, lambda *i: x[i], "softmax_plain"), axis, lambda i: i)
    outer, length, inner = _around(x.extents(), axis)
    if inner >= lanes:
        return _columns(x, axis)
    is_short = length < 2 * lanes and length % lanes != 0
    if inner == 1 and (outer < lanes or not is_short):
        return _long_rows(x, axis, lanes)
    return _packed(x, axis, lanes)


def _long_rows(x: te.Tensor, axis: int, lanes: int) -> _Rows:
    """The axes behind are of extent 1."""
    leading, row = x.extents()[:axis], x.extents()[axis:]
    data = copy_rows(x, x.ndim - axis, lanes, te.min_value(x.dtype), "softmax_data")

    def place(i: Indices) -> Indices:
        return joint_index(i[:axis], leading), joint_index(i[axis:], row)

    return _Rows(data, 1, place, lanes)


def _columns(x: te.Tensor, axis: int) -> _Rows:
    extents = x.extents()
    leading, behind = extents[:axis], extents[axis + 1:]

    def element(o: Expr, n: Expr, p: Expr) -> Expr:
        return x[(*split_index(o, leading), n, *split_index(p, behind))]

    def place(i: Indices) -> Indices:
        return joint_index(i[:axis], leading), i[axis], joint_index(i[axis + 1:], behind)

    data = stage(_around(extents, axis), element, "softmax_data")
    return _Rows(data, 1, place)


def _packed(x: te.Tensor, axis: int, lanes: int) -> _Rows:
    extents = x.extents()
    leading, behind = extents[:axis], extents[axis + 1:]
    rows, length, inner = _around(extents, axis)

    def element(ro: Expr, n: Expr, p: Expr, ri: Expr) -> Expr:
        r = ro * lanes + ri
        value = x[(*split_index(r, leading), n, *split_index(p, behind))]
        if rows % lanes == 0:
            return value
        return te.if_then_else(r < rows, value, ir.convert(0.0, x.dtype))

    def place(i: Indices) -> Indices:
        r = joint_index(i[:axis], leading)
        return r // lanes, i[axis], joint_index(i[axis + 1:], behind), r % lanes

    data = stage((-(-rows // lanes), length, inner, lanes), element, "softmax_data")
    return _Rows(data, 1, place, packed=True)
