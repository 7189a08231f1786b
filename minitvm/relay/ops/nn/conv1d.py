"""`nn.conv1d`: a convolution along one axis, which becomes a `nn.conv2d`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitvm.relay.ir import Atom, TensorType
from minitvm.relay.op import Emit, Op, Pattern, register
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.nn.windows import Pair, pair
from minitvm.relay.ops.transform import ExpandDims, Squeeze


@register
@dataclass(frozen=True, slots=True)
class Conv1d(Op):
    """A convolution along one axis, NCW with OIW: a `nn.conv2d` over images of one row."""

    name = "nn.conv1d"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    arity = 2

    strides: int = 1
    padding: Pair = (0, 0)
    dilation: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "padding", pair(self.padding))

    def conv2d(self) -> Conv2d:
        """The convolution it is, over images of one row."""
        left, right = self.padding
        return Conv2d((1, self.strides), (0, left, 0, right), (1, self.dilation), self.groups)

    def infer(self, data: TensorType, weight: TensorType) -> TensorType:
        if data.rank != 3 or weight.rank != 3:
            raise self.fail((data, weight), "data must be NCW and weight OIW")
        flat = [TensorType((*t.shape[:2], 1, t.shape[2]), t.dtype) for t in (data, weight)]
        result = self.conv2d().infer(*flat)
        return TensorType((*result.shape[:2], result.shape[3]), result.dtype)

    def evaluate(self, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return self.conv2d().evaluate(data[:, :, None], weight[:, :, None])[:, :, 0]

    def legalize(self, emit: Emit, data: Atom, weight: Atom) -> Atom:
        image, kernel = emit(ExpandDims(axis=2), data), emit(ExpandDims(axis=2), weight)
        return emit(Squeeze(axis=(2,)), emit(self.conv2d(), image, kernel))
