"""Inlining: the body of a stage with those of inlined producers put in for their reads.

    y[i] = x[i] * 2; z[i] = y[i] + 1, y inlined  ->  z[i] = x[i] * 2 + 1

An inlined value that is read several times is computed several times, so bodies can grow
exponentially: `expanded_size` counts the nodes without building them, and `compute_inline` refuses
what would grow past `INLINE_LIMIT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minitvm import dtypes
from minitvm.origin import Origin
from minitvm.te.stage import Stage, StageGraph
from minitvm.te.tensor import Compute, Operation, Tensor
from minitvm.tir import ir
from minitvm.tir.ir import And, Call, Compare, Const, Expr, Not, Or, Read, Var
from minitvm.tir.simplify import Analyzer

INLINE_LIMIT = 10_000
"""The most nodes that the bodies of a stage may have once its inlined producers are in them."""


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
                return self._read(tensor, tuple(self._index(index, points) for index in indices))
            case Call("if_then_else", (condition, a, b)):
                condition = self.expand(condition, points)
                return ir.if_then_else(condition, self.expand(a, points), self.expand(b, points))
        operands = tuple(self.expand(operand, points) for operand in ir.children(expr))
        result = ir.with_children(expr, operands)
        return self.analyzer.simplify(result) if _is_condition(result) else result

    def _index(self, index: Expr, points: Mapping[Var, Expr]) -> Expr:
        return self.analyzer.simplify(self.expand(index, points))

    def _read(self, tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
        stage = self.graph.by_op[tensor.op]
        if stage.attach != "inline":
            return Read(tensor, indices)
        op = stage.op
        assert isinstance(op, Compute)
        self.origins.append(op.origin)
        points = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
        return self.expand(op.bodies[tensor.index], points)


def _is_condition(expr: Expr) -> bool:
    """Whether this is a condition on indices alone, at its top."""
    match expr:
        case Compare(_, a, _):
            return dtypes.is_int(a.dtype)
        case And() | Or() | Not():
            return True
    return False


# --- how large it gets --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """The nodes of an expression, and how often each axis variable stands in it."""

    nodes: int
    uses: Mapping[Var, int]


def expanded_size(graph: StageGraph, stage: Stage, also_inline: Stage | None = None) -> int:
    """The nodes of the bodies of `stage` with its inlined producers expanded (and `also_inline`,
    as if it were inlined too)."""
    sizes: dict[tuple[Operation, int], Size] = {}
    for producer in graph.stages:
        inlined = producer.attach == "inline" or producer is also_inline
        if isinstance(producer.op, Compute) and (inlined or producer is stage):
            for index, body in enumerate(producer.op.bodies):
                sizes[producer.op, index] = _size(body, graph, sizes)
        if producer is stage:
            break
    assert isinstance(stage.op, Compute)
    return sum(sizes[stage.op, index].nodes for index in range(len(stage.op.bodies)))


def _size(body: Expr, graph: StageGraph, sizes: Mapping[tuple[Operation, int], Size]) -> Size:
    """One pass over the body, operands before their node."""
    nodes, uses = 0, dict[Var, int]()
    stack = [(body, 1)]
    while stack:
        expr, times = stack.pop()
        nodes += times
        if isinstance(expr, Var):
            uses[expr] = uses.get(expr, 0) + times
        elif isinstance(expr, Read):
            stage = graph.by_op[expr.tensor.op]
            inner = sizes.get((stage.op, expr.tensor.index))
            if inner is None:
                stack.extend((index, times) for index in expr.indices)
                continue
            assert isinstance(stage.op, Compute)
            nodes += times * (inner.nodes - 1)
            for axis, index in zip(stage.op.axis, expr.indices):
                count = inner.uses.get(axis.var, 0)
                if count:
                    nodes -= times * count
                    stack.append((index, times * count))
        else:
            stack.extend((operand, times) for operand in ir.children(expr))
    return Size(nodes, uses)


def check_size(graph: StageGraph, stage: Stage) -> str | None:
    """Why inlining `stage` would make a reader too large; None if it doesn't."""
    for reader in graph.readers(stage):
        if isinstance(reader.op, Compute):
            size = expanded_size(graph, reader, also_inline=stage)
            if size > INLINE_LIMIT:
                return (
                    f"the value of {reader.name} would grow to {size} nodes, more than "
                    f"{INLINE_LIMIT}: {stage.name} is read several times"
                )
    return None
