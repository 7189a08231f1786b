"""Copies of statements: variables replaced, and what the copy declares renamed.

A pass that repeats a body (the pieces of a loop, the rounds of an unrolled one) must declare each
variable and buffer of each copy anew: they are declared once in a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minitvm.origin import Origin, merge, merge_all
from minitvm.tir import walk
from minitvm.tir.ir import (
    Address,
    Allocate,
    Buffer,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Invoke,
    Let,
    Load,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from minitvm.tir.walk import walk_statements

NOTHING = seq()
"""The statement that does nothing."""


def is_nothing(statement: Stmt) -> bool:
    """Whether a statement does nothing."""
    return isinstance(statement, Evaluate) and isinstance(statement.value, Const)


def copy_statement(statement: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """A copy in which `values` stand for variables, and which declares its own."""
    return _Copier(dict(values), fresh=True).statement(statement)


def substitute_statement(statement: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """The statement with variables replaced: what takes the place of the old one."""
    return _Copier(dict(values), fresh=False).statement(statement)


class _Copier:
    """One walk; `values` and `buffers` grow by what the copy declares."""

    def __init__(self, values: dict[Var, Expr], fresh: bool) -> None:
        self.values = values
        self.buffers: dict[Buffer, Buffer] = {}
        self.fresh = fresh
        self.known: dict[int, tuple[Expr, Expr]] = {}

    def variable(self, var: Var) -> Var:
        if not self.fresh:
            return var
        made = Var(var.name, var.dtype)
        self.values[var] = made
        return made

    def buffer(self, buffer: Buffer) -> Buffer:
        shape = self.all(buffer.shape)
        if not self.fresh and shape is buffer.shape:
            return buffer
        made = Buffer(buffer.name, shape, buffer.dtype, buffer.scope)
        self.buffers[buffer] = made
        return made

    def statement(self, statement: Stmt) -> Stmt:
        match statement:
            case Store(buffer, indices, value, origin):
                where = self.buffers.get(buffer, buffer)
                new_indices, new_value = self.all(indices), self.expr(value)
                if where is buffer and new_indices is indices and new_value is value:
                    return statement
                return Store(where, new_indices, new_value, origin)
            case For(var, start, extent, kind, body, origin):
                first, length = self.expr(start), self.expr(extent)
                new_var = self.variable(var)
                return For(new_var, first, length, kind, self.statement(body), origin)
            case Let(var, value, body, origin):
                computed = self.expr(value)
                new_var = self.variable(var)
                return Let(new_var, computed, self.statement(body), origin)
            case Allocate(buffer, body, origin):
                memory = self.buffer(buffer)
                return Allocate(memory, self.statement(body), origin)
            case If(condition, then_body, else_body, origin):
                otherwise = None if else_body is None else self.statement(else_body)
                return If(self.expr(condition), self.statement(then_body), otherwise, origin)
            case Seq(statements):
                return seq(*map(self.statement, statements))
            case Invoke(callee, arguments, origin):
                return Invoke(callee, self.all(arguments), origin)
            case Evaluate(value, origin):
                return Evaluate(self.expr(value), origin)
        inner = tuple(map(self.statement, walk.bodies(statement)))
        return walk.with_parts(statement, self.all(walk.expressions(statement)), inner)

    def all(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        new = tuple(map(self.expr, exprs))
        return exprs if all(a is b for a, b in zip(new, exprs, strict=True)) else new

    def expr(self, expr: Expr) -> Expr:
        kind = type(expr)
        if kind is Var:
            return self.values.get(expr, expr)  # type: ignore[call-overload,no-any-return]
        if kind is Const:
            return expr
        known = self.known.get(id(expr))
        if known is not None:
            return known[1]
        result = self._rebuild(expr)
        self.known[id(expr)] = (expr, result)
        return result

    def _rebuild(self, expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer in self.buffers:
            return Load(self.buffers[expr.buffer], self.all(expr.indices))
        if isinstance(expr, Address) and expr.buffer in self.buffers:
            return Address(self.buffers[expr.buffer], self.expr(expr.offset))
        return walk.with_children(expr, self.all(walk.children(expr)))


# --- origins ------------------------------------------------------------------------------------


def origins_of(statement: Stmt) -> Origin:
    """The union of the origins in a statement."""
    return merge_all({item.origin for item in walk_statements(statement)})


def keep_origins(before: PrimFunc, after: PrimFunc) -> PrimFunc:
    """`after`, whose first statement with an effect takes the origins that it lost."""
    if after is before:
        return after
    had, has = origins_of(before.body), origins_of(after.body)
    lost = Origin(tuple(sorted(set(had.names) - set(has.names))))
    if not lost:
        return after
    return PrimFunc(after.name, after.params, add_origin(after.body, lost), after.attrs)


def add_origin(statement: Stmt, more: Origin) -> Stmt:
    """The statement where its first leaf comes from `more`, too."""
    match statement:
        case Seq((first, *rest)):
            return Seq((add_origin(first, more), *rest))
        case Store(buffer, indices, value, origin):
            return Store(buffer, indices, value, merge(origin, more))
        case Invoke(callee, arguments, origin):
            return Invoke(callee, arguments, merge(origin, more))
        case Evaluate(value, origin):
            return Evaluate(value, merge(origin, more))
    first, *others = walk.bodies(statement)
    return walk.with_parts(statement, walk.expressions(statement),
                         (add_origin(first, more), *others))


def with_body(func: PrimFunc, body: Stmt) -> PrimFunc:
    """The function with another body; the same object where it is the old one."""
    return func if body is func.body else PrimFunc(func.name, func.params, body, func.attrs)


def map_body(func: PrimFunc, rule: Callable[[Stmt], Stmt]) -> PrimFunc:
    """The function with `rule` applied to its body; no origin is lost."""
    return keep_origins(func, with_body(func, rule(func.body)))
