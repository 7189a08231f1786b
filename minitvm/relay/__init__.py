"""Relay, the graph IR: build it by hand, print, parse, verify and run it.

    x = relay.var("x", shape=(1, 3, 8, 8))
    w = relay.const(np.ones((4, 3, 1, 1), "float32"))
    module = relay.Module.from_expr(relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, w))))
    print(relay.print_module(module))

Every registered operator is a function of this module or of `relay.nn`, users' own included. The
nodes themselves are in `relay.ir`.
"""

from __future__ import annotations

from typing import Any

import minitvm.relay.ops as ops
from minitvm.relay.dim import Dim, size
from minitvm.relay.expr import (
    Expr,
    Function,
    If,
    Tuple,
    TupleGetItem,
    call,
    const,
    operator_function,
    var,
)
from minitvm.relay.interpret import run
from minitvm.relay.ir import FuncType, GlobalVar, Module, TensorType, TupleType
from minitvm.relay.op import REGISTRY, LayoutChoice, Op, Pattern, register
from minitvm.relay.structural_hash import structural_equal, structural_hash
from minitvm.relay.text import load_text, parse_module, print_module, save_text
from minitvm.relay.verify import verify

__all__ = [
    "REGISTRY", "Dim", "Expr", "FuncType", "Function", "GlobalVar", "If", "LayoutChoice", "Module",
    "Op", "Pattern", "TensorType", "Tuple", "TupleGetItem", "TupleType", "call", "const",
    "load_text", "ops", "parse_module", "print_module", "register", "run", "save_text", "size",
    "structural_equal", "structural_hash", "var", "verify",
]


def __getattr__(name: str) -> Any:
    return operator_function(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name.partition(".")[0] for name in REGISTRY)})
