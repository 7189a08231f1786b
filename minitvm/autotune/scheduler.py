"""Which task to tune next: the one from which the whole model gains most.

The latency of the model is the sum of its tasks' best times, each as often as it is used. What a
further trial of a task gains is guessed from what the last ones gained, and from what is left: at
most all of its time spread over the trials it had, and no more than a kernel as quick as the best
of the model (by operations a second) would save. The largest gain is next; every task has had one
round before.
Source: the gradient task scheduler of Ansor (OSDI 2020), with its alpha and beta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

ALPHA = 0.2
"""The share of the past in the guess."""
BETA = 2.0
"""How much quicker than the quickest task another may become."""
WINDOW = 3
"""How many rounds the past is."""


@dataclass(slots=True)
class Progress:
    """How tuning of a task went: the best seconds after each of its rounds."""

    weight: int
    flops: int
    best: list[float] = field(default_factory=list)
    done: bool = False


def expected_gain(task: Progress, best_speed: float) -> float:
    """The seconds that a further round saves the model, by a guess. `best_speed` is the greatest
    number of operations a second among the tasks."""
    rounds, now = len(task.best), task.best[-1]
    if now == float("inf"):
        return 0.0
    window = min(WINDOW, rounds - 1)
    before = task.best[-1 - window] if window else now
    past = 0.0 if before == float("inf") or not window else (before - now) / window
    floor = task.flops / (BETA * best_speed) if task.flops and best_speed else 0.0
    ahead = min(now / rounds, max(0.0, now - floor))
    return task.weight * (ALPHA * past + (1 - ALPHA) * ahead)


def next_task(tasks: Sequence[Progress]) -> int | None:
    """The place of the task to tune next; None where all are done."""
    open_tasks = [place for place, task in enumerate(tasks) if not task.done]
    if not open_tasks:
        return None
    for place in open_tasks:
        if len(tasks[place].best) < 2:  # the default schedule is the first round
            return place
    speeds = [task.flops / task.best[-1] for task in tasks
              if task.best and 0 < task.best[-1] < float("inf")]
    fastest = max(speeds, default=0.0)
    return max(open_tasks, key=lambda place: expected_gain(tasks[place], fastest))
