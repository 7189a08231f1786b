"""Sketches: schedules derived from a compute itself, for any te program without a template.

    @autotune.register_workload
    def matmul(n, m, k):
        ...
        return [A, B, C]

    task = autotune.SearchTask(matmul, args=(512, 512, 512))
    autotune.tune_tasks([task], measurer, log, options)
    history = autotune.apply_history_best("tune.jsonl")
    s, args = autotune.best_schedule(task, history)

Rules look at each computation, and leave open what only measuring can tell, as knobs:

- *inline* what is elementwise and cheap to repeat;
- *tile* a reduction in several levels, "SSRSRS" (S: its axes, R: what it sums over), under what
  alone reads it element by element, or under a copy of it where it is an output (*cache write*):
  knobs are the extents of the levels of each axis, where the reduction is computed, what is
  unrolled;
- *factor* a long reduction with few results into partial ones (*rfactor*);
- the rest in vectors, shared among threads.

Source: Ansor (OSDI 2020), whose sketches these are; its annotations are the knobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from minitvm import te
from minitvm.autotune.history import ApplyHistoryBest
from minitvm.autotune.task import Scheduled, Task
from minitvm.autotune.templates import te_task
from minitvm.errors import OptionError, TuningError
from minitvm.target import Target
from minitvm.te.recipes.injective import share_outer, vectorize_inner
from minitvm.te.recipes.inline import computations, extent_of, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.schedule import StageHandle
from minitvm.te.tensor import Compute, IterVar, Tensor
from minitvm.tir import ir, walk

Workload = Callable[..., Sequence[Tensor]]
WORKLOADS: dict[str, Workload] = {}
MOST_INNER = 64
"""The greatest extent of an innermost level."""
MOST_UNROLLED = 256
"""How many copies unrolling may make of a statement."""
FEW_RESULTS, LONG_REDUCTION = 64, 512
"""A reduction is factored that gives so few results of so many terms each."""


def register_workload(function: Workload) -> Workload:
    """Registers a function of arguments that JSON can hold to the tensors that are a function's
    parameters, inputs first. It can be named by its name then."""
    WORKLOADS[function.__name__] = function
    return function


def SearchTask(func: Workload | str, args: Sequence[Any],
               target: Target | str | None = None) -> Task:
    """The task of a workload with arguments."""
    if isinstance(func, str):
        if func not in WORKLOADS:
            raise OptionError(f"there is no workload {func!r}; there are "
                              f"{', '.join(WORKLOADS) or 'none'}")
        func = WORKLOADS[func]
    name, workload = func.__name__, func
    machine = target if isinstance(target, Target) else Target(target) if target else Target.host()

    def instantiate() -> Scheduled:
        tensors = list(workload(*args))
        outputs = [t for t in tensors if isinstance(t.op, Compute)]
        if not outputs:
            raise TuningError(f"the workload {name} gives no tensor that is computed")
        return sketch(outputs, machine), tensors

    key = hashlib.sha256(json.dumps(["sketch", name, list(args)]).encode()).hexdigest()
    facts = {"name": name, "operators": [], "parameters": [], "arguments": list(args)}
    return te_task(key, facts, machine, instantiate)


def best_schedule(task: Task, history: ApplyHistoryBest) -> Scheduled:
    """The best recorded schedule of a task, its default one where there is none; and the tensors
    that are its parameters."""
    schedule, tensors = task.instantiate()
    steps = history(task.key)
    if steps is not None:
        schedule = te.Schedule.replay(schedule.outputs, steps)
    return schedule, tensors


def sketch(outputs: Sequence[Tensor], target: Target) -> te.Schedule:
    """A schedule by the rules; within `deciding` with knobs as they are decided."""
    s = te.create_schedule(list(outputs))
    consumers = _elementwise_consumers(outputs)
    left = inline_injective(s, outputs)
    tiled: set[str] = set()
    for stage in left:
        op = stage.op
        if not _is_tileable(op):
            if op.reduce_axis:
                share_outer(stage)
            else:
                _annotate_elementwise(stage, target)
        elif op in consumers and s[consumers[op]].name not in tiled:
            consumer = s[consumers[op]]
            tiled.add(consumer.name)
            _tile_under(s, stage, consumer, target)
        else:
            _tile_alone(s, stage, target)
    for output in outputs:
        stage = s[output]
        if stage.name in tiled:
            continue
        if _is_tileable(stage.op):
            if _factor(s, stage):
                continue
            _tile_under(s, s[s.cache_write(output, "local")], s[output], target)
        elif not stage.op.reduce_axis:
            _annotate_elementwise(stage, target)
    return s


def _is_tileable(op: Compute) -> bool:
    """A reduction with axes of its own, of extents that are known."""
    extents = [extent_of(axis) for axis in (*op.axis, *op.reduce_axis)]
    return bool(op.reduce_axis) and bool(op.axis) and len(op.bodies) == 1 and all(extents)


def _elementwise_consumers(outputs: Sequence[Tensor]) -> dict[Compute, Compute]:
    """For each computation the output that alone reads it, element by element, maybe through
    others that will be inlined."""
    readers: dict[Compute, list[Compute]] = {}
    ordered = computations(outputs)
    for op in ordered:
        for read in {n.tensor.op for b in op.bodies for n in walk.walk(b)
                     if isinstance(n, ir.Read)}:
            if isinstance(read, Compute):
                readers.setdefault(read, []).append(op)
    ends = {output.op for output in outputs}
    found: dict[Compute, Compute] = {}
    for op in ordered:
        current = op
        while current not in ends and len(readers.get(current, ())) == 1:
            following = readers[current][0]
            if following.reduce_axis or not _reads_in_place(following, current):
                break
            current = following
        if current is not op and current in ends:
            found[op] = current
    return found


def _reads_in_place(reader: Compute, read: Compute) -> bool:
    """Whether each element needs the element at the same place alone."""
    place = tuple(axis.var for axis in reader.axis)
    reads = [node for body in reader.bodies for node in walk.walk(body)
             if isinstance(node, ir.Read) and node.tensor.op is read]
    return all(tuple(node.indices) == place for node in reads)


# --- tiling -------------------------------------------------------------------------------------


def _levels(stage: StageHandle, axis: IterVar, most: int) -> tuple[int, int, int]:
    """The extents of the three inner levels of an axis; by default one, of at most `most`."""
    extent = extent_of(axis)
    divisors = [n for n in range(1, extent + 1) if extent % n == 0]
    default = (1, 1, max(n for n in divisors if n <= most))

    def ways() -> list[tuple[int, int, int]]:
        exact = [(a, b, c) for c in divisors if c <= MOST_INNER
                 for b in divisors if extent % (b * c) == 0
                 for a in divisors if extent % (a * b * c) == 0]
        ragged = [(1, 1, 1 << place) for place in range(1, 7)
                  if 1 << place < extent and extent % (1 << place)]
        return [*exact, *ragged]

    return decide(f"{stage.name}.{axis.name}", default, ways)


def _inner_levels(stage: StageHandle, target: Target) -> list[tuple[int, int, int]]:
    """The levels of all axes: by default a register tile of the last two."""
    op = stage.op
    lanes = 2 * target.lanes(op.bodies[0].dtype)
    most = {len(op.axis) - 1: lanes, len(op.axis) - 2: 4}
    return [_levels(stage, axis, most.get(place, 1)) for place, axis in enumerate(op.axis)]


def _tile_under(s: te.Schedule, reduction: StageHandle, consumer: StageHandle,
                target: Target) -> None:
    """S S of the consumer around R S R S of the reduction."""
    levels = _inner_levels(consumer, target)
    outer, middle, inner = [], [], []
    for axis, (first, second, third) in zip(list(consumer.op.axis), levels, strict=True):
        rest = axis
        top, rest = consumer.split(rest, factor=first * second * third)
        mid, low = consumer.split(rest, factor=second * third)
        outer.append(top)
        middle.append(mid)
        inner.append(low)
    consumer.reorder(*outer, *middle, *inner)
    place = decide(f"{reduction.name}.place", "middle", ("middle", "outer"))
    fused = consumer.fuse(*outer)
    consumer.parallel(fused)
    reduction.compute_at(consumer, fused if place == "outer" else middle[-1])
    _vectorize(consumer, inner[-1], levels[-1][1] * levels[-1][2], target)
    _tile_reduction(reduction, [level[2] for level in levels], target)


def _tile_alone(s: te.Schedule, reduction: StageHandle, target: Target) -> None:
    """S R S R S of a reduction that is computed whole."""
    levels = _inner_levels(reduction, target)
    first = reduction.op.axis[0]
    if extent_of(first) > levels[0][2]:
        top, _ = reduction.split(first, factor=levels[0][2] * levels[0][1])
        reduction.parallel(top)
        return
    share_outer(reduction)


def _tile_reduction(stage: StageHandle, extents: Sequence[int], target: Target) -> None:
    """R S R S within a tile, of which `extents` are the innermost level."""
    op = stage.op
    middle, inner = [], []
    for axis, extent in zip(list(op.axis), extents, strict=True):
        mid, low = stage.split(axis, factor=extent)
        middle.append(mid)
        inner.append(low)
    outside, within, steps = [], [], 1
    for axis in list(op.reduce_axis):
        length = extent_of(axis)
        factors = [n for n in range(1, min(length, MOST_INNER) + 1) if length % n == 0]
        factor = decide(f"{stage.name}.{axis.name}", 1, factors)
        top, low = stage.split(axis, factor=factor)
        outside.append(top)
        within.append(low)
        steps *= factor
    stage.reorder(*outside, *middle, *within, *inner)
    unrolled = decide(f"{stage.name}.unroll", "tile", ("tile", "none", "all"))
    copies = prod(extents[:-1])
    if unrolled != "none" and copies <= MOST_UNROLLED:
        for axis in inner[:-1]:
            stage.unroll(axis)
        if unrolled == "all" and copies * steps <= MOST_UNROLLED:
            for axis in within:
                stage.unroll(axis)
    if extents[-1] > 1:
        stage.vectorize(inner[-1])


def _vectorize(stage: StageHandle, axis: IterVar, extent: int, target: Target) -> None:
    """The innermost loop in vectors, cut to a few registers where it is longer."""
    most = 4 * target.lanes(stage.op.bodies[0].dtype)
    if extent > most:
        _, axis = stage.split(axis, factor=most)
    if extent > 1:
        stage.vectorize(axis)


def _factor(s: te.Schedule, stage: StageHandle) -> bool:
    """Partial reductions of an output, where they pay and are decided; whether they are."""
    op = stage.op
    results, terms = (prod(map(extent_of, axes)) for axes in (op.axis, op.reduce_axis))
    if results > FEW_RESULTS or terms < LONG_REDUCTION:
        return False
    last = op.reduce_axis[-1]
    length = extent_of(last)
    parts = decide(f"{stage.name}.parts", 0, lambda: [
        0, *(n for n in (4, 8, 16, 32, 64) if length % n == 0)])
    if not parts:
        return False
    _, low = stage.split(last, factor=parts)
    partial = s.rfactor(stage.name, low, len(op.axis))
    assert isinstance(partial, Tensor)
    handle = s[partial]
    spatial = list(handle.op.axis)
    handle.reorder(*spatial[:-1], *handle.op.reduce_axis, spatial[-1])
    handle.vectorize(spatial[-1])
    return True


def _annotate_elementwise(stage: StageHandle, target: Target) -> None:
    """Vectors, and threads."""
    vectorize_inner(stage, target)
    share_outer(stage)
