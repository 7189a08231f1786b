"""Activations of layers, element by element: `nn.relu`, `nn.leaky_relu`, `nn.prelu`.

They choose by one comparison with zero, so that NaN and -0.0 pass through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import te
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.op import register
from minitvm.relay.ops.families import FLOAT, NUMBER, Binary, Unary
from minitvm.tir.ir import Expr


@register
@dataclass(frozen=True, slots=True)
class Relu(Unary):
    """x, or 0 where x is negative."""

    name = "nn.relu"
    kinds = NUMBER

    def meaning(self, x: np.ndarray) -> Any:
        return np.where(x < 0, x.dtype.type(0), x)

    def element(self, x: Expr) -> Expr:
        return te.select(x < 0, 0, x)


@register
@dataclass(frozen=True, slots=True)
class LeakyRelu(Unary):
    """x, or alpha * x where x is negative."""

    name = "nn.leaky_relu"

    alpha: float = 0.01

    def meaning(self, x: np.ndarray) -> Any:
        return np.where(x < 0, x * x.dtype.type(self.alpha), x)

    def element(self, x: Expr) -> Expr:
        return te.select(x < 0, x * self.alpha, x)


@register
@dataclass(frozen=True, slots=True)
class PRelu(Binary):
    """x, or slope * x where x is negative; the slope broadcasts to the shape of x."""

    name = "nn.prelu"
    kinds = FLOAT

    def infer(self, x: TensorType, slope: TensorType) -> TensorType:
        result = Binary.infer(self, x, slope)
        wanted: tuple[Dim, ...] = x.shape
        if result.shape != wanted:
            raise self.fail((x, slope), "the slope must broadcast to the shape of x")
        return result

    def meaning(self, x: np.ndarray, slope: np.ndarray) -> Any:
        return np.where(x < 0, x * slope, x)

    def element(self, x: Expr, slope: Expr) -> Expr:
        return te.select(x < 0, x * slope, x)
