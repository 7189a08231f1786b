"""The loops of one stage, with those of the stages computed inside them, as tir.

A reduction stores the identity first, in copies of the loops that stand inside its outermost reduce
axis; then it updates. A guard stands as far out as its variables let it, and only where the
analyzer can't prove it. A tensor intrinsic takes the place of the loops that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import is_dataclass, replace

from minitvm.errors import LoweringError
from minitvm.origin import Origin
from minitvm.target import Target
from minitvm.te.attach import attached_to
from minitvm.te.bounds import Nest, loop_start, loop_variables
from minitvm.te.extent import as_index
from minitvm.te.memory import Memory
from minitvm.te.pragmas import AUTO_UNROLL, PREFETCH, auto_unroll, prefetch
from minitvm.te.stage import Stage
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.te.tensor_intrin import BufferView, Parts
from minitvm.te.tensorize import Place, match, outputs_of
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
    Reduce,
    Stmt,
    Store,
    Var,
)

Layer = Callable[[Stmt], Stmt]
"""What stands around, or before, a statement."""


def wrap(body: Stmt, layers: Sequence[Layer]) -> Stmt:
    """`body` inside the layers, of which the first is outermost."""
    for layer in reversed(layers):
        body = layer(body)
    return body


def allocation(buffers: Sequence[Buffer], origin: Origin) -> Layer:
    """Memory around a statement."""

    def layer(body: Stmt) -> Stmt:
        for buffer in reversed(buffers):
            body = Allocate(buffer, body, origin)
        return body

    return layer


class NestWriter:
    """Writes the loops of one stage."""

    def __init__(
        self, memory: Memory, nest: Nest, produce: Callable[[Stage], Layer],
        target: Target | None = None,
    ) -> None:
        self.memory = memory
        self.target = target
        self.produce = produce
        self.graph = memory.bounds.graph
        self.analyzer = memory.bounds.analyzer
        self.nest = nest
        self.stage = nest.stage
        self.leaves = nest.stage.leaves
        self.buffers: list[Buffer] = []
        self.indices: tuple[Expr, ...] = ()
        if isinstance(nest.op, Compute):
            self._find_memory(nest.op)

    def _find_memory(self, op: Compute) -> None:
        owner = self.graph.owners.get(self.stage)
        if owner is not None:
            self.buffers = [self.memory.buffers[owner]]
            self.indices = tuple(self.nest.points[axis.var] for axis in op.axis)
            return
        self.buffers = [self.memory.buffers[self.stage, index] for index in range(len(op.bodies))]
        points = tuple(self.nest.points[axis.var] for axis in op.axis)
        offsets = tuple(self.nest.values[axis] for axis in op.axis)
        indices = self.memory.rolled(self.nest, points, offsets)
        self.indices = self.memory.place(self.stage, indices)

    def write(self) -> Stmt:
        """The whole nest, with the stages that are computed inside it."""
        variables = self.nest.variables
        guards = _place_guards(self.nest.guards, self.leaves, variables)
        outer = self._outer_leaves()
        reduce = next((leaf for leaf in outer if leaf.kind == "reduce"), None)
        with ExitStack() as facts:
            layers = self._unproven(guards.get(None, ()), facts)
            for leaf in outer:
                if leaf is reduce:
                    layers.append(self._before(self._start_reduction(leaf)))
                first, then = self._attached(leaf)
                layers += [self._memory_of(producer) for producer in first if producer.rolls]
                layers += self._loop(leaf, variables[leaf])
                layers += map(self.produce, first)
                layers += self._unproven(guards.get(leaf, ()), facts)
                layers += map(self.produce, then)
            return wrap(self._innermost(reduce is not None), layers)

    def _attached(self, leaf: IterVar) -> tuple[list[Stage], list[Stage]]:
        """The stages computed at a loop, producers first: up to the last with a rolling buffer,
        which every iteration must compute, whether it has guards or not; and the others."""
        stages = attached_to(self.graph, self.stage, leaf)
        count = max((at + 1 for at, stage in enumerate(stages) if stage.rolls), default=0)
        return stages[:count], stages[count:]

    def _memory_of(self, producer: Stage) -> Layer:
        """The memory of a stage with a rolling buffer, around the loop that it is computed at."""
        return allocation(self.memory.allocate(producer), self.memory.bounds.nests[producer].origin)

    def _outer_leaves(self) -> list[IterVar]:
        """The loops to write: all, or those around a tensor intrinsic."""
        if self.stage.tensorized is None:
            return self.leaves
        return self.leaves[: self.stage.position(self.stage.tensorized[0])]

    def _innermost(self, is_started: bool) -> Stmt:
        if self.stage.tensorized is not None:
            return self._tensorized(is_started)
        return self._update() if self.stage.is_reduction else self._store()

    # --- tensor intrinsics ----------------------------------------------------------------------

    def _parts(self, renamed: Mapping[Var, Expr]) -> Parts:
        """The pieces of the intrinsic, for loops that are `renamed`."""
        found = match(self.memory.bounds, self.stage)
        inputs = [self._view(tensor, place, renamed) for tensor, place in found.inputs]
        simplify = self.analyzer.simplify
        base = tuple(
            simplify(walk.substitute(walk.substitute(index, found.inner), renamed))
            for index in self.indices
        )
        outputs = [
            BufferView(tensor.name, buffer, tensor.extents(), base, found.output_dimensions,
                       self.nest.origin)
            for tensor, buffer in zip(outputs_of(found.intrin), self.buffers, strict=True)
        ]
        return found.intrin.for_target(self.target).parts(inputs, outputs)

    def _view(self, tensor: Tensor, place: Place, renamed: Mapping[Var, Expr]) -> BufferView:
        base = tuple(walk.substitute(index, renamed) for index in place.base)
        buffer, at = self.memory.where(place.stage, place.index, base)
        return BufferView(tensor.name, buffer, tensor.extents(), at, place.dimensions,
                          self.nest.origin)

    def _tensorized(self, is_started: bool) -> Stmt:
        """What the intrinsic does where its loops would stand."""
        body, reset, update = self._parts({})
        if is_started or body is None:
            assert update is not None
            start = ir.seq() if is_started else reset or self._initialise(self._first_inner())
            return with_origin(ir.seq(start, update), self.nest.origin)
        return with_origin(body, self.nest.origin)

    def _first_inner(self) -> IterVar:
        assert self.stage.tensorized is not None
        return self.stage.tensorized[0]

    def _start_reduction(self, reduce: IterVar) -> Stmt:
        """The identity: element by element, or as the intrinsic resets its output."""
        if self.stage.tensorized is None or self._parts({})[1] is None:
            return self._initialise(reduce)

        def reset(renamed: Mapping[Var, Expr]) -> Stmt:
            statement = self._parts(renamed)[1]
            assert statement is not None
            return with_origin(statement, self.nest.origin)

        return self._initialise(reduce, self._outer_leaves(), reset)

    # --- loops ----------------------------------------------------------------------------------

    def _loop(self, leaf: IterVar, variable: Expr) -> list[Layer]:
        """A loop; nothing for one that would run once, whose variable is a constant."""
        if not isinstance(variable, Var):
            return []
        extent = as_index(self.nest.extents[leaf], variable.dtype)
        kind: LoopKind = self.stage.annotations.get(leaf, "serial")
        steps = self.stage.pragma_count(leaf, AUTO_UNROLL)
        bytes_ahead = self.stage.pragma_count(leaf, PREFETCH)

        def layer(body: Stmt) -> Stmt:
            if steps:
                body = auto_unroll(body, steps)
            if bytes_ahead:
                body = prefetch(body, bytes_ahead, self.memory.inputs(), self.nest.origin)
            return For(variable, loop_start(leaf), extent, kind, body, self.nest.origin)

        return [layer]

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
            Store(buffer, self.indices, self.memory.read(body), self.nest.origin)
            for buffer, body in zip(self.buffers, self.nest.bodies)
        ))

    def _initialise(
        self, reduce: IterVar, among: Sequence[IterVar] | None = None,
        statement: Callable[[Mapping[Var, Expr]], Stmt] | None = None,
    ) -> Stmt:
        """The identity, stored by copies of the spatial loops that stand inside `reduce`; or
        another statement, in copies of those `among` these."""
        depth = self.stage.position(reduce)
        leaves = [leaf for leaf in (among or self.leaves)[depth:] if leaf.kind == "spatial"]
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
        return wrap((statement or self._store_identity)(renamed), layers)

    def _store_identity(self, renamed: Mapping[Var, Expr]) -> Stmt:
        indices = tuple(walk.substitute(index, renamed) for index in self.indices)
        values = [walk.substitute(value, renamed) for value in self._initial_values()]
        return ir.seq(*(
            Store(buffer, indices, values[body.index], self.nest.origin)
            for buffer, body in zip(self.buffers, self._reduces())
        ))

    def _initial_values(self) -> Sequence[Expr]:
        first = self._reduces()[0]
        if first.init:
            return [self.memory.read(value) for value in first.init]
        return first.reducer.identity(tuple(source.dtype for source in first.sources))

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
        sources = tuple(self.memory.read(source) for source in first.sources)
        held: list[Expr] = [Const(0)] * count
        for buffer, body in zip(self.buffers, self._reduces()):
            held[body.index] = Load(buffer, self.indices)
        combined = first.reducer.combine(tuple(held), sources)
        statement = self._store_together([combined[body.index] for body in self._reduces()])
        if first.where is not None:
            statement = If(self.memory.read(first.where), statement, None, self.nest.origin)
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


def with_origin(statement: Stmt, origin: Origin) -> Stmt:
    """The statement, and all in it, with an origin where they have none."""
    def give(node: Stmt) -> Stmt:
        assert is_dataclass(node)
        return node if node.origin else replace(node, origin=origin)

    return walk.rewrite_statement(statement, give)


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
