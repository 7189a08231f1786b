"""Comparisons of index arithmetic as linear forms, and where in a loop they hold.

    a < b   is   a - b < 0,   a - b = the sum of factor * term, plus a constant

    known = Comparisons()
    known.bind(j, Const(0), Const(4))           0 <= j < 4
    known.solve(4 * i + j < 30, i)              (None, 7): i < 7 is enough
    known.solve(i // 4 >= 3, i)                 (12, None)
    known.end(4 * i + j < n, i, {j})            n // 4: below it, it holds for every j

A term is a variable, or what isn't linear (a quotient, a minimum), of which only the interval is
known. This is the part of arithmetic that splitting loops needs, again and again for the same few
comparisons while the ranges of variables change: forms are made once, ranges are a plain mapping.
The `Analyzer` knows more, and takes longer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from minitvm.tir import bounds
from minitvm.tir.bounds import EVERYTHING, Interval
from minitvm.tir.canonical import INDEX_DTYPES
from minitvm.tir.conditions import decide
from minitvm.tir.ir import Binary, Compare, Const, Expr, Var
from minitvm.tir.walk import children

Range = tuple[int | None, int | None]
"""[low, high) of a variable; None where it has no bound."""


@dataclass(frozen=True, slots=True)
class Linear:
    """The sum of factor * term, plus constant."""

    terms: Mapping[Expr, int]
    constant: int
    variables: frozenset[Var]
    """Those inside of terms that are not variables themselves."""


@dataclass(frozen=True, slots=True)
class End:
    """A comparison holds below `value`, and not from there on if it `fails_after`."""

    value: Expr
    fails_after: bool


@dataclass(slots=True)
class Comparisons:
    """What is known of comparisons while `ranges` says over which values variables run."""

    ranges: dict[Var, Interval] = field(default_factory=dict)
    _forms: dict[Expr, tuple[str, Linear] | None] = field(default_factory=dict)

    def bind(self, var: Var, start: Expr, extent: Expr) -> None:
        """`var` runs over [start, start + extent)."""
        first, count = self.interval(start), self.interval(extent)
        last = first.high + max(count.high, 1) - 1
        self.ranges[var] = bounds.interval(first.low, last)

    def holds(self, condition: Expr) -> bool:
        """Whether a comparison certainly holds."""
        return self._truth(condition) is True

    def fails(self, condition: Expr) -> bool:
        """Whether a comparison certainly does not hold."""
        return self._truth(condition) is False

    def _truth(self, condition: Expr) -> bool | None:
        if isinstance(condition, Const):
            return bool(condition.value)
        form = self._form(condition)
        return None if form is None else decide(form[0], self._interval_of(form[1]))

    def solve(self, condition: Expr, var: Var) -> Range | None:
        """Where in the range of `var` a comparison holds whatever the other variables are.

        None where `var` decides nothing: it doesn't occur, or neither as a linear term nor in one
        quotient by a constant, or something else has no bounds.
        """
        form = self._form(condition)
        return None if form is None else self._solve(*form, var)

    def end(self, condition: Expr, var: Var, inside: Collection[Var]) -> End | None:
        """Up to where, from below, a comparison holds whatever the variables `inside` are, as an
        expression in the others; None where that is not known."""
        form = self._form(condition)
        if form is None or form[0] not in ("lt", "le", "gt", "ge"):
            return None
        op, linear = form
        sign = 1 if op in ("lt", "le") else -1
        factor = sign * linear.terms.get(var, 0)
        if factor <= 0 or var in linear.variables:
            return None
        limit: Expr = Const(factor - sign * linear.constant - (op in ("lt", "gt")), var.dtype)
        moving = Interval(0, 0)
        for term, coefficient in linear.terms.items():
            if term is var:
                continue
            part = Interval(sign * coefficient, sign * coefficient)
            if _variables(term).isdisjoint(inside):
                limit = limit - term * (sign * coefficient)
            else:
                moving = bounds.add(moving, bounds.multiply(self.interval(term), part))
        if not moving.is_finite:
            return None
        return End((limit - moving.high) // factor, moving.is_point)

    def depends_on(self, condition: Expr) -> set[Var]:
        """The variables that a comparison depends on, but for those of one value."""
        form = self._form(condition)
        if form is None:
            return set()
        linear = form[1]
        variables = {term for term in linear.terms if isinstance(term, Var)} | linear.variables
        return {var for var in variables if not self.interval(var).is_point}

    def _solve(self, op: str, form: Linear, var: Var) -> Range | None:
        main: Expr = var
        if var in form.variables:
            inside = [term for term in form.terms if var in _variables(term)]
            if len(inside) > 1:
                return None
            main = inside[0]
        elif var not in form.terms:
            return None
        rest = self._interval_of(form, without=main)
        found = _solve_term(op, form.terms[main], rest) if rest.is_finite else None
        if found is None or main is var:
            return found
        match main:
            case Binary("floordiv", dividend, Const(divisor)) if int(divisor) > 0:
                return self._solve_dividend(dividend, int(divisor), found, var)
        return None

    def _solve_dividend(
        self, dividend: Expr, divisor: int, quotient: Range, var: Var
    ) -> Range | None:
        """Where low <= dividend // divisor < high."""
        sides: list[Range] = []
        for op, bound in zip(("ge", "lt"), quotient):
            if bound is not None:
                form = _difference(dividend, Const(bound * divisor, dividend.dtype))
                found = None if form is None else self._solve(op, form, var)
                if found is None:
                    return None
                sides.append(found)
        lows = [low for low, _ in sides if low is not None]
        highs = [high for _, high in sides if high is not None]
        return max(lows, default=None), min(highs, default=None)

    def _form(self, condition: Expr) -> tuple[str, Linear] | None:
        """A comparison as operator and linear form; None for what is no comparison of indices."""
        if condition not in self._forms:
            self._forms[condition] = _comparison(condition)
        return self._forms[condition]

    def _interval_of(self, form: Linear, without: Expr | None = None) -> Interval:
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


def _comparison(condition: Expr) -> tuple[str, Linear] | None:
    if not isinstance(condition, Compare) or condition.a.dtype not in INDEX_DTYPES:
        return None
    form = _difference(condition.a, condition.b)
    return None if form is None else (condition.op, form)


def _difference(a: Expr, b: Expr) -> Linear | None:
    """a - b; None where data is in it."""
    terms: dict[Expr, int] = {}
    constant = _collect(a, 1, terms) + _collect(b, -1, terms)
    terms = {term: factor for term, factor in terms.items() if factor}
    variables: set[Var] = set()
    for term in terms:
        if not isinstance(term, Var):
            variables.update(_variables(term))
    if any(_has_data(term) for term in terms):
        return None
    return Linear(terms, constant, frozenset(variables))


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


def _solve_term(op: str, factor: int, rest: Interval) -> Range | None:
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
