"""Reductions: one value for all elements along some axes.

    Reduction   y[i] = combine over r of x[i, r]      sum, prod, max, min, all, any
    ArgReduce   y[i] = the r that gives the extreme   argmax, argmin

`axis` is an axis, several, or None for all; `keepdims` leaves reduced axes with extent 1. Over no
element a reduction gives its neutral element. Sums keep the dtype of x: integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.axes import all_axes, one_axis
from minitvm.relay.ops.families import (
    BOOL,
    NUMBER,
    compute_name,
    extents_of,
    integers,
    intrinsic,
    require_kind,
)
from minitvm.te import comm_reducer
from minitvm.tir import ir
from minitvm.tir.ir import Expr


def reduced_shape(
    shape: Sequence[Dim], axes: Sequence[int], keepdims: bool
) -> tuple[Dim, ...]:
    """The shape without these axes, or with extent 1 there."""
    kept = ((1 if axis in axes else dim, axis in axes) for axis, dim in enumerate(shape))
    return tuple(dim for dim, gone in kept if keepdims or not gone)


def merged_indices(
    indices: Sequence[Any], reduction: Sequence[Any], axes: Sequence[int], keepdims: bool
) -> tuple[Any, ...]:
    """The indices of x for an element of the result and the reduction axes."""
    rank = len(indices) if keepdims else len(indices) + len(reduction)
    inner = iter(reduction)
    outer = iter(enumerate(indices))
    if keepdims:
        return tuple(next(inner) if axis in axes else i for axis, i in outer)
    return tuple(next(inner) if axis in axes else next(outer)[1] for axis in range(rank))


all_reducer = comm_reducer(ir.conjunction, lambda dtype: ir.convert(True, dtype), name="all")
any_reducer = comm_reducer(ir.disjunction, lambda dtype: ir.convert(False, dtype), name="any")


@dataclass(frozen=True, slots=True)
class Reduction(Op):
    """The base of reductions by one commutative operation."""

    axis: int | tuple[int, ...] | None = None
    keepdims: bool = False
    pattern = Pattern.COMM_REDUCE
    kinds: ClassVar[tuple[str, ...]] = NUMBER

    def meaning(self, x: np.ndarray, axes: tuple[int, ...]) -> Any:
        """The reduction in numpy."""
        raise NotImplementedError(self.name)

    def reducer(self) -> Callable[..., Any]:
        """The reducer in te."""
        raise NotImplementedError(self.name)

    def infer(self, x: TensorType) -> TensorType:
        require_kind(self, (x,), self.kinds)
        axes = all_axes(self, (x,), self.axis, x.rank)
        return TensorType(reduced_shape(x.shape, axes, self.keepdims), x.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        axes = all_axes(self, (x.shape,), self.axis, x.ndim)
        with np.errstate(all="ignore"):
            return np.asarray(self.meaning(x, axes), x.dtype)

    def compute(self, x: te.Tensor) -> te.Tensor:
        extents = extents_of(x)
        axes = all_axes(self, (x,), self.axis, len(extents))
        reduction = [te.reduce_axis((0, extents[axis]), name=f"r{axis}") for axis in axes]
        reduce = self.reducer()

        def body(*i: Expr) -> Any:
            source = x[merged_indices(i, reduction, axes, self.keepdims)]
            return reduce(source, axis=reduction) if reduction else source

        shape = integers(reduced_shape(extents, axes, self.keepdims))
        result: te.Tensor = te.compute(shape, body, name=compute_name(self), tag="comm_reduce")
        return result


@register
@dataclass(frozen=True, slots=True)
class Sum(Reduction):
    """The sum of the elements."""

    name = "sum"

    def meaning(self, x: np.ndarray, axes: tuple[int, ...]) -> Any:
        return np.sum(x, axis=axes, dtype=x.dtype, keepdims=self.keepdims)

    def reducer(self) -> Callable[..., Any]:
        return te.sum


@register
@dataclass(frozen=True, slots=True)
class Prod(Reduction):
    """The product of the elements."""

    name = "prod"

    def meaning(self, x: np.ndarray, axes: tuple[int, ...]) -> Any:
        return np.prod(x, axis=axes, dtype=x.dtype, keepdims=self.keepdims)

    def reducer(self) -> Callable[..., Any]:
        return te.prod


def least(dtype: np.dtype) -> Any:
    """The least value of a dtype, minus infinity for floats."""
    return -np.inf if dtypes.is_float(dtype.name) else dtypes.integer_range(dtype.name)[0]


def greatest(dtype: np.dtype) -> Any:
    """The greatest value of a dtype, infinity for floats."""
    return np.inf if dtypes.is_float(dtype.name) else dtypes.integer_range(dtype.name)[1]


@register
@dataclass(frozen=True, slots=True)
class Max(Reduction):
    """The greatest element; NaN if there is one."""

    name = "max"

    def meaning(self, x: np.ndarray, axes: tuple[int, ...]) -> Any:
        return np.max(x, axis=axes, initial=least(x.dtype), keepdims=self.keepdims)

    def reducer(self) -> Callable[..., Any]:
        return te.max


@register
@dataclass(frozen=True, slots=True)
class Min(Reduction):
    """The least element; NaN if there is one."""

    name = "min"

    def meaning(self, x: np.ndarray, axes: tuple[int, ...]) -> Any:
        return np.min(x, axis=axes, initial=greatest(x.dtype), keepdims=self.keepdims)

    def reducer(self) -> Callable[..., Any]:
        return te.min


@register
@dataclass(frozen=True, slots=True)
class AllTrue(Reduction):
    """Whether all elements are true."""

    name = "all"
    kinds = BOOL

    def meaning(self, x: np.ndarray, axes: tuple[int, ...]) -> Any:
        return np.all(x, axis=axes, keepdims=self.keepdims)

    def reducer(self) -> Callable[..., Any]:
        return all_reducer


@register
@dataclass(frozen=True, slots=True)
class AnyTrue(Reduction):
    """Whether any element is true."""

    name = "any"
    kinds = BOOL

    def meaning(self, x: np.ndarray, axes: tuple[int, ...]) -> Any:
        return np.any(x, axis=axes, keepdims=self.keepdims)

    def reducer(self) -> Callable[..., Any]:
        return any_reducer


# --- positions of extremes ----------------------------------------------------------------------


Candidate = tuple[Expr, Expr]
"""A position and the value there."""


def _is_nan(x: Expr) -> Expr:
    """Always false for integers, which folds away."""
    is_float = dtypes.is_float(x.dtype)
    return intrinsic("isnan", x, dtype="bool") if is_float else ir.Const(False, "bool")


def _extreme(
    beats: Callable[[Expr, Expr], Expr], neutral: Callable[[str], Expr], last: bool, name: str
) -> Callable[..., Any]:
    """The reducer that keeps the better of two candidates: NaN is best of all, as in numpy, and of
    equal ones the first (or last) position wins, in whatever order they are combined."""

    def combine(left: Candidate, right: Candidate) -> Candidate:
        (i, x), (j, y) = left, right
        only_right_nan = ir.conjunction(_is_nan(y), ir.equal(x, x))
        better = ir.disjunction(beats(y, x), only_right_nan)
        both_nan = ir.conjunction(_is_nan(x), _is_nan(y))
        tied = ir.disjunction(ir.equal(x, y), both_nan)
        wins = ir.disjunction(better, ir.conjunction(tied, j > i if last else j < i))
        return te.select(wins, j, i), te.select(wins, y, x)

    def identity(index_dtype: str, value_dtype: str) -> Candidate:
        furthest = -1 if last else dtypes.integer_range(index_dtype)[1]
        return ir.convert(furthest, index_dtype), neutral(value_dtype)

    return comm_reducer(combine, identity, name=name)


@dataclass(frozen=True, slots=True)
class ArgReduce(Op):
    """The base of argmax and argmin: int64 positions along one axis, the first of equal ones
    unless `select_last_index`."""

    axis: int = 0
    keepdims: bool = False
    select_last_index: bool = False
    pattern = Pattern.COMM_REDUCE

    def position(self, x: np.ndarray, axis: int) -> Any:
        """The first position along an axis, in numpy."""
        raise NotImplementedError(self.name)

    def reducer(self) -> Callable[..., Any]:
        """The reducer of (position, value) in te."""
        raise NotImplementedError(self.name)

    def infer(self, x: TensorType) -> TensorType:
        require_kind(self, (x,), NUMBER)
        axis = one_axis(self, (x,), self.axis, x.rank)
        if x.shape[axis] == 0:
            raise self.fail((x,), f"axis {axis} has no element to choose from")
        return TensorType(reduced_shape(x.shape, (axis,), self.keepdims), "int64")

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        axis = self.axis % x.ndim
        if self.select_last_index:
            found = x.shape[axis] - 1 - self.position(np.flip(x, axis), axis)
        else:
            found = self.position(x, axis)
        found = np.asarray(found, np.int64)
        return np.expand_dims(found, axis) if self.keepdims else found

    def compute(self, x: te.Tensor) -> te.Tensor:
        extents = extents_of(x)
        axis = self.axis % len(extents)
        r = te.reduce_axis((0, extents[axis]), name=f"r{axis}")
        reduce = self.reducer()

        def body(*i: Expr) -> Any:
            source = x[merged_indices(i, (r,), (axis,), self.keepdims)]
            return reduce((ir.cast(r.var, "int64"), source), axis=r)

        shape = integers(reduced_shape(extents, (axis,), self.keepdims))
        positions, _ = te.compute(shape, body, name=compute_name(self), tag="comm_reduce_idx")
        result: te.Tensor = positions
        return result


@register
@dataclass(frozen=True, slots=True)
class ArgMax(ArgReduce):
    """The position of the greatest element, or of the first NaN."""

    name = "argmax"

    def position(self, x: np.ndarray, axis: int) -> Any:
        return np.argmax(x, axis=axis)

    def reducer(self) -> Callable[..., Any]:
        return _extreme(lambda a, b: a > b, te.min_value, self.select_last_index, "argmax")


@register
@dataclass(frozen=True, slots=True)
class ArgMin(ArgReduce):
    """The position of the least element, or of the first NaN."""

    name = "argmin"

    def position(self, x: np.ndarray, axis: int) -> Any:
        return np.argmin(x, axis=axis)

    def reducer(self) -> Callable[..., Any]:
        return _extreme(lambda a, b: a < b, te.max_value, self.select_last_index, "argmin")
