"""Inlining: the body of a stage with those of inlined producers put in for their reads.

    y[i] = x[i] * 2; z[i] = y[i] + 1, y inlined  ->  z[i] = x[i] * 2 + 1

An inlined value that is read several times is computed several times, so bodies can grow
exponentially: `expanded_size` counts the nodes without building them, and `compute_inline` refuses
what would grow past `INLINE_LIMIT`, or become deeper than `INLINE_DEPTH`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat

from minitvm.origin import Origin
from minitvm.te.attach import readers_with_loops
from minitvm.te.stage import Size, Stage, StageGraph
from minitvm.te.tensor import Compute
from minitvm.tir import ir, walk
from minitvm.tir.ir import And, Call, Compare, Const, Expr, Not, Or, Read, Var
from minitvm.tir.simplify import Analyzer

INLINE_LIMIT = 10_000
"""The most nodes that the bodies of a stage may have once its inlined producers are in them."""
INLINE_DEPTH = 256
"""The most levels that such a body may have: passes recurse over expressions."""


@dataclass(slots=True)
class Expansion:
    """A body without reads of inlined stages, and the origins of what was put in."""

    value: Expr
    origins: list[Origin] = field(default_factory=list)


def expand(
    body: Expr, points: Mapping[Var, Expr], graph: StageGraph, analyzer: Analyzer
) -> Expansion:
    """`body` at `points` (axis variable -> index), inlined stages expanded, indices simplified."""
    expander = _Expander(graph, analyzer)
    value = expander.expand(body, points)
    return Expansion(value, list(dict.fromkeys(expander.origins)))


@dataclass(slots=True)
class _Expander:
    graph: StageGraph
    analyzer: Analyzer
    origins: list[Origin] = field(default_factory=list)

    def expand(self, expr: Expr, points: Mapping[Var, Expr]) -> Expr:
        match expr:
            case Const():
                return expr
            case Var():
                return points.get(expr, expr)
            case Read(tensor, indices):
                stage = self.graph.by_op[tensor.op]
                indices = tuple(map(self._index, indices, repeat(points)))
                if stage.attach != "inline":
                    return Read(tensor, indices)
                body, inner_points = self._inlined(stage, tensor.index, indices)
                return self.expand(body, inner_points)
            case Call("if_then_else", (condition, a, b)):
                condition = self.expand(condition, points)
                return ir.if_then_else(condition, self.expand(a, points), self.expand(b, points))
            case And() | Or() | Not() | Compare():
                return self.analyzer.simplify(self._condition(expr, points))
        return walk.with_children(expr, self._operands(expr, points))

    def _inlined(
        self, stage: Stage, index: int, indices: tuple[Expr, ...]
    ) -> tuple[Expr, Mapping[Var, Expr]]:
        """The body of an inlined stage, and where it is read."""
        assert isinstance(stage.op, Compute)
        self.origins.append(stage.op.origin)
        points = {axis.var: at for axis, at in zip(stage.op.axis, indices, strict=True)}
        return stage.op.bodies[index], points

    def _operands(self, expr: Expr, points: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        return tuple(map(self.expand, walk.children(expr), repeat(points)))

    def _condition(self, expr: Expr, points: Mapping[Var, Expr]) -> Expr:
        """A condition, not simplified: that is done once, at its top."""
        if isinstance(expr, Compare):
            return walk.with_children(expr, self._operands(expr, points))
        if not isinstance(expr, And | Or | Not):
            return self.expand(expr, points)
        parts = tuple(self._condition(part, points) for part in walk.children(expr))
        return walk.with_children(expr, parts)

    def _index(self, index: Expr, points: Mapping[Var, Expr]) -> Expr:
        return self.analyzer.simplify(self.expand(index, points))


# --- how large it gets --------------------------------------------------------------------------


def expanded_size(graph: StageGraph, stage: Stage) -> int:
    """The nodes of the bodies of `stage` with its inlined producers expanded."""
    for producer in graph.stages:
        if producer.sizes is None and (producer.attach == "inline" or producer is stage):
            bodies = producer.op.bodies if isinstance(producer.op, Compute) else ()
            producer.sizes = tuple(_size(body, graph) for body in bodies)
        if producer is stage:
            break
    return sum(size.nodes for size in stage.sizes or ())


def _size(body: Expr, graph: StageGraph) -> Size:
    """A walk that jumps over inlined bodies: their sizes are known."""
    nodes, depth, uses = 0, 0, dict[Var, int]()
    stack = [(body, 1, 1)]  # an expression, how often it stands there, and its level
    while stack:
        expr, times, level = stack.pop()
        nodes += times
        depth = max(depth, level)
        if isinstance(expr, Var):
            uses[expr] = uses.get(expr, 0) + times
        elif isinstance(expr, Read) and graph.by_op[expr.tensor.op].attach == "inline":
            producer = graph.by_op[expr.tensor.op]
            assert isinstance(producer.op, Compute) and producer.sizes is not None
            inner = producer.sizes[expr.tensor.index]
            nodes += times * (inner.nodes - 1)
            last = level + inner.depth - 1
            depth = max(depth, last)
            for axis, index in zip(producer.op.axis, expr.indices):
                count = times * inner.uses.get(axis.var, 0)
                if count:
                    nodes -= count
                    stack.append((index, count, last))
        else:
            stack.extend((operand, times, level + 1) for operand in walk.children(expr))
    return Size(nodes, depth, uses)


def too_large(graph: StageGraph, stage: Stage) -> str | None:
    """Why `stage`, now inlined, makes a reader too large; None if it doesn't."""
    graph.changed(stage)
    for reader in readers_with_loops(graph, stage):
        nodes = expanded_size(graph, reader)
        if nodes > INLINE_LIMIT:
            return (
                f"the value of {reader.name} would grow to {nodes} nodes, more than "
                f"{INLINE_LIMIT}, because {stage.name} is read several times"
            )
        depth = max(size.depth for size in reader.sizes or ())
        if depth > INLINE_DEPTH:
            return (
                f"the value of {reader.name} would be {depth} levels deep, more than {INLINE_DEPTH}"
            )
    return None
