"""Stages: how each operation is to be computed; what the primitives change.

    StageGraph = stages, producers first; a lookup from operation to stage
    Stage      = op, leaves: IterVar* (the loops, outermost first),
                 relations: (Split | Fuse)* (how the leaves came from the axes of op),
                 annotations: IterVar -> kind, attach: ROOT | INLINE | At(stage, axis), scope,
                 rolls (whether it keeps what the loop that it is computed at needs again)

Stages refer to operations by identity; a stage whose operation is replaced (by `cache_write` or
`cache_read`) still answers for the old one, so no consumer needs rewriting.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never

from minitvm.errors import ScheduleError
from minitvm.te.extent import Extent, as_index, ceil_div, extent_of
from minitvm.te.tensor import Compute, IterVar, Operation, Placeholder, Scan, Tensor
from minitvm.te.tensor_intrin import TensorIntrin
from minitvm.tir import walk
from minitvm.tir.ir import Const, LoopKind, Var


@dataclass(frozen=True, slots=True)
class SplitRelation:
    """parent = outer * (extent of inner) + inner; `factor` or `nparts` bounds an extent."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None

    def extents(self, extent: Extent) -> tuple[Extent, Extent]:
        """The extents of outer and inner for a parent of `extent`."""
        return split_extents(extent, self.factor, self.nparts)


def split_extents(
    extent: Extent, factor: int | None, nparts: int | None
) -> tuple[Extent, Extent]:
    """The extents of the outer and the inner loop; constant ones never larger than needed."""
    if factor is not None:
        inner = max(1, min(factor, extent)) if isinstance(extent, int) else factor
        return ceil_div(extent, inner), inner
    assert nparts is not None
    if not isinstance(extent, int):
        return nparts, ceil_div(extent, nparts)
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
    bindings: dict[IterVar, str] = field(default_factory=dict)
    alignment: tuple[int, int, int] | None = None  # dimension, factor, offset
    storage: tuple[tuple[int, ...], int | None] | None = None  # dimensions, block of the last
    tensorized: tuple[IterVar, TensorIntrin] | None = None
    attach: Attach = "root"
    rolls: bool = False
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
        self.leaves = loops_of(op)
        self.labels, self.axes = {}, {}
        for axis in self.leaves:
            self.label(axis)
        self.reads = op.inputs

    def reset(self, op: Compute) -> None:
        """Takes an operation with other loops; place and scope of the stage stay."""
        self.relations, self.annotations, self.pragmas, self.bindings = [], {}, [], {}
        self.set_op(op)

    def replace_body(self, op: Compute) -> None:
        """Takes an operation with the same axes and another body; the loops stay."""
        self.op, self.reads = op, op.inputs

    def label(self, axis: IterVar) -> str:
        """Enters an axis under its name, made unique in the stage."""
        label = unique_name(axis.name, self.axes)
        self.labels[axis] = label
        self.axes[label] = axis
        return label

    def derive(self, name: str, extent: Extent, like: IterVar) -> IterVar:
        """A new axis, of the kind and dtype of `like`, that runs over [0, extent)."""
        dtype = like.var.dtype
        name = unique_name(name, self.axes)
        axis = IterVar(Var(name, dtype), Const(0, dtype), as_index(extent, dtype), like.kind)
        self.label(axis)
        return axis

    def position(self, axis: IterVar) -> int:
        """The depth of a leaf: 0 is the outermost loop."""
        return self.leaves.index(axis)

    def pragma_count(self, axis: IterVar, pragma: str) -> int:
        """The number that a pragma gives a loop; 0 if there is none."""
        counts = [value for at, name, value in self.pragmas if at is axis and name == pragma]
        return int(counts[-1]) if counts and counts[-1] is not None else 0

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

    def in_tensorized(self, axis: IterVar) -> bool:
        """Whether a tensor intrinsic stands for the loop of a leaf."""
        if self.tensorized is None or axis not in self.leaves:
            return False
        return self.position(axis) >= self.position(self.tensorized[0])

    @property
    def is_input(self) -> bool:
        """Whether there is nothing to schedule: an input, or a state of a scan, has no loops."""
        return isinstance(self.op, Placeholder)

    @property
    def is_scan(self) -> bool:
        """Whether this is the loop over time of a recurrence."""
        return isinstance(self.op, Scan)

    @property
    def is_reduction(self) -> bool:
        """Whether the operation reduces."""
        return isinstance(self.op, Compute) and bool(self.op.reduce_axis)


