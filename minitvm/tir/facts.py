"""What an `Analyzer` knows: the ranges of variables and the conditions that hold.

A condition becomes bounds of sums and of their atoms, and is kept as a literal besides: under
`i * 4 + j < 30` with j >= 0, the sum is at most 29, i at most 7, and the condition itself true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minitvm.tir import bounds
from minitvm.tir.bounds import Interval, Modular
from minitvm.tir.canonical import Atom, Sum, SumKey, normal_key
from minitvm.tir.conditions import NEGATED
from minitvm.tir.ir import And, Call, Compare, Const, Expr, Not, Or, Var
from minitvm.tir.sums import Sums


class Saved(NamedTuple):
    """The facts of one moment."""

    ranges: dict[Atom, Interval]
    residues: dict[Atom, Modular]
    facts: dict[SumKey, Interval]
    limits: dict[Atom, tuple[Sum | None, Sum | None]]
    points: dict[Var, Sum]
    bound: dict[Var, tuple[Expr, Expr]]
    truths: dict[Expr, bool]


class Facts:
    """Facts, in terms of the atoms of `sums`.

    `points`: variables with one value. `bound`: start and extent of those bound. `truths`: the
    conditions that are known. `sum_of` and `difference` are the analyzer's.
    """

    def __init__(self, sums: Sums, sum_of: Callable[[Expr], Sum],
                 difference: Callable[[Expr, Expr], Sum | None]) -> None:
        self.points: dict[Var, Sum] = {}
        self.bound: dict[Var, tuple[Expr, Expr]] = {}
        self.truths: dict[Expr, bool] = {}
        self._sums = sums
        self._sum_of = sum_of
        self._difference = difference

    def save(self) -> Saved:
        """The facts so far, to be restored; goes on with a copy of them."""
        sums = self._sums
        saved = Saved(sums.ranges, sums.residues, sums.facts, sums.limits, self.points, self.bound,
                      self.truths)
        self.restore(Saved(dict(saved.ranges), dict(saved.residues), dict(saved.facts),
                           dict(saved.limits), dict(saved.points), dict(saved.bound),
                           dict(saved.truths)))
        return saved

    def restore(self, saved: Saved) -> None:
        """Goes back to saved facts."""
        sums = self._sums
        sums.ranges, sums.residues, sums.facts, sums.limits = saved[:4]
        self.points, self.bound, self.truths = saved[4:]
        sums.forget()

    # --- variables --------------------------------------------------------------------------------

    def bind(self, var: Var, start: Expr, extent: Expr) -> None:
        """`var` runs over [start, start + extent)."""
        self.bound[var] = (start, extent)
        atom = self._sums.atom(var)
        if isinstance(start, Const) and isinstance(extent, Const):
            low, size = int(start.value), max(int(extent.value), 1)
            self._sums.ranges[atom] = Interval(low, low + size - 1)
            if size == 1:
                self.points[var] = self._sums.constant(low, var.dtype)
        else:
            self._bind_symbolic(var, atom, self._sum_of(start), self._sum_of(extent))

    def _bind_symbolic(self, var: Var, atom: Atom, start: Sum, extent: Sum) -> None:
        sums = self._sums
        if not extent.terms and extent.constant == 1:
            self.points[var] = start
            return
        last = sums.add(sums.add(start, extent), sums.constant(-1, start.dtype))
        low, high = sums.interval(start).low, sums.interval(last).high
        self.restrict(atom, Interval(low, max(low, high)))
        sums.limits[atom] = (start if start.terms else None, last if last.terms else None)

    def rebind(self, var: Var, start: Expr, extent: Expr) -> None:
        """`bind` for a variable that is known: what was known of it, and through it, goes."""
        self.bound.pop(var, None)
        again = {other: range_ for other, range_ in self.bound.items()
                 if not all(isinstance(side, Const) for side in range_)}
        for dropped in (var, *again):
            self.points.pop(dropped, None)
            self._sums.drop(dropped)
        self.bind(var, start, extent)
        for other, (other_start, other_extent) in again.items():
            self.bind(other, other_start, other_extent)

    def restrict(self, atom: Atom, fact: Interval) -> None:
        """The atom lies within `fact`; so its source, or its residue, is known too."""
        sums = self._sums
        fact = sums.ranges[atom] = bounds.intersection(fact, sums.atom_interval(atom))
        sums.forget()
        if not atom.is_split:
            if fact.is_point and isinstance(atom.source, Var):
                self.points[atom.source] = sums.constant(fact.low, atom.source.dtype)
            return
        source = sums.source_atom(atom)
        if source is None:
            return
        if atom.modulus == 0:
            low, high = fact.low * atom.divisor, (fact.high + 1) * atom.divisor - 1
            self.restrict(source, bounds.interval(low, high))
        elif atom.divisor == 1 and fact.is_point:
            known = sums.residues.get(source)
            if known is None or 0 < known.coefficient < atom.modulus:
                sums.residues[source] = bounds.modular(atom.modulus, fact.low)

    # --- conditions -------------------------------------------------------------------------------

    def learn(self, condition: Expr, truth: bool) -> None:
        """The (simplified) condition is known to be true, or false."""
        match condition:
            case Const():
                return
            case And(a, b) if truth:
                self.learn(a, True)
                self.learn(b, True)
            case Or(a, b) if not truth:
                self.learn(a, False)
                self.learn(b, False)
            case Not(a):
                self.learn(a, not truth)
            case Call("likely", (a,)):
                self.learn(a, truth)
            case Compare(op, a, b):
                self.truths[condition] = truth
                self._learn_compare(op if truth else NEGATED[op], a, b)
            case _:
                self.truths[condition] = truth

    def _learn_compare(self, op: str, a: Expr, b: Expr) -> None:
        difference = self._difference(a, b)
        if difference is None or not difference.terms:
            return
        sums = self._sums
        if op in ("lt", "le", "eq"):
            self._learn_at_most(difference, -difference.constant - (op == "lt"))
        if op in ("gt", "ge", "eq"):
            opposite = sums.scale(difference, -1)
            self._learn_at_most(opposite, -opposite.constant - (op == "gt"))
        if op == "ne":
            self._learn_different(difference)
        sums.forget()

    def _learn_at_most(self, a: Sum, greatest: int) -> None:
        """The terms of `a` sum up to no more than `greatest`."""
        sums = self._sums
        if len(a.terms) > 1:
            key, scale = normal_key(a)
            known = sums.facts.get(key, bounds.EVERYTHING)
            sums.facts[key] = bounds.intersection(_multiples_up_to(greatest, scale), known)
        least = {atom: _least(sums.atom_interval(atom), c) for atom, c in a.terms.items()}
        total = sum(least.values())
        for atom, coefficient in a.terms.items():
            rest = greatest - (total - least[atom])
            if rest < bounds.LIMIT:
                self.restrict(atom, _multiples_up_to(rest, coefficient))

    def _learn_different(self, a: Sum) -> None:
        """a != 0: an end of the range of a lone atom falls away."""
        if len(a.terms) == 1:
            (atom, coefficient), = a.terms.items()
            low, high = self._sums.atom_interval(atom)
            value, rest = divmod(-a.constant, coefficient)
            if rest == 0 and low < high and value in (low, high):
                self.restrict(atom, Interval(low + (value == low), high - (value == high)))


def _multiples_up_to(greatest: int, coefficient: int) -> Interval:
    """The interval of x where coefficient * x <= greatest."""
    if coefficient > 0:
        return Interval(-bounds.INFINITY, greatest // coefficient)
    return Interval(-(greatest // -coefficient), bounds.INFINITY)


def _least(value: Interval, coefficient: int) -> int:
    return coefficient * (value.low if coefficient > 0 else value.high)
