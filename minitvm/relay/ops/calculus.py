"""The functions of calculus on single elements: exponentials, logarithms, trigonometry.

Each is one intrinsic of tir; `tir.intrinsics` says how exact machine code must be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm.relay.op import register
from minitvm.relay.ops.families import Unary, intrinsic
from minitvm.tir.ir import Expr


@register
@dataclass(frozen=True, slots=True)
class Exp(Unary):
    """e to the power x."""

    name = "exp"

    def meaning(self, x: np.ndarray) -> Any:
        return np.exp(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("exp", x)


@register
@dataclass(frozen=True, slots=True)
class Log(Unary):
    """The natural logarithm; NaN below zero, minus infinity at zero."""

    name = "log"

    def meaning(self, x: np.ndarray) -> Any:
        return np.log(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("log", x)


_erf_of_number = np.vectorize(math.erf, otypes=[np.float64])


@register
@dataclass(frozen=True, slots=True)
class Erf(Unary):
    """The error function."""

    name = "erf"

    def meaning(self, x: np.ndarray) -> Any:
        return _erf_of_number(x.astype(np.float64))

    def element(self, x: Expr) -> Expr:
        return intrinsic("erf", x)


@register
@dataclass(frozen=True, slots=True)
class Sin(Unary):
    """The sine of x radians."""

    name = "sin"

    def meaning(self, x: np.ndarray) -> Any:
        return np.sin(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("sin", x)


@register
@dataclass(frozen=True, slots=True)
class Cos(Unary):
    """The cosine of x radians."""

    name = "cos"

    def meaning(self, x: np.ndarray) -> Any:
        return np.cos(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("cos", x)


@register
@dataclass(frozen=True, slots=True)
class Tan(Unary):
    """The tangent of x radians."""

    name = "tan"

    def meaning(self, x: np.ndarray) -> Any:
        return np.tan(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("tan", x)


@register
@dataclass(frozen=True, slots=True)
class Asin(Unary):
    """The angle whose sine is x; NaN outside [-1, 1]."""

    name = "asin"

    def meaning(self, x: np.ndarray) -> Any:
        return np.arcsin(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("asin", x)


@register
@dataclass(frozen=True, slots=True)
class Acos(Unary):
    """The angle whose cosine is x; NaN outside [-1, 1]."""

    name = "acos"

    def meaning(self, x: np.ndarray) -> Any:
        return np.arccos(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("acos", x)


@register
@dataclass(frozen=True, slots=True)
class Atan(Unary):
    """The angle whose tangent is x."""

    name = "atan"

    def meaning(self, x: np.ndarray) -> Any:
        return np.arctan(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("atan", x)


@register
@dataclass(frozen=True, slots=True)
class Sinh(Unary):
    """The hyperbolic sine."""

    name = "sinh"

    def meaning(self, x: np.ndarray) -> Any:
        return np.sinh(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("sinh", x)


@register
@dataclass(frozen=True, slots=True)
class Cosh(Unary):
    """The hyperbolic cosine."""

    name = "cosh"

    def meaning(self, x: np.ndarray) -> Any:
        return np.cosh(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("cosh", x)


@register
@dataclass(frozen=True, slots=True)
class Tanh(Unary):
    """The hyperbolic tangent."""

    name = "tanh"

    def meaning(self, x: np.ndarray) -> Any:
        return np.tanh(x)

    def element(self, x: Expr) -> Expr:
        return intrinsic("tanh", x)
