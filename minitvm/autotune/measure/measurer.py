"""Candidates of a task -> outcomes: built side by side, then run one at a time while nothing else
is built, so that times are of the candidate alone.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from minitvm.autotune.measure.folder import OwnedFolder
from minitvm.autotune.measure.kernel import Timing
from minitvm.autotune.measure.process import WorkerProcess
from minitvm.autotune.task import Candidate, Task
from minitvm.errors import TuningError
from minitvm.tir.text import print_func


@dataclass(frozen=True, slots=True)
class Outcome:
    """The seconds of a call, one for each repetition, or how it failed."""

    seconds: tuple[float, ...] = ()
    error: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """Limits of one candidate (of processor time), how it is timed, and by how many processes
    candidates are built."""

    build_timeout_seconds: float = 30.0
    run_timeout_seconds: float = 20.0
    memory_bytes: int = 4 << 30
    builders: int = 2
    timing: Timing = field(default_factory=Timing)


CUTOFF = 4.0
"""A candidate that is so many times slower than the best is not worth exact times."""


class Measurer(Protocol):
    """What tells the outcome of candidates: a machine, or a log."""

    def measure(self, task: Task, candidates: Sequence[Candidate],
                best_seconds: float) -> Iterable[Outcome | None]:
        """An outcome for each candidate, as soon as it is known; None where there will be none."""

    def contest(self, task: Task, candidates: Sequence[Candidate],
                number: int) -> list[Outcome | None]:
        """The same, timed in turns."""


class LocalMeasurer:
    """Measures on this machine. To be closed."""

    def __init__(self, options: MeasureOptions | None = None) -> None:
        self.options = options or MeasureOptions()
        self._owned = OwnedFolder()
        self.folder = self._owned.path
        self._runner = WorkerProcess()
        self._builders = [WorkerProcess() for _ in range(max(1, self.options.builders))]
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for builder in self._builders:
            self._idle.put(builder)
        self._arrays: dict[str, dict[str, Any]] = {}
        self._count = 0

    def measure(self, task: Task, candidates: Sequence[Candidate],
                best_seconds: float = float("inf")) -> Iterator[Outcome | None]:
        """Builds all, then runs one after the other; a failure is an outcome."""
        cutoff = None if best_seconds == float("inf") else CUTOFF * best_seconds
        timing = self.options.timing if cutoff is None else replace(self.options.timing,
                                                                    cutoff_seconds=cutoff)
        arrays = self._prepare(task)
        with self._built(task, candidates) as built:
            for item in built:
                yield _outcome(item if item.get("error") else self._run([item], arrays, timing))

    def contest(self, task: Task, candidates: Sequence[Candidate],
                number: int) -> list[Outcome | None]:
        """Runs candidates that work in turns, in one process."""
        arrays = self._prepare(task)
        timing = replace(self.options.timing, repeat=3 * self.options.timing.repeat)
        with self._built(task, candidates) as built:
            working = [item for item in built if not item.get("error")]
            answer = self._run(working, arrays, timing) if working else {}
            if answer.get("error"):
                return [_outcome(answer) for _ in built]
            times = iter(answer.get("seconds", ()))
            return [_outcome(item) if item.get("error") else Outcome(tuple(next(times)))
                    for item in built]

    def _run(self, built: Sequence[dict[str, Any]], arrays: dict[str, Any], timing: Timing,
             results: str | None = None) -> dict[str, Any]:
        options = {key: value for key, value in asdict(timing).items() if value != float("inf")}
        return self._runner.request({
            "do": "run", **arrays, "objects": list(built), "timing": options, "results": results,
            "timeout_seconds": (self.options.run_timeout_seconds * timing.threads
                                * max(1, len(built))),
            "memory_bytes": self.options.memory_bytes})

    @contextmanager
    def _built(self, task: Task, candidates: Sequence[Candidate]) -> Iterator[list[dict[str, Any]]]:
        """The answers of builders; the object files go when they are no longer needed."""
        paths = []
        for _ in candidates:
            self._count += 1
            paths.append(self.folder / f"{self._count}.o")
        with ThreadPoolExecutor(len(self._builders)) as pool:
            jobs = [pool.submit(self._build, task, candidate, path)
                    for candidate, path in zip(candidates, paths, strict=True)]
            try:
                yield [job.result() for job in jobs]
            finally:
                for job in jobs:
                    job.cancel()
                for path in paths:
                    path.unlink(missing_ok=True)

    def _build(self, task: Task, candidate: Candidate, path: Path) -> dict[str, Any]:
        builder = self._idle.get()
        try:
            return builder.request({
                "do": "build", "text": print_func(candidate.func), "target": str(task.target),
                "object": str(path), "timeout_seconds": self.options.build_timeout_seconds,
                "memory_bytes": self.options.memory_bytes})
        finally:
            self._idle.put(builder)

    def _prepare(self, task: Task) -> dict[str, Any]:
        """The arrays of a task as a file, and what a worker must know of them."""
        known = self._arrays.get(task.key)
        if known is not None:
            return known
        task.target_must_be_here()
        arguments = task.arguments
        path = self.folder / f"arrays{len(self._arrays)}.npz"
        inputs: dict[str, Any] = {f"input{i}": array for i, array in enumerate(arguments.inputs)}
        params = task.params[len(inputs):]
        facts = {"arrays": str(path), "inputs": len(inputs), "expected": False,
                 "outputs": [[list(p.shape), p.dtype] for p in params]}
        expected = arguments.outputs
        np.savez(path, **inputs)
        if expected is None:
            expected = self._default_outputs(task, facts)
        outputs: dict[str, Any] = {f"output{i}": array for i, array in enumerate(expected)}
        np.savez(path, **inputs, **outputs)
        facts = {**facts, "arrays": str(path.rename(path.with_suffix(".checked.npz"))),
                 "expected": True}
        self._arrays[task.key] = facts
        return facts

    def _default_outputs(self, task: Task, facts: dict[str, Any]) -> tuple[np.ndarray, ...]:
        """What the plain schedule computes."""
        results = self.folder / "results.npz"
        with self._built(task, [task.plain]) as built:
            answer = built[0]
            if not answer.get("error"):
                answer = self._run(built, facts, Timing(repeat=1, min_repeat_ms=0), str(results))
        if answer.get("error"):
            raise TuningError(f"the task {task.name} has nothing to compare with: unscheduled it "
                              f"fails ({answer['error']}): {answer['message']}")
        with np.load(results, allow_pickle=False) as data:
            return tuple(data[name] for name in data.files)

    def close(self) -> None:
        """Ends all processes and removes all files."""
        for worker in (self._runner, *self._builders):
            worker.close()
        self._owned.close()

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _outcome(answer: dict[str, Any]) -> Outcome:
    if answer.get("error"):
        return Outcome((), answer["error"], answer["message"])
    return Outcome(tuple(answer["seconds"][0]))
