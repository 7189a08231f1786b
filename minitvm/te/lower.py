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
from dataclasses import dataclass, field, is_dataclass, replace

from minitvm import dtypes
from minitvm.errors import LoweringError
from minitvm.origin import Origin
from minitvm.te.attach import attached_to
from minitvm.te.bounds import (
    Bounds,
    Nest,
    identifier,
    infer_bounds,
    loop_variables,
)
from minitvm.te.extent import Extent, as_index, extent_of, extent_text, product
from minitvm.te.pragmas import auto_unroll
from minitvm.te.schedule import Schedule
from minitvm.te.stage import At, Stage, StageGraph, unique_name
from minitvm.te.tensor import Compute, IterVar, Scan, Tensor, output_dtypes
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
    s: Schedule, args: Sequence[Tensor | Var], name: str = "main", simple: bool = False
) -> PrimFunc:
    """The nested function whose parameters are `args`: the inputs and outputs of `s`.

    Sizes and other scalars (`te.var`) are parameters too: those that `args` lacks come first.
    `simple` is there for those who know it: the nested function already is the short form.
    Raises `LoweringError` if `args` lacks an input or an output, or holds what has no memory.
    """
    _refuse_threads(s.graph)
    lowering = _Lowering(infer_bounds(s.graph))
    params = lowering.bind_parameters(args)
    return PrimFunc(name, params, lowering.function_body())


def _refuse_threads(graph: StageGraph) -> None:
    for stage in graph.stages:
        for axis, tag in stage.bindings.items():
            raise LoweringError(
                f"axis {stage.labels[axis]} of {stage.name} is bound to {tag}, and a CPU has no "
                f"such threads; use parallel or vectorize instead of bind"
            )


def scalars_of(graph: StageGraph) -> list[Var]:
    """The variables that the caller gives: sizes first, then those in bodies."""
    found = dict.fromkeys(graph.sizes)
    for stage in graph.stages:
        op = stage.op
        if isinstance(op, Compute):
            own = {axis.var for axis in (*op.axis, *op.reduce_axis)}
            for body in op.bodies:
                found.update((node, None) for node in walk.walk(body)
                             if isinstance(node, Var) and node not in own)
    return list(found)


