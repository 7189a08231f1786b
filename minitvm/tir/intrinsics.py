"""The intrinsics that `tir.Call` may name: what they take, give and mean.

Each row's meaning is a numpy function, which the interpreter runs and code generation must match
within `ulp` units in the last place (None: exactly).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Kind = str
"""`same`: arguments and result of one dtype; `bool`: gives bool; `lazy`: if_then_else; `replicate`:
the lanes of a vector, so often one after the other; `hint`: takes an address that is not accessed,
and gives an int32 of no meaning."""


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """One row of the table."""

    name: str
    arity: int
    meaning: Callable[..., Any]
    floats_only: bool = True
    kind: Kind = "same"
    ulp: int | None = None


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _ldexp(x: Any, n: Any) -> Any:
    """x times the float 2**n, n an integer from -126 to 128 held as a float (NaN only if x is)."""
    power = np.ldexp(np.ones_like(n), np.nan_to_num(n).astype(np.int32))
    return x * power


DECAY_LOW = -87.68311309814453
"""Below it `decay` is zero: the least float32 above -126.5 * log(2), where the result, a subnormal
number, is 2**n times one of at least 0.7 with a normal 2**n. In machine code it may be the next."""


def _decay(x: Any) -> Any:
    """e to the power x, of at most zero; not defined for others."""
    return np.where(x < DECAY_LOW, np.zeros_like(x), np.exp(x))


TABLE: dict[str, Intrinsic] = {
    row.name: row
    for row in (
        Intrinsic("exp", 1, np.exp, ulp=2),
        Intrinsic("decay", 1, _decay, ulp=2),
        Intrinsic("log", 1, np.log, ulp=2),
        Intrinsic("sqrt", 1, np.sqrt),
        Intrinsic("rsqrt", 1, lambda x: 1 / np.sqrt(x), ulp=2),
        Intrinsic("tanh", 1, np.tanh, ulp=2),
        Intrinsic("sigmoid", 1, _sigmoid, ulp=2),
        Intrinsic("erf", 1, _erf, ulp=2),
        Intrinsic("sin", 1, np.sin, ulp=2),
        Intrinsic("cos", 1, np.cos, ulp=2),
        Intrinsic("tan", 1, np.tan, ulp=2),
        Intrinsic("asin", 1, np.arcsin, ulp=2),
        Intrinsic("acos", 1, np.arccos, ulp=2),
        Intrinsic("atan", 1, np.arctan, ulp=2),
        Intrinsic("sinh", 1, np.sinh, ulp=2),
        Intrinsic("cosh", 1, np.cosh, ulp=2),
        Intrinsic("pow", 2, np.power, ulp=2),
        Intrinsic("ldexp", 2, _ldexp),
        Intrinsic("fma", 3, lambda a, b, c: a * b + c, ulp=1),
        Intrinsic("floor", 1, np.floor),
        Intrinsic("ceil", 1, np.ceil),
        Intrinsic("trunc", 1, np.trunc),
        Intrinsic("round", 1, np.rint),  # half to even
        Intrinsic("abs", 1, np.abs, floats_only=False),
        Intrinsic("isnan", 1, np.isnan, kind="bool"),
        Intrinsic("isinf", 1, np.isinf, kind="bool"),
        Intrinsic("likely", 1, lambda c: c, floats_only=False),
        Intrinsic("if_then_else", 3, np.where, floats_only=False, kind="lazy"),
        Intrinsic("replicate", 2, np.tile, floats_only=False, kind="replicate"),
        Intrinsic("prefetch", 1, lambda address: 0, floats_only=False, kind="hint"),
    )
}
