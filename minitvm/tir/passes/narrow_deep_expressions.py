"""NarrowDeepExpressions: expressions deeper than `DEPTH` become lets.

A chain of fused elementwise operators is one expression as deep as the chain is long; Python's
parser, which reads the text, and recursion over expressions both have their limits. Wherever the
depth reaches `DEPTH`, the part so far becomes a let in front of the statement.

What may not be evaluated always is not: in a branch of if_then_else, and on the right of `and` and
`or`, the let is itself an if_then_else by what decides there; and decides once, as a let. What
can't fail needs no such care. No pass before this one recurses over expressions; this one keeps
its own stack.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitvm.tir import walk
from minitvm.tir.ir import (
    And,
    Call,
    Const,
    Expr,
    Let,
    Not,
    Or,
    PrimFunc,
    Reduce,
    Stmt,
    Var,
    While,
    convert,
)
from minitvm.tir.passes.copying import with_body
from minitvm.tir.passes.movable import find_total
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


@dataclass(eq=False, slots=True)
class _Place:
    """Where parts of an expression are evaluated: if `condition`, in the place `outer`, is `sense`.

    `guard` is the let that says so, once there is one; the place without `outer` is always reached.
    """

    outer: _Place | None = None
    condition: Expr | None = None
    sense: bool = True
    guard: Var | None = None


class _Narrowing:
    """Rebuilds expressions from the leaves up, with the depth of each node."""

    def __init__(self) -> None:
        self.lets: list[tuple[Var, Expr]] = []
        self.done: dict[tuple[int, _Place], tuple[Expr, int]] = {}
        self.total: dict[int, bool] = {}
        self.everywhere = _Place()
        self.inside: dict[tuple[int, _Place], list[tuple[Expr, _Place]]] = {}

    def expr(self, root: Expr) -> Expr:
        find_total(root, self.total)
        stack = [(root, self.everywhere)]
        while stack:
            node, place = stack[-1]
            if (id(node), place) in self.done:
                stack.pop()
                continue
            operands = self.operands(node, place)
            missing = [(child, where) for child, where in operands
                       if (id(child), where) not in self.done]
            if missing:
                stack.extend(reversed(missing))  # conditions first
                continue
            stack.pop()
            self.done[id(node), place] = self.finish(node, place, operands, node is root)
        return self.done[id(root), self.everywhere][0]

    def operands(self, node: Expr, place: _Place) -> list[tuple[Expr, _Place]]:
        """The operands, each with the place where it is evaluated."""
        known = self.inside.get((id(node), place))
        if known is None:
            found = walk.children(node)
            known = [(child, place) for child in found]
            for position, sense in _lazy_operands(node):
                if not self.total[id(found[position])]:
                    known[position] = (found[position], _Place(place, found[0], sense))
            self.inside[id(node), place] = known
        return known

    def finish(
        self, node: Expr, place: _Place, operands: list[tuple[Expr, _Place]], is_root: bool
    ) -> tuple[Expr, int]:
        """The node from its finished operands, and its depth; a variable where it got too deep."""
        parts = [self.done[id(child), where] for child, where in operands]
        result = walk.with_children(node, tuple(part for part, _ in parts))
        depth = 1 + max((depth for _, depth in parts), default=0)
        if depth < DEPTH or is_root or isinstance(node, Var | Const | Reduce):
            return result, depth
        var = Var("part", result.dtype)
        guard = self.guard(place)
        if guard is not None:
            otherwise = convert(0, result.dtype)
            result = Call("if_then_else", (guard, result, otherwise), result.dtype)
        self.lets.append((var, result))
        return var, 1

    def guard(self, place: _Place) -> Var | None:
        """The variable that says whether a place is reached; None where it always is."""
        waiting = []
        while place.outer is not None and place.guard is None:
            waiting.append(place)
            place = place.outer
        guard = place.guard
        for inner in reversed(waiting):
            assert inner.condition is not None and inner.outer is not None
            condition, _ = self.done[id(inner.condition), inner.outer]
            reached = condition if inner.sense else Not(condition)
            inner.guard = Var("reached", "bool")
            self.lets.append((inner.guard, reached if guard is None else And(guard, reached)))
            guard = inner.guard
        return guard


def _lazy_operands(node: Expr) -> tuple[tuple[int, bool], ...]:
    """The operands evaluated only if the first is true, or false."""
    match node:
        case Call("if_then_else"):
            return (1, True), (2, False)
        case And() if node.dtype == "bool":
            return ((1, True),)
        case Or() if node.dtype == "bool":
            return ((1, False),)
    return ()
