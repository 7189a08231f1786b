"""Comparisons of index arithmetic as linear forms, and where in a loop they hold.

    a < b   is   a - b < 0,   a - b = the sum of factor * term, plus a constant

A term is a variable, or what isn't linear (a quotient, a minimum), of which only the interval is
known. This is the part of arithmetic that splitting loops needs, again and again for the same few
comparisons while the ranges of variables change: forms are made once, ranges are a plain mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minitvm.tir import bounds
from minitvm.tir.bounds import EVERYTHING, Interval
from minitvm.tir.canonical import INDEX_DTYPES
from minitvm.tir.ir import Binary, Compare, Const, Expr, Var
from minitvm.tir.walk import children

NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
Range = tuple[int | None, int | None]
"""[low, high) of a variable; None where it has no bound."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The sum of factor * term, plus constant, compared to 0 by `op`."""

    op: str
    terms: Mapping[Expr, int]
    constant: int
    variables: frozenset[Var]
    """Those inside of terms that are not variables themselves."""


@dataclass(slots=True)
class Comparisons:
    """What is known of comparisons while `ranges` says over which values variables run."""

    ranges: dict[Var, Interval] = field(default_factory=dict)
    _forms: dict[Expr, Comparison | None] = field(default_factory=dict)

    def bind(self, var: Var, start: Expr, extent: Expr) -> None:
        """`var` runs over [start, start + extent)."""
        first, count = self.interval(start), self.interval(extent)
        last = first.high + max(count.high, 1) - 1
        self.ranges[var] = bounds.interval(first.low, last)

    def holds(self, condition: Expr) -> bool:
        """Whether a comparison certainly holds."""
        if isinstance(condition, Const):
            return bool(condition.value)
        form = self.form(condition)
        return form is not None and _decide(form.op, self._interval_of_form(form))

    def fails(self, condition: Expr) -> bool:
        """Whether a comparison certainly does not hold."""
        if isinstance(condition, Const):
            return not condition.value
        form = self.form(condition)
        return form is not None and _decide(NEGATED[form.op], self._interval_of_form(form))

    def solve(self, condition: Expr, var: Var) -> Range | None:
        """Where in the range of `var` a comparison holds whatever the other variables are.

        None where `var` decides nothing.
        """
        form = self.form(condition)
        if form is None or var not in form.terms or var in form.variables:
            return None
        rest = self._interval_of_form(form, without=var)
        return _solve(form.op, form.terms[var], rest) if rest.is_finite else None

    def form(self, condition: Expr) -> Comparison | None:
        """A comparison as a linear form; None for what is no comparison of indices."""
        if condition not in self._forms:
            self._forms[condition] = _form(condition)
        return self._forms[condition]

    def _interval_of_form(self, form: Comparison, without: Var | None = None) -> Interval:
        low = high = form.constant
        for term, factor in form.terms.items():
            if term is without:
                continue
            known = self.interval(term)
            low += factor * (known.low if factor > 0 else known.high)
            high += factor * (known.high if factor > 0 else known.low)
        return bounds.interval(low, high)

    def interval(self, expr: Expr) -> Interval:
        """The interval of an index expression; everything for data."""
        match expr:
            case Var():
                return self.ranges.get(expr, EVERYTHING)
            case Const(value):
                return Interval(int(value), int(value))
            case Binary(op, a, b) if not _has_data(expr):
                return bounds.OPERATIONS[op](self.interval(a), self.interval(b))
        return EVERYTHING


def _form(condition: Expr) -> Comparison | None:
    if not isinstance(condition, Compare) or condition.a.dtype not in INDEX_DTYPES:
        return None
    terms: dict[Expr, int] = {}
    constant = _collect(condition.a, 1, terms) + _collect(condition.b, -1, terms)
    terms = {term: factor for term, factor in terms.items() if factor}
    variables: set[Var] = set()
    for term in terms:
        if not isinstance(term, Var):
            variables.update(_variables(term))
    if any(_has_data(term) for term in terms):
        return None
    return Comparison(condition.op, terms, constant, frozenset(variables))


def _collect(expr: Expr, factor: int, terms: dict[Expr, int]) -> int:
    """Adds factor * expr to the terms; gives its constant part."""
    match expr:
        case Const(value):
            return factor * int(value)
        case Binary("add", a, b):
            return _collect(a, factor, terms) + _collect(b, factor, terms)
        case Binary("sub", a, b):
            return _collect(a, factor, terms) + _collect(b, -factor, terms)
        case Binary("mul", a, Const(value)) | Binary("mul", Const(value), a):
            return _collect(a, factor * int(value), terms)
    terms[expr] = terms.get(expr, 0) + factor
    return 0


def _variables(expr: Expr) -> set[Var]:
    if isinstance(expr, Var):
        return {expr}
    return {var for operand in children(expr) for var in _variables(operand)}


def _has_data(expr: Expr) -> bool:
    """Whether values come from elsewhere than index arithmetic: they may wrap."""
    match expr:
        case Var() | Const():
            return False
        case Binary(_, a, b):
            return _has_data(a) or _has_data(b)
    return True


def _decide(op: str, value: Interval) -> bool:
    """Whether a value `op` 0 for all of an interval."""
    match op:
        case "lt":
            return value.high < 0
        case "le":
            return value.high <= 0
        case "gt":
            return value.low > 0
        case "ge":
            return value.low >= 0
        case "eq":
            return value == (0, 0)
    return value.low > 0 or value.high < 0


def _solve(op: str, factor: int, rest: Interval) -> Range | None:
    """Where factor * v + r `op` 0 for every r of `rest`."""
    match op:
        case "lt" | "le":
            limit = -rest.high - (op == "lt")  # factor * v <= limit
            if factor > 0:
                return None, limit // factor + 1
            return -(limit // -factor), None
        case "gt" | "ge":
            limit = -rest.low + (op == "gt")  # factor * v >= limit
            if factor > 0:
                return -(-limit // factor), None
            return None, -limit // -factor + 1
        case "eq" if rest.is_point and rest.low % factor == 0:
            value = -rest.low // factor
            return value, value + 1
    return None
