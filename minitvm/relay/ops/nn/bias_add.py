"""`nn.bias_add`: a vector added along one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import Atom, TensorType, tensor_type
from minitvm.relay.op import Emit, Op, Pattern, register
from minitvm.relay.ops.broadcast import Add
from minitvm.relay.ops.nn.normalization import along, channel_axis
from minitvm.relay.ops.nn.windows import stage
from minitvm.relay.ops.transform import ExpandDims


@register
@dataclass(frozen=True, slots=True)
class BiasAdd(Op):
    """data[..., c, ...] + bias[c], c the index along `axis`."""

    name = "nn.bias_add"
    pattern = Pattern.BROADCAST
    arity = 2

    axis: int = 1

    def infer(self, data: TensorType, bias: TensorType) -> TensorType:
        if dtypes.is_bool(data.dtype):
            raise self.fail((data, bias), "the data must be numeric")
        channel_axis(self, self.axis, (data, bias))
        return data

    def evaluate(self, data: np.ndarray, bias: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(data + along(bias, self.axis % data.ndim, data.ndim))

    def compute(self, data: te.Tensor, bias: te.Tensor) -> te.Tensor:
        axis = self.axis % data.ndim
        return stage(data.shape, lambda *i: data[i] + bias[i[axis]], "broadcast")

    def legalize(self, emit: Emit, data: Atom, bias: Atom) -> Atom:
        rank = tensor_type(data).rank
        behind = rank - 1 - self.axis % rank
        if behind:
            bias = emit(ExpandDims(axis=tuple(range(1, behind + 1))), bias)
        return emit(Add(), data, bias)
