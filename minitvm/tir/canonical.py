"""Index arithmetic as sums: a * (i // 4) + b * (i % 4) + c, in which equal terms meet and cancel.

    Sum  = terms: Atom -> coefficient, constant          the sum of coefficient * atom, + constant
    Atom = (source // divisor) % modulus                 modulus 0: none; divisor 1: none

A source is a variable, a product of variables, or anything opaque (a minimum, a load, a quotient of
a sum that doesn't divide). Terms keep the order in which they first came, so that rendering what
was canonical gives it back unchanged.

Domain. Sums over variables of int32 or int64 are taken as exact integers: index arithmetic doesn't
overflow, as in C. Values that come from memory or from a cast (`Atom.data`) wrap: a sum of them
that may leave its dtype is not divided or compared (`sums.Sums.may_wrap`); adding, subtracting and
multiplying are right modulo 2**n in any case.

This module holds sums and how they read as expressions; `sums` is their algebra. Splitting and
fusing axes gives quotients and remainders of each other; the idea of keeping both in one kind of
term is that of TVM's canonical simplifier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from minitvm import dtypes
from minitvm.tir import ir
from minitvm.tir.ir import Binary, Const, Expr, Var

INDEX_DTYPES = ("int32", "int64")
"""The dtypes of index arithmetic; others are data, and wrap."""


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """(source // divisor) % modulus, unique in its `Sums`; `expr` is that as an expression."""

    source: Expr
    divisor: int
    modulus: int
    expr: Expr
    data: bool

    @property
    def is_split(self) -> bool:
        """Whether it is a part of its source only."""
        return self.divisor != 1 or self.modulus != 0


class Sum(NamedTuple):
    """The sum of coefficient * atom over `terms`, plus `constant`. The terms are never changed."""

    terms: dict[Atom, int]
    constant: int
    dtype: str

    def single(self) -> Atom | None:
        """The atom that this sum is, if it is one."""
        if len(self.terms) == 1 and self.constant == 0:
            (atom, coefficient), = self.terms.items()
            if coefficient == 1:
                return atom
        return None


SumKey = frozenset[tuple[Atom, int]]


def render_terms(terms: dict[Atom, int], constant: int, dtype: str) -> Expr:
    """The sum of terms and a constant, both wrapped to the dtype, as an expression."""
    result: Expr | None = None
    negative = False
    for atom, coefficient in terms.items():
        if coefficient > 0:
            term = _times(atom.expr, coefficient, dtype)
            result = term if result is None else Binary("add", result, term)
        else:
            negative = True
    constant = ir.wrap_integer(constant, dtype)
    if result is None and negative and constant > 0:
        result, constant = Const(constant, dtype), 0
    if negative:
        for atom, coefficient in terms.items():
            if coefficient < 0:
                if result is not None:
                    result = Binary("sub", result, _times(atom.expr, -coefficient, dtype))
                elif coefficient == -1:
                    result = Binary("sub", Const(0, dtype), atom.expr)
                else:
                    result = _times(atom.expr, coefficient, dtype)
    if result is None:
        return Const(constant, dtype)
    if constant > 0:
        return Binary("add", result, Const(constant, dtype))
    if constant < 0:
        low = dtypes.integer_range(dtype)[0]
        if constant == low:
            return Binary("add", result, Const(low, dtype))
        return Binary("sub", result, Const(-constant, dtype))
    return result


def _times(expr: Expr, factor: int, dtype: str) -> Expr:
    if factor == 1:
        return expr
    return Binary("mul", expr, Const(ir.wrap_integer(factor, dtype), dtype))


def normal_key(a: Sum) -> tuple[SumKey, int]:
    """The terms of a sum up to a factor, and the factor: a = factor * (key's sum) + constant."""
    scale = math.gcd(*a.terms.values())
    first = min(a.terms, key=id)
    if a.terms[first] < 0:
        scale = -scale
    return frozenset((atom, c // scale) for atom, c in a.terms.items()), scale


def is_index(expr: Expr) -> bool:
    """Whether an expression is index arithmetic: variables of an index dtype, and no data."""
    match expr:
        case Var(_, dtype) | Const(_, dtype):
            return dtype in INDEX_DTYPES
        case Binary(op, a, b):
            return op != "div" and is_index(a) and is_index(b)
        case ir.Cast(dtype, value) if dtype == "int64":
            return value.dtype == "int32" and is_index(value)
        case ir.Select(_, a, b) | ir.Call("if_then_else", (_, a, b), _):
            return is_index(a) and is_index(b)
        case ir.Broadcast(value, _):
            return is_index(value)
        case ir.Ramp(base, stride, _):
            return is_index(base) and is_index(stride)
        case _:
            return False
