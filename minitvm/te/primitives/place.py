"""compute_at, compute_inline, compute_root, rolling_buffer, set_scope, storage_align,
reorder_storage: where a stage is computed and kept."""

from __future__ import annotations

from minitvm.te.attach import attached_to, legal_places
from minitvm.te.bounds import infer_bounds, roll_of
from minitvm.te.inline import too_large
from minitvm.te.primitives.checks import (
    Illegal,
    attempt,
    check_compute,
    check_places,
    find_stage,
    operation,
)
from minitvm.te.show import refuse
from minitvm.te.stage import At, Stage, StageGraph
from minitvm.te.steps import (
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    ReorderStorage,
    RollingBuffer,
    SetScope,
    StorageAlign,
)

SCOPES = ("global", "local")


def apply_compute_at(graph: StageGraph, step: ComputeAt) -> None:
    """Computes a stage inside a loop of a stage that reads it: only what is read there.

    Step: s[C].compute_at(s[D], "i")
    Before:
        C = allocate((4, 8), "float32")
        for y in range(4):
            for x in range(8):
                C[y, x] = A[y, x] * 2.0
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    After:
        for i in range(4):
            C = allocate((1, 8), "float32", scope="local")
            for x in range(8):
                C[0, x] = A[i, x] * 2.0
            for j in range(8):
                D[i, j] = C[0, j] + 1.0
    """
    action = f"compute_at({step.parent}, {step.axis})"
    stage = find_stage(graph, step.stage, action)
    check_compute(graph, stage, action)
    _check_own_memory(graph, stage, action)
    _check_not_output(graph, stage, action)
    parent = find_stage(graph, step.parent, action)
    places = legal_places(graph, stage)
    choices = [f"({place.name}, {place.labels[axis]})" for place, axis in places]
    axis = parent.axes.get(step.axis)
    if axis is None or axis not in parent.leaves:
        refuse(graph, stage, action, f"{parent.name} has no loop {step.axis}", choices)
    if parent.annotations.get(axis) == "vectorized":
        refuse(graph, stage, action, "that loop is vectorized, and each lane would need a copy",
               choices)
    if parent.in_tensorized(axis):
        refuse(graph, stage, action, "a tensor intrinsic stands for that loop", choices)
    if (parent, axis) not in places:
        refuse(graph, stage, action, _why_not(graph, stage, parent), choices)
    if "parallel" in stage.annotations.values():
        refuse(graph, stage, action, "it has a parallel loop, which would start at each iteration")
    with attempt(graph, stage, action, stage):
        stage.attach, stage.rolls = At(parent, axis), False
        graph.changed(stage)
        check_places(graph)


def _why_not(graph: StageGraph, stage: Stage, parent: Stage) -> str:
    readers = [reader.name for reader in graph.readers(stage)]
    if parent.name not in readers:
        return f"{parent.name} does not read {stage.name}; its readers are {', '.join(readers)}"
    return f"not all of its readers ({', '.join(readers)}) are inside that loop"


def _check_not_output(graph: StageGraph, stage: Stage, action: str) -> None:
    if stage.is_output:
        refuse(graph, stage, action, "it is an output, which is computed whole", ["compute_root"])


def apply_compute_inline(graph: StageGraph, step: ComputeInline) -> None:
    """Computes a stage wherever it is read, without memory of its own.

    Step: s[C].compute_inline()
    Before:
        C = allocate((4, 8), "float32")
        for y in range(4):
            for x in range(8):
                C[y, x] = A[y, x] * 2.0
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    After:
        for i in range(4):
            for j in range(8):
                D[i, j] = A[i, j] * 2.0 + 1.0
    """
    action = "compute_inline"
    stage = find_stage(graph, step.stage, action)
    choices = ["compute_root", "compute_at"]
    check_compute(graph, stage, action)
    _check_own_memory(graph, stage, action)
    _check_not_output(graph, stage, action)
    if stage.is_reduction:
        refuse(graph, stage, action, "it is a reduction, which needs memory to add up in", choices)
    attached = attached_to(graph, stage)
    if attached:
        refuse(graph, stage, action, f"{attached[0].name} is computed inside its loops", choices)
    if stage.tensorized is not None:
        refuse(graph, stage, action, "a tensor intrinsic computes it into memory", choices)
    if stage.bindings or "parallel" in stage.annotations.values():
        refuse(graph, stage, action, "its loops are shared among threads", ["compute_root"])
    with attempt(graph, stage, action, stage):
        stage.attach, stage.rolls = "inline", False
        reason = too_large(graph, stage)
        if reason is not None:
            raise Illegal(reason, choices)
        check_places(graph)