@dataclass(slots=True)
class _Lowering:
    bounds: Bounds
    buffers: dict[tuple[Stage, int], Buffer] = field(default_factory=dict)
    names: dict[str, Buffer] = field(default_factory=dict)
    rows: dict[Stage, tuple[Extent, ...]] = field(default_factory=dict)

    # --- memory ---------------------------------------------------------------------------------

    def bind_parameters(self, args: Sequence[Tensor | Var]) -> tuple[Buffer | Var, ...]:
        scalars = scalars_of(self.bounds.graph)
        params: list[Buffer | Var] = [scalar for scalar in scalars if scalar not in args]
        for argument in args:
            if isinstance(argument, Tensor):
                params.append(self._bind(argument))
            elif argument in params:
                raise LoweringError(f"argument {argument.name} is given twice")
            else:
                params.append(argument)
        self._check_complete()
        return tuple(params)

    def _bind(self, tensor: Tensor) -> Buffer:
        stage = self.bounds.graph.by_op.get(tensor.op)
        if stage is None:
            raise LoweringError(f"argument {tensor.name} is no tensor of this schedule")
        if stage in self.bounds.graph.owners or (not stage.is_input and stage.attach != "root"):
            raise LoweringError(
                f"argument {tensor.name} has no memory of its own: its stage is inlined, part of "
                f"a scan, or computed inside a loop; leave it out, or compute_root it"
            )
        if (stage, tensor.index) in self.buffers:
            raise LoweringError(f"argument {tensor.name} is given twice")
        if stage.alignment is not None:
            raise LoweringError(
                f"argument {tensor.name} has the memory of the caller, which storage_align can't "
                f"pad; leave it out of the arguments"
            )
        return self._declare(stage, tensor.index, tensor.shape, "global")

    def _check_complete(self) -> None:
        given = {stage for stage, _ in self.buffers}
        for stage in self.bounds.graph.stages:
            needed = stage.is_output or (stage.is_input and stage not in self.bounds.graph.owners)
            if needed and stage not in given:
                what = "output" if stage.is_output else "input"
                raise LoweringError(f"the arguments of the function lack the {what} {stage.name}")

    def _declare(
        self, stage: Stage, index: int, shape: tuple[Expr, ...], scope: str
    ) -> Buffer:
        element_dtypes = output_dtypes(stage.op)
        name = identifier(stage.name if len(element_dtypes) == 1 else f"{stage.name}_{index}")
        dtype = element_dtypes[index]
        buffer = Buffer(unique_name(name, self.names), shape, dtype, scope)
        self.names[buffer.name] = buffer
        self.buffers[stage, index] = buffer
        return buffer

    def _allocate(self, stage: Stage) -> list[Buffer]:
        """The memory of a stage: one buffer for each output that isn't a parameter."""
        if stage in self.bounds.graph.owners:
            return self._allocate(self.bounds.graph.owners[stage][0])
        wanted = [index for index in range(len(output_dtypes(stage.op)))
                  if (stage, index) not in self.buffers]
        if not wanted:
            return []
        nest = self.bounds.nests[stage]
        scope = stage.scope or _default_scope(stage, nest)
        if isinstance(stage.op, Scan):
            shapes = [tuple(map(extent_of, state.shape)) for state in stage.op.states]
        else:
            whole = tuple(dimension.extent for dimension in nest.region)
            shapes = [self._aligned(stage, whole)] * len(nest.bodies)
        return [
            self._declare(stage, index, _constant_shape(stage, shapes[index]), scope)
            for index in wanted
        ]

    def _aligned(self, stage: Stage, shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
        """The shape of memory in which `storage_align` pads a stride: the dimensions inside the
        aligned one become a single row."""
        if stage.alignment is None:
            return shape
        position, factor, offset = stage.alignment
        stride = product(shape[position + 1 :])
        if not isinstance(stride, int):
            return shape
        self.rows[stage] = shape[position + 1 :]
        return (*shape[: position + 1], stride + (offset - stride) % factor)

    def place(self, stage: Stage, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where an element lies in the memory of a stage."""
        row = self.rows.get(stage)
        if row is None:
            return indices
        outer = len(indices) - len(row)
        offset: Expr = indices[outer]
        for index, extent in zip(indices[outer + 1 :], row[1:], strict=True):
            offset = offset * extent + index
        return (*indices[:outer], self.bounds.analyzer.simplify(offset))

    # --- statements -----------------------------------------------------------------------------

    def function_body(self) -> Stmt:
        """The stages at the root, one after the other."""
        return wrap(ir.seq(), [
            self.produce(stage) for stage in self.bounds.graph.stages
            if not stage.is_input and stage.attach == "root"
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
        buffer, indices = self.memory(stage, expr.tensor.index, expr.indices)
        return Load(buffer, indices)

    def memory(
        self, stage: Stage, index: int, indices: tuple[Expr, ...]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """The buffer of an output of a stage, and the place in it of an element."""
        owner = self.bounds.graph.owners.get(stage)
        if owner is not None:
            return self.buffers[owner], indices
        if isinstance(stage.attach, At):
            simplify = self.bounds.analyzer.simplify
            region = self.bounds.nests[stage].region
            indices = tuple(
                simplify(index - ir.cast(dimension.low, index.dtype))
                for index, dimension in zip(indices, region)
            )
        return self.buffers[stage, index], self.place(stage, indices)


def _constant_shape(stage: Stage, shape: tuple[Extent, ...]) -> tuple[Expr, ...]:
    known = [extent for extent in shape if isinstance(extent, int)]
    for extent in shape:
        if not isinstance(extent, int):
            raise LoweringError(
                f"the memory of {stage.name} would have the symbolic extent "
                f"{extent_text(extent)}; make it an argument of the function, inline it, or "
                f"compute it inside a loop that reads a constant part of it"
            )
    dtype = next((axis.var.dtype for axis in stage.leaves), ir.INDEX)
    return tuple(Const(max(extent, 1), dtype) for extent in known)


def _default_scope(stage: Stage, nest: Nest) -> str:
    if not isinstance(stage.attach, At):
        return "global"
    elements = product(dimension.extent for dimension in nest.region)
    size_bytes = elements * sum(dtypes.size_bytes(body.dtype) for body in nest.bodies)
    return "local" if isinstance(size_bytes, int) and size_bytes <= LOCAL_BYTES else "global"


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
        self.buffers: list[Buffer] = []
        self.indices: tuple[Expr, ...] = ()
        if isinstance(nest.op, Compute):
            self._find_memory(nest.op)

    def _find_memory(self, op: Compute) -> None:
        owner = self.lowering.bounds.graph.owners.get(self.stage)
        if owner is not None:
            self.buffers = [self.lowering.buffers[owner]]
            self.indices = tuple(self.nest.points[axis.var] for axis in op.axis)
            return
        self.buffers = [self.lowering.buffers[self.stage, index] for index in range(len(op.bodies))]
        indices = tuple(self.nest.values[axis] for axis in op.axis)
        self.indices = self.lowering.place(self.stage, indices)

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
                layers += self._loop(leaf, variables[leaf])
                layers += self._unproven(guards.get(leaf, ()), facts)
                for producer in attached_to(self.lowering.bounds.graph, self.stage, leaf):
                    layers.append(self.lowering.produce(producer))
            return wrap(self._innermost(reduce is not None), layers)

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
        found = match(self.lowering.bounds, self.stage)
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
        return found.intrin.parts(inputs, outputs)

    def _view(self, tensor: Tensor, place: Place, renamed: Mapping[Var, Expr]) -> BufferView:
        base = tuple(walk.substitute(index, renamed) for index in place.base)
        buffer, at = self.lowering.memory(place.stage, place.index, base)
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
        steps = self.stage.auto_unroll(leaf)

        def layer(body: Stmt) -> Stmt:
            inner = auto_unroll(body, steps) if steps else body
            return For(variable, _start(leaf, variable), extent, kind, inner, self.nest.origin)

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
            Store(buffer, self.indices, self.lowering.read(body), self.nest.origin)
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
            return [self.lowering.read(value) for value in first.init]
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


def with_origin(statement: Stmt, origin: Origin) -> Stmt:
    """The statement, and all in it, with an origin where they have none."""
    def give(node: Stmt) -> Stmt:
        assert is_dataclass(node)
        return node if node.origin else replace(node, origin=origin)

    return walk.rewrite_statement(statement, give)


def _start(leaf: IterVar, variable: Expr) -> Expr:
    """Where a loop starts: at zero, but for one over time."""
    return leaf.start if leaf.kind == "scan" else Const(0, variable.dtype)


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
