"""The algebra of canonical sums: sums, products, quotients, remainders, and their bounds.

Quotients and remainders drop what divides: (32 * x + 4 * y + z) // 4 is 8 * x + y where z is known
to be in [0, 4), and (7 * x + j) % 7 is j for j in [0, 7). What doesn't divide becomes an atom, one
and the same for the quotient and the remainder of one source, so that 7 * (s // 7) + s % 7 is s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from minitvm import dtypes
from minitvm.tir import bounds, walk
from minitvm.tir.bounds import Interval, Modular
from minitvm.tir.canonical import Atom, Sum, SumKey, is_index, normal_key, render_terms
from minitvm.tir.ir import Binary, Const, Expr, Var

MOST_EXPANSIONS = 3
"""So many symbolic bounds are put in for variables, one inside the other."""
MOST_PRODUCT_TERMS = 8
"""A product of sums is multiplied out while it has no more terms than this."""


class Factored(NamedTuple):
    """A sum as factor * multiple + remainder, 0 <= remainder < factor."""

    factor: int
    multiple: Sum
    remainder: Sum


class Sums:
    """The algebra of sums, and what is known of their atoms.

    `ranges`, `residues`: facts about atoms. `facts`: intervals of the terms of sums, by
    `normal_key`. `limits`: for a variable with symbolic bounds, its least and greatest value.
    Whoever changes them calls `forget`. The interval of an opaque source is asked of `opaque`.
    """

    def __init__(self, opaque: Callable[[Expr], Interval],
                 opaque_residue: Callable[[Expr], Modular]) -> None:
        self.ranges: dict[Atom, Interval] = {}
        self.residues: dict[Atom, Modular] = {}
        self.facts: dict[SumKey, Interval] = {}
        self.limits: dict[Atom, tuple[Sum | None, Sum | None]] = {}
        self._opaque_interval = opaque
        self._opaque_residue = opaque_residue
        self._intervals: dict[Atom, Interval] = {}
        self._atoms: dict[Expr, Atom] = {}
        self._atoms_of: dict[Var, list[Atom]] = {}
        self._splits: dict[tuple[int, int, int], Atom] = {}
        self._sources: dict[tuple[SumKey, int], Expr] = {}
        self._source_sums: dict[int, Sum] = {}
        self._factors: dict[Atom, tuple[Atom, ...]] = {}
        self._products: dict[tuple[int, ...], Atom] = {}
        self._depth = 0

    def forget(self) -> None:
        """Drops the intervals kept of atoms: the facts have changed."""
        self._intervals = {}

    def drop(self, var: Var) -> None:
        """Drops all facts about a variable."""
        about = set(self._atoms_of.get(var, ()))
        self.ranges = {atom: fact for atom, fact in self.ranges.items() if atom not in about}
        self.residues = {atom: fact for atom, fact in self.residues.items() if atom not in about}
        self.limits = {atom: fact for atom, fact in self.limits.items() if atom not in about}
        self.facts = {key: fact for key, fact in self.facts.items()
                      if not any(atom in about for atom, _ in key)}
        self.forget()

    # --- making -------------------------------------------------------------------------------

    def knows(self, var: Var) -> bool:
        """Whether the variable is part of a sum made so far."""
        return var in self._atoms

    def atom(self, source: Expr) -> Atom:
        """The atom of a variable or of a simplified opaque expression."""
        found = self._atoms.get(source)
        if found is None:
            found = self._register(Atom(source, 1, 0, source, not is_index(source)))
        return found

    def _register(self, atom: Atom) -> Atom:
        self._atoms[atom.expr] = atom
        for node in walk.walk(atom.source):
            if type(node) is Var:
                self._atoms_of.setdefault(node, []).append(atom)
        return atom

    def source_atom(self, atom: Atom) -> Atom | None:
        """The atom whose part this one is; None where the source is a sum of several."""
        return None if id(atom.source) in self._source_sums else self.atom(atom.source)

    def source_sum(self, atom: Atom) -> Sum:
        """The sum whose part the atom is."""
        return self._split(atom.source, 1, 0)

    def of(self, source: Expr) -> Sum:
        """The sum of one atom."""
        return Sum({self.atom(source): 1}, 0, source.dtype)

    def constant(self, value: int, dtype: str) -> Sum:
        """A sum without terms."""
        return Sum({}, value, dtype)

    def add(self, a: Sum, b: Sum, factor: int = 1) -> Sum:
        """a + factor * b."""
        if not b.terms:
            return Sum(a.terms, a.constant + factor * b.constant, a.dtype)
        terms = dict(a.terms)
        for atom, coefficient in b.terms.items():
            total = terms.get(atom, 0) + factor * coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return self.cancel(Sum(terms, a.constant + factor * b.constant, a.dtype))

    def scale(self, a: Sum, factor: int) -> Sum:
        """factor * a."""
        if factor == 1:
            return a
        if factor == 0:
            return Sum({}, 0, a.dtype)
        terms = {atom: coefficient * factor for atom, coefficient in a.terms.items()}
        return Sum(terms, a.constant * factor, a.dtype)

    def multiply(self, a: Sum, b: Sum) -> Sum | None:
        """a * b, multiplied out; None where that has too many terms, or either is data."""
        if not b.terms:
            return self.scale(a, b.constant)
        if not a.terms:
            return self.scale(b, a.constant)
        count = (len(a.terms) + (a.constant != 0)) * (len(b.terms) + (b.constant != 0))
        if count > MOST_PRODUCT_TERMS or any(atom.data for atom in (*a.terms, *b.terms)):
            return None
        result = self.add(self.scale(a, b.constant), Sum(b.terms, 0, b.dtype), a.constant)
        for atom, coefficient in a.terms.items():
            for other, factor in b.terms.items():
                product = Sum({self._product(atom, other): coefficient * factor}, 0, a.dtype)
                result = self.add(result, product)
        return result

    def _product(self, a: Atom, b: Atom) -> Atom:
        factors = (*self._factors.get(a, (a,)), *self._factors.get(b, (b,)))
        key = tuple(sorted(id(factor) for factor in factors))
        found = self._products.get(key)
        if found is None:
            expr = factors[0].expr
            for factor in factors[1:]:
                expr = Binary("mul", expr, factor.expr)
            found = self._products[key] = self.atom(expr)
            self._factors[found] = factors
        return found

    # --- quotients and remainders ---------------------------------------------------------------

    def floor_divide(self, a: Sum, divisor: int) -> Sum:
        """a // divisor for a divisor > 0 and an `a` that doesn't wrap."""
        quotient, rest = {}, {}
        for atom, coefficient in a.terms.items():
            if coefficient % divisor == 0:
                quotient[atom] = coefficient // divisor
            else:
                rest[atom] = coefficient
        whole, constant = divmod(a.constant, divisor)
        result = Sum(quotient, whole, a.dtype)
        if not rest:
            return result
        return self.add(result, self._divide_rest(Sum(rest, constant, a.dtype), divisor))

    def _divide_rest(self, rest: Sum, divisor: int) -> Sum:
        low, high = self.interval(rest)
        if low // divisor == high // divisor:
            return Sum({}, low // divisor, rest.dtype)
        factored = self._factor(rest, divisor)
        if factored is not None:
            return self.floor_divide(factored.multiple, divisor // factored.factor)
        return self._part(rest, divisor, 0)

    def floor_modulo(self, a: Sum, divisor: int) -> Sum:
        """a % divisor for a divisor > 0 and an `a` that doesn't wrap."""
        terms = {atom: c for atom, c in a.terms.items() if c % divisor != 0}
        rest = Sum(terms, a.constant % divisor, a.dtype)
        if not terms:
            return rest
        low, high = self.interval(rest)
        if low // divisor == high // divisor:
            return Sum(terms, rest.constant - low // divisor * divisor, a.dtype)
        factored = self._factor(rest, divisor)
        if factored is not None:
            inner = self.floor_modulo(factored.multiple, divisor // factored.factor)
            return self.add(self.scale(inner, factored.factor), factored.remainder)
        residue = self.residue(rest)
        if residue.coefficient % divisor == 0:
            return Sum({}, residue.base % divisor, a.dtype)
        return self._part(rest, 1, divisor)

    def _factor(self, rest: Sum, divisor: int) -> Factored | None:
        """rest = factor * multiple + remainder, 0 <= remainder < factor, the factor in divisor."""
        factors = {math.gcd(coefficient, divisor) for coefficient in rest.terms.values()}
        for factor in sorted(factors, reverse=True):
            if factor > 1:
                factored = self.factor(rest, factor)
                if factored is not None:
                    return factored
        return None

    def factor(self, a: Sum, factor: int) -> Factored | None:
        """a = factor * multiple + remainder with 0 <= remainder < factor, if that is certain."""
        multiple, others = {}, {}
        for atom, coefficient in a.terms.items():
            if coefficient % factor == 0:
                multiple[atom] = coefficient // factor
            else:
                others[atom] = coefficient
        remainder = Sum(others, a.constant, a.dtype)
        low, high = self.interval(remainder) if others else (a.constant, a.constant)
        whole = low // factor
        if high // factor != whole:
            return None
        remainder = Sum(others, a.constant - whole * factor, a.dtype)
        return Factored(factor, Sum(multiple, whole, a.dtype), remainder)

    def _part(self, a: Sum, divisor: int, modulus: int) -> Sum:
        """(a // divisor) % modulus as an atom; one of divisor and modulus does something."""
        atom = a.single()
        if atom is None:
            return self._split(self._source(a), divisor, modulus)
        if not atom.is_split:
            return self._split(atom.source, divisor, modulus)
        if modulus == 0:
            if atom.modulus % divisor == 0:  # 0, for none, included
                return self._slice(atom, atom.divisor * divisor, atom.modulus // divisor)
        elif atom.modulus == 0:
            return self._split(atom.source, atom.divisor, modulus)
        elif atom.modulus % modulus == 0:
            return self._slice(atom, atom.divisor, modulus)
        return self._split(atom.expr, divisor, modulus)

    def _slice(self, atom: Atom, divisor: int, modulus: int) -> Sum:
        """(source // divisor) % modulus of the source of an atom, as simple as it gets."""
        quotient = self.floor_divide(self.source_sum(atom), divisor)
        return self.floor_modulo(quotient, modulus) if modulus else quotient

    def _source(self, a: Sum) -> Expr:
        """The sum as a source: one object for equal sums, whatever the order of their terms."""
        key = (frozenset(a.terms.items()), a.constant)
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = self.render(a)
            self._source_sums[id(found)] = a
        return found

    def _split(self, source: Expr, divisor: int, modulus: int) -> Sum:
        if divisor == 1 and modulus == 0:
            return self._source_sums.get(id(source)) or self.of(source)
        key = (id(source), divisor, modulus)
        atom = self._splits.get(key)
        if atom is None:
            expr = source
            if divisor != 1:
                expr = Binary("floordiv", expr, Const(divisor, source.dtype))
            if modulus:
                expr = Binary("floormod", expr, Const(modulus, source.dtype))
            atom = self._register(Atom(source, divisor, modulus, expr, not is_index(source)))
            self._splits[key] = atom
        return Sum({atom: 1}, 0, source.dtype)

    def cancel(self, a: Sum) -> Sum:
        """Joins terms that are parts of one source: 4 * (i // 4) + i % 4 is i."""
        split = [atom for atom in a.terms if atom.divisor != 1 or atom.modulus != 0]
        if not split or len(a.terms) == 1:
            return a
        for atom in split:
            source = atom.source
            for other in a.terms:
                if other.source is source and other is not atom:
                    joined = (self._join(atom, a.terms[atom], other, a.terms[other])
                              or self._join(other, a.terms[other], atom, a.terms[atom]))
                    if joined is not None:
                        return self._replace(a, atom, other, joined)
        return a

    def _join(self, low: Atom, coefficient: int, high: Atom, other: int) -> Sum | None:
        """coefficient * low + other * high as one term."""
        ratio = high.divisor // low.divisor
        if low is high or high.divisor % low.divisor:
            return None
        if ratio == low.modulus and other == coefficient * ratio:
            whole = self._slice(low, low.divisor, low.modulus * high.modulus)
            return self.scale(whole, coefficient)
        if other != -coefficient * ratio:
            return None
        if ratio > 1 and low.modulus == high.modulus * ratio:  # both 0, for no modulus, included
            return self.scale(self._slice(low, low.divisor, ratio), coefficient)
        if ratio == 1 and high.modulus and low.modulus % high.modulus == 0:
            part = self._slice(low, low.divisor * high.modulus, low.modulus // high.modulus)
            return self.scale(part, coefficient * high.modulus)
        return None

    def _replace(self, a: Sum, atom: Atom, other: Atom, joined: Sum) -> Sum:
        """`a` with two terms joined, where the first of them was."""
        result = Sum({}, a.constant, a.dtype)
        for term, coefficient in a.terms.items():
            if term is atom or term is other:
                result = self.add(result, joined)
                joined = Sum({}, 0, a.dtype)
            else:
                result = self.add(result, Sum({term: coefficient}, 0, a.dtype))
        return result

    # --- what is known --------------------------------------------------------------------------

    def interval(self, a: Sum) -> Interval:
        """The interval of a sum as an exact integer."""
        low = high = a.constant
        for atom, coefficient in a.terms.items():
            bound = self._intervals.get(atom) or self.atom_interval(atom)
            if coefficient > 0:
                low += coefficient * bound[0]
                high += coefficient * bound[1]
            else:
                low += coefficient * bound[1]
                high += coefficient * bound[0]
        result = bounds.interval(low, high)
        if len(a.terms) > 1 and (self.facts or self.limits):
            result = self._by_facts(a, result)
        return result

    def _by_facts(self, a: Sum, result: Interval) -> Interval:
        if self.facts:
            key, scale = normal_key(a)
            fact = self.facts.get(key)
            if fact is not None:
                known = bounds.multiply(fact, Interval(scale, scale))
                shifted = bounds.add(known, Interval(a.constant, a.constant))
                result = bounds.intersection(shifted, result)
        if self.limits and self._depth < MOST_EXPANSIONS:
            self._depth += 1
            for atom in a.terms:
                if atom in self.limits:
                    result = bounds.intersection(self._by_limits(a, atom), result)
            self._depth -= 1
        return result

    def _by_limits(self, a: Sum, atom: Atom) -> Interval:
        """The interval with the atom replaced by its symbolic bounds."""
        least, greatest = self.limits[atom]
        coefficient = a.terms[atom]
        if coefficient < 0:
            least, greatest = greatest, least
        rest = self.add(a, Sum({atom: 1}, 0, a.dtype), -coefficient)
        low, high = -bounds.INFINITY, bounds.INFINITY
        if least is not None:
            low = self.interval(self.add(rest, least, coefficient)).low
        if greatest is not None:
            high = self.interval(self.add(rest, greatest, coefficient)).high
        return Interval(low, high) if low <= high else bounds.EVERYTHING

    def atom_interval(self, atom: Atom) -> Interval:
        """The interval of an atom."""
        known = self._intervals.get(atom)
        if known is not None:
            return known
        if atom.is_split:
            result = self.interval(self.source_sum(atom))
            if atom.divisor != 1:
                result = bounds.floor_divide(result, Interval(atom.divisor, atom.divisor))
            if atom.modulus:
                result = bounds.floor_modulo(result, Interval(atom.modulus, atom.modulus))
        else:
            result = self._opaque_interval(atom.source)
        fact = self.ranges.get(atom)
        if fact is not None:
            result = bounds.intersection(fact, result)
        self._intervals[atom] = result
        return result

    def may_wrap(self, a: Sum) -> bool:
        """Whether the sum is of data and may leave its dtype."""
        for atom in a.terms:
            if atom.data:
                return not self.interval(a).within(*dtypes.integer_range(a.dtype))
        return False

    def residue(self, a: Sum) -> Modular:
        """The residue of a sum."""
        coefficient, base = 0, a.constant
        for atom, factor in a.terms.items():
            known = self.atom_residue(atom)
            coefficient = math.gcd(coefficient, known.coefficient * factor)
            base += known.base * factor
        return bounds.modular(coefficient, base)

    def atom_residue(self, atom: Atom) -> Modular:
        """The residue of an atom."""
        fact = self.residues.get(atom)
        if fact is not None:
            return fact
        if atom.is_split:
            result = self.residue(self.source_sum(atom))
            if atom.divisor != 1:
                result = bounds.modular_divide(result, atom.divisor)
            return bounds.modular_modulo(result, atom.modulus) if atom.modulus else result
        factors = self._factors.get(atom)
        if factors is None:
            return self._opaque_residue(atom.source)
        result = Modular(0, 1)
        for factor in factors:
            result = bounds.modular_multiply(result, self.atom_residue(factor))
        return result

    # --- rendering ------------------------------------------------------------------------------

    def render(self, a: Sum) -> Expr:
        """The sum as an expression: what is added, then what is subtracted, then the constant."""
        return render_terms(a.terms, a.constant, a.dtype)
