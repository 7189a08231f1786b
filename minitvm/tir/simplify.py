"""Simplification and proof of tir expressions: `Analyzer`.

    analyzer = Analyzer()
    analyzer.bind(i, 0, 56)
    analyzer.simplify((i // 4) * 4 + i % 4)     # i
    analyzer.prove(i * 2 + 1 < 112)             # True

Index arithmetic (scalars and evenly spaced vectors of int32 and int64) is put into sums
(`canonical`), which intervals and residues decide (`bounds`). What is left goes through the rules
of `rules`. Floats are never reassociated: only x * 1, x / 1 and decided conditions change.

Domain. Index arithmetic on variables doesn't overflow, as in C; data wraps (see `canonical`). A
division by zero has no meaning and may be dropped. A result has no more nodes than what it came
from, and is returned as the same object where nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minitvm import dtypes
from minitvm.tir import bounds, ir, lanes, opaque, rewriting, walk
from minitvm.tir.bounds import Interval, Modular
from minitvm.tir.canonical import INDEX_DTYPES, Atom, Sum
from minitvm.tir.conditions import (
    NEGATED,
    boolean,
    decide,
    node_count,
    render_compare,
)
from minitvm.tir.conditions import truth as truth_of
from minitvm.tir.connectives import simplify_connective
from minitvm.tir.facts import Facts
from minitvm.tir.ir import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    ExprLike,
    Not,
    Or,
    Ramp,
    Select,
    Var,
)
from minitvm.tir.lanes import Lanes
from minitvm.tir.sums import Sums

_ARITHMETIC = ("add", "sub", "mul", "floordiv", "floormod")


class Analyzer:
    """What is known about variables, and what follows from it for expressions.

    `bind` says over which values a variable runs, `constraint` what holds in a piece of code.
    `sums` is the algebra of its index arithmetic.
    """

    def __init__(self) -> None:
        self.sums = Sums(self._opaque_interval, self._opaque_residue)
        self._facts = Facts(self.sums, self._sum, self.difference)
        self._simplified: dict[int, tuple[Expr, Expr]] = {}
        self._sum_of: dict[int, tuple[Expr, Sum]] = {}

    # --- facts ------------------------------------------------------------------------------------

    def bind(self, var: Var, start: ExprLike, extent: ExprLike) -> None:
        """`var` runs over [start, start + extent). Binding it anew forgets what held before."""
        start, extent = ir.convert(start, var.dtype), ir.convert(extent, var.dtype)
        if self._facts.bound.get(var) == (start, extent):
            return
        if self.sums.knows(var):
            self._forget()
            self._facts.rebind(var, start, extent)
            self._forget()
        else:
            self._facts.bind(var, start, extent)

    @contextmanager
    def constraint(self, condition: Expr) -> Iterator[None]:
        """Within it, `condition` holds: the code inside an If, for example."""
        condition = self.simplify(condition)
        tables = (self._simplified, self._sum_of)
        saved = self._facts.save()
        self._forget()
        self._facts.learn(condition, True)
        self._forget()
        try:
            yield
        finally:
            self._facts.restore(saved)
            self._simplified, self._sum_of = tables

    def _forget(self) -> None:
        self.sums.forget()
        self._simplified, self._sum_of = {}, {}

    # --- questions --------------------------------------------------------------------------------

    def prove(self, condition: ExprLike) -> bool:
        """Whether the condition certainly holds. False says nothing."""
        if not isinstance(condition, Expr):
            return bool(condition)
        match condition:
            case Const(value):
                return bool(value)
            case And(a, b):
                return self.prove(a) and self.prove(b)
            case Or(a, b) if self.prove(a) or self.prove(b):
                return True
            case Compare(op, a, b) if a.dtype in INDEX_DTYPES:
                difference = self.difference(a, b)
                if difference is not None and self._decide(op, difference):
                    return True
        return truth_of(self.simplify(condition)) is True

    def interval(self, expr: ExprLike) -> Interval:
        """The interval of an integer expression (of all lanes of a vector)."""
        if not isinstance(expr, Expr):
            return Interval(int(expr), int(expr))
        if expr.dtype in INDEX_DTYPES:
            found = self._sum(expr)
            exact = self.sums.interval(found)
            return bounds.wrapped(exact, expr.dtype) if self.sums.may_wrap(found) else exact
        return self._opaque_interval(expr)

    def modular(self, expr: ExprLike) -> Modular:
        """(coefficient, base): the value is coefficient * k + base; coefficient 0: base exactly."""
        if not isinstance(expr, Expr):
            return Modular(0, int(expr))
        if expr.dtype not in INDEX_DTYPES:
            return bounds.ANY_RESIDUE
        found = self._sum(expr)
        return bounds.ANY_RESIDUE if self.sums.may_wrap(found) else self.sums.residue(found)

    def _opaque_interval(self, expr: Expr) -> Interval:
        return opaque.interval(expr, self.interval)

    def _opaque_residue(self, expr: Expr) -> Modular:
        return opaque.residue(expr, self.modular)

    def sum_of(self, expr: Expr) -> Sum:
        """The canonical sum of a scalar index expression."""
        return self._sum(expr)

    def difference(self, a: Expr, b: Expr) -> Sum | None:
        """a - b as an exact integer; None for what is not an index, or may wrap."""
        if a.dtype not in INDEX_DTYPES:
            return None
        left, right = self._sum(a), self._sum(b)
        if self.sums.may_wrap(left) or self.sums.may_wrap(right):
            return None
        return self.sums.add(left, right, -1)

    def _decide(self, op: str, difference: Sum) -> bool | None:
        """Whether `difference op 0`, if that is certain."""
        truth = decide(op, self.sums.interval(difference))
        if truth is None and op in ("eq", "ne") and self.sums.residue(difference).excludes(0):
            return op == "ne"
        return truth

    # --- sums -------------------------------------------------------------------------------------

    def _sum(self, expr: Expr) -> Sum:
        """The sum that a scalar of an index dtype is."""
        kind = type(expr)
        if kind is Var:
            return self._facts.points.get(expr) or self.sums.of(expr)  # type: ignore[call-overload]
        if kind is Const:
            return Sum({}, int(expr.value), expr.dtype)  # type: ignore[attr-defined]
        known = self._sum_of.get(id(expr))
        if known is not None:
            return known[1]
        result = self._find_sum(expr)
        self._sum_of[id(expr)] = (expr, result)
        return result

    def _find_sum(self, expr: Expr) -> Sum:
        if isinstance(expr, Binary):
            result = self._arithmetic(expr)
            if result is not None:
                if not result.terms:
                    value = ir.wrap_integer(result.constant, expr.dtype)
                    return Sum({}, value, expr.dtype)
                return result
        simple = self._opaque(expr)
        if simple is expr or simple == expr:
            return self.sums.of(simple)
        return self._sum(simple)

    def _arithmetic(self, expr: Binary) -> Sum | None:
        op = expr.op
        if op == "add" or op == "sub":
            return self._linear(expr)
        if op == "mul":
            return self.sums.multiply(self._sum(expr.a), self._sum(expr.b))
        if op == "floordiv" or op == "floormod":
            return self._divided(op, self._sum(expr.a), self._sum(expr.b))
        return None

    def _linear(self, expr: Binary) -> Sum:
        terms: dict[Atom, int] = {}
        constant = self._accumulate(expr, 1, terms)
        if 0 in terms.values():
            terms = {atom: coefficient for atom, coefficient in terms.items() if coefficient}
        return self.sums.cancel(Sum(terms, constant, expr.dtype))

    def _accumulate(self, expr: Expr, factor: int, terms: dict[Atom, int]) -> int:
        """Adds the terms of factor * expr to `terms`; returns the constant."""
        kind = type(expr)
        if kind is Binary:
            op, a, b = expr.op, expr.a, expr.b  # type: ignore[attr-defined]
            if op == "add":
                return self._accumulate(a, factor, terms) + self._accumulate(b, factor, terms)
            if op == "sub":
                return self._accumulate(a, factor, terms) + self._accumulate(b, -factor, terms)
            if op == "mul" and type(b) is Const:
                return self._accumulate(a, factor * int(b.value), terms)
        elif kind is Const:
            return factor * int(expr.value)  # type: ignore[attr-defined]
        found = self._sum(expr)
        for atom, coefficient in found.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * coefficient
        return factor * found.constant

    def _divided(self, op: str, a: Sum, b: Sum) -> Sum | None:
        """a // b or a % b, where b is a constant and a does not wrap."""
        sums = self.sums
        if b.terms or b.constant == 0 or sums.may_wrap(a):
            return None
        if b.constant > 0:
            divide = sums.floor_divide if op == "floordiv" else sums.floor_modulo
            return divide(a, b.constant)
        opposite = sums.scale(a, -1)
        if sums.may_wrap(opposite):
            return None
        if op == "floordiv":
            return sums.floor_divide(opposite, -b.constant)
        return sums.scale(sums.floor_modulo(opposite, -b.constant), -1)

    # --- simplification ---------------------------------------------------------------------------

    def simplify(self, expr: ExprLike) -> Expr:
        """An equal expression, no larger; the same object where there is nothing to simplify."""
        kind = type(expr)
        if kind is Var:
            point = self._facts.points.get(expr)  # type: ignore[call-overload]
            return expr if point is None else self.sums.render(point)  # type: ignore[return-value]
        if kind is Const:
            return expr  # type: ignore[return-value]
        if not isinstance(expr, Expr):
            return ir.convert(expr)
        known = self._simplified.get(id(expr))
        if known is not None:
            return known[1]
        result = self._simplify(expr)
        if result is not expr and result == expr:
            result = expr
        self._simplified[id(expr)] = (expr, result)
        return result

    def _simplify(self, expr: Expr) -> Expr:
        if isinstance(expr, Binary) and expr.op in _ARITHMETIC:
            if expr.dtype in INDEX_DTYPES:
                return self._smaller(self.sums.render(self._sum(expr)), expr)
            if dtypes.element(expr.dtype) in INDEX_DTYPES:
                return self._vector(expr)
        return self._opaque(expr)

    def _vector(self, expr: Expr) -> Expr:
        """Simplifies the arithmetic of a vector of indices."""
        found = lanes.of(self.sums, self._sum, expr)
        if found is not None:
            simple = lanes.render(self.sums, found)
            if self._fits(simple, expr):
                return simple
        operands = self._operands(expr)
        if found is None and operands != expr:
            return self.simplify(operands)  # what they are now may be evenly spaced
        return self._rules(self._decided(operands))

    def _smaller(self, canonical: Expr, expr: Expr) -> Expr:
        """The canonical form, unless `expr` with simplified operands is smaller."""
        if self._fits(canonical, expr):
            return canonical
        simple = self._operands(expr)
        return simple if node_count(simple) < node_count(canonical) else canonical

    def _fits(self, simple: Expr, expr: Expr) -> bool:
        return simple == expr or node_count(simple) <= node_count(expr)

    def _operands(self, expr: Expr) -> Expr:
        """The expression with its operands simplified."""
        operands = walk.children(expr)
        if not operands:
            return expr
        return walk.with_children(expr, tuple(self.simplify(operand) for operand in operands))

    def _opaque(self, expr: Expr) -> Expr:
        """Simplifies what is no sum."""
        match expr:
            case Compare():
                return self._compare(expr)
            case And() | Or():
                return self._rules(simplify_connective(expr, self))
            case Not(a):
                return self._negation(expr, self.simplify(a))
            case Call("if_then_else", (condition, a, b), _):
                return self._if_then_else(expr, self.simplify(condition), a, b)
            case Call("likely", (condition,), _):
                condition = self.simplify(condition)
                if truth_of(condition) is not None:
                    return condition
        simple = self._operands(expr)
        return self._rules(self._decided(simple))

    def _rules(self, expr: Expr) -> Expr:
        rewritten = rewriting.apply(expr, self)
        return expr if rewritten is None else self.simplify(rewritten)

    def _decided(self, expr: Expr) -> Expr:
        """A node with simplified operands, decided by what is known of them."""
        match expr:
            case Binary(op, Broadcast(a, count), Broadcast(b, _)):
                return Broadcast(self.simplify(ir.binary(op, a, b)), count)
            case Binary("min" | "max", a, b) if dtypes.is_int(expr.dtype):
                return self._extremum(expr, a, b)
            case Binary(op, a, b) if dtypes.is_float(expr.dtype):
                return _exact_float_identity(expr, op, a, b)
            case Binary(op, Const(a), Const(b), dtype=dtype):
                value = ir.fold_integers(op, int(a), int(b), dtype)
                return expr if value is None else Const(value, dtype)
            case Select(condition, a, b):
                truth = truth_of(condition)
                if truth is not None:
                    return a if truth else b
            case Cast():
                return self._cast(expr)
            case Ramp(base, Const(0), count):
                return Broadcast(base, count)
        return expr

    def _extremum(self, expr: Binary, a: Expr, b: Expr) -> Expr:
        least = self._order(a, b)
        if least is None:
            return expr
        return a if (least < 0) == (expr.op == "min") else b

    def _order(self, a: Expr, b: Expr) -> int | None:
        """-1 where a <= b in every lane, 1 where a >= b, None where neither is certain."""
        known = self._difference_interval(a, b)
        if known.high <= 0:
            return -1
        return 1 if known.low >= 0 else None

    def _difference_interval(self, a: Expr, b: Expr) -> Interval:
        difference = self.difference(a, b)
        if difference is not None:
            return self.sums.interval(difference)
        if dtypes.element(a.dtype) in INDEX_DTYPES and dtypes.lanes(a.dtype) > 1:
            left, right = self._exact_lanes(a), self._exact_lanes(b)
            if left is not None and right is not None:
                return lanes.interval(self.sums, lanes.add(self.sums, left, right, -1))
        return bounds.subtract(self.interval(a), self.interval(b))

    def _exact_lanes(self, expr: Expr) -> Lanes | None:
        found = lanes.of(self.sums, self._sum, expr)
        return None if found is None or lanes.may_wrap(self.sums, found) else found

    def _cast(self, expr: Cast) -> Expr:
        match expr.value:
            case Const(value) if dtypes.is_int(expr.dtype) and not isinstance(value, float):
                return Const(ir.wrap_integer(int(value), expr.dtype), expr.dtype)
            case Broadcast(value, count):
                return Broadcast(self.simplify(ir.cast(value, dtypes.element(expr.dtype))), count)
        return expr

    def _if_then_else(self, expr: Expr, condition: Expr, a: Expr, b: Expr) -> Expr:
        truth = truth_of(condition)
        if truth is not None:
            return self.simplify(a if truth else b)
        if dtypes.lanes(condition.dtype) > 1:  # a load under a mask, which no rule knows
            operands = condition, self.simplify(a), self.simplify(b)
            return walk.with_children(expr, operands)
        with self.constraint(condition):
            a = self.simplify(a)
        with self.constraint(Not(condition)):
            b = self.simplify(b)
        return self._rules(walk.with_children(expr, (condition, a, b)))

    # --- conditions -------------------------------------------------------------------------------

    def _compare(self, expr: Compare) -> Expr:
        if self._facts.truths:
            known = self._facts.truths.get(expr)
            if known is not None:
                return boolean(known, expr.dtype)
        difference = self.difference(expr.a, expr.b)
        if difference is not None:
            return self._compare_index(expr, difference)
        a, b = self.simplify(expr.a), self.simplify(expr.b)
        simple = walk.with_children(expr, (a, b))
        if not isinstance(simple, Compare):
            return simple
        if dtypes.is_int(a.dtype):
            truth = decide(expr.op, self._difference_interval(a, b))
            if truth is not None:
                return boolean(truth, expr.dtype)
        if isinstance(a, Broadcast) and isinstance(b, Broadcast):
            inner = self.simplify(ir.compare(expr.op, a.value, b.value))
            return Broadcast(inner, a.lanes)
        return self._rules(simple)

    def _compare_index(self, expr: Compare, difference: Sum) -> Expr:
        truth = self._decide(expr.op, difference)
        if truth is not None:
            return boolean(truth, expr.dtype)
        simple: Expr | None = render_compare(self.sums, expr.op, difference)
        if simple is not None and self._facts.truths:
            known = self._facts.truths.get(simple)
            if known is not None:
                return boolean(known, expr.dtype)
        if simple is None or not self._fits(simple, expr):
            simple = self._operands(expr)
        rewritten = rewriting.apply(simple, self)
        return simple if rewritten is None else self.simplify(rewritten)

    def _negation(self, expr: Not, a: Expr) -> Expr:
        match a:
            case Const(value):
                return Const(not value, "bool")
            case Broadcast(value, count):
                return Broadcast(self.simplify(Not(value)), count)
            case Not(inner):
                return inner
            case Compare(op, x, y) if op in ("eq", "ne") or dtypes.is_int(x.dtype):
                return self.simplify(Compare(NEGATED[op], x, y))
        return self._rules(walk.with_children(expr, (a,)))


def _exact_float_identity(expr: Expr, op: str, a: Expr, b: Expr) -> Expr:
    """x * 1, 1 * x and x / 1 are x, to the bit."""
    if op in ("mul", "div") and _is_one(b):
        return a
    return b if op == "mul" and _is_one(a) else expr


def _is_one(expr: Expr) -> bool:
    if isinstance(expr, Broadcast):
        expr = expr.value
    return isinstance(expr, Const) and expr.value == 1
