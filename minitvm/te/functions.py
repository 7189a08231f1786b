"""The reducers and the intrinsics that bodies of computes are written with.

The names shadow Python builtins as numpy's do; use them as `te.sum`, `te.max`, `te.exp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitvm.te.tensor import as_expr, comm_reducer, max_value, min_value
from minitvm.tir import ir
from minitvm.tir.ir import Expr

sum = comm_reducer(lambda x, y: x + y, lambda dtype: ir.convert(0, dtype), name="sum")
prod = comm_reducer(lambda x, y: x * y, lambda dtype: ir.convert(1, dtype), name="prod")
max = comm_reducer(ir.maximum, min_value, name="max")
min = comm_reducer(ir.minimum, max_value, name="min")


def _unary(name: str) -> Callable[[Any], Expr]:
    def apply(x: Any) -> Expr:
        value = as_expr(x, "float32")
        return ir.Call(name, (value,), value.dtype)

    apply.__name__ = name
    apply.__doc__ = f"The intrinsic `{name}`; see `tir.intrinsics`."
    return apply


exp, log, sqrt, rsqrt = _unary("exp"), _unary("log"), _unary("sqrt"), _unary("rsqrt")
decay = _unary("decay")
tanh, sigmoid, erf = _unary("tanh"), _unary("sigmoid"), _unary("erf")
sin, cos, floor, ceil = _unary("sin"), _unary("cos"), _unary("floor"), _unary("ceil")
trunc, round, abs = _unary("trunc"), _unary("round"), _unary("abs")


def power(x: Any, y: Any) -> Expr:
    """x to the power y, both of one float dtype."""
    base = as_expr(x, "float32")
    return ir.Call("pow", (base, as_expr(y, base.dtype)), base.dtype)


if_then_else = ir.if_then_else
select = ir.select
all = ir.conjunction
any = ir.disjunction
