"""Operators that make a tensor out of little: full, zeros, ones, arange, trilu."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitvm import te
from minitvm.errors import OptionError
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.families import elementwise, extents_of, integers
from minitvm.tir import ir
from minitvm.tir.ir import Expr


@register
@dataclass(frozen=True, slots=True)
class Full(Op):
    """A tensor of `shape` filled with a value of rank 0."""

    shape: tuple[Dim, ...]
    name = "full"
    pattern = Pattern.BROADCAST

    def infer(self, value: TensorType) -> TensorType:
        if value.rank:
            raise self.fail((value,), "the value must be of rank 0")
        return TensorType(self.shape, value.dtype)

    def evaluate(self, value: np.ndarray) -> np.ndarray:
        return np.full(integers(self.shape), value)

    def compute(self, value: te.Tensor) -> te.Tensor:
        return elementwise(self, self.shape, lambda *i: value[()])


@dataclass(frozen=True, slots=True)
class Filled(Op):
    """The base of zeros and ones."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"
    pattern = Pattern.ELEMWISE
    arity = 0

    def value(self) -> int:
        """The value of every element."""
        raise NotImplementedError(self.name)

    def infer(self) -> TensorType:
        return TensorType(self.shape, self.dtype)

    def evaluate(self) -> np.ndarray:
        return np.full(integers(self.shape), self.value(), self.dtype)

    def compute(self) -> te.Tensor:
        return elementwise(self, self.shape, lambda *i: ir.convert(self.value(), self.dtype))


@register
@dataclass(frozen=True, slots=True)
class Zeros(Filled):
    """A tensor of zeros."""

    name = "zeros"

    def value(self) -> int:
        return 0


@register
@dataclass(frozen=True, slots=True)
class Ones(Filled):
    """A tensor of ones."""

    name = "ones"

    def value(self) -> int:
        return 1


@register
@dataclass(frozen=True, slots=True)
class Arange(Op):
    """start, start + step, ... below (for a negative step, above) stop."""

    start: float
    stop: float
    step: float = 1
    dtype: str = "float32"
    name = "arange"
    pattern = Pattern.ELEMWISE
    arity = 0

    def __post_init__(self) -> None:
        if self.step == 0:
            raise OptionError("the step of arange must not be 0")

    def count(self) -> int:
        """The number of elements."""
        return max(0, int(np.ceil((self.stop - self.start) / self.step)))

    def infer(self) -> TensorType:
        return TensorType((self.count(),), self.dtype)

    def evaluate(self) -> np.ndarray:
        number = np.dtype(self.dtype).type
        steps = np.arange(self.count()).astype(self.dtype)
        return np.asarray(steps * number(self.step) + number(self.start))

    def compute(self) -> te.Tensor:
        def body(i: Expr) -> Expr:
            steps = ir.cast(i, self.dtype) * ir.convert(self.step, self.dtype)
            return steps + ir.convert(self.start, self.dtype)

        return elementwise(self, (self.count(),), body)


@register
@dataclass(frozen=True, slots=True)
class Trilu(Op):
    """The upper (or lower) triangle of the last two axes, from diagonal `k`; zero elsewhere."""

    upper: bool = True
    k: int = 0
    name = "trilu"
    pattern = Pattern.INJECTIVE

    def infer(self, x: TensorType) -> TensorType:
        if x.rank < 2:
            raise self.fail((x,), "a triangle needs at least two dimensions")
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.triu(x, self.k) if self.upper else np.tril(x, self.k)

    def compute(self, x: te.Tensor) -> te.Tensor:
        def body(*i: Expr) -> Expr:
            row, column = i[-2] + self.k, i[-1]
            inside = column >= row if self.upper else column <= row
            return te.select(inside, x[i], ir.convert(0, x.dtype))

        return elementwise(self, extents_of(x), body)
