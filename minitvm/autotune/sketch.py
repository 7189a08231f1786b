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

- structure: where sums are kept, whether padding is copied, whether a reduction is factored;
- annotations: the extents of the levels of each axis, where a reduction is computed, what is
  unrolled, how wide vectors are.

A task's space holds all structures; knobs that a point's structure does not use change nothing.
`sketch_rules` has the rules. `SketchPolicy` searches such a space.

Source: Ansor (OSDI 2020), whose sketches these are; its annotations are the knobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from minitvm import te
from minitvm.autotune.history import ApplyHistoryBest
from minitvm.autotune.sketch_rules import derive
from minitvm.autotune.task import Scheduled, Task
from minitvm.autotune.templates import te_task
from minitvm.errors import OptionError, TuningError
from minitvm.target import Target
from minitvm.te.tensor import Compute, Tensor

Workload = Callable[..., Sequence[Tensor]]
WORKLOADS: dict[str, Workload] = {}


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
        return derive(outputs, machine), tensors

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
