"""NarrowDeepExpressions: expressions deeper than `DEPTH` become lets.

A chain of fused elementwise operators is one expression as deep as the chain is long; Python's
parser, which reads the text, and recursion over expressions both have their limits. Wherever the
depth reaches `DEPTH`, the part so far becomes a let in front of the statement.

What may not be evaluated stays in its place: the branches of if_then_else and the right of `and`
and `or`, unless they can't fail. No pass before this one recurses over expressions; this one keeps
its own stack.
"""

from __future__ import annotations

from minitvm.tir import walk
from minitvm.tir.ir import (
    And,
    Binary,
    Call,
    Const,
    Expr,
    Let,
    Load,
    Or,
    PrimFunc,
    Reduce,
    Stmt,
    Var,
    While,
)
from minitvm.tir.passes.copying import with_body
from minitvm.transform import make_pass

DEPTH = 48
"""The deepest expression that is left as it is."""


@make_pass("NarrowDeepExpressions")
def narrow_deep_expressions(func: PrimFunc) -> PrimFunc:
    """Turns parts of expressions that are too deep into lets. Any spec.

    Before:
        def f(A: Buffer((4,), "float32"), B: Buffer((4,), "float32")):
            for i in range(4):
                B[i] = A[i] + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0\
 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0\
 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0\
 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0
    After:
        def f(A: Buffer((4,), "float32"), B: Buffer((4,), "float32")):
            for i in range(4):
                part: float32 = A[i] + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0\
 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0\
 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0 + 1.0\
 + 1.0 + 1.0 + 1.0 + 1.0
                B[i] = part + 1.0 + 1.0 + 1.0 + 1.0
    """
    return with_body(func, walk.rewrite_statement(func.body, narrow_statement))


def narrow_statement(statement: Stmt) -> Stmt:
    """The statement with lets for the deep parts of its own expressions around it."""
    exprs = walk.expressions(statement)
    if isinstance(statement, While):  # its condition is computed anew each time
        return statement
    if all(_depth_within(expr, DEPTH) for expr in exprs):
        return statement
    narrowing = _Narrowing()
    new = tuple(map(narrowing.expr, exprs))
    result = walk.with_parts(statement, new, walk.bodies(statement))
    for var, value in reversed(narrowing.lets):
        result = Let(var, value, result, statement.origin)
    return result


def _depth_within(expr: Expr, limit: int) -> bool:
    """Whether an expression is no deeper than a limit: level by level, each node once."""
    level = {id(expr): expr}
    for _ in range(limit):
        level = {id(child): child for node in level.values() for child in walk.children(node)}
        if not level:
            return True
    return False


class _Narrowing:
    """Rebuilds expressions from the leaves up, with the depth of each node."""

    def __init__(self) -> None:
        self.lets: list[tuple[Var, Expr]] = []
        self.done: dict[int, tuple[Expr, int]] = {}

    def expr(self, root: Expr) -> Expr:
        lazy = _lazy_parts(root)
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) in self.done:
                stack.pop()
                continue
            missing = [child for child in walk.children(node) if id(child) not in self.done]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self.done[id(node)] = self.finish(node, id(node) not in lazy and node is not root)
        return self.done[id(root)][0]

    def finish(self, node: Expr, may_move: bool) -> tuple[Expr, int]:
        """The node from its finished operands, and its depth; a variable where it got too deep."""
        parts = [self.done[id(child)] for child in walk.children(node)]
        result = walk.with_children(node, tuple(part for part, _ in parts))
        depth = 1 + max((depth for _, depth in parts), default=0)
        if depth < DEPTH or not may_move or isinstance(node, Var | Const | Reduce):
            return result, depth
        var = Var("part", result.dtype)
        self.lets.append((var, result))
        return var, 1


def _lazy_parts(root: Expr) -> set[int]:
    """The nodes that may only be evaluated where they are; those shared with other places too."""
    found: set[int] = set()
    seen: set[tuple[int, bool]] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, lazy = stack.pop()
        if (id(node), lazy) in seen:
            continue
        seen.add((id(node), lazy))
        if lazy:
            found.add(id(node))
        first_only = isinstance(node, And | Or) or (
            isinstance(node, Call) and node.name == "if_then_else"
        )
        for position, child in enumerate(walk.children(node)):
            starts = first_only and position > 0 and not is_total(child)
            stack.append((child, lazy or starts))
    return found


def is_total(expr: Expr) -> bool:
    """Whether an expression can be evaluated anywhere: no loads, constant divisors."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case Load():
                return False
            case Binary("floordiv" | "floormod" | "shl" | "shr", _, b):
                if not isinstance(b, Const) or b.value == 0:
                    return False
        stack.extend(walk.children(node))
    return True
