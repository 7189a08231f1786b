"""Lowering: a schedule to a nested tir function.

    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B)
    s[B].split(B.op.axis[0], factor=4)
    te.lower(s, [A, B]):
        for i_outer in range(3):
            for i_inner in range(4):
                if likely(i_outer * 4 + i_inner < 10):
                    B[i_outer * 4 + i_inner] = A[i_outer * 4 + i_inner] + 1.0

Each stage becomes the loops of its leaves. A stage computed at a loop stands first in that loop's
body, its memory allocated around it, as large as its region there. A reduction stores the identity
first, in copies of the loops that stand inside its outermost reduce axis; then it updates. A guard
stands as far out as its variables let it, and only where the analyzer can't prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from minitvm import dtypes
from minitvm.errors import LoweringError
from minitvm.origin import merge_all
from minitvm.te.attach import attached_to
from minitvm.te.bounds import (
    Bounds, Nest, axis_values, identifier, infer_bounds, loop_variables,
)
from minitvm.te.schedule import Schedule
from minitvm.te.stage import At, Stage, unique_name
from minitvm.te.tensor import IterVar, Tensor
from minitvm.tir import ir
from minitvm.tir.ir import (
    Allocate, Buffer, Call, Const, Expr, For, If, Let, Load, PrimFunc, Read, Reduce, Stmt, Store, Var,
)

LOCAL_BYTES = 32 * 1024
"""The most memory that a stage computed inside a loop takes on the stack unless told otherwise."""


def lower(
    s: Schedule, args: Sequence[Tensor], name: str = "main", simple: bool = False
) -> PrimFunc:
    """The nested function whose buffer parameters are `args`: the inputs and outputs of `s`.

    `simple` is there for those who know it: the nested function already is the short form.
    Raises `LoweringError` if `args` lacks an input or an output, or holds what has no memory.
    """
    lowering = _Lowering(infer_bounds(s.graph))
    params = lowering.bind_parameters(args)
    return PrimFunc(name, params, lowering.function_body())


@dataclass(slots=True)
class _Lowering:
    bounds: Bounds
    buffers: dict[tuple[Stage, int], Buffer] = field(default_factory=dict)
    names: dict[str, Buffer] = field(default_factory=dict)

    # --- memory ---------------------------------------------------------------------------------

    def bind_parameters(self, args: Sequence[Tensor]) -> tuple[Buffer, ...]:
        graph = self.bounds.graph
        for tensor in args:
            stage = graph.by_op.get(tensor.op)
            if stage is None:
                raise LoweringError(f"argument {tensor.name} is no tensor of this schedule")
            if stage.is_compute and stage.attach != "root":
                raise LoweringError(
                    f"argument {tensor.name} has no memory of its own: its stage is inlined or "
                    f"computed inside a loop; leave it out, or compute_root it"
                )
            if (stage, tensor.index) in self.buffers:
                raise LoweringError(f"argument {tensor.name} is given twice")
            self._declare(stage, tensor.index, tensor.shape, "global")
        self._check_complete()
        return tuple(self.buffers.values())

    def _check_complete(self) -> None:
        given = {stage for stage, _ in self.buffers}
        for stage in self.bounds.graph.stages:
            needed = stage.is_output or not stage.is_compute
            if needed and stage not in given:
                what = "output" if stage.is_output else "input"
                raise LoweringError(f"the arguments of the function lack the {what} {stage.name}")

    def _declare(
        self, stage: Stage, index: int, shape: tuple[Expr, ...], scope: str
    ) -> Buffer:
        single = not stage.is_compute or len(self.bounds.nests[stage].bodies) == 1
        name = identifier(stage.name if single else f"{stage.name}_{index}")
        dtype = _output_dtype(stage, index)
        buffer = Buffer(unique_name(name, self.names), shape, dtype, scope)
        self.names[buffer.name] = buffer
        self.buffers[stage, index] = buffer
        return buffer

    def _allocate(self, stage: Stage) -> list[Buffer]:
        """The memory of a stage: one buffer for each output that isn't a parameter."""
        nest = self.bounds.nests[stage]
        shape = tuple(
            Const(dimension.extent, dimension.low.dtype) for dimension in nest.region
        )
        scope = stage.scope or _default_scope(stage, nest)
        return [
            self._declare(stage, index, shape, scope)
            for index in range(len(nest.bodies))
            if (stage, index) not in self.buffers
        ]

    # --- statements -----------------------------------------------------------------------------

    def function_body(self) -> Stmt:
        """The stages at the root, one after the other."""
        roots = [stage for stage in self.bounds.graph.stages
                 if stage.is_compute and stage.attach == "root"]
        return self._with_producers(roots, lambda: ir.seq())

    def _with_producers(self, stages: Sequence[Stage], rest: Callable[[], Stmt]) -> Stmt:
        """The loops of `stages`, then `rest`, inside the memory of the stages."""
        computed = [(stage, self._allocate(stage), self._stage(stage)) for stage in stages]
        body = rest()
        for stage, buffers, statement in reversed(computed):
            body = ir.seq(statement, body)
            for buffer in reversed(buffers):
                body = Allocate(buffer, body, self.bounds.nests[stage].origin)
        return body

    def _stage(self, stage: Stage) -> Stmt:
        nest = self.bounds.nests[stage]
        return _NestWriter(self, nest).write()

    def read(self, expr: Expr) -> Expr:
        """A te expression with loads for reads."""
        return ir.rewrite(expr, self._load)

    def _load(self, expr: Expr) -> Expr:
        if not isinstance(expr, Read):
            return expr
        stage = self.bounds.graph.by_op[expr.tensor.op]
        indices = expr.indices
        if isinstance(stage.attach, At):
            simplify = self.bounds.analyzer.simplify
            region = self.bounds.nests[stage].region
            indices = tuple(
                simplify(index - ir.cast(dimension.low, index.dtype))
                for index, dimension in zip(indices, region)
            )
        return Load(self.buffers[stage, expr.tensor.index], indices)


