"""Operators whose result's shape is the value of an argument: `dyn.reshape` and its kin.

What they give has the shape that is declared for it (`shape`): named sizes stand for what is known
at run time only, and an integer must come true. Compiling needs the shape: the pass
`DynamicToStatic` puts the operator without `dyn.` in place where that argument is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minitvm import dtypes, te
from minitvm.errors import InterpreterError, LoweringError
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, register
from minitvm.relay.ops.create import Full, Ones, Zeros
from minitvm.relay.ops.join import StridedSlice
from minitvm.relay.ops.transform import BroadcastTo, Reshape, Tile


@dataclass(frozen=True, slots=True)
class Dynamic(Op):
    """What they have in common. `data_arguments` come first, then vectors of integers."""

    arity = 2
    data_arguments: ClassVar[int] = 1

    shape: tuple[Dim, ...]

    def static(self, *vectors: np.ndarray) -> Op:
        """The operator for known vectors: it takes the data alone."""
        raise NotImplementedError(self.name)

    def result_dtype(self, types: Sequence[TensorType]) -> str:
        """The dtype of the result."""
        return types[0].dtype

    def infer(self, *types: TensorType) -> TensorType:
        for given in types[self.data_arguments :]:
            if given.rank != 1 or not dtypes.is_int(given.dtype):
                raise self.fail(types, "what gives the shape must be vectors of integers")
            length = given.shape[0]
            if isinstance(length, int) and not self.takes_length(length, types):
                raise self.fail(types, f"{length} numbers do not give the declared {self.shape}")
        return TensorType(self.shape, self.result_dtype(types))

    def takes_length(self, length: int, types: Sequence[TensorType]) -> bool:
        """Whether a vector may have so many numbers: one for each dimension of the result."""
        return length == len(self.shape)

    def evaluate(self, *values: np.ndarray) -> np.ndarray:
        data = values[: self.data_arguments]
        result = self.static(*values[self.data_arguments :]).evaluate(*data)
        assert isinstance(result, np.ndarray)
        declared = zip(self.shape, result.shape, strict=False)
        if len(self.shape) != result.ndim or any(
            isinstance(dim, int) and dim != extent for dim, extent in declared
        ):
            raise InterpreterError(
                f"{self.name} gives the shape {result.shape}, declared as {self.shape}"
            )
        return result

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        raise LoweringError(
            f"the shape that {self.name} gives is known at run time only, and compiling needs it; "
            f"make what it depends on constant"
        )


def _integers(vector: np.ndarray) -> tuple[int, ...]:
    return tuple(int(item) for item in vector)


@register
@dataclass(frozen=True, slots=True)
class DynamicReshape(Dynamic):
    """x in the shape that a vector says, where one -1 stands for what is left over."""

    name = "dyn.reshape"

    def static(self, *vectors: np.ndarray) -> Op:
        return Reshape(_integers(vectors[0]))


@register
@dataclass(frozen=True, slots=True)
class DynamicBroadcastTo(Dynamic):
    """x repeated to the shape that a vector says."""

    name = "dyn.broadcast_to"

    def static(self, *vectors: np.ndarray) -> Op:
        return BroadcastTo(_integers(vectors[0]))


@register
@dataclass(frozen=True, slots=True)
class DynamicTile(Dynamic):
    """x put side by side as often as a vector says, axis by axis."""

    name = "dyn.tile"

    def static(self, *vectors: np.ndarray) -> Op:
        return Tile(_integers(vectors[0]))

    def takes_length(self, length: int, types: Sequence[TensorType]) -> bool:
        return max(length, types[0].rank) == len(self.shape)


@register
@dataclass(frozen=True, slots=True)
class DynamicStridedSlice(Dynamic):
    """`x[begin:end:strides]` along the first axes; begin, end and strides are vectors."""

    name = "dyn.strided_slice"
    arity = 4

    def static(self, *vectors: np.ndarray) -> Op:
        begin, end, strides = map(_integers, vectors)
        return StridedSlice(begin, end, strides)

    def takes_length(self, length: int, types: Sequence[TensorType]) -> bool:
        return length <= len(self.shape)


@register
@dataclass(frozen=True, slots=True)
class DynamicFull(Dynamic):
    """A tensor of the shape that a vector says, filled with a value of rank 0."""

    name = "dyn.full"

    def static(self, *vectors: np.ndarray) -> Op:
        return Full(_integers(vectors[0]))


@dataclass(frozen=True, slots=True)
class DynamicFilled(Dynamic):
    """The base of `dyn.zeros` and `dyn.ones`."""

    arity = 1
    data_arguments = 0

    dtype: str = "float32"

    def result_dtype(self, types: Sequence[TensorType]) -> str:
        return self.dtype


@register
@dataclass(frozen=True, slots=True)
class DynamicZeros(DynamicFilled):
    """A tensor of zeros of the shape that a vector says."""

    name = "dyn.zeros"

    def static(self, *vectors: np.ndarray) -> Op:
        return Zeros(_integers(vectors[0]), self.dtype)


@register
@dataclass(frozen=True, slots=True)
class DynamicOnes(DynamicFilled):
    """A tensor of ones of the shape that a vector says."""

    name = "dyn.ones"

    def static(self, *vectors: np.ndarray) -> Op:
        return Ones(_integers(vectors[0]), self.dtype)
