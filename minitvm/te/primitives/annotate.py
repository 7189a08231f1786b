"""vectorize, unroll, parallel, bind, pragma: how a loop runs, and remarks on it."""

from __future__ import annotations

from minitvm.te.attach import attached_to
from minitvm.te.extent import extent_text
from minitvm.te.pragmas import COUNTS
from minitvm.te.primitives.checks import check_plain, find_leaf, find_stage
from minitvm.te.show import refuse
from minitvm.te.stage import At, Stage, StageGraph, axis_extent
from minitvm.te.steps import Annotate, Bind, Pragma
from minitvm.te.tensor import IterVar

PRIMITIVES = {"vectorized": "vectorize", "unrolled": "unroll", "parallel": "parallel"}
THREADS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
           "vthread")


def apply_annotate(graph: StageGraph, step: Annotate) -> None:
    """Says how a loop runs. A vectorized loop is innermost and spatial; a parallel one is spatial
    and inside no other parallel loop of its stage.

    Step: s[B].vectorize("i")
    Before:
        for i in range(10):
            B[i] = A[i] + 1.0
    After:
        for i in vectorized(10):
            B[i] = A[i] + 1.0
    """
    action = f"{PRIMITIVES.get(step.kind, step.kind)}({step.axis})"
    stage = find_stage(graph, step.stage, action)
    axis = find_leaf(graph, stage, step.axis, action)
    if axis.kind != "scan" or step.kind != "unrolled":
        check_plain(graph, stage, axis, action)
    match step.kind:
        case "vectorized":
            _check_vectorized(graph, stage, axis, action)
        case "parallel":
            _check_parallel(graph, stage, axis, action)
        case "unrolled":
            pass
        case _:
            refuse(graph, stage, action, f"{step.kind!r} is no kind of loop", PRIMITIVES)
    stage.annotations[axis] = step.kind


def _check_vectorized(graph: StageGraph, stage: Stage, axis: IterVar, action: str) -> None:
    innermost = stage.leaves[-1]
    choices = [stage.labels[innermost]] if innermost.kind == "spatial" else []
    if axis.kind == "reduce":
        refuse(graph, stage, action, "the lanes of a vector can't all add to one element", choices)
    if axis is not innermost:
        refuse(graph, stage, action, "only the innermost loop can be vectorized; reorder first",
               choices)
    attached = attached_to(graph, stage, axis)
    if attached:
        refuse(graph, stage, action,
               f"{attached[0].name} is computed at this axis, and would need a copy for each lane",
               [f"compute_root {attached[0].name} first"])
    if not isinstance(axis_extent(axis), int):
        refuse(graph, stage, action,
               f"its extent {extent_text(axis_extent(axis))} is known only when the code runs",
               ["split by a factor, and vectorize the inner loop"])


def _check_parallel(graph: StageGraph, stage: Stage, axis: IterVar, action: str) -> None:
    spatial = [stage.labels[leaf] for leaf in stage.leaves if leaf.kind == "spatial"]
    if axis.kind == "reduce":
        refuse(graph, stage, action, "threads would race on the elements that they add to", spatial)
    if "parallel" in stage.annotations.values():
        refuse(graph, stage, action, "another loop of the stage is parallel already; fuse the two",
               ["fuse, then parallel"])
    if isinstance(stage.attach, At):
        refuse(graph, stage, action,
               f"the stage is computed inside a loop of {stage.attach.stage.name}",
               [f"parallel on an axis of {stage.attach.stage.name}"])


def apply_bind(graph: StageGraph, step: Bind) -> None:
    """Records that a loop runs on GPU threads, such as "blockIdx.x"; lowering for a CPU refuses it.

    There are no GPU targets yet: this lets published schedules be read and replayed.
    """
    action = f"bind({step.axis}, {step.tag})"
    stage = find_stage(graph, step.stage, action)
    axis = find_leaf(graph, stage, step.axis, action)
    check_plain(graph, stage, axis, action)
    if step.tag not in THREADS:
        refuse(graph, stage, action, f"there are no threads {step.tag!r}", THREADS)
    if axis.kind == "reduce":
        refuse(graph, stage, action, "threads would race on the elements that they add to",
               [stage.labels[leaf] for leaf in stage.leaves if leaf.kind == "spatial"])
    if step.tag in stage.bindings.values():
        refuse(graph, stage, action, f"another axis of the stage is bound to {step.tag} already",
               [tag for tag in THREADS if tag not in stage.bindings.values()])
    stage.bindings[axis] = step.tag


def apply_pragma(graph: StageGraph, step: Pragma) -> None:
    """Records a name and a value on a loop. `auto_unroll_max_step` unrolls the small loops inside
    it, innermost first, as long as they make no more stores than its value; `prefetch_bytes` asks
    for memory so far behind the vectors of inputs that the loop reads; other names change no code.

    Step: s[D].pragma("i", "auto_unroll_max_step", 8)
    Before:
        for i in range(4):
            for j in range(8):
                D[i, j] = C[i, j] + 1.0
    After:
        for i in range(4):
            for j in unrolled(8):
                D[i, j] = C[i, j] + 1.0
    """
    action = f"pragma({step.axis}, {step.name})"
    stage = find_stage(graph, step.stage, action)
    axis = find_leaf(graph, stage, step.axis, action)
    if not step.name.isidentifier():
        refuse(graph, stage, action, f"{step.name!r} is not a name", COUNTS)
    counted = COUNTS.get(step.name)
    if counted and (not isinstance(step.value, int) or step.value < 0):
        refuse(graph, stage, action, f"{step.value!r} is no number of {counted}",
               ["0, 1, 2, ..."])
    stage.pragmas.append((axis, step.name, step.value))
