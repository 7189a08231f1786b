"""Tuning: tasks are given trials until time or trials are used up; every measurement is recorded.

A round takes a task (`scheduler`), asks its tuner for a batch, and measures what the log does not
know. So a log that is there already is gone through again, without measuring, by the same choices:
that is how tuning resumes, and with a log alone (`replay`) how it is tested. The default
schedule is each task's first trial. A new best, and what comes within noise of the best, is
measured again, in turns with the others there: what is only lucky must not lead the search. At the
end the best candidates of a task meet it in a contest,
timed in turns, so that what was only lucky does not win.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from minitvm.autotune.candidates import Candidates
from minitvm.autotune.contest import decide
from minitvm.autotune.lowering import LoweringPool
from minitvm.autotune.measure.measurer import Measurer, Outcome
from minitvm.autotune.model import load_xgboost
from minitvm.autotune.options import TuneOptions
from minitvm.autotune.records import Record, measurement_key, target_features
from minitvm.autotune.scheduler import Progress, next_task
from minitvm.autotune.task import Candidate, Task, check_default
from minitvm.autotune.tuners import TUNERS, WITH_MODEL, Tuner
from minitvm.errors import OptionError, TuningError

LEAST_NOISE, MOST_NOISE = 0.01, 0.1
"""Bounds of the estimate of noise."""
MOST_AGAIN = 4
"""How many candidates are measured again after a round."""


class Records(Protocol):
    """Where records are looked up and kept: a `Log`, or `Memory`."""

    records: list[Record]

    def find(self, key: str) -> Record | None:
        """The record of a measurement that was made before."""

    def append(self, record: Record) -> None:
        """Keeps a record."""


class Memory:
    """Records that are kept nowhere else."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.records = list(records)
        self._found = {record.key: record for record in records}

    def find(self, key: str) -> Record | None:
        """The record of a measurement that was made before."""
        return self._found.get(key)

    def append(self, record: Record) -> None:
        """Keeps a record."""
        self.records.append(record)
        self._found[record.key] = record


