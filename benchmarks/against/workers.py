"""Processes that each run one engine, on command, and otherwise sleep.

    worker = Worker("onnxruntime", threads=2)
    worker.load("model.onnx", "inputs.npz")    what it took
    worker.round(calls=5)                      the seconds of each call
    worker.close()

An engine's threads spin for a while after each run, hoping for the next. In a process of its own,
told to run and then left alone until the others had their turn, it takes no core from them.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from minitvm.bench import load_engine
from minitvm.peak import peak_loop, read_loop
from minitvm.target import Target

PEAK = "peak"
"""The engine that only computes: fused multiply-adds on vectors, on one core."""


class WorkerError(Exception):
    """What an engine could not do."""


class Worker:
    """A process with an engine."""

    def __init__(self, engine: str, threads: int = 1) -> None:
        self.engine = engine
        self.name = engine
        command = [sys.executable, "-m", "against.workers", engine, str(threads)]
        own = [str(Path(__file__).parents[level]) for level in (1, 2)]
        path = os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env={**os.environ,
                                                                     "PYTHONPATH": path})

    def ask(self, **command: Any) -> Any:
        """Sends a command and waits for its answer; raises `WorkerError`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(f"the process of {self.engine} ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["result"]

    def load(self, source: str, inputs: str) -> dict[str, float]:
        """Loads a model (a library, for minitvm) and runs it once, on arrays from a file."""
        facts: dict[str, Any] = self.ask(do="load", source=source, inputs=inputs)
        self.name = facts.pop("name")
        return facts

    def round(self, calls: int) -> list[float]:
        """The seconds of each of so many calls, after one that is not counted."""
        seconds: list[float] = self.ask(do="round", calls=calls)
        return seconds

    def outputs(self, path: str) -> list[np.ndarray]:
        """What the model gives, by way of a file."""
        self.ask(do="outputs", path=path)
        with np.load(path) as file:
            return [file[f"arr_{index}"] for index in range(len(file.files))]

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


# --- in the process -----------------------------------------------------------------------------


class Peak:
    """The machine: what it computes, and reads, at this moment."""

    def __init__(self) -> None:
        self.loop, self.memory = peak_loop(Target.host()), read_loop(Target.host())

    def gflops(self) -> float:
        """10^9 operations per second of one core."""
        return self.loop.gflops()

    def gigabytes(self, size: int) -> float:
        """10^9 bytes per second of one core, from as many bytes over and over."""
        return self.memory.gigabytes(size)


class Session:
    """An engine with the model that it was last given."""

    def __init__(self, engine: str, threads: int) -> None:
        self.engine, self.threads = engine, threads
        importlib.import_module(engine)  # so that it does not count as memory of the model
        self.run: Callable[[], list[np.ndarray]] | None = None

    def load(self, source: str, inputs: str) -> dict[str, Any]:
        with np.load(inputs) as file:
            given = {name: file[name] for name in file.files}
        self.run = None
        before = resident_bytes()
        engine = load_engine(self.engine, source, given, self.threads)
        self.run = engine.run
        start = time.perf_counter()
        self.run()
        return {"name": engine.name, "load_seconds": engine.load_seconds,
                "first_seconds": time.perf_counter() - start,
                "memory_bytes": max(resident_bytes() - before, 0),
                "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}

    def round(self, calls: int) -> list[float]:
        assert self.run is not None
        self.run()
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            self.run()
            seconds.append(time.perf_counter() - start)
        return seconds

    def outputs(self, path: str) -> None:
        assert self.run is not None
        np.savez(path, *self.run())


def resident_bytes() -> int:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def serve(subject: object, commands: TextIO, answers: TextIO) -> None:
    """Does what each line says: the method `do` of the subject, with the rest as arguments."""
    for line in commands:
        command = json.loads(line)
        try:
            answer = {"result": getattr(subject, command.pop("do"))(**command)}
        except Exception as error:  # of what kind it is depends on the engine
            text = next(iter(str(error).splitlines()), "")
            answer = {"error": text or type(error).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main(engine: str, threads: str) -> None:
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what an engine prints is no answer
        subject = Peak() if engine == PEAK else Session(engine, int(threads))
        serve(subject, sys.stdin, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
