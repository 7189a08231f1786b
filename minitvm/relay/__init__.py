"""Relay, the graph IR: build it by hand, print, parse, verify and run it.

    x = relay.var("x", shape=(1, 3, 8, 8))
    w = relay.const(np.ones((4, 3, 1, 1), "float32"))
    module = relay.Module.from_expr(relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, w))))
    print(relay.print_module(module))

Every registered operator is a function of this module or of `relay.nn`, users' own included. The
nodes themselves are in `relay.ir`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import minitvm.relay.call_names  # noqa: F401, which fills the shorthands
import minitvm.relay.ir as ir
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

if TYPE_CHECKING:
    from minitvm.build_module import RelayLibrary
    from minitvm.target import Target

__all__ = [
    "REGISTRY", "Dim", "Expr", "FuncType", "Function", "GlobalVar", "If", "LayoutChoice", "Module",
    "Op", "Pattern", "TensorType", "Tuple", "TupleGetItem", "TupleType", "build", "call", "const",
    "load_text", "ops", "parse_module", "print_module", "register", "run", "save_text", "size",
    "structural_equal", "structural_hash", "var", "verify",
]


_ABOVE = "minitvm.build_module"
"""Compiling stands above relay, which must not import it: it is loaded when it is asked for."""

_HOMES = {
    "IRModule": "minitvm.relay.ir:Module",
    "analysis": "minitvm.relay.analysis",
    "bind_params_by_name": "minitvm.relay.frontend:bind_params_by_name",
    "build_module": _ABOVE,
    "create_executor": f"{_ABOVE}:create_executor",
    "frontend": "minitvm.relay.frontend",
    "optimize": f"{_ABOVE}:optimize_module",
    "transform": "minitvm.relay.transform",
}


def build(mod: Module | ir.Function, target: Target | str | None = None, *,
          params: Mapping[str, Any] | None = None, mod_name: str = "default") -> RelayLibrary:
    """Compiles a module, with TVM's names around `minitvm.compile`; see `minitvm.build_module`."""
    library: RelayLibrary = importlib.import_module(_ABOVE).build(
        mod, target, params=params, mod_name=mod_name)
    return library


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return operator_function(name)
    home, _, attribute = _HOMES[name].partition(":")
    module = importlib.import_module(home)
    return getattr(module, attribute) if attribute else module


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES, *(name.partition(".")[0] for name in REGISTRY)})