def apply_compute_root(graph: StageGraph, step: ComputeRoot) -> None:
    """Computes a stage whole, before the stages that read it. This is where stages start.

    Given: s[C].compute_inline()
    Step: s[C].compute_root()
    Before:
        for i in range(4):
            for j in range(8):
                D[i, j] = A[i, j] * 2.0 + 1.0
    After:
        C = allocate((4, 8), "float32")
        for y in range(4):
            for x in range(8):
                C[y, x] = A[y, x] * 2.0
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    """
    stage = find_stage(graph, step.stage, "compute_root")
    with attempt(graph, stage, "compute_root", stage):
        stage.attach, stage.rolls = "root", False
        graph.changed(stage)
        check_places(graph)


def apply_rolling_buffer(graph: StageGraph, step: RollingBuffer) -> None:
    """Computes of a stage, in each iteration of the loop that it is computed at, only what no
    iteration before has computed. The rest is kept in a circular buffer, no longer than what one
    iteration reads.

    What the loop needs must move by a fixed distance in one dimension, and overlap. The loop is no
    parallel one; the loops around it may be, and the first iteration inside each of them computes
    all. A later `compute_at`, `compute_inline` or `compute_root` of the stage ends it.

    Given: s[C].compute_at(s[G], "i")
    Step: s[C].rolling_buffer()
    Before:
        for i in range(6):
            C = allocate((3,), "float32", scope="local")
            for y in range(3):
                C[y] = A[i + y] * 2.0
            G[i] = C[0] + C[1] + C[2]
    After:
        C = allocate((3,), "float32", scope="local")
        for i in range(6):
            for y in range(3):
                if likely(i < 1 or y >= 2):
                    C[(i + y) % 3] = A[i + y] * 2.0
            G[i] = C[i % 3] + C[(i + 1) % 3] + C[(i + 2) % 3]
    """
    action = "rolling_buffer"
    stage = find_stage(graph, step.stage, action)
    check_compute(graph, stage, action)
    _check_own_memory(graph, stage, action)
    if not isinstance(stage.attach, At):
        refuse(graph, stage, action, "it is computed in no loop of another stage",
               ["compute_at first"])
    with attempt(graph, stage, action, stage):
        stage.rolls = True
        reason = broken_roll(graph)
        if reason is not None:
            raise Illegal(reason, ["compute_at a loop that needs parts of it again"])


def broken_roll(graph: StageGraph) -> str | None:
    """Why a stage with a rolling buffer can't have one as things are; None if all can."""
    if not any(stage.rolls for stage in graph.stages):
        return None
    bounds = infer_bounds(graph)
    for stage, nest in bounds.nests.items():
        if not stage.rolls or not isinstance(stage.attach, At):
            continue
        place, axis = stage.attach.stage, stage.attach.axis
        loop = f"the loop {place.labels[axis]} of {place.name}"
        where = f"{stage.name} has a rolling buffer in {loop}"
        kind = place.annotations.get(axis) or place.bindings.get(axis)
        if kind not in (None, "serial", "unrolled"):
            return f"{where}, whose iterations follow one another; it can't be {kind}"
        reason = roll_of(bounds, stage, nest.region)
        if isinstance(reason, str):
            return f"{where}, and {reason}"
    return None


