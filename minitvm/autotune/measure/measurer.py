"""Candidates of a task -> outcomes: built side by side, then run one at a time while nothing else
is built, so that times are of the candidate alone.
"""

from __future__ import annotations

import hashlib
import pickle
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from minitvm.autotune.measure.folder import OwnedFolder
from minitvm.autotune.measure.kernel import Timing
from minitvm.autotune.measure.network import FEWEST_TURNS, write_network
from minitvm.autotune.measure.process import WorkerProcess
from minitvm.autotune.task import Candidate, Network, Task
from minitvm.errors import TuningError
from minitvm.te.steps import Step
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


PROCESSES = 3
"""In how many processes the variants of a network are compared, one after the other."""
TURNS = 8
"""How many turns each of these takes."""
IN_PLACE_SECONDS = 30.0
"""How long, at most."""


class Measurer(Protocol):
    """What tells the outcome of candidates: a machine, or a log."""

    def build_ahead(self, candidates: Sequence[tuple[Task, Candidate]]) -> None:
        """Says which candidates will be measured one by one."""

    def measure(self, task: Task, candidates: Sequence[Candidate],
                best_seconds: float) -> Iterable[Outcome | None]:
        """An outcome for each candidate, as soon as it is known; None where there will be none."""

    def contest(self, task: Task, candidates: Sequence[Candidate],
                number: int) -> list[Outcome | None]:
        """The same, timed in turns."""


Variant = Mapping[str, tuple[Step, ...]]
"""A network with these schedules, by the structural hashes of kernels, and default ones."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """How long a network took with each of some variants: `kernels` has the seconds of a call,
    turn by turn, by structural hash, `runs` those of whole runs. Nothing of a variant that failed;
    `problem` says how."""

    kernels: tuple[Mapping[str, tuple[float, ...]], ...]
    runs: tuple[tuple[float, ...], ...]
    problem: str = ""


class NetworkMeasurer(Protocol):
    """What tells how long kernels take in a network."""

    def in_place(self, network: Network, variants: Sequence[Variant], number: int, threads: int,
                 watch: Callable[[int, int], None]) -> InPlace:
        """Of the contest of that number; `watch(done, total)` is called in between."""


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
        self._ahead: dict[tuple[str, str], dict[str, Any]] = {}
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

    def build_ahead(self, candidates: Sequence[tuple[Task, Candidate]]) -> None:
        """Builds candidates of several tasks side by side, which are then measured without waiting
        for builders; to be called where nothing is measured."""
        def build(place: int, task: Task, candidate: Candidate) -> None:
            text = print_func(candidate.func)
            self._ahead[str(task.target), text] = self._ask_builder(
                self._building(task, text, self.folder / f"ahead{place}.o"))

        with ThreadPoolExecutor(len(self._builders)) as pool:
            jobs = [pool.submit(build, self._count + place, *item)
                    for place, item in enumerate(candidates)]
            self._count += len(candidates)
            try:
                for job in jobs:
                    job.result()
            finally:
                for job in jobs:
                    job.cancel()

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

    def in_place(self, network: Network, variants: Sequence[Variant], number: int, threads: int,
                 watch: Callable[[int, int], None]) -> InPlace:
        """Runs the network with each variant in turns, in some processes one after the other: where
        code and data lie by chance in one of them decides nothing. What crashes is left out."""
        paths = self._variants(network, variants)
        problem = next((f"{paths[i]['error']}: {paths[i]['message']}" for i in range(len(paths))
                        if paths[i].get("error")), "")
        left = [i for i, path in enumerate(paths) if not path.get("error")]
        kernels: list[dict[str, tuple[float, ...]]] = [{} for _ in variants]
        runs: list[tuple[float, ...]] = [() for _ in variants]
        for turn in range(PROCESSES):
            answer = self._run_variants([paths[i]["object"] for i in left], threads, turn, number)
            if answer.get("error"):
                problem = f"{answer['error']}: {answer['message']}"
                left = [i for i in left if not self._run_variants(
                    [paths[i]["object"]], threads, turn, number, FEWEST_TURNS).get("error")]
                answer = {} if not left else self._run_variants(
                    [paths[i]["object"] for i in left], threads, turn, number)
            if not left or answer.get("error"):
                break
            for i, times, whole in zip(left, answer["kernels"], answer["runs"], strict=True):
                runs[i] += tuple(whole)
                for key, seconds in times.items():
                    kernels[i][key] = kernels[i].get(key, ()) + tuple(seconds)
            watch(turn + 1, PROCESSES)
        for i in set(range(len(variants))) - set(left):
            kernels[i], runs[i] = {}, ()
        return InPlace(tuple(kernels), tuple(runs), problem)

    def _run_variants(self, paths: Sequence[str], threads: int, turn: int, number: int,
                      turns: int = TURNS) -> dict[str, Any]:
        return self._runner.request({
            "do": "run variants", "variants": list(paths), "threads": threads, "turns": turns,
            "first": turn, "plain": number > 1, "most_seconds": IN_PLACE_SECONDS,
            "timeout_seconds": 4 * IN_PLACE_SECONDS * threads,
            "memory_bytes": self.options.memory_bytes * max(1, len(paths))})

    def _variants(self, network: Network, variants: Sequence[Variant]) -> list[dict[str, Any]]:
        """The answers of builders for variants, side by side; equal ones are built once."""
        place = self.folder / hashlib.sha256(network.name.encode()).hexdigest()[:16]
        module = place / "module.pickle"
        if not module.exists():
            place.mkdir(exist_ok=True)
            write_network(network.module, network.target, module)

        def build(variant: Variant) -> dict[str, Any]:
            text = repr(sorted(variant.items()))
            path = place / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.program"
            if path.exists():
                return {"object": str(path)}
            schedules = path.with_suffix(".schedules")
            schedules.write_bytes(pickle.dumps(dict(variant)))
            return self._ask_builder({
                "do": "build variant", "network": str(module), "schedules": str(schedules),
                "object": str(path), "memory_bytes": self.options.memory_bytes,
                "timeout_seconds": len(network.tasks) * self.options.build_timeout_seconds})

        with ThreadPoolExecutor(len(self._builders)) as pool:
            return list(pool.map(build, variants))

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
        text = print_func(candidate.func)
        ahead = self._ahead.pop((str(task.target), text), None)
        if ahead is None:
            return self._ask_builder(self._building(task, text, path))
        if ahead.get("error"):
            return ahead
        return {**ahead, "object": str(Path(ahead["object"]).rename(path))}

    def _building(self, task: Task, text: str, path: Path) -> dict[str, Any]:
        return {"do": "build", "text": text, "target": str(task.target), "object": str(path),
                "timeout_seconds": self.options.build_timeout_seconds,
                "memory_bytes": self.options.memory_bytes}

    def _ask_builder(self, request: dict[str, Any]) -> dict[str, Any]:
        builder = self._idle.get()
        try:
            return builder.request(request)
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
