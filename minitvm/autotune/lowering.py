"""Points of the spaces of tasks -> candidates, in processes beside the tuner.

    with LoweringPool(tasks) as pool:
        pool.lower(0, [17, 4])        of the first task

Scheduling and lowering is most of what looking at a candidate costs, so several processes share it.
Each is a fork of this one, which has the tasks as they are. A candidate that takes longer than
`LOWERING_SECONDS`, or ends its process, is refused; a new process goes on with those behind it. A
process does nothing but that: it has no file of this one open, and ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import cast

import numpy as np

from minitvm.autotune.features import extract_features
from minitvm.autotune.measure.isolate import die_with
from minitvm.autotune.task import Candidate, Task
from minitvm.errors import LoweringError, ScheduleError
from minitvm.te.steps import Step

LOWERING_SECONDS = 30.0
MOST_PROCESSES = 4
AHEAD = 3
"""How many points a process is given at a time, at most."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """What became of a point: a candidate, pickled, its steps and what a cost model knows it by:
    features of its code, and the choices that made it, which tell apart what the features don't. Or
    why there is none."""

    steps: tuple[Step, ...] = ()
    features: np.ndarray | None = None
    pickled: bytes = field(default=b"", repr=False)
    refused: str = ""

    @property
    def candidate(self) -> Candidate:
        """All of it."""
        return cast(Candidate, pickle.loads(self.pickled))


def lower_here(task: Task, number: int) -> Lowered:
    """Schedules and lowers a point in this process."""
    try:
        made = task.candidate(number)
        code = extract_features(made.func, task.target)
        choices = np.array(task.space.coordinates(number, made.config), np.float32)
        return Lowered(made.steps, np.concatenate([code, choices]), pickle.dumps(made))
    except (ScheduleError, LoweringError) as error:
        return Lowered(refused=str(error).splitlines()[0])


class LoweringPool:
    """Processes that lower candidates of `tasks`; to be closed."""

    def __init__(self, tasks: Sequence[Task], processes: int | None = None) -> None:
        self.tasks = tuple(tasks)
        count = processes or min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
        self._processes: list[_Process | None] = [None] * count

    def lower(self, task: int, numbers: Sequence[int]) -> list[Lowered]:
        """Points of the task of that place, side by side."""
        found: dict[int, Lowered] = {}
        waiting = deque(dict.fromkeys(numbers))
        asked: dict[Connection, tuple[int, deque[int]]] = {}
        ahead = max(1, min(AHEAD, len(waiting) // len(self._processes)))
        for place in range(len(self._processes)):
            self._ask(place, task, waiting, asked, ahead)
        while asked:
            for ready in wait(list(asked)):
                connection = cast(Connection, ready)
                place, numbers_asked = asked[connection]
                try:
                    found[numbers_asked[0]] = pickle.loads(connection.recv_bytes())
                    numbers_asked.popleft()
                except (EOFError, OSError):
                    found[numbers_asked.popleft()] = Lowered(refused=self._end(place))
                    waiting.extendleft(reversed(numbers_asked))
                    del asked[connection]
                self._ask(place, task, waiting, asked, ahead)
        return [found[number] for number in numbers]

    def _ask(self, place: int, task: int, waiting: deque[int],
             asked: dict[Connection, tuple[int, deque[int]]], ahead: int) -> None:
        """Gives a process the next points, so that it has some before it."""
        process = self._processes[place]
        if process is None:
            if not waiting:
                return
            process = self._processes[place] = _Process(self.tasks)
        _, numbers = asked.setdefault(process.connection, (place, deque()))
        while waiting and len(numbers) < ahead:
            numbers.append(waiting.popleft())
            with contextlib.suppress(OSError):  # it ended; who waits for its answer sees that
                process.connection.send_bytes(pickle.dumps((task, numbers[-1], LOWERING_SECONDS)))
        if not numbers:
            del asked[process.connection]

    def _end(self, place: int) -> str:
        """Ends a process that gave no answer; how it failed."""
        process, self._processes[place] = self._processes[place], None
        assert process is not None
        status = process.end()
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            return f"it was not lowered within {LOWERING_SECONDS:g} s"
        how = (signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status)
               else f"status {os.waitstatus_to_exitcode(status)}")
        return f"lowering it ended its process: {how}"

    def close(self) -> None:
        """Ends all processes."""
        for place, process in enumerate(self._processes):
            if process is not None:
                process.end(signal.SIGKILL)
                self._processes[place] = None

    def __enter__(self) -> LoweringPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class _Process:
    """A fork that answers with a `Lowered` for each point it is asked for."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.connection, there = Pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(tasks, there, parent)
        there.close()

    def end(self, number: int = 0) -> int:
        """Ends it, by a signal if it does not end by itself; its status."""
        self.connection.close()
        if number:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)
        return os.waitpid(self._pid, 0)[1]


def _serve(tasks: Sequence[Task], connection: Connection, parent: int) -> None:
    """Never returns: whatever happens, the child ends here."""
    status = 1
    try:
        die_with(parent)
        gc.freeze()  # what it was born with is not looked through, nor copied for that
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        used = connection.fileno()
        os.closerange(3, used)
        os.closerange(used + 1, os.sysconf("SC_OPEN_MAX"))
        while True:
            task, number, seconds = pickle.loads(connection.recv_bytes())
            signal.setitimer(signal.ITIMER_REAL, seconds)
            answer = _answer(tasks[task], number)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            connection.send_bytes(pickle.dumps(answer))
    except (EOFError, OSError):
        status = 0
    finally:
        os._exit(status)


def _answer(task: Task, number: int) -> Lowered:
    try:
        return lower_here(task, number)
    except Exception as error:  # whatever it is, it costs this candidate alone
        return Lowered(refused=f"{type(error).__name__}: {error}".splitlines()[0])
