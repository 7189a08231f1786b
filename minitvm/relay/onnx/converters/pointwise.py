"""ONNX operators on single elements: functions, activations, casts, Clip."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom, Constant
from minitvm.relay.onnx.conversion import Conversion
from minitvm.relay.onnx.table import converter
from minitvm.relay.op import Op
from minitvm.relay.ops.activations import (
    SELU_ALPHA,
    SELU_GAMMA,
    Celu,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    Mish,
    Selu,
    Sigmoid,
    Softplus,
    Softsign,
    Swish,
    ThresholdedRelu,
)
from minitvm.relay.ops.broadcast import Equal, Maximum, Minimum
from minitvm.relay.ops.calculus import (
    Acos,
    Asin,
    Atan,
    Cos,
    Cosh,
    Erf,
    Exp,
    Log,
    Sin,
    Sinh,
    Tan,
    Tanh,
)
from minitvm.relay.ops.create import Zeros
from minitvm.relay.ops.elementwise import (
    Abs,
    BitwiseNot,
    Cast,
    Ceil,
    Clip,
    Floor,
    IsInf,
    IsNan,
    LogicalNot,
    Negative,
    Reciprocal,
    Round,
    Sign,
    Sqrt,
)
from minitvm.relay.ops.nn.activations import LeakyRelu, PRelu, Relu

UNARY: dict[str, tuple[int, Op]] = {
    "Abs": (1, Abs()),
    "Acos": (7, Acos()),
    "Asin": (7, Asin()),
    "Atan": (7, Atan()),
    "BitwiseNot": (18, BitwiseNot()),
    "Ceil": (1, Ceil()),
    "Cos": (7, Cos()),
    "Cosh": (9, Cosh()),
    "Erf": (9, Erf()),
    "Exp": (1, Exp()),
    "Floor": (1, Floor()),
    "HardSwish": (14, HardSwish()),
    "IsNaN": (9, IsNan()),
    "Log": (1, Log()),
    "Mish": (18, Mish()),
    "Neg": (1, Negative()),
    "Not": (1, LogicalNot()),
    "Reciprocal": (1, Reciprocal()),
    "Relu": (1, Relu()),
    "Round": (11, Round()),
    "Sigmoid": (1, Sigmoid()),
    "Sign": (9, Sign()),
    "Sin": (7, Sin()),
    "Sinh": (9, Sinh()),
    "Softplus": (1, Softplus()),
    "Softsign": (1, Softsign()),
    "Sqrt": (1, Sqrt()),
    "Tan": (7, Tan()),
    "Tanh": (1, Tanh()),
}
"""Operators without attributes that are one relay operator: the first opset, and that operator."""

PARAMETRIC: dict[str, tuple[int, Callable[[Conversion], Op]]] = {
    "Celu": (12, lambda c: Celu(c.number("alpha", 1.0))),
    "Elu": (1, lambda c: Elu(c.number("alpha", 1.0))),
    "Gelu": (20, lambda c: Gelu(c.text("approximate", "none", ("none", "tanh")))),
    "HardSigmoid": (1, lambda c: HardSigmoid(c.number("alpha", 0.2), c.number("beta", 0.5))),
    "LeakyRelu": (1, lambda c: LeakyRelu(c.number("alpha", 0.01))),
    "Selu": (1, lambda c: Selu(c.number("alpha", SELU_ALPHA), c.number("gamma", SELU_GAMMA))),
    "Swish": (24, lambda c: Swish(c.number("alpha", 1.0))),
    "ThresholdedRelu": (10, lambda c: ThresholdedRelu(c.number("alpha", 1.0))),
}
"""Operators of one tensor whose attributes are those of the relay operator."""


def _register_unary(name: str, since: int, op: Op) -> None:
    @converter(name, since)
    def convert(c: Conversion) -> Atom:
        return c.emit(op, c.input(0))


def _register_parametric(name: str, since: int, make: Callable[[Conversion], Op]) -> None:
    @converter(name, since)
    def convert(c: Conversion) -> Atom:
        return c.emit(make(c), c.input(0))


for _name, (_since, _op) in UNARY.items():
    _register_unary(_name, _since, _op)
for _name, (_since, _make) in PARAMETRIC.items():
    _register_parametric(_name, _since, _make)


@converter("Identity", 1)
def identity(c: Conversion) -> Atom:
    """The value itself."""
    return c.input(0)


@converter("PRelu", 1)
def prelu(c: Conversion) -> Atom:
    """The slope broadcasts to x."""
    return c.emit(PRelu(), c.input(0), c.input(1))


@converter("IsInf", 10)
def is_inf(c: Conversion) -> Atom:
    """Infinity of either sign, or of one of them."""
    x = c.input(0)
    given = c.type(x)
    negative, positive = c.flag("detect_negative", True), c.flag("detect_positive", True)
    if negative and positive:
        return c.emit(IsInf(), x)
    if negative or positive:
        return c.emit(Equal(), x, c.make(np.inf if positive else -np.inf, given.dtype))
    return c.emit(Zeros(given.shape, "bool"))


# --- casts --------------------------------------------------------------------------------------


def _cast(c: Conversion, dtype: str) -> Atom:
    c.ignore("saturate", "round_mode")  # they concern 8-bit floats alone
    x = c.input(0)
    return x if c.type(x).dtype == dtype else c.emit(Cast(dtype), x)


@converter("Cast", 6)
def cast(c: Conversion) -> Atom:
    """To a dtype."""
    return _cast(c, c.dtype(c.required_integer("to")))


@converter("CastLike", 15)
def cast_like(c: Conversion) -> Atom:
    """To the dtype of another tensor."""
    return _cast(c, c.type(c.input(1)).dtype)


# --- clip ---------------------------------------------------------------------------------------


@converter("Clip", 1)
def clip_between_attributes(c: Conversion) -> Atom:
    """Bounds in attributes."""
    low, high = c.number("min", -np.inf), c.number("max", np.inf)
    op = Clip(None if low == -np.inf else low, None if high == np.inf else high)
    return c.emit(op, c.input(0))


@converter("Clip", 11)
def clip_between_inputs(c: Conversion) -> Atom:
    """Bounds in inputs, each of them optional, which may be computed at run time."""
    x = c.input(0)
    bounds = [c.optional(1), c.optional(2)]
    for bound in bounds:
        if bound is not None and c.type(bound).elements() != 1:
            raise ModelError(f"{c.node}: a bound must be one number, not {c.type(bound)}")
    if all(bound is None or isinstance(bound, Constant) for bound in bounds):
        values = [bound.data.item() if isinstance(bound, Constant) else None for bound in bounds]
        return c.emit(Clip(*values), x)
    for op, bound in zip((Maximum(), Minimum()), bounds, strict=True):
        x = x if bound is None else c.emit(op, x, bound)
    return x
