"""CommonSubexprElim: what statements that follow each other compute twice becomes a let.

Expressions are numbered from the leaves up, equal ones alike. One that occurs twice in a run of
stores, and at least once where it is always evaluated, becomes a let in front of the run; in front
of its statement, if it reads memory, as loads of different statements are never equal. A part that
occurs only inside of an expression that is shared anyway is left in there.

Not shared: conditions, which other passes read; vectors of indices, by which an access is seen to
be contiguous; and what is too cheap to be named, such as `i + 1`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeGuard

from minitvm import dtypes
from minitvm.tir import walk
from minitvm.tir.ir import (
    Address,
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Evaluate,
    Expr,
    Let,
    Load,
    Not,
    Or,
    PrimFunc,
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    seq,
)
from minitvm.tir.passes.copying import is_nothing, with_body
from minitvm.transform import make_pass

_PLAIN = (Var, Const, Ramp, Broadcast, Compare, And, Or, Not, Address)
"""What is never shared itself."""


@make_pass("CommonSubexprElim", opt_level=2)
def common_subexpr_elim(func: PrimFunc) -> PrimFunc:
    """Computes what neighbouring statements have in common once. Any spec.

    Before:
        def f(A: Buffer((64,), "float32"), B: Buffer((64,), "float32"), n: int32):
            for i in range(8):
                B[i * n + n] = exp(A[i] * 2.0) / (exp(A[i] * 2.0) + 1.0)
                B[i * n + n + 1] = if_then_else(i < n, A[i * n], 0.0) + A[i * n]
                if A[i] > 0.0:
                    A[i] = A[i] * A[i]
    After:
        def f(A: Buffer((64,), "float32"), B: Buffer((64,), "float32"), n: int32):
            for i in range(8):
                with scope():
                    common: int32 = i * n + n
                    with scope():
                        common_1: float32 = exp(A[i] * 2.0)
                        B[common] = common_1 / (common_1 + 1.0)
                    common_2: float32 = A[i * n]
                    B[common + 1] = if_then_else(i < n, common_2, 0.0) + common_2
                if A[i] > 0.0:
                    common_3: float32 = A[i]
                    A[i] = common_3 * common_3
    """
    return with_body(func, _statement(func.body))


def _statement(statement: Stmt) -> Stmt:
    if isinstance(statement, Seq):
        return _sequence(statement)
    if _is_leaf(statement):
        return _run([statement])
    inner = tuple(map(_statement, walk.bodies(statement)))
    result = walk.with_parts(statement, walk.expressions(statement), inner)
    if isinstance(statement, While):  # its condition is computed anew each time
        return result
    sharing = _Sharing([walk.expressions(result)])
    return sharing.in_front(sharing.around(result, 0), result) if sharing.shared else result


def _sequence(statement: Seq) -> Stmt:
    done: list[Stmt] = []
    run: list[Stmt] = []
    for item in statement.statements:
        if _is_leaf(item):
            run.append(item)
            continue
        if run:
            done.append(_run(run))
            run = []
        done.append(_statement(item))
    if run:
        done.append(_run(run))
    flat = [part for item in done
            for part in (item.statements if isinstance(item, Seq) else (item,))]
    same = len(flat) == len(statement.statements) and all(
        new is old for new, old in zip(flat, statement.statements)
    )
    return statement if same else seq(*flat)


def _is_leaf(statement: Stmt) -> bool:
    return isinstance(statement, Store) or (
        isinstance(statement, Evaluate) and not is_nothing(statement)
    )


def _run(statements: list[Stmt]) -> Stmt:
    """Statements that all run, one after the other, with what they share in front."""
    sharing = _Sharing([walk.expressions(item) for item in statements])
    if not sharing.shared:
        return seq(*statements)
    body = seq(*(sharing.around(item, place) for place, item in enumerate(statements)))
    return sharing.in_front(body, statements[0])


class _Sharing:
    """What a run of statements, given by their expressions, has in common."""

    def __init__(self, run: Sequence[tuple[Expr, ...]]) -> None:
        self.numbers: dict[object, int] = {}
        self.number_of: list[dict[int, int]] = [{} for _ in run]
        """For each statement, by the `id` of an expression."""
        self.nodes: list[tuple[Expr, int]] = []
        """By number: an expression, and the statement that it is in."""
        self.reads: list[bool] = []
        """By number: whether it reads memory."""
        self.repeats = False
        """Whether two parts are equal, of which neither is plain."""
        self.counts: dict[int, int] = {}
        self.eager: set[int] = set()
        self.lazy: list[tuple[Expr, int]] = []
        for place, exprs in enumerate(run):
            for expr in exprs:
                self.number(expr, place)
        if self.repeats:
            self.count_all(run)
        self.shared = {
            number: Var("common", self.nodes[number][0].dtype)
            for number, count in self.counts.items()
            if count > 1 and number in self.eager
        }

    def count_all(self, run: Sequence[tuple[Expr, ...]]) -> None:
        for place, exprs in enumerate(run):
            for expr in exprs:
                self.count(expr, place, True)
        for expr, place in self.lazy:
            self.count(expr, place, False)

    def number(self, expr: Expr, place: int) -> int:
        """The number of an expression: that of all equal ones."""
        known = self.number_of[place].get(id(expr))
        if known is not None:
            self.repeats = self.repeats or not isinstance(expr, _PLAIN)
            return known
        operands = tuple([self.number(operand, place) for operand in walk.children(expr)])
        reads = isinstance(expr, Load) or any(self.reads[operand] for operand in operands)
        key = (type(expr), _LABELS[type(expr)](expr), operands, place if reads else -1)
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.nodes)
            self.nodes.append((expr, place))
            self.reads.append(reads)
        elif not isinstance(expr, _PLAIN):
            self.repeats = True
        self.number_of[place][id(expr)] = found
        return found

    def count(self, expr: Expr, place: int, eager: bool, is_index: bool = False) -> None:
        """Counts an occurrence, and those of its parts where they aren't counted yet."""
        if not isinstance(expr, _PLAIN) and not is_index and _is_worth(expr):
            number = self.number_of[place][id(expr)]
            seen = self.counts.get(number, 0)
            self.counts[number] = seen + 1
            if eager:
                self.eager.add(number)
            if seen:
                return
        if isinstance(expr, Load):
            for index in expr.indices:
                self.count(index, place, eager, dtypes.lanes(index.dtype) > 1)
            return
        operands = walk.children(expr)
        if _is_lazy(expr):
            self.lazy.extend((operand, place) for operand in operands[1:])
            operands = operands[:1]
        for operand in operands:
            self.count(operand, place, eager, is_index and dtypes.lanes(operand.dtype) > 1)

    def rebuilt(self, expr: Expr, place: int) -> Expr:
        """The expression with the variables of what is shared."""
        if not isinstance(expr, _PLAIN):
            var = self.shared.get(self.number_of[place][id(expr)])
            if var is not None:
                return var
        return self.with_shared_parts(expr, place)

    def with_shared_parts(self, expr: Expr, place: int) -> Expr:
        operands = walk.children(expr)
        if not operands:
            return expr
        return walk.with_children(expr, tuple(self.rebuilt(operand, place) for operand in operands))

    def around(self, statement: Stmt, place: int) -> Stmt:
        """A statement in its new form, with lets for what reads memory."""
        exprs = tuple(self.rebuilt(expr, place) for expr in walk.expressions(statement))
        new = walk.with_parts(statement, exprs, walk.bodies(statement))
        return self.lets(new, statement, [
            number for number in self.shared
            if self.reads[number] and self.nodes[number][1] == place
        ])

    def in_front(self, body: Stmt, first: Stmt) -> Stmt:
        """The run with lets for what reads no memory."""
        return self.lets(body, first, [n for n in self.shared if not self.reads[n]])

    def lets(self, body: Stmt, like: Stmt, numbers: list[int]) -> Stmt:
        for number in sorted(numbers, reverse=True):
            value = self.with_shared_parts(*self.nodes[number])
            body = Let(self.shared[number], value, body, like.origin)
        return body


_LABELS: dict[type, Callable[[Any], object]] = {
    **dict.fromkeys((Var, Const), lambda expr: expr),
    **dict.fromkeys((Binary, Compare), attrgetter("op")),
    **dict.fromkeys((Load, Address), attrgetter("buffer")),
    Call: attrgetter("name", "dtype"),
    Cast: attrgetter("dtype"),
    **dict.fromkeys((Ramp, Broadcast), attrgetter("lanes")),
    **dict.fromkeys((And, Or, Not, Select), lambda expr: None),
}
"""What makes an expression, beside its type and its operands."""


def _is_worth(expr: Expr) -> bool:
    """Whether an expression is worth a name: not for one addition or product of indices."""
    if not isinstance(expr, Binary) or dtypes.is_float(expr.dtype):
        return not (isinstance(expr, Call) and expr.name == "likely")
    if expr.op in ("floordiv", "floormod"):
        return True
    return any(isinstance(operand, Binary) for operand in (expr.a, expr.b))


def _is_lazy(expr: Expr) -> TypeGuard[Call | And | Or]:
    """Whether only the first operand is certainly evaluated."""
    if isinstance(expr, Call):
        return expr.name == "if_then_else"
    return isinstance(expr, And | Or) and expr.dtype == "bool"
