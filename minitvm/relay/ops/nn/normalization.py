"""Normalisation as it is at inference time: `nn.batch_norm` with fixed statistics, `nn.dropout`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.nn.windows import stage
from minitvm.tir.ir import Expr


def channel_axis(op: Op, axis: int, types: Sequence[TensorType]) -> int:
    """The axis of the first argument counted from the front; raises the operator's type error if
    it has none such, or if the others are not vectors along it."""
    data, *vectors = types
    if not -data.rank <= axis < data.rank:
        raise op.fail(tuple(types), f"axis {axis} is out of range for rank {data.rank}")
    extent = data.shape[axis]
    for vector in vectors:
        if vector.shape != (extent,) or vector.dtype != data.dtype:
            raise op.fail(
                tuple(types), f"all arguments behind the data must be {data.dtype} of ({extent},)"
            )
    return axis % data.rank


def along(vector: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """A vector as an array that broadcasts along one axis of `rank`."""
    return vector.reshape([-1 if position == axis else 1 for position in range(rank)])


@register
@dataclass(frozen=True, slots=True)
class BatchNorm(Op):
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, for each channel of `axis`.

    Arguments: data, gamma, beta, mean, variance. Only inference: the statistics are given.
    """

    name = "nn.batch_norm"
    pattern = Pattern.BROADCAST
    arity = 5

    axis: int = 1
    epsilon: float = 1e-5

    def infer(
        self, data: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType,
        variance: TensorType,
    ) -> TensorType:
        types = (data, gamma, beta, mean, variance)
        if not dtypes.is_float(data.dtype):
            raise self.fail(types, "the data must be floats; cast it")
        channel_axis(self, self.axis, types)
        return data

    def evaluate(
        self, data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray,
        variance: np.ndarray,
    ) -> np.ndarray:
        axis = self.axis % data.ndim
        gamma, beta, mean, variance = (
            along(vector, axis, data.ndim) for vector in (gamma, beta, mean, variance)
        )
        with np.errstate(all="ignore"):
            deviation = np.sqrt(variance + data.dtype.type(self.epsilon))
            return np.asarray((data - mean) / deviation * gamma + beta)

    def compute(
        self, data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, mean: te.Tensor,
        variance: te.Tensor,
    ) -> te.Tensor:
        axis = self.axis % data.ndim

        def element(*i: Expr) -> Any:
            c = i[axis]
            deviation = te.sqrt(variance[c] + self.epsilon)
            return (data[i] - mean[c]) / deviation * gamma[c] + beta[c]

        return stage(data.shape, element, "batch_norm")


@register
@dataclass(frozen=True, slots=True)
class Dropout(Op):
    """The data as it is: dropping out, with probability `rate`, is for training."""

    name = "nn.dropout"
    pattern = Pattern.ELEMWISE

    rate: float = 0.5

    def infer(self, data: TensorType) -> TensorType:
        return data

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        return data

    def compute(self, data: te.Tensor) -> te.Tensor:
        return stage(data.shape, lambda *i: data[i], "dropout")
