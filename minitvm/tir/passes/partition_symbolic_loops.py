"""PartitionSymbolicLoops: loops whose ends are known when the code runs, cut where guards start to
fail.

    for i in range((n + 7) // 8):           for i in range(n // 8): whole vectors, no guard
        for j in vectorized(8):       ->    for i in range(n // 8, (n + 7) // 8):
            if likely(i * 8 + j < n):           for j in range(n - i * 8): one element at a time

For a guard that is linear in the loop's variable, and in what may be said of the loops inside, the
end of the part in which it holds is an expression in what is known outside. The loop runs to there
without the guard, a copy of it from there on with it. A loop of which the guard is the whole body
needs no copy: it ends there, and a vectorized one, whose lanes would differ, becomes serial. In a
parallel loop the body chooses between the two. Loops between constants are left to LoopPartition.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from minitvm import dtypes
from minitvm.remarks import remark
from minitvm.tir import ir, walk
from minitvm.tir.affine import Comparisons, End
from minitvm.tir.ir import (
    Buffer,
    Call,
    Const,
    Expr,
    For,
    If,
    Let,
    LoopKind,
    PrimFunc,
    Stmt,
    Var,
    seq,
)
from minitvm.tir.passes.copying import copy_statement, map_body
from minitvm.tir.passes.guards import conjuncts, is_likely
from minitvm.tir.passes.loop_partition import MOST_LEAVES, count_leaves
from minitvm.tir.simplify import Analyzer
from minitvm.tir.walk import walk_statements
from minitvm.transform import make_pass


@make_pass("PartitionSymbolicLoops", opt_level=1)
def partition_symbolic_loops(func: PrimFunc) -> PrimFunc:
    """Splits loops of symbolic extent so that tails stand apart. Any spec.

    Before:
        def f(n: int32, A: Buffer((n,), "float32"), B: Buffer((n,), "float32")):
            for i in range((n + 7) // 8):
                for j in vectorized(8):
                    if likely(i * 8 + j < n):
                        B[i * 8 + j] = A[i * 8 + j] * 2.0
    After:
        def f(n: int32, A: Buffer((n,), "float32"), B: Buffer((n,), "float32")):
            for i in range(n // 8):
                for j in vectorized(8):
                    B[i * 8 + j] = A[i * 8 + j] * 2.0
            for i_1 in range(n // 8, extent=(n + 7) // 8 - n // 8):
                for j_1 in range(max(min(n - i_1 * 8, 8), 0)):
                    B[i_1 * 8 + j_1] = A[i_1 * 8 + j_1] * 2.0
    """
    if not any(isinstance(param, Var) for param in func.params):
        return func
    return map_body(func, _Partition(func).statement)


class _Partition:
    """One walk, outer loops first."""

    def __init__(self, func: PrimFunc) -> None:
        self.known = Comparisons()
        self.analyzer = Analyzer()
        self.loops: set[Var] = set()
        self.leaves = count_leaves(func.body)
        for param in func.params:
            for extent in param.shape if isinstance(param, Buffer) else ():
                if isinstance(extent, Var):  # the size of an array is never negative
                    self.analyzer.bind(extent, 0, dtypes.integer_range(extent.dtype)[1])
        self.bind_loops(func.body)

    def bind_loops(self, statement: Stmt) -> None:
        for item in walk_statements(statement):
            if isinstance(item, For):
                self.loops.add(item.var)
                self.known.bind(item.var, item.start, item.extent)

    def statement(self, statement: Stmt) -> Stmt:
        if isinstance(statement, For):
            return self.loop(statement)
        inner = tuple(map(self.statement, walk.bodies(statement)))
        return walk.with_parts(statement, walk.expressions(statement), inner)

    def loop(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.var, loop.start, loop.extent)
        ends = self.ends(loop)
        whole = guards_all(loop, ends)
        if not ends or not (whole or self.may_split(loop)):
            return walk.with_parts(loop, walk.expressions(loop), (self.statement(loop.body),))
        stop = self.analyzer.simplify(loop.start + loop.extent)
        end = functools.reduce(ir.minimum, (found.value for found in ends.values()))
        end = self.clamped(end, loop.start, stop)
        body = without(loop.body, set(ends))
        if whole:
            kind: LoopKind = "serial" if loop.kind == "vectorized" else loop.kind
            return self.piece(loop, loop.start, end, kind, body)
        if loop.kind == "parallel":
            chosen = If(loop.var < end, self.statement(body), self.tail(loop, loop.var),
                        loop.origin)
            return walk.with_parts(loop, walk.expressions(loop), (chosen,))
        var = Var(loop.var.name, loop.var.dtype)
        self.analyzer.bind(var, loop.start, loop.extent)
        rest = For(var, end, self.analyzer.simplify(stop - end), loop.kind, self.tail(loop, var),
                   loop.origin)
        return seq(self.piece(loop, loop.start, end, loop.kind, body), rest)

    def piece(self, loop: For, start: Expr, end: Expr, kind: LoopKind, body: Stmt) -> For:
        """The loop over [start, end)."""
        extent = self.analyzer.simplify(end - start)
        return For(loop.var, start, extent, kind, self.statement(body), loop.origin)

    def tail(self, loop: For, var: Var) -> Stmt:
        """The body where guards may fail."""
        body = copy_statement(loop.body, {} if var is loop.var else {loop.var: var})
        self.loops.add(var)
        self.bind_loops(body)
        return self.statement(body)

    def ends(self, loop: For) -> dict[Expr, End]:
        """The guards in a loop that hold up to an end which is known when the code runs."""
        if loop.kind == "unrolled" or (isinstance(loop.extent, Const)
                                       and loop.kind != "vectorized"):
            return {}
        inside = {item.var for item in walk_statements(loop.body) if isinstance(item, For | Let)}
        found: dict[Expr, End] = {}
        for item in walk_statements(loop.body):
            if isinstance(item, If) and is_likely(item.condition):
                for part in conjuncts(item.condition):
                    end = self.known.end(part, loop.var, inside)
                    if end is not None and self.is_symbolic(end.value):
                        found[part] = end
        return found

    def is_symbolic(self, value: Expr) -> bool:
        """Whether more than the variables of loops decides a value."""
        return any(isinstance(node, Var) and node not in self.loops for node in walk.walk(value))

    def may_split(self, loop: For) -> bool:
        """Whether the loop may be written twice; counts it if so."""
        if loop.kind == "vectorized":
            return False
        more = count_leaves(loop.body)
        if self.leaves + more > MOST_LEAVES:
            remark("PartitionSymbolicLoops",
                   f"the loop over {loop.var.name} keeps its guards: split, the function would "
                   f"have {self.leaves + more} statements, more than {MOST_LEAVES}", loop.origin)
            return False
        self.leaves += more
        return True

    def clamped(self, end: Expr, start: Expr, stop: Expr) -> Expr:
        """`end`, or the nearest place in the loop."""
        end = self.analyzer.simplify(end)
        if not self.analyzer.prove(end <= stop):
            end = ir.minimum(end, stop)
        if not self.analyzer.prove(end >= start):
            end = ir.maximum(end, start)
        return self.analyzer.simplify(end)


def guards_all(loop: For, ends: Mapping[Expr, End]) -> bool:
    """Whether a body does nothing from the end of a guard on: it is all inside of the guard."""
    match loop.body:
        case If(condition, _, None):
            parts = conjuncts(condition)
            return all(part in parts and end.fails_after for part, end in ends.items())
    return False


def without(statement: Stmt, holding: Collection[Expr]) -> Stmt:
    """The statement where these parts of its guards hold."""

    def drop(item: Stmt) -> Stmt:
        if not isinstance(item, If) or not is_likely(item.condition):
            return item
        parts = conjuncts(item.condition)
        kept = [part for part in parts if part not in holding]
        if len(kept) == len(parts):
            return item
        if not kept:
            return item.then_body
        condition = Call("likely", (ir.conjunction(*kept),), "bool")
        return If(condition, item.then_body, item.else_body, item.origin)

    return walk.rewrite_statement(statement, drop)
