"""HoistInvariants: guards and quotients that a loop doesn't change move out of it.

A guard around all of a loop's body that neither names the loop's variable nor reads memory is
tested once; with an else, there is a loop for either case. Neighbours with one guard share it.

A quotient or remainder of indices, which costs more than all other index arithmetic, becomes a let
in front of the outermost loop that doesn't change it. Cheaper expressions are left where they are:
LLVM moves those, and keeps them out of registers where registers are dear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minitvm import dtypes
from minitvm.origin import merge
from minitvm.tir import walk
from minitvm.tir.ir import (
    Allocate,
    Binary,
    Const,
    Expr,
    For,
    If,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Var,
    seq,
)
from minitvm.tir.passes.copying import copy_statement, origins_of, with_body
from minitvm.tir.passes.movable import is_invariant, is_total
from minitvm.tir.walk import walk_statements
from minitvm.transform import make_pass


@make_pass("HoistInvariants", opt_level=1)
def hoist_invariants(func: PrimFunc) -> PrimFunc:
    """Moves guards and index divisions out of the loops that don't change them. Any spec.

    Before:
        def f(A: Buffer((64,), "float32"), B: Buffer((64,), "float32"), n: int32):
            for i in range(8):
                for j in range(8):
                    if i < n:
                        B[i * 8 + j] = A[i // 2 * 8 + j]
    After:
        def f(A: Buffer((64,), "float32"), B: Buffer((64,), "float32"), n: int32):
            for i in range(8):
                if i < n:
                    quotient: int32 = i // 2
                    for j in range(8):
                        B[i * 8 + j] = A[quotient * 8 + j]
    """
    body = walk.rewrite_statement(func.body, _hoist_guard)
    divides = any(next(_divisions(expr, set()), None) is not None
                  for item in walk_statements(body) for expr in walk.expressions(item))
    return with_body(func, _hoist_divisions(body) if divides else body)


# --- guards -------------------------------------------------------------------------------------


def _hoist_guard(statement: Stmt) -> Stmt:
    """Takes the guard of all that a statement does out of it; its body is done already."""
    match statement:
        case For(var, _, _, kind, If() as guard) if kind != "parallel":
            return _around(statement, guard, var)
        case Let(var, _, If(_, _, None) as guard):
            return _around(statement, guard, var)
        case Allocate(_, If(_, _, None) as guard):
            return _around(statement, guard, None)
        case Seq(statements):
            return _join_guards(statement, statements)
    return statement


def _around(statement: For | Let | Allocate, guard: If, var: Var | None) -> Stmt:
    """The guard around a statement that had it as its body, where that may be."""
    condition, otherwise = guard.condition, guard.else_body
    changing = () if var is None else (var,)
    if not (is_total(condition) and is_invariant(condition, changing)):
        return statement
    exprs = walk.expressions(statement)
    then_body = walk.with_parts(statement, exprs, (guard.then_body,))
    if otherwise is None:
        return If(condition, then_body, None, guard.origin)
    other = copy_statement(walk.with_parts(statement, exprs, (otherwise,)), {})
    return If(condition, then_body, other, guard.origin)


def _join_guards(statement: Seq, statements: tuple[Stmt, ...]) -> Stmt:
    """Neighbours under one condition that nothing changes share it."""
    joined: list[Stmt] = []
    for item in statements:
        last = joined[-1] if joined else None
        match last, item:
            case If(condition, first, None, origin), If(again, second, None, more) if (
                condition == again and is_invariant(condition, ())
            ):
                joined[-1] = If(condition, seq(first, second), None, merge(origin, more))
            case _:
                joined.append(item)
    return statement if len(joined) == len(statements) else seq(*joined)


# --- divisions ----------------------------------------------------------------------------------


def _hoist_divisions(statement: Stmt) -> Stmt:
    """From the outside in: what is hoisted out of an outer loop is seen no more in inner ones."""
    if isinstance(statement, For) and statement.kind != "parallel":
        found = _invariant_divisions(statement)
        if found:
            names = {expr: Var(_NAMES[expr.op], expr.dtype) for expr in found}
            replaced = walk.rewrite_statement(
                statement, expr_rule=lambda expr: _replace(expr, names)
            )
            result = _hoist_inside(replaced)
            origin = origins_of(statement)
            for expr, var in reversed(names.items()):
                result = Let(var, expr, result, origin)
            return result
    return _hoist_inside(statement)


_NAMES = {"floordiv": "quotient", "floormod": "remainder"}


def _hoist_inside(statement: Stmt) -> Stmt:
    inner = tuple(map(_hoist_divisions, walk.bodies(statement)))
    return walk.with_parts(statement, walk.expressions(statement), inner)


def _invariant_divisions(loop: For) -> list[Binary]:
    """The largest divisions by a constant in a loop's body that nothing in the loop changes."""
    changing = {loop.var}
    for item in walk_statements(loop.body):
        if isinstance(item, For | Let):
            changing.add(item.var)
    found: dict[Binary, None] = {}
    for item in walk_statements(loop.body):
        for expr in walk.expressions(item):
            found.update(dict.fromkeys(_divisions(expr, changing)))
    return list(found)


def _divisions(expr: Expr, changing: set[Var]) -> Iterator[Binary]:
    match expr:  # one in a lazy branch may be computed all the same: it reads no memory
        case Binary("floordiv" | "floormod", _, Const(divisor)) if (
            divisor and dtypes.is_int(expr.dtype) and is_invariant(expr, changing)
        ):
            yield expr
            return
    for operand in walk.children(expr):
        yield from _divisions(operand, changing)


def _replace(expr: Expr, names: Mapping[Binary, Var]) -> Expr:
    """From the outside in, so that the largest of nested divisions is found."""
    if isinstance(expr, Binary) and expr in names:
        return names[expr]
    operands = walk.children(expr)
    if not operands:
        return expr
    return walk.with_children(expr, tuple(_replace(operand, names) for operand in operands))
