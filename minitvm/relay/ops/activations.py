"""Activation functions on single elements, as ONNX defines them.

Those of networks' inner layers that nn code builds on (`nn.relu`, `nn.leaky_relu`, `nn.prelu`) are
in `relay.ops.nn`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import te
from minitvm.errors import OptionError
from minitvm.relay.op import register
from minitvm.relay.ops.calculus import Erf
from minitvm.relay.ops.families import Unary, intrinsic
from minitvm.tir import ir
from minitvm.tir.ir import Expr

SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875


def _number(value: float, like: Expr) -> Expr:
    return ir.convert(value, like.dtype)


def _exp_minus_one(x: Expr) -> Expr:
    """exp(x) - 1 for x <= 0; positive x, whose branch is not taken, must not overflow."""
    return intrinsic("exp", ir.minimum(x, _number(0.0, x))) - _number(1.0, x)


@register
@dataclass(frozen=True, slots=True)
class Sigmoid(Unary):
    """1 / (1 + exp(-x))."""

    name = "sigmoid"

    def meaning(self, x: np.ndarray) -> Any:
        return 1 / (1 + np.exp(-x))

    def element(self, x: Expr) -> Expr:
        return intrinsic("sigmoid", x)


@register
@dataclass(frozen=True, slots=True)
class HardSigmoid(Unary):
    """max(0, min(1, alpha * x + beta))."""

    alpha: float = 0.2
    beta: float = 0.5
    name = "hard_sigmoid"

    def meaning(self, x: np.ndarray) -> Any:
        alpha, beta = x.dtype.type(self.alpha), x.dtype.type(self.beta)
        return np.maximum(0, np.minimum(1, x * alpha + beta))

    def element(self, x: Expr) -> Expr:
        line = x * _number(self.alpha, x) + _number(self.beta, x)
        return ir.maximum(ir.minimum(line, _number(1.0, x)), _number(0.0, x))


@register
@dataclass(frozen=True, slots=True)
class HardSwish(Unary):
    """x * max(0, min(1, x / 6 + 1 / 2))."""

    name = "hard_swish"

    def meaning(self, x: np.ndarray) -> Any:
        return x * np.maximum(0, np.minimum(1, x * x.dtype.type(1 / 6) + x.dtype.type(0.5)))

    def element(self, x: Expr) -> Expr:
        line = x * _number(1 / 6, x) + _number(0.5, x)
        return x * ir.maximum(ir.minimum(line, _number(1.0, x)), _number(0.0, x))


@register
@dataclass(frozen=True, slots=True)
class Swish(Unary):
    """x * sigmoid(alpha * x); with alpha = 1 also called SiLU."""

    alpha: float = 1.0
    name = "swish"

    def meaning(self, x: np.ndarray) -> Any:
        return x / (1 + np.exp(-x.dtype.type(self.alpha) * x))

    def element(self, x: Expr) -> Expr:
        return x * intrinsic("sigmoid", x * _number(self.alpha, x))


@register
@dataclass(frozen=True, slots=True)
class Elu(Unary):
    """x where positive, alpha * (exp(x) - 1) elsewhere."""

    alpha: float = 1.0
    name = "elu"

    def meaning(self, x: np.ndarray) -> Any:
        return np.where(x > 0, x, x.dtype.type(self.alpha) * np.expm1(np.minimum(x, 0)))

    def element(self, x: Expr) -> Expr:
        return te.select(x > 0, x, _number(self.alpha, x) * _exp_minus_one(x))


@register
@dataclass(frozen=True, slots=True)
class Selu(Unary):
    """gamma * x where positive, gamma * alpha * (exp(x) - 1) elsewhere."""

    alpha: float = SELU_ALPHA
    gamma: float = SELU_GAMMA
    name = "selu"

    def meaning(self, x: np.ndarray) -> Any:
        curve = x.dtype.type(self.alpha) * np.expm1(np.minimum(x, 0))
        return x.dtype.type(self.gamma) * np.where(x > 0, x, curve)

    def element(self, x: Expr) -> Expr:
        curve = _number(self.alpha, x) * _exp_minus_one(x)
        return _number(self.gamma, x) * te.select(x > 0, x, curve)


@register
@dataclass(frozen=True, slots=True)
class Celu(Unary):
    """x where positive, alpha * (exp(x / alpha) - 1) elsewhere."""

    alpha: float = 1.0
    name = "celu"

    def meaning(self, x: np.ndarray) -> Any:
        alpha = x.dtype.type(self.alpha)
        return np.where(x > 0, x, alpha * np.expm1(np.minimum(x / alpha, 0)))

    def element(self, x: Expr) -> Expr:
        alpha = _number(self.alpha, x)
        return te.select(x > 0, x, alpha * _exp_minus_one(x / alpha))


@register
@dataclass(frozen=True, slots=True)
class Softplus(Unary):
    """log(1 + exp(x)), computed as max(x, 0) + log(1 + exp(-|x|)) so that it does not overflow."""

    name = "softplus"

    def meaning(self, x: np.ndarray) -> Any:
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))

    def element(self, x: Expr) -> Expr:
        return ir.maximum(x, _number(0.0, x)) + _log1p(intrinsic("exp", -intrinsic("abs", x)))


def _log1p(y: Expr) -> Expr:
    """log(1 + y) for y in [0, 1], by Kahan's correction: exact to rounding for tiny y too."""
    one = _number(1.0, y)
    u = one + y
    lost = u - one
    safe = te.select(ir.equal(lost, _number(0.0, y)), one, lost)
    return te.select(ir.equal(lost, _number(0.0, y)), y, intrinsic("log", u) * (y / safe))


