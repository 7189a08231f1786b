"""Walking over tir: the parts of a node, the node with other parts, rewriting bottom up.

    children(expr), with_children(expr, operands)              the operands of an expression
    expressions(statement), bodies(statement), with_parts(...)  what a statement holds
    walk(expr), walk_statements(statement)                      every node, parents first
    rewrite, substitute, rewrite_statement                      bottom up

A rewrite that changes nothing returns the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any

from minitvm.tir.ir import (
    Address,
    Allocate,
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Invoke,
    Let,
    Load,
    Not,
    Or,
    Ramp,
    Read,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    binary,
    cast,
    compare,
    conjunction,
    disjunction,
    select,
    seq,
)

_Parts = Callable[[Any], tuple[Any, ...]]

_CHILDREN: dict[type, _Parts] = {
    Var: lambda expr: (),
    Const: lambda expr: (),
    **dict.fromkeys((Binary, Compare, And, Or), attrgetter("a", "b")),
    **dict.fromkeys((Load, Read), attrgetter("indices")),
    Call: attrgetter("arguments"),
    **dict.fromkeys((Cast, Broadcast), lambda expr: (expr.value,)),
    Not: lambda expr: (expr.a,),
    Select: attrgetter("condition", "true_value", "false_value"),
    Ramp: attrgetter("base", "stride"),
    Address: lambda expr: (expr.offset,),
    Reduce: lambda expr: (*expr.sources, *expr.init,
                          *(() if expr.where is None else (expr.where,))),
}
"""By type, as most of the time of passes goes into looking for operands."""


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression, in order of evaluation."""
    operands = _CHILDREN.get(type(expr))
    if operands is None:
        raise TypeError(f"not an expression: {expr!r}")
    return operands(expr)


def _same(new: Sequence[object], old: Sequence[object]) -> bool:
    """Whether each part is the very same."""
    if len(new) != len(old):
        raise ValueError(f"{len(new)} parts given for {len(old)}")
    return all(map(is_, new, old))


def with_children(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """The expression with other operands; the same object where each `is` the old one."""
    if _same(operands, children(expr)):
        return expr
    match expr:
        case Binary(op, _, _):
            return binary(op, *operands)
        case Compare(op, _, _):
            return compare(op, *operands)
        case Load(buffer, _):
            return Load(buffer, operands)
        case Read(tensor, _):
            return Read(tensor, operands)
        case Call(name, _, dtype):
            return Call(name, operands, dtype)
        case Cast(dtype, _):
            return cast(operands[0], dtype)
        case Broadcast(_, lanes):
            return Broadcast(operands[0], lanes)
        case And():
            return conjunction(*operands)
        case Or():
            return disjunction(*operands)
        case Not():
            return Not(operands[0])
        case Select():
            return select(*operands)
        case Ramp(_, _, lanes):
            return Ramp(operands[0], operands[1], lanes)
        case Address(buffer, _):
            return Address(buffer, operands[0])
        case Reduce(reducer, sources, axes, index, where, init):
            count, end = len(sources), len(sources) + len(init)
            return Reduce(reducer, operands[:count], axes, index,
                          None if where is None else operands[end], operands[count:end])
    raise TypeError(f"not an expression with operands: {expr!r}")


def rewrite(expr: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """Applies `rule` to each node, operands first."""
    operands = children(expr)
    if operands:
        expr = with_children(expr, tuple(rewrite(operand, rule) for operand in operands))
    return rule(expr)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """`expr` with variables replaced."""

    def replace(node: Expr) -> Expr:
        return values.get(node, node) if isinstance(node, Var) else node

    return rewrite(expr, replace)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of an expression, parents first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


_EXPRESSIONS: dict[type, _Parts] = {
    Store: lambda statement: (*statement.indices, statement.value),
    For: attrgetter("start", "extent"),
    **dict.fromkeys((Let, Evaluate), lambda statement: (statement.value,)),
    **dict.fromkeys((If, While), lambda statement: (statement.condition,)),
    Allocate: attrgetter("buffer.shape"),
    Invoke: attrgetter("arguments"),
    Seq: lambda statement: (),
}
_BODIES: dict[type, _Parts] = {
    **dict.fromkeys((For, Let, Allocate, While), lambda statement: (statement.body,)),
    If: lambda statement: (statement.then_body,) if statement.else_body is None else (
        statement.then_body, statement.else_body),
    Seq: attrgetter("statements"),
    **dict.fromkeys((Store, Invoke, Evaluate), lambda statement: ()),
}


def expressions(statement: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement itself holds (those of nested statements excluded)."""
    found = _EXPRESSIONS.get(type(statement))
    if found is None:
        raise TypeError(f"not a statement: {statement!r}")
    return found(statement)


def bodies(statement: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement."""
    found = _BODIES.get(type(statement))
    if found is None:
        raise TypeError(f"not a statement: {statement!r}")
    return found(statement)


def with_parts(statement: Stmt, exprs: tuple[Expr, ...], inner: tuple[Stmt, ...]) -> Stmt:
    """The statement with other expressions and bodies, in the order of `expressions` and `bodies`.

    The same object where nothing changes. The shape of an Allocate's buffer can't be changed here.
    """
    if _same(exprs, expressions(statement)) and _same(inner, bodies(statement)):
        return statement
    match statement:
        case Store(buffer, _, _, origin):
            return Store(buffer, exprs[:-1], exprs[-1], origin)
        case For(var, _, _, kind, _, origin):
            return For(var, exprs[0], exprs[1], kind, inner[0], origin)
        case Let(var, _, _, origin):
            return Let(var, exprs[0], inner[0], origin)
        case If(_, _, _, origin):
            return If(exprs[0], inner[0], inner[1] if len(inner) > 1 else None, origin)
        case While(_, _, origin):
            return While(exprs[0], inner[0], origin)
        case Allocate(buffer, _, origin):
            return Allocate(buffer, inner[0], origin)
        case Seq():
            return seq(*inner)
        case Invoke(callee, _, origin):
            return Invoke(callee, exprs, origin)
        case Evaluate(_, origin):
            return Evaluate(exprs[0], origin)
    raise TypeError(f"not a statement: {statement!r}")


def rewrite_statement(
    statement: Stmt,
    rule: Callable[[Stmt], Stmt] = lambda statement: statement,
    expr_rule: Callable[[Expr], Expr] = lambda expr: expr,
) -> Stmt:
    """Rewrites bottom up: `expr_rule` on each whole expression a statement holds, then `rule`."""
    exprs = tuple(expr_rule(expr) for expr in expressions(statement))
    inner = tuple(rewrite_statement(body, rule, expr_rule) for body in bodies(statement))
    return rule(with_parts(statement, exprs, inner))


def walk_statements(statement: Stmt) -> Iterator[Stmt]:
    """Every statement, parents first, in order."""
    stack = [statement]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(bodies(node)))
