"""Functions that give up accuracy for speed: what the pass `FastMath` puts in place of exact ones.

Each is within 1e-5 of the function, relative to its value, in float32 and float64, where the value
is a normal number; NaN gives NaN. The coefficients are minimax fits of the relative error.

    fast_exp          2**n * polynomial, n = round(x / log(2)); 0 below -87.3, infinite above 88.3
    fast_sigmoid      1 / (1 + fast_exp(-x))
    fast_tanh         x * polynomial / polynomial in x**2; 1 beyond 9
    fast_erf          the same; 1 beyond 4
    nn.fast_softmax   softmax by fast_exp
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import register
from minitvm.relay.ops.families import Unary, intrinsic
from minitvm.relay.ops.nn.softmax import SoftmaxBase
from minitvm.tir import ir
from minitvm.tir.ir import Expr

MAX_RELATIVE_ERROR = 1e-5
"""Of every function here, where its value is a normal number."""

EXP_LOW, EXP_HIGH = -87.3125, 88.375
"""Where 2**n is a normal number; beyond, `fast_exp` gives 0 or an infinity."""

_EXP = (1.0, 1.0, 0.5000511754, 0.1675351575, 0.0412775372)
"""exp(r) for |r| <= log(2) / 2."""
_TANH = (
    (0.9999941350445645, 0.12058339137162709, 0.002066723471973799, 3.023275701425989e-06),
    (1.0, 0.4538791258854897, 0.02006768663960786, 0.00012037790990236949),
)
"""tanh(x) / x in x**2, for |x| <= 9: numerator and denominator."""
_ERF = (
    (1.1283849039487597, 0.17215944212806492, 0.04881931930257124, 0.0014096436539989042),
    (1.0, 0.4860138737407147, 0.10489667994010449, 0.011928168631358439, 6.302377406850912e-05),
)
"""erf(x) / x in x**2, for |x| <= 4."""

_LOG_2_HIGH = 0.693359375
_LOG_2_LOW = math.log(2) - _LOG_2_HIGH


# --- in numpy -----------------------------------------------------------------------------------


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    result = x.dtype.type(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result * x + x.dtype.type(coefficient)
    return result


def exp_of(x: np.ndarray) -> np.ndarray:
    """`fast_exp` in numpy."""
    number = x.dtype.type
    inside = np.where(x > EXP_HIGH, number(89), np.where(x < EXP_LOW, number(EXP_LOW), x))
    n = np.rint(inside * number(1 / math.log(2)))
    r = inside - n * number(_LOG_2_HIGH) - n * number(_LOG_2_LOW)
    scale = np.ldexp(number(1), np.nan_to_num(n).astype(np.int32))  # np.exp2 rounds
    value = np.where(n > 127, number(np.inf), _polynomial(r, _EXP) * scale)
    return np.asarray(np.where(x < EXP_LOW, number(0), value), x.dtype)


def _odd_ratio(x: np.ndarray, limit: float, ratio: Any) -> np.ndarray:
    """x * numerator / denominator, held within -1 and 1."""
    number = x.dtype.type
    inside = np.where(x > limit, number(limit), np.where(x < -limit, number(-limit), x))
    square = inside * inside
    value = inside * _polynomial(square, ratio[0]) / _polynomial(square, ratio[1])
    return np.asarray(np.where(value > 1, number(1), np.where(value < -1, number(-1), value)))


# --- in te --------------------------------------------------------------------------------------


def _number(value: float, like: Expr) -> Expr:
    return ir.convert(value, like.dtype)


def _between(x: Expr, low: float, high: float) -> Expr:
    """x held within bounds, NaN as it is."""
    least, most = _number(low, x), _number(high, x)
    return te.select(x > most, most, te.select(x < least, least, x))


def _expression(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    result = _number(coefficients[-1], x)
    for coefficient in coefficients[-2::-1]:
        result = result * x + _number(coefficient, x)
    return result


def exp_element(x: Expr) -> Expr:
    """`fast_exp` of one element."""
    inside = te.select(x > EXP_HIGH, _number(89.0, x), te.select(
        x < EXP_LOW, _number(EXP_LOW, x), x))
    n = intrinsic("round", inside * _number(1 / math.log(2), x))
    r = inside - n * _number(_LOG_2_HIGH, x) - n * _number(_LOG_2_LOW, x)
    value = intrinsic("ldexp", _expression(r, _EXP), n)
    if x.dtype != "float32":
        value = te.select(n > _number(127.0, x), _number(math.inf, x), value)
    return te.select(x < EXP_LOW, _number(0.0, x), value)


def _odd_ratio_element(x: Expr, limit: float, ratio: Any) -> Expr:
    inside = _between(x, -limit, limit)
    square = inside * inside
    value = inside * _expression(square, ratio[0]) / _expression(square, ratio[1])
    return _between(value, -1.0, 1.0)


# --- operators ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FastUnary(Unary):
    """What the functions of one element have in common: they take float32 or float64."""

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype not in ("float32", "float64"):
            raise self.fail((x,), "the argument must be float32 or float64; cast it")
        return Unary.infer(self, x)


@register
@dataclass(frozen=True, slots=True)
class FastExp(FastUnary):
    """e to the power x, within 1e-5 of it; 0 below -87.3125, infinite above 88.375."""

    name = "fast_exp"

    def meaning(self, x: np.ndarray) -> Any:
        return exp_of(x)

    def element(self, x: Expr) -> Expr:
        return exp_element(x)


@register
@dataclass(frozen=True, slots=True)
class FastSigmoid(FastUnary):
    """1 / (1 + exp(-x)), within 1e-5 of it; 0 below -88.375."""

    name = "fast_sigmoid"

    def meaning(self, x: np.ndarray) -> Any:
        return 1 / (1 + exp_of(-x))

    def element(self, x: Expr) -> Expr:
        return _number(1.0, x) / (_number(1.0, x) + exp_element(-x))


@register
@dataclass(frozen=True, slots=True)
class FastTanh(FastUnary):
    """The hyperbolic tangent, within 1e-5 of it."""

    name = "fast_tanh"

    def meaning(self, x: np.ndarray) -> Any:
        return _odd_ratio(x, 9.0, _TANH)

    def element(self, x: Expr) -> Expr:
        return _odd_ratio_element(x, 9.0, _TANH)


@register
@dataclass(frozen=True, slots=True)
class FastErf(FastUnary):
    """The error function, within 1e-5 of it."""

    name = "fast_erf"

    def meaning(self, x: np.ndarray) -> Any:
        return _odd_ratio(x, 4.0, _ERF)

    def element(self, x: Expr) -> Expr:
        return _odd_ratio_element(x, 4.0, _ERF)


@register
@dataclass(frozen=True, slots=True)
class FastSoftmax(SoftmaxBase):
    """exp(x) / sum(exp(x)) along an axis, each within 2e-5 of it."""

    name = "nn.fast_softmax"

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype not in ("float32", "float64"):
            raise self.fail((x,), "the argument must be float32 or float64; cast it")
        return SoftmaxBase.infer(self, x)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            powers = exp_of(x - x.max(self.axis, keepdims=True, initial=-np.inf))
            return np.asarray(powers / powers.sum(self.axis, keepdims=True))

    def exp(self, x: Expr) -> Expr:
        return exp_element(x)
