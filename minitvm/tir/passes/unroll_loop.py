"""UnrollLoop: loops of one iteration become their bodies; more is unrolled on request.

Unrolled loops stay loops: code generation marks them for LLVM, which unrolls them into the same
code in a third of the time that a body repeated here would take. `PassContext(config=...)`:

    tir.unroll_max_step      serial loops are unrolled, too, as long as what they repeat, stores of
                             all iterations together, is at most this; 0 (the default): none are
    tir.unroll_max_extent    and their extent is at most this (default 16)
    tir.unroll_explicitly    unrolled loops are repeated here, up to 64 times (default False)

The pragma `auto_unroll_max_step` of a schedule does for the loops below an axis what the first key
does for a function; te turns it into unrolled loops.
"""

from __future__ import annotations

from minitvm.tir import walk
from minitvm.tir.ir import Const, For, Invoke, PrimFunc, Stmt, Store, While, seq
from minitvm.tir.passes.copying import copy_statement, map_body, substitute_statement
from minitvm.transform import PassContext, make_pass

MOST_ROUNDS = 64
"""The greatest extent of a loop that is repeated here."""


@make_pass("UnrollLoop")
def unroll_loop(func: PrimFunc) -> PrimFunc:
    """Replaces unrolled loops of one iteration by their bodies; see the options above. Any spec.

    Before:
        def f(A: Buffer((8,), "float32")):
            for i in unrolled(3, 4):
                for j in unrolled(2):
                    A[i + j] = 0.0
    After:
        def f(A: Buffer((8,), "float32")):
            for j in unrolled(2):
                A[3 + j] = 0.0
    """
    config = PassContext.current().config
    most_steps = int(config.get("tir.unroll_max_step", 0))
    if most_steps > 0:
        most_extent = int(config.get("tir.unroll_max_extent", 16))
        func = map_body(func, lambda body: _mark(body, most_steps, most_extent)[0])
    func = map_body(func, lambda body: walk.rewrite_statement(body, _single))
    return unroll_fully(func) if config.get("tir.unroll_explicitly", False) else func


def _single(statement: Stmt) -> Stmt:
    match statement:
        case For(var, start, Const(1), "unrolled", body):
            return substitute_statement(body, {var: start})
    return statement


def _mark(statement: Stmt, most_steps: int, most_extent: int) -> tuple[Stmt, int | None]:
    """The statement with small serial loops unrolled, innermost first, and how many stores it makes
    once unrolled; None if a loop stays in it."""
    if isinstance(statement, Store | Invoke):
        return statement, 1
    inner = [_mark(body, most_steps, most_extent) for body in walk.bodies(statement)]
    result = walk.with_parts(statement, walk.expressions(statement),
                             tuple(body for body, _ in inner))
    counts = [count for _, count in inner if count is not None]
    steps = sum(counts) if len(counts) == len(inner) and not isinstance(result, While) else None
    match result:
        case For(_, _, _, "vectorized"):
            return result, steps
        case For(_, _, Const(extent), "unrolled") if steps is not None:
            return result, steps * int(extent)
        case For(var, start, Const(extent), "serial", body, origin) if (
            steps is not None and extent <= most_extent and steps * extent <= most_steps
        ):
            return For(var, start, Const(extent, var.dtype), "unrolled", body, origin), (
                steps * int(extent))
        case For():
            return result, None
    return result, steps


def unroll_fully(func: PrimFunc, most: int = MOST_ROUNDS) -> PrimFunc:
    """Repeats the bodies of unrolled loops of a constant extent up to `most`."""

    def unroll(statement: Stmt) -> Stmt:
        match statement:
            case For(var, start, Const(count), "unrolled", body) if 0 < count <= most:
                rounds = [copy_statement(body, {var: start + i}) for i in range(int(count))]
                return seq(*rounds)
        return statement

    return map_body(func, lambda body: walk.rewrite_statement(body, unroll))