@dataclass(slots=True)
class TaskState:
    """How far a task is."""

    task: Task
    candidates: Candidates
    tuner: Tuner
    progress: Progress
    trials: int = 0
    since_best: int = 0
    default: Record | None = None
    best: Record | None = None
    failures: Counter[str] = field(default_factory=Counter)
    alike: tuple[str, int, str] = ("", 0, "")
    """The last failure without its numbers, how often it came in a row, how it was first told."""
    found: list[tuple[Candidate, Record]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    """The points of candidates that were measured, by the keys of their trials."""
    again: dict[str, Record] = field(default_factory=dict)
    """By the keys of their trials, the last records of candidates that were measured again."""
    repeats: int = 0
    """How often that was done."""
    problem: str = ""

    def seconds(self, record: Record) -> float:
        """What a candidate takes, by its trial, or by the last time that it was measured again."""
        return self.again.get(record.key, record).minimum

    @property
    def noise(self) -> float:
        """How far apart two times of one candidate may be, as a share: by the spread of the
        repetitions of its trials, the median over the task."""
        spread = float(np.median([record.noise for _, record in self.found]))
        return min(max(spread, LEAST_NOISE), MOST_NOISE)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What tuning made of a task. Seconds are those of the contest, where there was one."""

    name: str
    weight: int
    before_seconds: float
    after_seconds: float
    flops: int
    trials: int
    failures: dict[str, int]
    problem: str = ""

    @property
    def gflops(self) -> float:
        """10^9 operations a second, now."""
        return self.flops / self.after_seconds / 1e9 if self.after_seconds else 0.0


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What tuning made of a model: a row for each task, and how its time, as the sum of its
    kernels' times, went down: (trials, seconds)."""

    tasks: tuple[TaskReport, ...]
    curve: tuple[tuple[int, float], ...]
    trials: int
    interrupted: bool = False

    @property
    def before_seconds(self) -> float:
        """All tasks with their default schedules, each as often as a run uses it."""
        return sum(t.weight * t.before_seconds for t in self.tasks if not t.problem)

    @property
    def after_seconds(self) -> float:
        """The same with the best schedules."""
        return sum(t.weight * t.after_seconds for t in self.tasks if not t.problem)

    def data(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "tasks": [{**asdict(task), "gflops": task.gflops} for task in self.tasks],
            "curve": [list(point) for point in self.curve], "trials": self.trials,
            "before_seconds": self.before_seconds, "after_seconds": self.after_seconds,
            "interrupted": self.interrupted,
        }


Watch = Callable[[str, int, float], None]
"""`watch(name, trials, seconds)`: the task that was just worked on, all trials so far, and the
estimate of the model's time."""


MakeTuner = Callable[[Candidates, int], Tuner]
"""Of the candidates of a task and a seed."""


def tune_tasks(tasks: Sequence[Task], measurer: Measurer, log: Records,
         options: TuneOptions | None = None, watch: Watch | None = None,
         make_tuner: MakeTuner | None = None) -> TuneReport:
    """Tunes tasks, into a log. `make_tuner` gives tuners other than those of `options`. Raises
    `TuningError` where nothing works, or everything fails alike; an interrupt ends it early, with a
    report of what there is."""
    with LoweringPool(tasks) as pool:
        session = Session(tasks, measurer, log, options or TuneOptions(), watch or _silent,
                          make_tuner, pool)
        return session.run()


def _silent(name: str, trials: int, seconds: float) -> None:
    """Watches nothing."""


class Session:
    """One call of `tune_tasks`."""

    def __init__(self, tasks: Sequence[Task], measurer: Measurer, log: Records,
                 options: TuneOptions, watch: Watch, make_tuner: MakeTuner | None,
                 pool: LoweringPool) -> None:
        if options.tuner not in TUNERS:
            raise OptionError(f"there is no tuner {options.tuner!r}; there are "
                              f"{', '.join(TUNERS)}")
        if options.tuner in WITH_MODEL:
            load_xgboost()  # so that it is not missed only after the first measurements
        if not tasks:
            raise TuningError("there is nothing to tune: no kernel has a choice of schedules")
        self.measurer, self.log, self.options, self.watch = measurer, log, options, watch
        self.curve: list[tuple[int, float]] = []
        self._make_tuner = make_tuner or TUNERS[options.tuner]
        self.states = [self._state(task, pool, place) for place, task in enumerate(tasks)]
        self._end = float("inf") if options.seconds is None else time.monotonic() + options.seconds

    def _state(self, task: Task, pool: LoweringPool, place: int) -> TaskState:
        check_default(task)
        candidates = Candidates(task, pool, place)
        tuner = self._make_tuner(candidates, self.options.seed)
        return TaskState(task, candidates, tuner, Progress(task.weight, task.work.flops))

    @property
    def trials(self) -> int:
        """How many candidates were measured, or looked up."""
        return sum(state.trials for state in self.states)

    @property
    def _is_over(self) -> bool:
        most = self.options.trials
        return (most is not None and self.trials >= most) or time.monotonic() >= self._end

    def run(self) -> TuneReport:
        """Rounds, then contests."""
        interrupted = False
        try:
            self._build_defaults()
            for state in self.states:
                if not self._is_over:
                    self._first(state)
            while not self._is_over:
                place = next_task([state.progress for state in self.states])
                if place is None:
                    break
                self._round(self.states[place])
        except KeyboardInterrupt:
            interrupted = True
        if all(state.problem for state in self.states if state.trials):
            self._raise_problem()
        try:
            rows = [self._report(state, not interrupted) for state in self.states]
        except KeyboardInterrupt:
            interrupted = True
            rows = [self._report(state, False) for state in self.states]
        return TuneReport(tuple(rows), tuple(self.curve), self.trials, interrupted)

    def _raise_problem(self) -> None:
        first = next((state for state in self.states if state.problem), None)
        if first is not None:
            raise TuningError(f"no task works with its default schedule; the first, "
                              f"{first.task.name}: {first.problem}")

    # --- rounds ---------------------------------------------------------------------------------

    def _build_defaults(self) -> None:
        """Builds the default schedules that will be measured, which come one for each task, side by
        side."""
        first = self.states[:self.options.trials]
        self.measurer.build_ahead([
            (state.task, state.task.default) for state in first
            if self.log.find(self._key(state.task, state.task.default, 0)) is None])

    def _first(self, state: TaskState) -> None:
        """Measures the default schedule; a task whose default fails is not tuned."""
        record = self._measure(state, [state.task.default])[0]
        state.trials += 1
        state.progress.best.append(record.minimum if record else float("inf"))
        if record is None or record.error:
            state.progress.done = True
            state.problem = "the default schedule was not measured" if record is None else (
                f"{record.error}: {record.message}")
            return
        state.default = state.best = record
        state.found.append((state.task.default, record))
        state.numbers[record.key] = state.task.space.default
        state.tuner.update([(state.task.space.default, record.minimum)])
        self._show(state)

    def _round(self, state: TaskState) -> None:
        """Measures a batch of one task."""
        batch = self.options.batch
        if self.options.trials is not None:
            batch = min(batch, self.options.trials - self.trials)
        numbers = state.tuner.propose(batch)
        chosen = [(n, c) for n in numbers if (c := state.candidates.get(n)) is not None]
        records = self._measure(state, [candidate for _, candidate in chosen])
        results = [(n, float("inf")) for n in numbers if n in state.candidates.refused]
        for (number, candidate), record in zip(chosen, records, strict=True):
            if record is None:
                results.append((number, float("inf")))
                continue
            results.append((number, record.minimum))
            state.numbers.setdefault(record.key, number)
            state.trials += 1
            self._learn(state, candidate, record)
        state.tuner.update({**dict(results), **self._again(state)}.items())
        assert state.best is not None
        state.progress.best.append(state.seconds(state.best))
        state.progress.done = (
            not numbers or state.since_best >= self.options.early_stopping)
        self._show(state)

    def _learn(self, state: TaskState, candidate: Candidate, record: Record) -> None:
        state.since_best += 1
        if record.error:
            state.failures[record.error] += 1
            self._check_failures(state, record)
            return
        state.alike = ("", 0, "")
        state.found.append((candidate, record))
        if state.best is None or record.minimum < state.seconds(state.best):
            state.best, state.since_best = record, 0

    def _again(self, state: TaskState) -> dict[int, float]:
        """Measures the best again, in turns with what is within noise of it or comes next, where
        some of it was not yet; the times of points that this gives."""
        assert state.best is not None
        limit = state.seconds(state.best) * (1 + state.noise)
        found = {record.key: (candidate, record) for candidate, record in state.found}
        ordered = sorted(found.values(), key=lambda item: (state.seconds(item[1]), item[1].key))
        near = sum(state.seconds(record) <= limit for _, record in ordered)
        chosen = ordered[:max(2, min(near, MOST_AGAIN))]
        if all(record.key in state.again for _, record in chosen[:max(1, near)]):
            return {}
        state.repeats += 1
        records = self._measure(state, [candidate for candidate, _ in chosen], -state.repeats)
        times = {}
        for (_, trial), record in zip(chosen, records, strict=True):
            if record is not None and not record.error:
                state.again[trial.key] = record
                times[state.numbers[trial.key]] = record.minimum
        state.best = min((record for _, record in state.found),
                         key=lambda record: (state.seconds(record), record.key))
        return times

    def _check_failures(self, state: TaskState, record: Record) -> None:
        """Raises where candidate after candidate fails in the same way."""
        told = f"{record.error}: {record.message}"
        kind = re.sub(r"[0-9.]+", "#", told)
        last, count, first = state.alike
        state.alike = (kind, count + 1, first) if kind == last else (kind, 1, told)
        if state.alike[1] >= self.options.identical_failures:
            raise TuningError(f"{state.alike[1]} candidates of {state.task.name} failed alike, one "
                              f"after the other; the first: {state.alike[2]}")

    def _measure(self, state: TaskState, candidates: Sequence[Candidate],
                 contest: int = 0) -> list[Record | None]:
        """The records of candidates: from the log where it has them, else measured and kept."""
        keys = [self._key(state.task, candidate, contest) for candidate in candidates]
        missing: dict[str, Candidate] = {}
        for key, candidate in zip(keys, candidates, strict=True):
            if self.log.find(key) is None:
                missing.setdefault(key, candidate)
        if missing:
            best = state.seconds(state.best) if state.best else float("inf")
            wanted = list(missing.values())
            outcomes = (self.measurer.contest(state.task, wanted, contest) if contest
                        else self.measurer.measure(state.task, wanted, best))
            for candidate, outcome in zip(wanted, outcomes, strict=True):
                if outcome is not None:
                    self.log.append(self._record(state.task, candidate, outcome, contest))
        return [self.log.find(key) for key in keys]

    def _key(self, task: Task, candidate: Candidate, contest: int) -> str:
        return measurement_key(task.key, target_features(task.target), candidate.steps, contest,
                               self.options.threads, self.options.cache)

    def _record(self, task: Task, candidate: Candidate, outcome: Outcome, contest: int) -> Record:
        return Record(task.key, task.workload, target_features(task.target), candidate.config,
                      candidate.steps, outcome.seconds, outcome.error, outcome.message, contest,
                      self.options.threads, self.options.cache)

    def _show(self, state: TaskState) -> None:
        estimate = sum(s.task.weight * s.seconds(s.best) for s in self.states if s.best)
        if all(s.best or s.problem for s in self.states):
            self.curve.append((self.trials, estimate))
        self.watch(state.task.name, self.trials, estimate)

    # --- the end --------------------------------------------------------------------------------

    def _report(self, state: TaskState, compare: bool) -> TaskReport:
        default, best = state.default, state.best
        if compare and default and best and best.key != default.key:
            self._contest(state, default, best)
        decision = decide(self._records(state.task))
        problem = state.problem or ("" if default else "no time and no trials were left for it")
        chosen = (None, None) if problem or decision is None else (decision.default, decision.best)
        before, after = (record.minimum if record else 0.0 for record in chosen)
        return TaskReport(state.task.name, state.task.weight, before, after,
                          state.task.work.flops, state.trials, dict(state.failures), problem)

    def _records(self, task: Task) -> list[Record]:
        """What the log has of a task, as whoever applies it will see it."""
        features = target_features(task.target)
        wanted = (features, self.options.threads, self.options.cache)
        return [record for record in self.log.records if record.task == task.key
                and (record.target, record.threads, record.cache) == wanted]

    def _contest(self, state: TaskState, default: Record, best: Record) -> None:
        """Times the default schedule in turns with the best and others that came near."""
        limit = state.seconds(best) * (1 + max(best.noise, 0.05))
        rivals = sorted((item for item in state.found if item[1].key != default.key),
                        key=lambda item: (state.seconds(item[1]), item[1].key))
        near = {item[1].key: item[0] for item in rivals if state.seconds(item[1]) <= limit}
        chosen = [state.task.default, *list(near.values())[:self.options.contestants]]
        number = 1
        while True:
            # A contest that the log has is taken from there, as long as it is this one.
            known = [self.log.find(self._key(state.task, c, number)) for c in chosen]
            if all(known) or not any(known):
                break
            number += 1
        self._measure(state, chosen, number)
