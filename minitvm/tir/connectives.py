"""Simplification of conjunctions and disjunctions, each part in the light of the others."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from operator import is_
from typing import Protocol

from minitvm.tir.canonical import Sum
from minitvm.tir.conditions import boolean, less_than_zero, parts, truth
from minitvm.tir.ir import And, Compare, Expr, Not, Or
from minitvm.tir.sums import Sums


class Context(Protocol):
    """What is asked of an Analyzer."""

    sums: Sums

    def simplify(self, expr: Expr) -> Expr:
        """An equal expression."""

    def constraint(self, condition: Expr) -> AbstractContextManager[None]:
        """Within it, the condition holds."""

    def difference(self, a: Expr, b: Expr) -> Sum | None:
        """a - b, of indices."""


def simplify_connective(expr: And | Or, context: Context) -> Expr:
    """`expr` with each part simplified where those before it hold (in an Or: don't).

    That is where it is evaluated. Of two comparisons that say more and less, one stays.
    """
    kind: type[And] | type[Or] = type(expr)
    absorbing = kind is Or
    operands = parts(expr, kind)
    kept: list[Expr] = []
    with ExitStack() as facts:
        for operand in operands:
            simple = context.simplify(operand)
            value = truth(simple)
            if value is absorbing:
                return boolean(absorbing, expr.dtype)
            if value is None:
                kept.append(simple)
                if operand is not operands[-1]:
                    facts.enter_context(context.constraint(Not(simple) if absorbing else simple))
    kept = _without_implied(kept, absorbing, context)
    if not kept:
        return boolean(not absorbing, expr.dtype)
    if len(kept) == len(operands) and all(map(is_, kept, operands)):
        return expr
    result = kept[0]
    for part in kept[1:]:
        result = kind(result, part)
    return result


def _without_implied(operands: list[Expr], absorbing: bool, context: Context) -> list[Expr]:
    """Without comparisons that a later one makes superfluous: x < 9 and x < 5 is x < 5."""
    sums = [_negative_sum(part, context) for part in operands]
    return [
        part for place, part in enumerate(operands)
        if not any(_implies(strong, sums[place], absorbing) for strong in sums[place + 1:])
    ]


def _implies(strong: Sum | None, weak: Sum | None, absorbing: bool) -> bool:
    """Whether strong < 0 decides that weak < 0 (in an Or: the other way round)."""
    if strong is None or weak is None or strong.terms != weak.terms:
        return False
    return (strong.constant <= weak.constant) if absorbing else (strong.constant >= weak.constant)


def _negative_sum(condition: Expr, context: Context) -> Sum | None:
    """The sum that is negative where an order of indices holds."""
    if not isinstance(condition, Compare) or condition.op in ("eq", "ne"):
        return None
    difference = context.difference(condition.a, condition.b)
    if difference is None:
        return None
    return less_than_zero(context.sums, condition.op, difference)
