"""The candidates of a task that were looked at: scheduled once, told apart by their schedules."""

from __future__ import annotations

import numpy as np

from minitvm.autotune.features import extract_features
from minitvm.autotune.task import Candidate, Task
from minitvm.errors import LoweringError, ScheduleError


class Candidates:
    """Points of a task's space, by number."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.refused: dict[int, str] = {}
        """Points that a primitive refuses, and its reason."""
        self._made: dict[int, Candidate] = {}
        self._features: dict[int, np.ndarray] = {}

    def get(self, number: int) -> Candidate | None:
        """The candidate at a point; None where it is refused."""
        if number in self.refused:
            return None
        if number not in self._made:
            try:
                self._made[number] = self.task.candidate(number)
            except (ScheduleError, LoweringError) as error:
                self.refused[number] = str(error).splitlines()[0]
                return None
        return self._made[number]

    def features(self, number: int) -> np.ndarray | None:
        """What a cost model knows it by; None where it is refused."""
        found = self._features.get(number)
        if found is None and (candidate := self.get(number)) is not None:
            found = extract_features(candidate.func, self.task.target)
            self._features[number] = found
        return found
