"""Which expressions may be computed elsewhere than they stand.

A total expression can be evaluated anywhere without harm: it reads no memory, and divides and
shifts by constants alone. So it may leave a branch that is not always taken.
"""

from __future__ import annotations

from collections.abc import Collection

from minitvm import dtypes
from minitvm.tir import walk
from minitvm.tir.ir import Binary, Const, Expr, Load, Var


def find_total(root: Expr, known: dict[int, bool]) -> None:
    """Whether each node of an expression can be evaluated anywhere."""
    stack = [root]
    while stack:
        node = stack[-1]
        operands = walk.children(node)
        missing = [child for child in operands if id(child) not in known]
        if missing and id(node) not in known:
            stack.extend(missing)
            continue
        stack.pop()
        if id(node) not in known:
            known[id(node)] = is_total_itself(node) and all(known[id(c)] for c in operands)


def is_total(expr: Expr) -> bool:
    """Whether an expression can be evaluated anywhere: no loads, constant divisors."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if not is_total_itself(node):
            return False
        stack.extend(walk.children(node))
    return True


def is_total_itself(node: Expr) -> bool:
    """Whether a node can be evaluated wherever its operands can."""
    match node:
        case Load():
            return False
        case Binary("floordiv" | "floormod", _, b):
            return dtypes.is_float(node.dtype) or (isinstance(b, Const) and b.value != 0)
        case Binary("shl" | "shr", _, b):
            return isinstance(b, Const) and 0 <= b.value < dtypes.bits(node.dtype)
    return True


def is_invariant(expr: Expr, changing: Collection[Var]) -> bool:
    """Whether an expression reads neither memory nor variables that change."""
    return not any(
        isinstance(node, Load) or (isinstance(node, Var) and node in changing)
        for node in walk.walk(expr)
    )
