"""Comparisons of index sums with zero, and parts of conditions."""

from __future__ import annotations

import math

from minitvm import dtypes
from minitvm.tir import walk
from minitvm.tir.bounds import Interval
from minitvm.tir.canonical import Sum, render_terms
from minitvm.tir.ir import And, Binary, Broadcast, Compare, Const, Expr, Or, Var
from minitvm.tir.sums import Sums

NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
"""The comparison that holds where another doesn't (for integers)."""


def decide(op: str, difference: Interval) -> bool | None:
    """Whether `difference op 0`, if its interval tells."""
    low, high = difference
    match op:
        case "lt":
            return True if high < 0 else False if low >= 0 else None
        case "le":
            return True if high <= 0 else False if low > 0 else None
        case "gt":
            return True if low > 0 else False if high <= 0 else None
        case "ge":
            return True if low >= 0 else False if high < 0 else None
        case "eq":
            return True if low == 0 == high else False if low > 0 or high < 0 else None
        case _:
            return True if low > 0 or high < 0 else False if low == 0 == high else None


def less_than_zero(sums: Sums, op: str, difference: Sum) -> Sum:
    """The sum that is negative where `difference op 0`; op is lt, le, gt or ge."""
    if op in ("gt", "ge"):
        difference = sums.scale(difference, -1)
    if op in ("le", "ge"):
        return Sum(difference.terms, difference.constant - 1, difference.dtype)
    return difference


def tighten(sums: Sums, negative: Sum) -> Sum:
    """A smaller sum that is negative in the same cases: 4 * i + j < 8 is i < 2 if 0 <= j < 4."""
    while True:
        factors = {abs(c) for c in negative.terms.values()}
        factors.add(math.gcd(*factors))
        for factor in sorted(factors, reverse=True):
            factored = sums.factor(negative, factor) if factor > 1 else None
            if factored is not None:
                negative = factored.multiple
                break
        else:
            return negative


def render_compare(sums: Sums, op: str, difference: Sum) -> Compare | None:
    """`difference op 0`, undecided, as a comparison of what is added with what is subtracted.

    None where a side may leave the dtype.
    """
    if op in ("eq", "ne"):
        divisor = math.gcd(*difference.terms.values())
        if difference.constant % divisor:
            return None
        terms = {atom: c // divisor for atom, c in difference.terms.items()}
        difference = Sum(terms, difference.constant // divisor, difference.dtype)
    else:
        difference = tighten(sums, less_than_zero(sums, op, difference))
        op = "lt"
    added = {atom: c for atom, c in difference.terms.items() if c > 0}
    taken = {atom: -c for atom, c in difference.terms.items() if c < 0}
    constant = difference.constant
    if op == "lt" and not added:
        return _sides(sums, "ge", Sum(taken, 0, difference.dtype), Sum({}, constant + 1, ""))
    if op == "lt" and taken and constant == -1:
        op, constant = "le", 0
    if op != "lt" and op != "le" and not added:
        added, taken, constant = taken, {}, -constant
    left = constant if constant > 0 and taken else 0
    return _sides(sums, op, Sum(added, left, difference.dtype), Sum(taken, left - constant, ""))


def _sides(sums: Sums, op: str, left: Sum, right: Sum) -> Compare | None:
    dtype = left.dtype
    right = Sum(right.terms, right.constant, dtype)
    low, high = dtypes.integer_range(dtype)
    if not (low < left.constant <= high and low < right.constant <= high):
        return None
    if sums.may_wrap(left) or sums.may_wrap(right):
        return None
    return Compare(op, render_terms(left.terms, left.constant, dtype),
                   render_terms(right.terms, right.constant, dtype))


def truth(condition: Expr) -> bool | None:
    """The value of a constant condition (of every lane)."""
    if isinstance(condition, Broadcast):
        condition = condition.value
    return bool(condition.value) if isinstance(condition, Const) else None


def boolean(value: bool, dtype: str) -> Expr:
    """A constant condition with the lanes of `dtype`."""
    count = dtypes.lanes(dtype)
    scalar = Const(value, "bool")
    return scalar if count == 1 else Broadcast(scalar, count)


def parts(condition: Expr, kind: type[And] | type[Or]) -> list[Expr]:
    """The operands of nested conjunctions (or disjunctions), from left to right."""
    found: list[Expr] = []
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, kind):
            stack.extend((node.b, node.a))
        else:
            found.append(node)
    return found


def node_count(expr: Expr) -> int:
    """The number of nodes of an expression."""
    kind = type(expr)
    if kind is Var or kind is Const:
        return 1
    if kind is Binary or kind is Compare:
        return 1 + node_count(expr.a) + node_count(expr.b)  # type: ignore[attr-defined]
    return 1 + sum(map(node_count, walk.children(expr)))
