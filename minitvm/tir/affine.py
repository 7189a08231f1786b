"""Expressions as affine functions of a variable: their coefficients, and where a condition holds.

    detect_affine(4 * i + j + 3, [i])          ({i: 4}, j + 3)
    solve_less(4 * i + j < 30, i, analyzer)    (None, 7) where 0 <= j < 4: i < 7 is enough
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from minitvm.tir import bounds, walk
from minitvm.tir.canonical import Atom, Sum, mentions
from minitvm.tir.conditions import NEGATED, less_than_zero
from minitvm.tir.ir import Call, Compare, Const, Expr, Not, Var
from minitvm.tir.simplify import Analyzer
from minitvm.tir.sums import Sums

Range = tuple[Expr | None, Expr | None]
"""(low, high): low <= value < high; None where there is no bound."""


def detect_affine(
    expr: Expr, variables: Sequence[Var], analyzer: Analyzer | None = None
) -> tuple[dict[Var, int], Expr] | None:
    """({variable: coefficient}, rest), the rest free of the variables; None if it isn't affine.

    The expression is a scalar of an index dtype. Variables with coefficient 0 are left out.
    """
    analyzer = analyzer or Analyzer()
    found = analyzer.sum_of(expr)
    coefficients: dict[Var, int] = {}
    rest: dict[Atom, int] = {}
    for atom, coefficient in found.terms.items():
        if isinstance(atom.source, Var) and not atom.is_split and atom.source in variables:
            coefficients[atom.source] = coefficient
        elif any(mentions(atom.expr, var) for var in variables):
            return None
        else:
            rest[atom] = coefficient
    return coefficients, analyzer.sums.render(Sum(rest, found.constant, found.dtype))


def solve_less(
    condition: Expr, var: Var, analyzer: Analyzer, relax: Collection[Var] | None = None
) -> Range | None:
    """The range of `var` in which a comparison holds, whatever the values of other variables.

    Others are those of `relax`; by default, all that have finite bounds. The bounds given are
    expressions of what is left (constants, where everything is bound). None where no such range is
    found: the condition isn't a comparison of index arithmetic, not affine in `var` (or in
    var // constant), is `ne`, or depends on something without bounds. An empty range is (0, 0).
    """
    match condition:
        case Call("likely", (inner,), _):
            return solve_less(inner, var, analyzer, relax)
        case Not(Compare(op, a, b)):
            return solve_less(Compare(NEGATED[op], a, b), var, analyzer, relax)
        case Compare(op, a, b) if op != "ne":
            difference = analyzer.difference(a, b)
            if difference is not None:
                return _solve(op, difference, var, analyzer.sums, relax)
    return None


def _solve(
    op: str, difference: Sum, var: Var, sums: Sums, relax: Collection[Var] | None
) -> Range | None:
    if op != "eq":
        return _solve_negative(less_than_zero(sums, op, difference), var, sums, relax)
    ranges = [
        _solve_negative(less_than_zero(sums, side, difference), var, sums, relax)
        for side in ("le", "ge")
    ]
    if ranges[0] is None or ranges[1] is None:
        return None
    low = next((side[0] for side in ranges if side and side[0] is not None), None)
    high = next((side[1] for side in ranges if side and side[1] is not None), None)
    if isinstance(low, Const) and isinstance(high, Const) and high.value <= low.value:
        return Const(0, var.dtype), Const(0, var.dtype)
    return low, high


def _solve_negative(
    negative: Sum, var: Var, sums: Sums, relax: Collection[Var] | None
) -> Range | None:
    """The range of `var` in which the sum is negative."""
    main: Atom | None = None
    kept: dict[Atom, int] = {}
    greatest = negative.constant
    for atom, coefficient in negative.terms.items():
        if atom.modulus == 0 and _is_in(var, atom, sums):
            if main is not None:
                return None
            main = atom
            continue
        low, high = sums.atom_interval(atom)
        bound = coefficient * (high if coefficient > 0 else low)
        if not mentions(atom.expr, var) and _is_kept(atom, bound, relax):
            kept[atom] = coefficient
        else:
            greatest += bound
    if greatest >= bounds.LIMIT:
        return None
    rest = Sum(kept, greatest, negative.dtype)
    if main is None:
        return (None, None) if sums.interval(rest).high < 0 else None
    return _bound(main, negative.terms[main], rest, var, sums, relax)


def _is_in(var: Var, atom: Atom, sums: Sums) -> bool:
    """Whether the atom is the variable, or a quotient of something that holds it."""
    return atom.source is var or (atom.divisor != 1 and mentions(atom.source, var))


def _is_kept(atom: Atom, bound: int, relax: Collection[Var] | None) -> bool:
    if relax is None:
        return bound >= bounds.LIMIT
    return not any(node in relax for node in walk.walk(atom.expr) if isinstance(node, Var))


def _bound(
    main: Atom, coefficient: int, rest: Sum, var: Var, sums: Sums, relax: Collection[Var] | None
) -> Range | None:
    """The range of `var` in which coefficient * main + rest < 0."""
    if coefficient > 0:  # main < high, high = floor((-1 - rest) / coefficient) + 1
        opposite = sums.scale(rest, -1)
        room = Sum(opposite.terms, opposite.constant - 1, rest.dtype)
        high = sums.floor_divide(room, coefficient)
        high = Sum(high.terms, high.constant + 1, high.dtype)
        if main.source is var:
            return None, sums.render(sums.scale(high, main.divisor))
        limit = sums.scale(high, main.divisor)  # source < high * divisor
        negative = sums.add(sums.source_sum(main), limit, -1)
    else:  # main >= low, low = ceil((rest + 1) / -coefficient) = floor((rest - c) / -c), c < 0
        room = Sum(rest.terms, rest.constant - coefficient, rest.dtype)
        low = sums.floor_divide(room, -coefficient)
        if main.source is var:
            return sums.render(sums.scale(low, main.divisor)), None
        limit = sums.scale(low, main.divisor)  # source >= low * divisor
        gap = sums.add(limit, sums.source_sum(main), -1)
        negative = Sum(gap.terms, gap.constant - 1, gap.dtype)
    return _solve_negative(negative, var, sums, relax)
