"""Processes that each run one engine, on command, and otherwise sleep.

    with Workers() as workers:
        worker = workers.start("onnxruntime", threads=2)
        worker.load("model.onnx", "inputs.npz", ["picture"])    what it took
        worker.round(calls=5)                                   the seconds of each call

An engine's threads spin for a while after each run, hoping for the next. In a process of its own,
told to run and then left alone until the others had their turn, it takes no core from them; and how
many threads it may use is said there, to it alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from minitvm.errors import RunError

PEAK = "peak"
"""The engine that only computes: fused multiply-adds on vectors, on one core."""
_START = ("import json, sys\nsys.path[:] = json.loads(sys.argv[1])\n"
          "from minitvm.bench.serve import main\nmain(*sys.argv[2:])")


class WorkerError(RunError):
    """What an engine could not do."""


class Worker:
    """A process with an engine. `target` is the machine that `PEAK` computes for; by default, this
    one."""

    def __init__(self, engine: str, threads: int = 1, target: str = "llvm") -> None:
        self.engine = engine
        self.name = engine
        command = [sys.executable, "-c", _START, json.dumps(sys.path), engine, str(threads), target]
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, **command: Any) -> Any:
        """Sends a command and waits for its answer; raises `WorkerError`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = ""
        if not line:
            raise WorkerError(f"the process of {self.engine} ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["result"]

    def load(self, source: str, inputs: str, names: Sequence[str]) -> dict[str, Any]:
        """Loads a model (a library, for minitvm) and runs it once, on arrays from a file by
        `save_arrays`."""
        facts: dict[str, Any] = self.ask(do="load", source=source, inputs=inputs, names=list(names))
        self.name = facts.pop("name")
        return facts

    def round(self, calls: int) -> list[float]:
        """The seconds of each of so many calls, after one that is not counted."""
        seconds: list[float] = self.ask(do="round", calls=calls)
        return seconds

    def gflops(self) -> float:
        """What one core computes at this moment, of `PEAK`."""
        return float(self.ask(do="gflops"))

    def outputs(self, path: str) -> list[np.ndarray]:
        """What the model gives, by way of a file."""
        self.ask(do="outputs", path=path)
        return load_arrays(path)

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Workers:
    """Workers that end with a block."""

    def __init__(self) -> None:
        self.started: list[Worker] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:  # nobody waits for what they are at
            for worker in self.started:
                worker.process.kill()
        self.close(self.started)

    def start(self, engine: str, threads: int = 1, target: str = "llvm") -> Worker:
        """A new one."""
        worker = Worker(engine, threads, target)
        self.started.append(worker)
        return worker

    def close(self, workers: Sequence[Worker]) -> None:
        """Ends some of them."""
        for worker in list(workers):
            self.started.remove(worker)
            worker.close()


def load_all(workers: Sequence[Worker], sources: Mapping[str, Path], model: Path, inputs: Path,
             names: Sequence[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What loading took, by engine, and what failed, why: each reads its file of `sources`, or the
    model."""
    facts, failed = {}, {}
    for worker in workers:
        source = sources.get(worker.engine, model)
        try:
            facts[worker.engine] = worker.load(str(source), str(inputs), names)
        except WorkerError as error:
            failed[worker.engine] = str(error)
    return facts, failed


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Writes arrays to a file, without their names, which it gives."""
    np.savez(path, *arrays.values())
    return list(arrays)


def load_arrays(path: str) -> list[np.ndarray]:
    """What `numpy.savez` wrote of arrays without names."""
    with np.load(path) as file:
        return [file[f"arr_{index}"] for index in range(len(file.files))]
