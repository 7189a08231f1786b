"""The candidates of a task that were looked at: scheduled once, told apart by their schedules.

One that can't be scheduled and lowered in time is refused like one that a primitive refuses: it
costs its time, and nothing else (`lowering`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minitvm.autotune.lowering import Lowered, LoweringPool, lower_here
from minitvm.autotune.task import Candidate, Task
from minitvm.te.steps import Step


class Candidates:
    """Points of a task's space, by number. They are lowered by a pool, as its task of that place;
    without one, here, for as long as that takes."""

    def __init__(self, task: Task, pool: LoweringPool | None = None, place: int = 0) -> None:
        self.task = task
        self.refused: dict[int, str] = {}
        """Points that a primitive refuses, and its reason."""
        self._pool, self._place = pool, place
        self._made: dict[int, Lowered] = {}
        self._firsts: dict[tuple[Step, ...], int] = {}

    def prepare(self, numbers: Iterable[int]) -> None:
        """Lowers points that will be asked about, side by side."""
        new = [number for number in dict.fromkeys(numbers)
               if number not in self._made and number not in self.refused]
        if not new:
            return
        made = ([lower_here(self.task, number) for number in new] if self._pool is None
                else self._pool.lower(self._place, new))
        for number, lowered in zip(new, made, strict=True):
            if lowered.refused:
                self.refused[number] = lowered.refused
            else:
                self._made[number] = lowered

    def get(self, number: int) -> Candidate | None:
        """The candidate at a point; None where it is refused."""
        lowered = self._lowered(number)
        return None if lowered is None else lowered.candidate

    def is_repeat(self, number: int) -> bool:
        """Whether a point gives the schedule of another one that was asked about before, or the
        default schedule."""
        lowered = self._lowered(number)
        if lowered is None or number == self.task.space.default:
            return False
        first = self._firsts.setdefault(lowered.steps, number)
        return first != number or lowered.steps == self.task.default.steps

    def features(self, number: int) -> np.ndarray | None:
        """What a cost model knows it by (`lowering`); None where it is refused."""
        lowered = self._lowered(number)
        return None if lowered is None else lowered.features

    def _lowered(self, number: int) -> Lowered | None:
        self.prepare((number,))
        return self._made.get(number)
