"""Random steps on a schedule: `random_schedule(choices, program)`.

A step is accepted, or refused with a `ScheduleError` that names the legal choices: then the
schedule goes on without it. One after which the program would take too long to interpret, as
stages are computed over and over, is taken back.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitvm import te
from minitvm.errors import ScheduleError
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.stage import At
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.testing.choices import Choices
from minitvm.testing.te_oracle import Program
from minitvm.tir import ir
from minitvm.tir.ir import For, Stmt
from minitvm.tir.walk import bodies, expressions, walk

MOST_WORK = 30_000
"""The most nodes that may be evaluated when the lowered program runs."""


@dataclass(slots=True)
class Attempts:
    """How many steps were accepted, refused and taken back."""

    accepted: int = 0
    refused: int = 0
    taken_back: int = 0


def random_schedule(
    draw: Choices, program: Program, most_steps: int = 12, attempts: Attempts | None = None
) -> Schedule:
    """A schedule made of up to `most_steps` random steps that are accepted."""
    counts = attempts or Attempts()
    schedule = te.create_schedule(program.outputs)
    for _ in range(draw.integer(1, most_steps)):
        stages = [stage for stage in schedule.stages if isinstance(stage.stage.op, Compute)]
        stage = draw.pick(stages)
        primitive = draw.pick(_PRIMITIVES)
        before = len(schedule.steps)
        try:
            primitive(draw, schedule, stage)
        except ScheduleError as error:
            choices = str(error).partition("Legal choices: ")[2]
            assert choices, f"a refusal must name the legal choices: {error}"
            counts.refused += 1
        if len(schedule.steps) == before:
            continue
        if work(te.lower(schedule, program.args).body) > MOST_WORK:
            schedule = schedule.prefix(before)
            counts.taken_back += 1
        else:
            counts.accepted += len(schedule.steps) - before
    return schedule


def work(statement: Stmt) -> int:
    """How many nodes are evaluated when a statement runs, guards apart."""
    own = sum(1 for expr in expressions(statement) for _ in walk(expr))
    inner = sum(work(body) for body in bodies(statement))
    if isinstance(statement, For) and isinstance(statement.extent, ir.Const):
        return own + int(statement.extent.value) * inner
    return own + inner


def _axis(draw: Choices, stage: StageHandle) -> IterVar:
    return draw.pick(stage.leaf_iter_vars)


def _split(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    size = draw.integer(1, 7)
    if draw.integer(0, 1):
        stage.split(_axis(draw, stage), factor=size)
    else:
        stage.split(_axis(draw, stage), nparts=size)


def _fuse(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    leaves = stage.leaf_iter_vars
    first = draw.integer(0, len(leaves) - 1)
    stage.fuse(*leaves[first : first + draw.integer(2, 3)])


def _reorder(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    stage.reorder(*draw.permutation(stage.leaf_iter_vars))


def _annotate(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    match draw.integer(0, 3):
        case 0:
            stage.vectorize(stage.leaf_iter_vars[-1])
        case 1:
            stage.unroll(_axis(draw, stage))
        case 2:
            stage.pragma(_axis(draw, stage), "auto_unroll_max_step", draw.integer(0, 16))
        case _:
            stage.parallel(_axis(draw, stage))


def _compute_at(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    parent = draw.pick([other for other in schedule.stages if not other.is_input])
    stage.compute_at(parent, _axis(draw, parent))


def _reader(draw: Choices, schedule: Schedule, stage: StageHandle) -> StageHandle | None:
    readers = schedule.graph.readers(stage.stage)
    return schedule[draw.pick(readers).name] if readers else None


def _compute_at_reader(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    parent = _reader(draw, schedule, stage)
    if parent is not None:
        stage.compute_at(parent, _axis(draw, parent))


def _tile_reader(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    """The typical pattern: a reader in tiles, and the stage computed for each of them."""
    parent = _reader(draw, schedule, stage)
    if parent is not None:
        outer, _ = parent.split(_axis(draw, parent), factor=draw.integer(2, 5))
        parent.reorder(outer, *(leaf for leaf in parent.leaf_iter_vars if leaf is not outer))
        stage.compute_at(parent, outer)


def _flatten_reader(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    """A reader as one loop, in pieces that rows need not be made of, with the stage in each."""
    parent = _reader(draw, schedule, stage)
    if parent is not None and isinstance(parent.stage.op, Compute):
        axes = [leaf for leaf in parent.leaf_iter_vars if leaf.kind == "spatial"]
        outer, _ = parent.split(parent.fuse(*axes), factor=draw.integer(2, 7))
        stage.compute_at(parent, outer)


def _roll(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    """What rows of a reader need, computed row by row (or in blocks), and only what is new."""
    parent = _reader(draw, schedule, stage)
    if not isinstance(stage.stage.attach, At) and parent is not None:
        stage.compute_at(parent, _axis(draw, parent))
    stage.rolling_buffer()


def _place(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    if draw.integer(0, 1):
        stage.compute_inline()
    else:
        stage.compute_root()


def _memory(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    kind = draw.integer(0, 2)
    if kind == 0:
        stage.set_scope(draw.pick(["local", "global"]))
    elif kind == 1:
        axes = list(stage.op.axis)
        turn = draw.integer(0, len(axes) - 1)
        stage.reorder_storage(*axes[turn:], *axes[:turn], factor=draw.pick([None, 1, 3, 4]))
    else:
        factor = draw.integer(1, 8)
        stage.storage_align(_axis(draw, stage), factor, draw.integer(0, factor - 1))


def _cache_write(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    schedule.cache_write(stage.name, draw.pick(["local", "global"]))


def _cache_read(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    tensors = stage.op.inputs
    if tensors:
        tensor: Tensor = draw.pick(tensors)
        graph = schedule.graph
        readers = [other.name for other in graph.readers(graph.by_op[tensor.op])
                   if tensor in other.reads and isinstance(other.op, Compute)]
        chosen = readers if draw.integer(0, 1) else [stage.name]
        schedule.cache_read(tensor, draw.pick(["local", "global"]), chosen)


def _rfactor(draw: Choices, schedule: Schedule, stage: StageHandle) -> None:
    reductions = [other for other in schedule.stages if other.stage.is_reduction]
    if not reductions:
        return
    chosen = draw.pick(reductions)
    axis = draw.pick([leaf for leaf in chosen.leaf_iter_vars if leaf.kind == "reduce"])
    if draw.integer(0, 1):
        axis = draw.pick(chosen.split(axis, factor=draw.integer(1, 4)))
    schedule.rfactor(chosen.name, axis, draw.integer(0, len(chosen.op.axis)))


_PRIMITIVES = (_split, _split, _fuse, _reorder, _annotate, _annotate, _compute_at,
               _compute_at_reader, _tile_reader, _tile_reader, _flatten_reader, _roll, _roll,
               _place, _memory, _cache_write, _cache_read, _rfactor)