def loops_of(op: Operation) -> list[IterVar]:
    """The loops of an operation before any step."""
    match op:
        case Compute():
            return [*op.axis, *op.reduce_axis]
        case Scan():
            return [op.scan_axis]
        case Placeholder():
            return []
    assert_never(op)


class StageGraph:
    """The stages of some outputs, producers first.

    `sizes`: the variables in shapes, in order of first use; none is negative.
    `owners`: the initial values, the updates and the states of a scan have no memory of their own;
    they are parts of an output of the scan, (stage, index).
    """

    def __init__(self, outputs: tuple[Operation, ...]) -> None:
        self.stages: list[Stage] = []
        self.by_name: dict[str, Stage] = {}
        self.by_op: dict[Operation, Stage] = {}
        self.owners: dict[Stage, tuple[Stage, int]] = {}
        for op in _topological(outputs):
            self.add(op, len(self.stages), is_output=op in outputs)
        self.sizes = _sizes(self.by_op)
        for stage in self.stages:
            if isinstance(stage.op, Scan):
                self._own(stage, stage.op)
        if self.owners:
            for stage in self.stages:
                self.place_in_scan(stage)
                self._check_scan(stage)

    def _own(self, stage: Stage, scan: Scan) -> None:
        for index in range(len(scan.states)):
            for tensor in (scan.init[index], scan.update[index], scan.states[index]):
                part = self.by_op.get(tensor.op)
                if part is None:  # a state that nothing reads
                    continue
                if part in self.owners or part.is_output:
                    raise ScheduleError(
                        f"{part.name} is computed into the memory of {stage.name}, and can't be "
                        f"an output or a part of another scan too; give the scan a copy of it"
                    )
                self.owners[part] = (stage, index)

    def _check_scan(self, stage: Stage) -> None:
        if stage.is_output and stage.attach != "root":
            raise ScheduleError(
                f"{stage.name} is an output that depends on a state of a scan; read the result of "
                f"the scan, or make it a state"
            )
        if stage.is_scan:
            sources = self._sources(stage)
            complete = {stage, *(source for source in sources if source.is_scan)}
            states = {self.owners[source][0] for source in sources
                      if source.is_input and source in self.owners}
            if not states <= complete:
                raise ScheduleError(
                    f"the scan {stage.name} depends on a state of another scan; a scan inside of "
                    f"another is not supported"
                )

    def _sources(self, stage: Stage) -> set[Stage]:
        """All that a stage is computed from."""
        found: set[Stage] = set()
        stack = self.producers(stage)
        while stack:
            producer = stack.pop()
            if producer not in found:
                found.add(producer)
                stack.extend(self.producers(producer))
        return found

    def scan_around(self, stage: Stage) -> Stage | None:
        """The scan in whose loop a stage must be computed, as it depends on a state of it."""
        if not self.owners or stage.is_input:
            return None
        found = [self.owners[stage][0]] if stage in self.owners and self.is_update(stage) else []
        seen = {stage}
        stack = [] if stage.is_scan else self.producers(stage)
        while stack:
            producer = stack.pop()
            if producer in seen:
                continue
            seen.add(producer)
            if producer.is_input and producer in self.owners:
                found.append(self.owners[producer][0])
            if not producer.is_scan:
                stack.extend(self.producers(producer))
        if len(set(found)) > 1:
            raise ScheduleError(
                f"{stage.name} depends on the states of two scans, "
                f"{' and '.join(sorted({scan.name for scan in found}))}; a scan inside of another "
                f"is not supported"
            )
        return found[0] if found else None

    def is_update(self, stage: Stage) -> bool:
        """Whether the stage computes the next step of a state."""
        if stage not in self.owners:
            return False
        scan, index = self.owners[stage]
        assert isinstance(scan.op, Scan)
        return self.by_op[scan.op.update[index].op] is stage

    def place_in_scan(self, stage: Stage) -> None:
        """Puts a stage into the loop over time that it depends on, if there is one."""
        scan = self.scan_around(stage)
        if scan is not None:
            stage.attach = At(scan, scan.leaves[0])

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
            for stage, _ in saved:  # once none of them reads a stage that is gone
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


def _sizes(ops: Iterable[Operation]) -> tuple[Var, ...]:
    found: dict[Var, None] = {}
    for op in ops:
        axes = [axis.extent for axis in loops_of(op)]
        for extent in op.shape if isinstance(op, Placeholder) else axes:
            if not isinstance(extent, Const):
                found.update((node, None) for node in walk.walk(extent) if isinstance(node, Var))
    return tuple(found)


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


def axis_extent(axis: IterVar) -> Extent:
    """The extent of an axis where its stage is computed whole."""
    return extent_of(axis.extent)
