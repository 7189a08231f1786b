"""rfactor: a reduction in two stages, of which the first keeps one loop apart."""

from __future__ import annotations

from collections.abc import Mapping

from minitvm.te.attach import attached_to
from minitvm.te.bounds import axis_extents, axis_values, split_guards
from minitvm.te.extent import as_index
from minitvm.te.primitives.checks import (
    attempt,
    check_places,
    check_unscheduled_space,
    find_leaf,
    find_stage,
    operation,
)
from minitvm.te.show import refuse
from minitvm.te.stage import Stage, StageGraph, axis_extent, unique_name
from minitvm.te.steps import Rfactor
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.tir import ir, walk
from minitvm.tir.ir import Const, Expr, Read, Reduce, Var
from minitvm.tir.simplify import Analyzer


def apply_rfactor(graph: StageGraph, step: Rfactor) -> tuple[Tensor, ...]:
    """A new stage reduces over all loops but one, which becomes an axis of its tensor, at position
    `factor_axis`; the old stage reduces over that axis. The new one starts at the root.

    The spatial loops must not be scheduled yet. Floating-point sums are added in another order.

    Given: s[E].split(E.op.reduce_axis[0], factor=4)
    Step: s.rfactor(E, "k.inner")
    Before:
        for i in range(4):
            E[i] = 0.0
            for k_outer in range(2):
                for k_inner in range(4):
                    E[i] = E[i] + A[i, k_outer * 4 + k_inner]
    After:
        E_rf = allocate((4, 4), "float32")
        for k_inner in range(4):
            for i_rf in range(4):
                E_rf[k_inner, i_rf] = 0.0
                for k_outer in range(2):
                    E_rf[k_inner, i_rf] = E_rf[k_inner, i_rf] + A[i_rf, k_outer * 4 + k_inner]
        for i in range(4):
            E[i] = 0.0
            for k_inner_v in range(4):
                E[i] = E[i] + E_rf[k_inner_v, i]
    """
    action = f"rfactor({step.axis})"
    stage = find_stage(graph, step.stage, action)
    if not stage.is_reduction:
        refuse(graph, stage, action, "it is no reduction", _reductions(graph))
    axis = find_leaf(graph, stage, step.axis, action)
    _check(graph, stage, axis, step, action)
    op = operation(stage)
    name = unique_name(f"{stage.name}.rf", graph.by_name)
    factor = _Factor(stage, op, axis, step.factor_axis % (len(op.axis) + 1))
    partial = factor.partial(name)
    tensors = tuple(
        Tensor(partial, index, tuple(at.extent for at in partial.axis), body.dtype)
        for index, body in enumerate(partial.bodies)
    )
    final = factor.final(tensors)
    with attempt(graph, stage, action, stage):
        added = graph.add(partial, graph.stages.index(stage))
        stage.reset(final)
        graph.by_op[final] = stage
        graph.changed(added)
        graph.changed(stage)
        graph.place_in_scan(added)
        check_places(graph)
    return tensors


def _reductions(graph: StageGraph) -> list[str]:
    return [stage.name for stage in graph.stages if stage.is_reduction]


def _check(
    graph: StageGraph, stage: Stage, axis: IterVar, step: Rfactor, action: str
) -> None:
    reduce = [stage.labels[leaf] for leaf in stage.leaves if leaf.kind == "reduce"]
    if axis.kind != "reduce":
        refuse(graph, stage, action, f"axis {step.axis} is no reduce axis", reduce)
    check_unscheduled_space(graph, stage, action, "rfactor")
    if attached_to(graph, stage):
        refuse(graph, stage, action,
               f"{attached_to(graph, stage)[0].name} is computed inside its loops",
               ["rfactor before compute_at"])
    rank = len(operation(stage).axis)
    if not -rank - 1 <= step.factor_axis <= rank:
        refuse(graph, stage, action, f"{step.factor_axis} is no place among {rank + 1} axes",
               [str(position) for position in range(rank + 1)])


