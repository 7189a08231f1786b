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
from minitvm.te.attach import attached_to
from minitvm.te.bounds import (
    Bounds,
    Nest,
    identifier,
    infer_bounds,
    loop_variables,
)
from minitvm.te.schedule import Schedule
from minitvm.te.stage import At, Stage, unique_name
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.tir import ir, walk
from minitvm.tir.ir import (
    Allocate,
    Buffer,
    Call,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    LoopKind,
    PrimFunc,
    Read,
    Reduce,
    Stmt,
    Store,
    Var,
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
        return wrap(ir.seq(), [
            self.produce(stage) for stage in self.bounds.graph.stages
            if stage.is_compute and stage.attach == "root"
        ])

    def produce(self, stage: Stage) -> Layer:
        """The loops of a stage, put before what follows and into the memory of the stage."""
        buffers = self._allocate(stage)
        nest = self.bounds.nests[stage]
        computed = _NestWriter(self, nest).write()

        def layer(rest: Stmt) -> Stmt:
            body = ir.seq(computed, rest)
            for buffer in reversed(buffers):
                body = Allocate(buffer, body, nest.origin)
            return body

        return layer

    def read(self, expr: Expr) -> Expr:
        """A te expression with loads for reads."""
        return walk.rewrite(expr, self._load)

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
    return op.bodies[index].dtype if isinstance(op, Compute) else op.dtype


def _default_scope(stage: Stage, nest: Nest) -> str:
    if not isinstance(stage.attach, At):
        return "global"
    elements = 1
    for dimension in nest.region:
        elements *= dimension.extent
    size_bytes = elements * sum(dtypes.size_bytes(body.dtype) for body in nest.bodies)
    return "local" if size_bytes <= LOCAL_BYTES else "global"


Layer = Callable[[Stmt], Stmt]
"""What stands around, or before, a statement."""


def wrap(body: Stmt, layers: Sequence[Layer]) -> Stmt:
    """`body` inside the layers, of which the first is outermost."""
    for layer in reversed(layers):
        body = layer(body)
    return body


class _NestWriter:
    """Writes the loops of one stage."""

    def __init__(self, lowering: _Lowering, nest: Nest) -> None:
        self.lowering = lowering
        self.analyzer = lowering.bounds.analyzer
        self.nest = nest
        self.stage = nest.stage
        self.leaves = nest.stage.leaves
        self.buffers = [lowering.buffers[nest.stage, index] for index in range(len(nest.bodies))]
        self.indices = tuple(nest.values[axis] for axis in nest.op.axis)

    def write(self) -> Stmt:
        """The whole nest, with the stages that are computed inside it."""
        variables = self.nest.variables
        guards = _place_guards(self.nest.guards, self.leaves, variables)
        innermost = self._update if self.stage.is_reduction else self._store
        reduce = next((leaf for leaf in self.leaves if leaf.kind == "reduce"), None)
        with ExitStack() as facts:
            layers = self._unproven(guards.get(None, ()), facts)
            for leaf in self.leaves:
                if leaf is reduce:
                    layers.append(self._before(self._initialise(leaf)))
                layers += self._loop(leaf, variables[leaf])
                layers += self._unproven(guards.get(leaf, ()), facts)
                for producer in attached_to(self.lowering.bounds.graph, self.stage, leaf):
                    layers.append(self.lowering.produce(producer))
            return wrap(innermost(), layers)

    def _loop(self, leaf: IterVar, variable: Expr) -> list[Layer]:
        """A loop; nothing for one that would run once, whose variable is a constant."""
        if not isinstance(variable, Var):
            return []
        start, extent = Const(0, variable.dtype), Const(self.nest.extents[leaf], variable.dtype)
        kind: LoopKind = self.stage.annotations.get(leaf, "serial")
        return [lambda body: For(variable, start, extent, kind, body, self.nest.origin)]

    def _unproven(self, conditions: Iterable[Expr], facts: ExitStack) -> list[Layer]:
        """The guards that are needed; from here on they are facts."""
        layers: list[Layer] = []
        for condition in conditions:
            if not self.analyzer.prove(condition):
                facts.enter_context(self.analyzer.constraint(condition))
                layers.append(self._guard(Call("likely", (condition,), "bool")))
        return layers

    def _guard(self, condition: Expr) -> Layer:
        return lambda body: If(condition, body, None, self.nest.origin)

    def _before(self, first: Stmt) -> Layer:
        return lambda body: ir.seq(first, body)

    # --- what stands innermost ------------------------------------------------------------------

    def _store(self) -> Stmt:
        return ir.seq(*(
            Store(buffer, self.indices, self.lowering.read(body), self.nest.origin)
            for buffer, body in zip(self.buffers, self.nest.bodies)
        ))

    def _initialise(self, reduce: IterVar) -> Stmt:
        """The identity, stored by copies of the spatial loops that stand inside `reduce`."""
        depth = self.stage.position(reduce)
        leaves = [leaf for leaf in self.leaves[depth:] if leaf.kind == "spatial"]
        fresh = loop_variables(leaves, self.nest.extents, self.analyzer, "_init")
        renamed = {
            variable: fresh[leaf]
            for leaf in leaves if isinstance(variable := self.nest.variables[leaf], Var)
        }
        guards = _place_guards(
            [walk.substitute(guard, renamed) for guard in self.nest.guards
             if self._is_initial(guard, depth)], leaves, fresh)
        with ExitStack() as facts:
            layers: list[Layer] = []
            for leaf in leaves:
                layers += self._loop(leaf, fresh[leaf])
                layers += self._unproven(guards.get(leaf, ()), facts)
        indices = tuple(walk.substitute(index, renamed) for index in self.indices)
        first = self._reduces()[0]
        identity = first.reducer.identity(tuple(source.dtype for source in first.sources))
        return wrap(ir.seq(*(
            Store(buffer, indices, identity[body.index], self.nest.origin)
            for buffer, body in zip(self.buffers, self._reduces())
        )), layers)

    def _is_initial(self, guard: Expr, depth: int) -> bool:
        """Whether a guard is on loops from `depth` inwards, none of them a reduction."""
        used = {node for node in walk.walk(guard) if isinstance(node, Var)}
        leaves = [leaf for leaf in self.leaves[depth:] if self.nest.variables[leaf] in used]
        return bool(leaves) and all(leaf.kind == "spatial" for leaf in leaves)

    def _reduces(self) -> list[Reduce]:
        reduces = [body for body in self.nest.bodies if isinstance(body, Reduce)]
        if len(reduces) != len(reduces[0].sources):
            raise LoweringError(
                f"{self.stage.name} gives {len(reduces)} of the {len(reduces[0].sources)} results "
                f"of its reduction {reduces[0].reducer.name}; a tuple reduction gives all of them"
            )
        return reduces

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
        used = {node for node in walk.walk(guard) if isinstance(node, Var)}
        place = next((leaf for leaf in reversed(leaves) if variables[leaf] in used), None)
        placed.setdefault(place, []).append(guard)
    return placed
