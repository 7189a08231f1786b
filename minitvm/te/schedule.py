"""Schedules: how computes are to be carried out, as a log of steps on their stages.

    s = te.create_schedule(C)
    outer, inner = s[C].split(C.op.axis[0], factor=8)
    s[C].vectorize(inner)
    s.steps   (Split("C", "i", 8), Annotate("C", "i.inner", "vectorized"))
    s.show()  the loop nest; s.show(1) as it was after one step

Names, argument order and meaning are those of TVM's `te`. Axes are given as `IterVar` or by name;
names follow from the steps: `i.outer`, `i.inner`, `i.j.fused`. `Schedule.replay(outputs, steps)`
gives the same schedule again; any prefix of the steps is a schedule too. A step that would not
compute the same values is refused with a `ScheduleError` that names the legal choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minitvm.errors import ScheduleError
from minitvm.te.inline import expanded_size
from minitvm.te.log_text import read_log, write_log
from minitvm.te.primitives import apply
from minitvm.te.show import leaf_names, refuse, show_graph
from minitvm.te.stage import Stage, StageGraph
from minitvm.te.steps import (
    Annotate,
    Bind,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    Fuse,
    Pragma,
    Reorder,
    ReorderStorage,
    Rfactor,
    RollingBuffer,
    SetScope,
    Split,
    Step,
    StorageAlign,
    Tensorize,
)
from minitvm.te.tensor import Compute, IterVar, Operation, Tensor
from minitvm.te.tensor_intrin import INTRINSICS, TensorIntrin

Axis = IterVar | str
Key = Tensor | Operation | str


def create_schedule(ops: Tensor | Operation | Sequence[Tensor | Operation]) -> Schedule:
    """The schedule that computes each operation whole, one after the other, as written."""
    items = ops if isinstance(ops, Sequence) else (ops,)
    outputs = tuple(item.op if isinstance(item, Tensor) else item for item in items)
    if not outputs:
        raise ScheduleError("a schedule needs at least one output tensor")
    return Schedule(tuple(dict.fromkeys(outputs)))


class Schedule:
    """The stages of some outputs, and the steps that were taken on them."""

    def __init__(self, outputs: tuple[Operation, ...]) -> None:
        self.outputs = outputs
        self.graph = StageGraph(outputs)
        self.steps: tuple[Step, ...] = ()

    def __getitem__(self, key: Tensor | Operation | str) -> StageHandle:
        """The stage of a tensor or operation, or the stage of that name."""
        if isinstance(key, str):
            name, stage = key, self.graph.by_name.get(key)
        else:
            op = key.op if isinstance(key, Tensor) else key
            name, stage = op.name, self.graph.by_op.get(op)
        if stage is None:
            raise ScheduleError(
                f"there is no stage {name} in this schedule; the stages are "
                f"{', '.join(self.graph.by_name)}"
            )
        return StageHandle(self, stage)

    @property
    def stages(self) -> list[StageHandle]:
        """The stages, producers first, inputs included."""
        return [StageHandle(self, stage) for stage in self.graph.stages]

    def apply(self, step: Step) -> object:
        """Takes one step; gives the axes or tensors that it makes."""
        result: object = apply(self.graph, step)
        self.steps = (*self.steps, step)
        return result

    @staticmethod
    def replay(
        outputs: Tensor | Operation | Sequence[Tensor | Operation], steps: Iterable[Step]
    ) -> Schedule:
        """A new schedule of `outputs` that has taken these steps."""
        schedule = create_schedule(outputs)
        for step in steps:
            schedule.apply(step)
        return schedule

    def prefix(self, count: int) -> Schedule:
        """A new schedule that has taken the first `count` steps."""
        return Schedule.replay(self.outputs, self.steps[:count])

    def show(self, step: int | None = None) -> str:
        """The loop nest now, or as it was after `step` steps."""
        return show_graph(self.graph if step is None else self.prefix(step).graph)

    def to_python(self) -> str:
        """The steps as Python statements that take them, on a fresh schedule `s`."""
        return write_log(self.steps)

    __str__ = to_python

    @staticmethod
    def parse_log(text: str) -> tuple[Step, ...]:
        """The steps that such statements are, for `replay`; raises `ParseError`."""
        return read_log(text)

    def cache_write(self, tensor: Tensor | str, scope: str) -> Tensor:
        """A new stage computes `tensor` in memory of `scope`; the stage of `tensor` then copies.

        Gives the new stage's tensor. The old stage keeps its spatial axes, the new one has the
        reduce axes.
        """
        tensors = self.apply(CacheWrite(self[tensor].name, scope))
        assert isinstance(tensors, tuple)
        cached: Tensor = tensors[_index(tensor, 0)]
        return cached

    def cache_read(
        self, tensor: Tensor | str, scope: str,
        readers: Tensor | Operation | str | Sequence[Tensor | Operation | str], index: int = 0,
    ) -> Tensor:
        """A new stage copies `tensor` into memory of `scope`; `readers` read the copy. Gives its
        tensor. A tensor may be named by its stage, and by its `index` there."""
        items = [readers] if isinstance(readers, Key) else list(readers)
        names = tuple(self[reader].name for reader in items)
        cached = self.apply(CacheRead(self[tensor].name, _index(tensor, index), scope, names))
        assert isinstance(cached, Tensor)
        return cached

    def rfactor(
        self, tensor: Tensor | str, axis: Axis, factor_axis: int = 0
    ) -> Tensor | tuple[Tensor, ...]:
        """A new stage reduces over all loops of `tensor` but `axis`, which becomes axis
        `factor_axis` of the new stage's tensor; the old stage reduces over that. Gives the new
        tensor (a tuple of them for a tuple reduction)."""
        handle = self[tensor]
        tensors = self.apply(Rfactor(handle.name, handle.axis_name(axis), factor_axis))
        assert isinstance(tensors, tuple)
        return tensors if len(tensors) > 1 else tensors[0]


def _index(tensor: Tensor | str, otherwise: int) -> int:
    return tensor.index if isinstance(tensor, Tensor) else otherwise


@dataclass(frozen=True, slots=True)
class StageHandle:
    """`s[T]`: one stage of a schedule, with the primitives as methods."""

    schedule: Schedule
    stage: Stage

    @property
    def name(self) -> str:
        """The stage's name in steps."""
        return self.stage.name

    @property
    def is_input(self) -> bool:
        """Whether this is a placeholder, which has nothing to schedule."""
        return self.stage.is_input

    @property
    def op(self) -> Compute:
        """What the stage computes now; `cache_write` and `cache_read` change it."""
        if not isinstance(self.stage.op, Compute):
            what = "a scan, of which tensor.op tells all" if self.stage.is_scan else "an input"
            raise ScheduleError(f"{self.name} is {what}; it has no compute of its own")
        return self.stage.op

    @property
    def leaf_iter_vars(self) -> tuple[IterVar, ...]:
        """The loops, outermost first."""
        return tuple(self.stage.leaves)

    @property
    def inline_cost(self) -> int:
        """The nodes of the stage's value with its inlined producers put in: what inlining the
        stage adds for each read of it. 0 for an input. Inlining is refused when a reader would
        grow past `te.inline.INLINE_LIMIT`."""
        return 0 if self.is_input else expanded_size(self.schedule.graph, self.stage)

    def axis_name(self, axis: Axis) -> str:
        """The name of an axis in steps; refuses an axis of another stage."""
        if isinstance(axis, str):
            return axis
        label = self.stage.labels.get(axis)
        if label is None:
            refuse(self.schedule.graph, self.stage, "a primitive",
                   f"axis {axis.name} belongs to another stage", leaf_names(self.stage))
        return label

    def axis(self, name: str) -> IterVar:
        """The axis (a loop, or one that was split or fused) of that name."""
        if name not in self.stage.axes:
            refuse(self.schedule.graph, self.stage, "a primitive",
                   f"it has no axis named {name!r}", leaf_names(self.stage))
        return self.stage.axes[name]

    def split(
        self, parent: Axis, factor: int | None = None, nparts: int | None = None
    ) -> tuple[IterVar, IterVar]:
        """(outer, inner): the inner loop runs `factor` times, or the outer one `nparts` times."""
        result = self.schedule.apply(Split(self.name, self.axis_name(parent), factor, nparts))
        assert isinstance(result, tuple)
        outer, inner = result
        return outer, inner

    def tile(
        self, x_parent: Axis, y_parent: Axis, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """(x_outer, y_outer, x_inner, y_inner), in that order: two splits and a reorder."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def fuse(self, *axes: Axis) -> IterVar:
        """One loop instead of several that stand directly inside one another, outermost first.
        A single axis is given back as it is."""
        names = tuple(self.axis_name(axis) for axis in axes)
        if len(names) == 1:
            return self.axis(names[0])
        fused = self.schedule.apply(Fuse(self.name, names))
        assert isinstance(fused, IterVar)
        return fused

    def reorder(self, *axes: Axis) -> None:
        """The loops in this order, in the places that they have between them."""
        self.schedule.apply(Reorder(self.name, tuple(self.axis_name(axis) for axis in axes)))

    def vectorize(self, axis: Axis) -> None:
        """Runs the innermost loop as lanes of vectors."""
        self.schedule.apply(Annotate(self.name, self.axis_name(axis), "vectorized"))

    def unroll(self, axis: Axis) -> None:
        """Repeats the body of a loop instead of looping."""
        self.schedule.apply(Annotate(self.name, self.axis_name(axis), "unrolled"))

    def parallel(self, axis: Axis) -> None:
        """Shares the iterations of a loop among threads."""
        self.schedule.apply(Annotate(self.name, self.axis_name(axis), "parallel"))

    def bind(self, axis: Axis, thread: IterVar | str) -> None:
        """Runs a loop on the GPU threads of `te.thread_axis(...)`; CPU targets refuse it."""
        tag = thread if isinstance(thread, str) else thread.name
        self.schedule.apply(Bind(self.name, self.axis_name(axis), tag))

    def tensorize(self, axis: Axis, intrin: TensorIntrin | str) -> None:
        """Puts the body of an intrinsic, made by `te.decl_tensor_intrin`, in place of loops."""
        name = intrin if isinstance(intrin, str) else intrin.name
        if isinstance(intrin, TensorIntrin):
            INTRINSICS[name] = intrin
        self.schedule.apply(Tensorize(self.name, self.axis_name(axis), name))

    def storage_align(self, axis: Axis, factor: int, offset: int = 0) -> None:
        """Pads the stage's memory: the stride of `axis` is a multiple of `factor`, plus
        `offset`."""
        self.schedule.apply(StorageAlign(self.name, self.axis_name(axis), factor, offset))

    def reorder_storage(self, *axes: Axis, factor: int | None = None) -> None:
        """Lays the stage's memory out in this order of the tensor's axes, outermost first; with
        `factor` the innermost one in blocks of so many, whose number is outermost."""
        names = tuple(self.axis_name(axis) for axis in axes)
        self.schedule.apply(ReorderStorage(self.name, names, factor))

    def rolling_buffer(self) -> None:
        """Keeps what the loop that the stage is computed at needs again, in a circular buffer;
        each iteration computes what is new."""
        self.schedule.apply(RollingBuffer(self.name))

    def pragma(self, axis: Axis, name: str, value: int | str | bool | None = None) -> None:
        """Records a name and a value on a loop."""
        self.schedule.apply(Pragma(self.name, self.axis_name(axis), name, value))

    def compute_at(self, parent: StageHandle, axis: Axis) -> None:
        """Computes the stage inside the loop `axis` of `parent`, as far as it is read there."""
        self.schedule.apply(ComputeAt(self.name, parent.name, parent.axis_name(axis)))

    def compute_inline(self) -> None:
        """Computes the stage's value wherever it is read."""
        self.schedule.apply(ComputeInline(self.name))

    def compute_root(self) -> None:
        """Computes the stage whole, before its readers."""
        self.schedule.apply(ComputeRoot(self.name))

    def set_scope(self, scope: str) -> None:
        """Keeps the stage's values in `local` (stack) or `global` memory."""
        self.schedule.apply(SetScope(self.name, scope))
