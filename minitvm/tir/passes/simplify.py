"""Simplify: index arithmetic, decided guards and loops of one iteration, over a whole body."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from minitvm import dtypes
from minitvm.tir import walk
from minitvm.tir.ir import (
    Allocate,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Not,
    PrimFunc,
    Seq,
    Stmt,
    Var,
    seq,
)
from minitvm.tir.passes.copying import NOTHING, is_nothing, map_body, substitute_statement
from minitvm.tir.simplify import Analyzer
from minitvm.transform import make_pass


@make_pass("Simplify")
def simplify(func: PrimFunc) -> PrimFunc:
    """Simplifies every expression under the loops and guards around it.

    Guards that always hold are dropped, code that never runs is removed, a loop of one iteration
    and a let of a variable or constant become their bodies. Any spec.

    Before:
        def f(A: Buffer((32,), "float32"), B: Buffer((32,), "float32")):
            for i in range(8):
                for j in range(4):
                    if likely(i * 4 + j < 32):
                        B[(i * 4 + j) // 4 * 4 + (i * 4 + j) % 4] = A[i * 4 - j + j + j]
                    if i > 7:
                        B[0] = 1.0
    After:
        def f(A: Buffer((32,), "float32"), B: Buffer((32,), "float32")):
            for i in range(8):
                for j in range(4):
                    B[i * 4 + j] = A[i * 4 + j]
    """
    return map_body(func, _Simplifier().statement)


class _Simplifier:
    """One walk, with what is known at each place."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def statement(self, statement: Stmt) -> Stmt:
        match statement:
            case For():
                return self.loop(statement)
            case Let(var, value, _):
                return self.let(statement, var, self.analyzer.simplify(value))
            case If():
                return self.conditional(statement)
            case Seq(statements):
                new = tuple(map(self.statement, statements))
                same = all(a is b for a, b in zip(new, statements, strict=True))
                return statement if same else seq(*new)
            case Allocate(_, body):
                inner = self.statement(body)
                return NOTHING if is_nothing(inner) else walk.with_parts(
                    statement, walk.expressions(statement), (inner,)
                )
        exprs = tuple(map(self.analyzer.simplify, walk.expressions(statement)))
        bodies = tuple(map(self.statement, walk.bodies(statement)))
        return walk.with_parts(statement, exprs, bodies)

    def loop(self, loop: For) -> Stmt:
        start = self.analyzer.simplify(loop.start)
        extent = self.analyzer.simplify(loop.extent)
        if isinstance(extent, Const) and extent.value <= 0:
            return NOTHING
        if isinstance(extent, Const) and extent.value == 1:
            return self.statement(substitute_statement(loop.body, {loop.var: start}))
        self.analyzer.bind(loop.var, start, extent)
        body = self.statement(loop.body)
        return NOTHING if is_nothing(body) else walk.with_parts(loop, (start, extent), (body,))

    def let(self, statement: Let, var: Var, value: Expr) -> Stmt:
        if isinstance(value, Var | Const):
            return self.statement(substitute_statement(statement.body, {var: value}))
        if dtypes.is_int(var.dtype) and dtypes.lanes(var.dtype) == 1:
            known = self.analyzer.interval(value)
            if known.is_finite:
                self.analyzer.bind(var, Const(known.low, var.dtype),
                                   Const(known.high - known.low + 1, var.dtype))
        body = self.statement(statement.body)
        return NOTHING if is_nothing(body) else walk.with_parts(statement, (value,), (body,))

    def conditional(self, statement: If) -> Stmt:
        condition = self.analyzer.simplify(statement.condition)
        otherwise = statement.else_body
        if isinstance(condition, Const):
            taken = statement.then_body if condition.value else otherwise
            return NOTHING if taken is None else self.statement(taken)
        with self.known(condition):
            then_body = self.statement(statement.then_body)
        if otherwise is None:
            if is_nothing(then_body):
                return NOTHING
            return walk.with_parts(statement, (condition,), (then_body,))
        with self.known(Not(condition)):
            else_body = self.statement(otherwise)
        return _choice(statement, condition, then_body, else_body)

    def known(self, condition: Expr) -> AbstractContextManager[None]:
        """What holds in a branch; nothing where the branch may change what was tested."""
        if any(isinstance(node, Load) for node in walk.walk(condition)):
            return nullcontext()
        return self.analyzer.constraint(condition)


def _choice(statement: If, condition: Expr, then_body: Stmt, else_body: Stmt) -> Stmt:
    """An If whose branches may have become nothing."""
    if is_nothing(then_body):
        if is_nothing(else_body):
            return NOTHING
        return If(Not(condition), else_body, None, statement.origin)
    if is_nothing(else_body):
        return If(condition, then_body, None, statement.origin)
    return walk.with_parts(statement, (condition,), (then_body, else_body))