@register
@dataclass(frozen=True, slots=True)
class Softsign(Unary):
    """x / (1 + |x|)."""

    name = "softsign"

    def meaning(self, x: np.ndarray) -> Any:
        return x / (1 + np.abs(x))

    def element(self, x: Expr) -> Expr:
        return x / (_number(1.0, x) + intrinsic("abs", x))


@register
@dataclass(frozen=True, slots=True)
class Mish(Unary):
    """x * tanh(softplus(x))."""

    name = "mish"

    def meaning(self, x: np.ndarray) -> Any:
        return x * np.tanh(Softplus().meaning(x))

    def element(self, x: Expr) -> Expr:
        return x * intrinsic("tanh", Softplus().element(x))


@register
@dataclass(frozen=True, slots=True)
class ThresholdedRelu(Unary):
    """x where above alpha, 0 elsewhere."""

    alpha: float = 1.0
    name = "thresholded_relu"

    def meaning(self, x: np.ndarray) -> Any:
        return np.where(x > x.dtype.type(self.alpha), x, 0)

    def element(self, x: Expr) -> Expr:
        return te.select(x > _number(self.alpha, x), x, _number(0.0, x))


@register
@dataclass(frozen=True, slots=True)
class Gelu(Unary):
    """x * P(X <= x) for a standard normal X; `approximate` is "none" (by erf) or "tanh"."""

    approximate: str = "none"
    name = "gelu"

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise OptionError(f'gelu approximates by "none" or "tanh", not {self.approximate!r}')

    def meaning(self, x: np.ndarray) -> Any:
        number = x.dtype.type
        if self.approximate == "none":
            return number(0.5) * x * (1 + Erf().evaluate(x * number(math.sqrt(0.5))))
        inner = number(math.sqrt(2 / math.pi)) * (x + number(0.044715) * x * x * x)
        return number(0.5) * x * (1 + np.tanh(inner))

    def element(self, x: Expr) -> Expr:
        half, one = _number(0.5, x) * x, _number(1.0, x)
        if self.approximate == "none":
            return half * (one + intrinsic("erf", x * _number(math.sqrt(0.5), x)))
        inner = _number(math.sqrt(2 / math.pi), x) * (x + _number(0.044715, x) * x * x * x)
        return half * (one + intrinsic("tanh", inner))