def apply_set_scope(graph: StageGraph, step: SetScope) -> None:
    """Keeps a stage in stack memory (local) or in memory that the caller gives (global)."""
    action = f"set_scope({step.scope})"
    stage = find_stage(graph, step.stage, action)
    if step.scope not in SCOPES:
        refuse(graph, stage, action, f"{step.scope!r} is no scope", SCOPES)
    if stage.is_output:
        refuse(graph, stage, action, "it is an output, whose memory is the caller's")
    _check_own_memory(graph, stage, action)
    stage.scope = step.scope


def _check_own_memory(graph: StageGraph, stage: Stage, action: str) -> None:
    if stage in graph.owners:
        scan, _ = graph.owners[stage]
        role = "update" if graph.is_update(stage) else "initial value"
        refuse(graph, stage, action,
               f"it is the {role} of the scan {scan.name}, computed into the memory of that",
               [f"the same on {scan.name}", "cache_write"])


def apply_storage_align(graph: StageGraph, step: StorageAlign) -> None:
    """Pads the memory of a stage, so that the stride of an axis is a multiple of `factor`, plus
    `offset`. The elements of the axes inside it lie one after the other.

    Step: s[C].storage_align("y", 16, 4)
    Before:
        C = allocate((4, 8), "float32")
        for y in range(4):
            for x in range(8):
                C[y, x] = A[y, x] * 2.0
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    After:
        C = allocate((4, 20), "float32")
        for y in range(4):
            for x in range(8):
                C[y, x] = A[y, x] * 2.0
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    """
    action = f"storage_align({step.axis}, {step.factor}, {step.offset})"
    stage = _with_layout(graph, step.stage, action)
    if stage.storage is not None:
        refuse(graph, stage, action, "reorder_storage has laid out its memory already")
    axes = operation(stage).axis
    choices = [stage.labels[axis] for axis in axes[:-1]]
    axis = stage.axes.get(step.axis)
    if axis is None or axis not in axes[:-1]:
        is_last = axis in axes
        reason = "the innermost axis has stride 1" if is_last else "it is no axis of the tensor"
        refuse(graph, stage, action, reason, choices)
    if step.factor < 1 or not 0 <= step.offset < step.factor:
        refuse(graph, stage, action, "it takes a positive factor and an offset below it",
               ["factor=16, offset=0"])
    stage.alignment = (axes.index(axis), step.factor, step.offset)


def apply_reorder_storage(graph: StageGraph, step: ReorderStorage) -> None:
    """Lays the memory of a stage out in another order of its axes, outermost first. With `factor`
    the innermost one lies in blocks of so many elements, and the number of the block is outermost:
    what a tile of a reader goes through then lies together. The loops stay.

    Step: s[C].reorder_storage("x", "y")
    Before:
        C = allocate((4, 8), "float32")
        for y in range(4):
            for x in range(8):
                C[y, x] = A[y, x] * 2.0
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    After:
        C = allocate((8, 4), "float32")
        for y in range(4):
            for x in range(8):
                C[x, y] = A[y, x] * 2.0
        for i in range(4):
            for j in range(8):
                D[i, j] = C[j, i] + 1.0
    """
    action = f"reorder_storage({', '.join(step.axes)})"
    stage = _with_layout(graph, step.stage, action)
    if stage.alignment is not None:
        refuse(graph, stage, action, "storage_align has laid out its memory already")
    axes = operation(stage).axis
    names = [stage.labels[axis] for axis in axes]
    found = [stage.axes.get(name) for name in step.axes]
    if sorted(step.axes) != sorted(names) or any(axis not in axes for axis in found):
        refuse(graph, stage, action, "it takes each axis of the tensor once", [", ".join(names)])
    if step.factor is not None and step.factor < 1:
        refuse(graph, stage, action, "it takes a positive factor", ["factor=16"])
    stage.storage = (tuple(axes.index(axis) for axis in found if axis is not None), step.factor)


def _with_layout(graph: StageGraph, name: str, action: str) -> Stage:
    """A stage whose memory may be laid out."""
    stage = find_stage(graph, name, action)
    check_compute(graph, stage, action)
    _check_own_memory(graph, stage, action)
    if stage.is_output:
        refuse(graph, stage, action, "it is an output, whose memory is the caller's",
               [other.name for other in graph.stages if not other.is_output])
    return stage
