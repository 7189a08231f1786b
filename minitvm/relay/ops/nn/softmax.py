"""`nn.softmax` and `nn.log_softmax`, shifted by the maximum so that exp does not overflow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.nn.normalization import channel_axis
from minitvm.relay.ops.nn.windows import stage
from minitvm.tir.ir import Expr


@dataclass(frozen=True, slots=True)
class SoftmaxBase(Op):
    """What both have in common: an axis of a float tensor, and its maximum."""

    pattern = Pattern.OPAQUE

    axis: int = -1

    def infer(self, x: TensorType) -> TensorType:
        if not dtypes.is_float(x.dtype):
            raise self.fail((x,), "the argument must be floats; cast it")
        channel_axis(self, self.axis, (x,))
        return x

    def reduce_stage(
        self, x: te.Tensor, reducer: Any, value: Callable[..., Expr], tag: str
    ) -> te.Tensor:
        """The reduction of `value(*indices)` along the axis, which the result lacks."""
        axis = self.axis % x.ndim
        extents = x.extents()
        k = te.reduce_axis((0, extents[axis]), "k")

        def element(*i: Expr) -> Any:
            return reducer(value(*i[:axis], k.var, *i[axis:]), axis=k)

        return stage((*extents[:axis], *extents[axis + 1 :]), element, tag)

    def normalised(self, x: te.Tensor, exp: Callable[[Expr], Expr]) -> te.Tensor:
        """exp(x) / sum(exp(x)) along the axis, shifted by the maximum."""
        greatest = self.reduce_stage(x, te.max, lambda *i: x[i], "softmax_max")
        powers = stage(
            x.shape, lambda *i: exp(x[i] - greatest[self.rest(i)]), "softmax_exp"
        )
        total = self.reduce_stage(powers, te.sum, lambda *i: powers[i], "softmax_sum")
        return stage(x.shape, lambda *i: powers[i] / total[self.rest(i)], "softmax")

    def rest(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices without that of the axis."""
        axis = self.axis % len(indices)
        return (*indices[:axis], *indices[axis + 1 :])


@register
@dataclass(frozen=True, slots=True)
class Softmax(SoftmaxBase):
    """exp(x) / sum(exp(x)) along an axis."""

    name = "nn.softmax"

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            powers = np.exp(x - x.max(self.axis, keepdims=True, initial=-np.inf))
            return np.asarray(powers / powers.sum(self.axis, keepdims=True))

    def compute(self, x: te.Tensor) -> te.Tensor:
        return self.normalised(x, te.exp)


@register
@dataclass(frozen=True, slots=True)
class LogSoftmax(SoftmaxBase):
    """The logarithm of softmax: x - log(sum(exp(x))) along an axis."""

    name = "nn.log_softmax"

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            shifted = x - x.max(self.axis, keepdims=True, initial=-np.inf)
            return np.asarray(shifted - np.log(np.exp(shifted).sum(self.axis, keepdims=True)))

    def compute(self, x: te.Tensor) -> te.Tensor:
        greatest = self.reduce_stage(x, te.max, lambda *i: x[i], "softmax_max")
        total = self.reduce_stage(
            x, te.sum,
            lambda *i: te.exp(x[i] - greatest[self.rest(i)]), "softmax_sum",
        )

        def element(*i: Expr) -> Any:
            return x[i] - greatest[self.rest(i)] - te.log(total[self.rest(i)])

        return stage(x.shape, element, "log_softmax")
