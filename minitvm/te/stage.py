"""Stages: how each operation is to be computed; what the primitives change.

    StageGraph = stages, producers first; a lookup from operation to stage
    Stage      = op, leaves: IterVar* (the loops, outermost first),
                 relations: (Split | Fuse)* (how the leaves came from the axes of op),
                 annotations: IterVar -> kind, attach: ROOT | INLINE | At(stage, axis), scope

Stages refer to operations by identity; a stage whose operation is replaced (by `cache_write` or
`cache_read`) still answers for the old one, so no consumer needs rewriting.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from minitvm.errors import ScheduleError
from minitvm.te.tensor import Compute, IterVar, Operation, Tensor
from minitvm.tir.ir import Const, LoopKind, Var


@dataclass(frozen=True, slots=True)
class SplitRelation:
    """parent = outer * (extent of inner) + inner; `factor` or `nparts` bounds an extent."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None

    def extents(self, extent: int) -> tuple[int, int]:
        """The extents of outer and inner for a parent of `extent`."""
        return split_extents(extent, self.factor, self.nparts)


def split_extents(extent: int, factor: int | None, nparts: int | None) -> tuple[int, int]:
    """The extents of the outer and the inner loop; never larger than needed."""
    if factor is not None:
        inner = max(1, min(factor, extent))
    else:
        assert nparts is not None
        inner = max(1, -(-extent // nparts))
    return -(-extent // inner), inner


@dataclass(frozen=True, slots=True)
class FuseRelation:
    """`parts`, outermost first, in row-major order, run as `fused`."""

    parts: tuple[IterVar, ...]
    fused: IterVar


Relation = SplitRelation | FuseRelation


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """Computed inside the loop `axis` of `stage`."""

    stage: Stage
    axis: IterVar


Attach = At | Literal["root", "inline"]


@dataclass(frozen=True, slots=True)
class Size:
    """The nodes and levels of an expression, and how often each axis variable stands in it."""

    nodes: int
    depth: int
    uses: Mapping[Var, int]


@dataclass(slots=True, eq=False, repr=False)
class Stage:
    """One operation and its loops. Equal by identity; changed only by the primitives."""

    name: str
    op: Operation
    is_output: bool = False
    leaves: list[IterVar] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    annotations: dict[IterVar, LoopKind] = field(default_factory=dict)
    pragmas: list[tuple[IterVar, str, int | str | bool | None]] = field(default_factory=list)
    attach: Attach = "root"
    scope: str | None = None
    labels: dict[IterVar, str] = field(default_factory=dict)
    axes: dict[str, IterVar] = field(default_factory=dict)
    reads: tuple[Tensor, ...] = ()
    sizes: tuple[Size, ...] | None = None  # of its expanded bodies, once asked for (te/inline.py)

    def __post_init__(self) -> None:
        self.set_op(self.op)

    def __repr__(self) -> str:
        return f"Stage({self.name})"

    def set_op(self, op: Operation) -> None:
        """Starts afresh with the loops of `op`."""
        self.op = op
        self.leaves = [*op.axis, *op.reduce_axis] if isinstance(op, Compute) else []
        self.labels, self.axes = {}, {}
        for axis in self.leaves:
            self.label(axis)
        self.reads = op.inputs

    def replace_body(self, op: Compute) -> None:
        """Takes an operation with the same axes and another body; the loops stay."""
        self.op, self.reads = op, op.inputs

    def label(self, axis: IterVar) -> str:
        """Enters an axis under its name, made unique in the stage."""
        label = unique_name(axis.name, self.axes)
        self.labels[axis] = label
        self.axes[label] = axis
        return label

    def derive(self, name: str, extent: int, like: IterVar) -> IterVar:
        """A new axis, of the kind and dtype of `like`, that runs over [0, extent)."""
        dtype = like.var.dtype
        name = unique_name(name, self.axes)
        axis = IterVar(Var(name, dtype), Const(0, dtype), Const(extent, dtype), like.kind)
        self.label(axis)
        return axis

    def position(self, axis: IterVar) -> int:
        """The depth of a leaf: 0 is the outermost loop."""
        return self.leaves.index(axis)

    def snapshot(self) -> Stage:
        """A copy that later changes to this stage leave alone."""
        copy = object.__new__(Stage)
        for slot in Stage.__slots__:
            value = getattr(self, slot)
            setattr(copy, slot, value.copy() if isinstance(value, list | dict) else value)
        return copy

    def restore(self, saved: Stage) -> None:
        """Becomes what it was when `saved` was taken."""
        for slot in Stage.__slots__:
            setattr(self, slot, getattr(saved, slot))

    @property
    def is_compute(self) -> bool:
        """Whether there is anything to schedule: an input has no loops."""
        return isinstance(self.op, Compute)

    @property
    def is_reduction(self) -> bool:
        """Whether the operation reduces."""
        return isinstance(self.op, Compute) and bool(self.op.reduce_axis)


class StageGraph:
    """The stages of some outputs, producers first."""

    def __init__(self, outputs: tuple[Operation, ...]) -> None:
        self.stages: list[Stage] = []
        self.by_name: dict[str, Stage] = {}
        self.by_op: dict[Operation, Stage] = {}
        for op in _topological(outputs):
            self.add(op, len(self.stages), is_output=op in outputs)

    def add(self, op: Operation, position: int, is_output: bool = False) -> Stage:
        """A new stage for `op` at a place in the order."""
        stage = Stage(unique_name(op.name, self.by_name), op, is_output)
        self.stages.insert(position, stage)
        self.by_name[stage.name] = stage
        self.by_op[op] = stage
        return stage

    def producers(self, stage: Stage) -> list[Stage]:
        """The stages that `stage` reads, in order of first use."""
        return list(dict.fromkeys(self.by_op[tensor.op] for tensor in stage.reads))

    def readers(self, stage: Stage) -> list[Stage]:
        """The stages that read `stage`."""
        return [other for other in self.stages if stage in self.producers(other)]

    def changed(self, stage: Stage) -> None:
        """Forgets the sizes of stages whose bodies hold, or held, that of `stage`."""
        stage.sizes = None
        changed = {stage}
        for reader in self.stages[self.stages.index(stage) + 1 :]:
            if any(self.by_op[tensor.op] in changed for tensor in reader.reads):
                reader.sizes = None
                if reader.attach == "inline":
                    changed.add(reader)

    def snapshot(self, changing: Sequence[Stage]) -> Callable[[], None]:
        """What puts the list of stages, and the stages `changing`, back to what they are now."""
        saved = [(stage, stage.snapshot()) for stage in changing]
        stages, by_name, by_op = list(self.stages), dict(self.by_name), dict(self.by_op)

        def restore() -> None:
            self.stages, self.by_name, self.by_op = stages, by_name, by_op
            for stage, before in saved:
                stage.restore(before)
                self.changed(stage)

        return restore


def unique_name(name: str, taken: Container[str]) -> str:
    """`name`, or the first of name_1, name_2, ... that isn't taken."""
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _topological(outputs: tuple[Operation, ...]) -> list[Operation]:
    """Every operation that `outputs` need, producers first; without recursion."""
    done: dict[Operation, None] = {}
    stack: list[tuple[Operation, bool]] = [(op, False) for op in reversed(outputs)]
    while stack:
        op, expanded = stack.pop()
        if op in done:
            continue
        if expanded:
            done[op] = None
            continue
        stack.append((op, True))
        stack.extend((tensor.op, False) for tensor in reversed(op.inputs))
    return list(done)


def static_extent(axis: IterVar) -> int:
    """The extent as an integer; a symbolic one can't be scheduled yet."""
    if not isinstance(axis.extent, Const):
        raise ScheduleError(
            f"axis {axis.name} has the symbolic extent {axis.extent!r}; schedules need constant "
            f"extents: give the sizes as integers"
        )
    return int(axis.extent.value)
