"""The conditions of guards, taken apart: conjunctions, and alternatives of which one is rare.

    likely((a or b) and c)      conjuncts: a or b, c;  alternatives of the first: a, b
"""

from __future__ import annotations

import functools

from minitvm.tir.conditions import NEGATED
from minitvm.tir.conditions import parts as operands
from minitvm.tir.ir import And, Call, Compare, Expr, Or


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a conjunction, from left to right, without `likely`."""
    match condition:
        case And(a, b):
            return conjuncts(a) + conjuncts(b)
        case Call("likely", (inner,)):
            return conjuncts(inner)
    return [condition]


def alternatives(part: Expr) -> list[Expr]:
    """The parts of a disjunction, from left to right."""
    return operands(part, Or) if isinstance(part, Or) else [part]


def disjunction(options: list[Expr]) -> Expr:
    """The inverse of `alternatives`."""
    return functools.reduce(Or, options)


def usual(part: Expr) -> Expr:
    """The comparison to split a loop for: that the first of several alternatives doesn't hold."""
    if isinstance(part, Or):
        match alternatives(part)[0]:
            case Compare(op, a, b):
                return Compare(NEGATED[op], a, b)
    return part


def is_likely(condition: Expr) -> bool:
    """Whether a part of a conjunction is marked as likely."""
    match condition:
        case And(a, b):
            return is_likely(a) or is_likely(b)
        case Call("likely"):
            return True
    return False
