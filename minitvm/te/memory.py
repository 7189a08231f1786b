"""The memory of stages: buffers, and where elements lie in them.

A parameter of the function is the caller's; a stage at the root has memory for the whole tensor,
one computed at a loop for its region there, which goes round in a rolling buffer; `storage_align`
pads a stride, `reorder_storage` lays the axes out in another order; the parts of a scan share the
memory of its result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minitvm import dtypes
from minitvm.errors import LoweringError
from minitvm.te.bounds import Bounds, Nest, identifier
from minitvm.te.extent import Extent, extent_of, extent_text, product
from minitvm.te.stage import At, Stage, unique_name
from minitvm.te.tensor import Scan, Tensor, output_dtypes
from minitvm.tir import ir, walk
from minitvm.tir.ir import Buffer, Call, Const, Expr, Load, Read

LOCAL_BYTES = 32 * 1024
"""The most memory that a stage computed inside a loop takes on the stack unless told otherwise."""


@dataclass(slots=True)
class Memory:
    """The buffers so far, by stage and output."""

    bounds: Bounds
    buffers: dict[tuple[Stage, int], Buffer] = field(default_factory=dict)
    names: dict[str, Buffer] = field(default_factory=dict)
    rows: dict[Stage, tuple[Extent, ...]] = field(default_factory=dict)

    def bind(self, tensor: Tensor) -> Buffer:
        """A parameter for a tensor; raises `LoweringError` if its memory can't be the caller's."""
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

    def inputs(self) -> set[Buffer]:
        """The parameters that hold inputs."""
        return {buffer for (stage, _), buffer in self.buffers.items() if stage.is_input}

    def check_complete(self) -> None:
        """Raises `LoweringError` if an input or an output is no parameter."""
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

    def allocate(self, stage: Stage) -> list[Buffer]:
        """The memory of a stage: one buffer for each output that isn't a parameter."""
        if stage in self.bounds.graph.owners:
            return self.allocate(self.bounds.graph.owners[stage][0])
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
            shapes = [self._aligned(stage, _reordered(stage, whole))] * len(nest.bodies)
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
        if stage.storage is not None:
            return self._reordered_place(stage.storage, indices)
        row = self.rows.get(stage)
        if row is None:
            return indices
        outer = len(indices) - len(row)
        offset: Expr = indices[outer]
        for index, extent in zip(indices[outer + 1 :], row[1:], strict=True):
            offset = offset * extent + index
        return (*indices[:outer], self.bounds.analyzer.simplify(offset))

    def _reordered_place(
        self, storage: tuple[tuple[int, ...], int | None], indices: tuple[Expr, ...]
    ) -> tuple[Expr, ...]:
        order, factor = storage
        moved = tuple(indices[dimension] for dimension in order)
        if factor is None:
            return moved
        *outer, last = moved
        simplify = self.bounds.analyzer.simplify
        return (simplify(last // factor), *outer, simplify(last % factor))

    def read(self, expr: Expr) -> Expr:
        """A te expression with loads for reads."""
        if self.bounds.graph.owners:
            return self._read_in_scan(expr)
        return walk.rewrite(expr, self._load)

    def _read_in_scan(self, expr: Expr) -> Expr:
        """`read`, with what conditions say of the steps that are read where they hold."""
        match expr:
            case Call("if_then_else", (condition, a, b)) if not _has_data(condition):
                with self.bounds.analyzer.constraint(condition):
                    chosen = self._read_in_scan(a)
                return ir.if_then_else(condition, chosen, self._read_in_scan(b))
        parts = tuple(map(self._read_in_scan, walk.children(expr)))
        return self._load(walk.with_children(expr, parts))

    def _load(self, expr: Expr) -> Expr:
        if not isinstance(expr, Read):
            return expr
        stage, indices = self.bounds.graph.by_op[expr.tensor.op], expr.indices
        if stage.is_input and stage in self.bounds.graph.owners:
            indices = (self._past_step(stage, indices[0]), *indices[1:])
        buffer, indices = self.where(stage, expr.tensor.index, indices)
        return Load(buffer, indices)

    def _past_step(self, state: Stage, step: Expr) -> Expr:
        """The step of a state that is read. A box may hold more than is read; elements that no one
        reads are computed from other steps than theirs, so that none is read that isn't there."""
        scan, _ = self.bounds.graph.owners[state]
        (time,) = self.bounds.nests[scan].points.values()
        if not self.bounds.analyzer.prove(step >= 0):
            step = ir.maximum(step, 0)
        if not self.bounds.analyzer.prove(step < time):
            step = ir.minimum(step, time - 1)
        return step

    def where(
        self, stage: Stage, index: int, indices: tuple[Expr, ...]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """The buffer of an output of a stage, and the place in it of an element."""
        owner = self.bounds.graph.owners.get(stage)
        if owner is not None:
            return self.buffers[owner], indices
        if isinstance(stage.attach, At):
            simplify = self.bounds.analyzer.simplify
            nest = self.bounds.nests[stage]
            indices = self.rolled(nest, indices, tuple(
                simplify(index - ir.cast(dimension.low, index.dtype))
                for index, dimension in zip(indices, nest.region)
            ))
        return self.buffers[stage, index], self.place(stage, indices)

    def rolled(
        self, nest: Nest, indices: tuple[Expr, ...], offsets: tuple[Expr, ...]
    ) -> tuple[Expr, ...]:
        """Offsets in a region, but for a rolling dimension, where an element keeps its place."""
        roll = nest.roll
        if roll is None:
            return offsets
        index = ir.cast(indices[roll.dimension], roll.base.dtype)
        at = self.bounds.analyzer.simplify(roll.place(index))
        return (*offsets[: roll.dimension], at, *offsets[roll.dimension + 1 :])


def _has_data(condition: Expr) -> bool:
    return any(isinstance(node, Read | Load) for node in walk.walk(condition))


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


def _reordered(stage: Stage, shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """The shape of memory whose dimensions `reorder_storage` lays out anew."""
    if stage.storage is None:
        return shape
    order, factor = stage.storage
    moved = tuple(shape[dimension] for dimension in order)
    last = moved[-1] if moved else None
    if factor is None or last is None:
        return moved
    if not isinstance(last, int):
        raise LoweringError(f"the memory of {stage.name} can't lie in blocks of {factor}: the "
                            f"extent {extent_text(last)} is symbolic")
    return (-(-last // factor), *moved[:-1], factor)


def _default_scope(stage: Stage, nest: Nest) -> str:
    if not isinstance(stage.attach, At):
        return "global"
    elements = product(dimension.extent for dimension in nest.region)
    size_bytes = elements * sum(dtypes.size_bytes(body.dtype) for body in nest.bodies)
    return "local" if isinstance(size_bytes, int) and size_bytes <= LOCAL_BYTES else "global"
