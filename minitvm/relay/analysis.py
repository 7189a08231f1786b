"""Questions about relay expressions, under TVM's names.

    relay.Function(relay.analysis.free_vars(y), y)
"""

from __future__ import annotations

import minitvm.relay.ir as ir
from minitvm.relay.expr import Expr


def free_vars(expr: Expr) -> list[Expr]:
    """The variables that an expression uses, each once, in the order of their first use."""
    found: dict[ir.Var, Expr] = {}
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node.atom, ir.Var) and node.value is None:
            found.setdefault(node.atom, node)
        elif isinstance(node.value, ir.Function):
            for variable in ir.free_variables(node.value):
                found.setdefault(variable, Expr(variable))
        stack.extend(reversed(node.inputs))
    return list(found.values())