def _output_dtype(stage: Stage, index: int) -> str:
    op = stage.op
    return op.bodies[index].dtype if hasattr(op, "bodies") else op.dtype


def _default_scope(stage: Stage, nest: Nest) -> str:
    if not isinstance(stage.attach, At):
        return "global"
    elements = 1
    for dimension in nest.region:
        elements *= dimension.extent
    size_bytes = elements * sum(dtypes.size_bytes(body.dtype) for body in nest.bodies)
    return "local" if size_bytes <= LOCAL_BYTES else "global"


@dataclass(slots=True)
class _Loops:
    """What one walk over the leaves of a stage writes: the whole nest, or its initialisation."""

    leaves: Sequence[IterVar]
    variables: Mapping[IterVar, Expr]
    guards: dict[IterVar | None, list[Expr]]
    innermost: Callable[[], Stmt]
    is_main: bool


class _NestWriter:
    """Writes the loops of one stage."""

    def __init__(self, lowering: _Lowering, nest: Nest) -> None:
        self.lowering = lowering
        self.analyzer = lowering.bounds.analyzer
        self.nest = nest
        self.stage = nest.stage
        self.leaves = nest.stage.leaves
        self.buffers = [lowering.buffers[nest.stage, index] for index in range(len(nest.bodies))]
        self.indices = self._store_indices(nest.values)
        reduce_depths = [depth for depth, leaf in enumerate(self.leaves) if leaf.kind == "reduce"]
        self.first_reduce = min(reduce_depths, default=None)

    def write(self) -> Stmt:
        innermost = self._store if self.first_reduce is None else self._update
        guards = _place_guards(self.nest.guards, self.leaves, self.nest.variables)
        main = _Loops(self.leaves, self.nest.variables, guards, innermost, True)
        return self._guarded(guards.get(None, ()), lambda: self._from(main, 0))

    def _store_indices(self, values: Mapping[IterVar, Expr]) -> tuple[Expr, ...]:
        return tuple(values[axis] for axis in self.nest.op.axis)

    def _from(self, loops: _Loops, depth: int) -> Stmt:
        """The loops from `depth` inwards, a reduction's initialisation in front of them."""
        if loops.is_main and depth == self.first_reduce:
            return ir.seq(self._initialise(depth), self._loop(loops, depth))
        if depth == len(loops.leaves):
            return loops.innermost()
        return self._loop(loops, depth)

    def _loop(self, loops: _Loops, depth: int) -> Stmt:
        leaf = loops.leaves[depth]
        attached = attached_to(self.lowering.bounds.graph, self.stage, leaf) if loops.is_main else []

        def inside() -> Stmt:
            return self.lowering._with_producers(attached, lambda: self._from(loops, depth + 1))

        body = self._guarded(loops.guards.get(leaf, ()), inside)
        variable = loops.variables[leaf]
        if not isinstance(variable, Var):
            return body
        extent = Const(self.nest.extents[leaf], variable.dtype)
        kind = self.stage.annotations.get(leaf, "serial")
        return For(variable, Const(0, variable.dtype), extent, kind, body, self.nest.origin)  # type: ignore[arg-type]

    def _guarded(self, conditions: Iterable[Expr], inside: Callable[[], Stmt]) -> Stmt:
        """`inside`, run where the conditions hold that can't be proven."""
        unproven = []
        with ExitStack() as constraints:
            for condition in conditions:
                if not self.analyzer.prove(condition):
                    unproven.append(condition)
                    constraints.enter_context(self.analyzer.constraint(condition))
            body = inside()
        for condition in reversed(unproven):
            body = If(Call("likely", (condition,), "bool"), body, None, self.nest.origin)
        return body

    # --- what stands innermost ------------------------------------------------------------------

    def _store(self) -> Stmt:
        return ir.seq(*(
            Store(buffer, self.indices, self.lowering.read(body), self.nest.origin)
            for buffer, body in zip(self.buffers, self.nest.bodies)
        ))

    def _initialise(self, depth: int) -> Stmt:
        """The identity, stored by copies of the spatial loops from `depth` inwards."""
        leaves = [leaf for leaf in self.leaves[depth:] if leaf.kind == "spatial"]
        fresh = loop_variables(leaves, self.nest.extents, self.analyzer, "_init")
        renamed = {
            self.nest.variables[leaf]: fresh[leaf]
            for leaf in leaves if isinstance(self.nest.variables[leaf], Var)
        }
        indices = tuple(ir.substitute(index, renamed) for index in self.indices)  # type: ignore[arg-type]
        inner = [guard for guard in self.nest.guards if self._is_initial(guard, depth)]
        guards = _place_guards([ir.substitute(guard, renamed) for guard in inner], leaves, fresh)  # type: ignore[arg-type]

        def innermost() -> Stmt:
            reduce = self._reduces()[0]
            identity = reduce.reducer.identity(tuple(source.dtype for source in reduce.sources))
            return ir.seq(*(
                Store(buffer, indices, identity[body.index], self.nest.origin)
                for buffer, body in zip(self.buffers, self._reduces())
            ))

        loops = _Loops(leaves, fresh, guards, innermost, False)
        return self._guarded(guards.get(None, ()), lambda: self._from(loops, 0))

    def _is_initial(self, guard: Expr, depth: int) -> bool:
        """Whether a guard is on loops from `depth` inwards, none of them a reduction."""
        used = {node for node in ir.walk(guard) if isinstance(node, Var)}
        leaves = [leaf for leaf in self.leaves[depth:] if self.nest.variables[leaf] in used]
        return bool(leaves) and all(leaf.kind == "spatial" for leaf in leaves)

    def _reduces(self) -> list[Reduce]:
        return [body for body in self.nest.bodies if isinstance(body, Reduce)]

    def _update(self) -> Stmt:
        """Combines what is stored with the source; all of a tuple at once."""
        first = self._reduces()[0]
        count = len(first.sources)
        sources = tuple(self.lowering.read(source) for source in first.sources)
        held: list[Expr] = [Const(0)] * count
        for buffer, body in zip(self.buffers, self._reduces()):
            held[body.index] = Load(buffer, self.indices)
        combined = first.reducer.combine(tuple(held), sources)
        statement = self._store_together([combined[body.index] for body in self._reduces()])
        if first.where is not None:
            statement = If(self.lowering.read(first.where), statement, None, self.nest.origin)
        return statement

    def _store_together(self, values: list[Expr]) -> Stmt:
        """Stores of values that may read what the others overwrite."""
        origin = self.nest.origin
        if len(values) == 1:
            return Store(self.buffers[0], self.indices, values[0], origin)
        variables = [Var(f"{buffer.name}_next", value.dtype)
                     for buffer, value in zip(self.buffers, values)]
        statement = ir.seq(*(
            Store(buffer, self.indices, variable, origin)
            for buffer, variable in zip(self.buffers, variables)
        ))
        for variable, value in zip(reversed(variables), reversed(values)):
            statement = Let(variable, value, statement, origin)
        return statement


def _place_guards(
    guards: Sequence[Expr], leaves: Sequence[IterVar], variables: Mapping[IterVar, Expr]
) -> dict[IterVar | None, list[Expr]]:
    """Each guard under the innermost leaf whose variable it has; None: outside all of them."""
    placed: dict[IterVar | None, list[Expr]] = {}
    for guard in guards:
        used = {node for node in ir.walk(guard) if isinstance(node, Var)}
        place = next((leaf for leaf in reversed(leaves) if variables[leaf] in used), None)
        placed.setdefault(place, []).append(guard)
    return placed