class _Factor:
    """The two operations that one becomes."""

    def __init__(self, stage: Stage, op: Compute, axis: IterVar, position: int) -> None:
        self.stage, self.op, self.axis, self.position = stage, op, axis, position
        self.reduces = [body for body in op.bodies if isinstance(body, Reduce)]

    def partial(self, name: str) -> Compute:
        """For each value of the axis, the reduction over the other loops."""
        dtype = self.axis.var.dtype
        extent = as_index(axis_extent(self.axis), dtype)
        kept = IterVar(Var(self.axis.name, dtype), Const(0, dtype), extent)
        others = {
            leaf: IterVar(Var(leaf.name, leaf.var.dtype), Const(0, leaf.var.dtype),
                          as_index(axis_extent(leaf), leaf.var.dtype), "reduce")
            for leaf in self.stage.leaves if leaf.kind == "reduce" and leaf is not self.axis
        }
        if not others:
            one = Const(1, dtype)
            others[self.axis] = IterVar(Var("one", dtype), Const(0, dtype), one, "reduce")
        spatial = {old: IterVar(Var(f"{old.name}.rf", old.var.dtype), old.start, old.extent)
                   for old in self.op.axis}
        points, guards = self._points({**others, self.axis: kept})
        points |= {old.var: new.var for old, new in spatial.items()}
        axes = list(spatial.values())
        axes.insert(self.position, kept)
        bodies = tuple(
            self._reduce(body, points, tuple(others.values()), guards) for body in self.reduces
        )
        op = self.op
        return Compute(name, tuple(axes), tuple(others.values()), bodies, op.tag, op.attrs,
                       op.origin)

    def _points(self, fresh: Mapping[IterVar, IterVar]) -> tuple[dict[Var, Expr], list[Expr]]:
        """Where the new axes are on the old ones, and what tails of splits need."""
        stage, analyzer = self.stage, Analyzer()
        root = {axis: axis_extent(axis) for axis in (*self.op.axis, *self.op.reduce_axis)}
        extents = axis_extents(stage, root, analyzer)
        variables: dict[IterVar, Expr] = {
            leaf: fresh[leaf].var if leaf in fresh else leaf.var for leaf in stage.leaves
        }
        for leaf, new in fresh.items():
            analyzer.bind(new.var, 0, as_index(extents[leaf], leaf.var.dtype))
        values = axis_values(stage, extents, variables, analyzer)
        points: dict[Var, Expr] = {
            axis.var: analyzer.simplify(axis.start + values[axis]) for axis in self.op.reduce_axis
        }
        return points, split_guards(stage, extents, values)

    def _reduce(
        self, body: Reduce, points: Mapping[Var, Expr], axes: tuple[IterVar, ...],
        guards: list[Expr],
    ) -> Reduce:
        sources = tuple(walk.substitute(source, points) for source in body.sources)
        given = [] if body.where is None else [walk.substitute(body.where, points)]
        conditions = [*guards, *given]
        where = ir.conjunction(*conditions) if conditions else None
        return Reduce(body.reducer, sources, axes, body.index, where)

    def final(self, tensors: tuple[Tensor, ...]) -> Compute:
        """The reduction over the axis that was kept."""
        op, dtype = self.op, self.axis.var.dtype
        kept = IterVar(Var(f"{self.axis.name}.v", dtype), Const(0, dtype),
                       as_index(axis_extent(self.axis), dtype), "reduce")
        at: list[Expr] = [axis.var for axis in op.axis]
        at.insert(self.position, kept.var)
        by_index = {body.index: tensor for body, tensor in zip(self.reduces, tensors, strict=True)}
        sources = tuple(Read(by_index[index], tuple(at)) for index in sorted(by_index))
        bodies = tuple(
            Reduce(body.reducer, sources, (kept,), body.index, None, body.init)
            for body in self.reduces
        )
        return Compute(op.name, op.axis, (kept,), bodies, op.tag, op.attrs, op.origin)
