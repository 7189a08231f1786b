"""The candidates of a task that were looked at: scheduled once, told apart by their schedules.

One that can't be scheduled and lowered within `LOWERING_SECONDS` is refused like one that a
primitive refuses: it costs its time, and nothing else.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitvm.autotune.features import extract_features
from minitvm.autotune.task import Candidate, Task
from minitvm.errors import LoweringError, ScheduleError
from minitvm.te.steps import Step

LOWERING_SECONDS = 30.0


class _TooLong(BaseException):
    """Not an `Exception`, so that nothing in between takes it for one of its own."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises `_TooLong` here after some seconds, and again and again where it is held up; not where
    signals can't be had, in other threads than the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


class Candidates:
    """Points of a task's space, by number."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.refused: dict[int, str] = {}
        """Points that a primitive refuses, and its reason."""
        self._made: dict[int, Candidate] = {}
        self._features: dict[int, np.ndarray] = {}
        self._firsts: dict[tuple[Step, ...], int] = {}

    def get(self, number: int) -> Candidate | None:
        """The candidate at a point; None where it is refused."""
        if number in self.refused:
            return None
        if number not in self._made:
            try:
                with _limited(LOWERING_SECONDS):
                    self._made[number] = self.task.candidate(number)
            except _TooLong:
                self.refused[number] = f"it was not lowered within {LOWERING_SECONDS:g} s"
                return None
            except (ScheduleError, LoweringError) as error:
                self.refused[number] = str(error).splitlines()[0]
                return None
        return self._made[number]

    def is_repeat(self, number: int) -> bool:
        """Whether a point gives the schedule of another one that was asked about before, or the
        default schedule."""
        made = self.get(number)
        if made is None or number == self.task.space.default:
            return False
        first = self._firsts.setdefault(made.steps, number)
        return first != number or made.steps == self.task.default.steps

    def features(self, number: int) -> np.ndarray | None:
        """What a cost model knows it by: features of its code, and the choices that made it, which
        tell apart what the features don't. None where it is refused."""
        found = self._features.get(number)
        if found is None and (candidate := self.get(number)) is not None:
            choices = self.task.space.coordinates(number, candidate.config)
            code = extract_features(candidate.func, self.task.target)
            found = np.concatenate([code, np.array(choices, np.float32)])
            self._features[number] = found
        return found
