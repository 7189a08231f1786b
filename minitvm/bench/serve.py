"""What the process of an engine does: a line of JSON says what, a line of JSON is the answer."""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from minitvm.bench.engines import PEERS, load_engine
from minitvm.bench.workers import PEAK, load_arrays
from minitvm.peak import peak_loop, read_loop
from minitvm.target import Target


class Peak:
    """The machine: what it computes, and reads, at this moment, by code for a target."""

    def __init__(self, target: str = "llvm") -> None:
        self.loop, self.memory = peak_loop(Target(target)), read_loop(Target(target))

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
        for package in PEERS[engine].packages if engine in PEERS else ():
            importlib.import_module(package)  # so that it does not count as memory of the model
        self.run: Callable[[], list[np.ndarray]] | None = None

    def load(self, source: str, inputs: str, names: Sequence[str]) -> dict[str, Any]:
        given = dict(zip(names, load_arrays(inputs), strict=True))
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


def serve(make: Callable[[], object], commands: TextIO, answers: TextIO) -> None:
    """Does what each line says: the method `do` of the subject, which is made for the first, with
    the rest as arguments."""
    subject = None
    for line in commands:
        command = json.loads(line)
        try:
            subject = make() if subject is None else subject
            answer = {"result": getattr(subject, command.pop("do"))(**command)}
        except Exception as error:  # of what kind it is depends on the engine
            text = next(iter(str(error).splitlines()), "")
            answer = {"error": text or type(error).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main(engine: str, threads: str, target: str) -> None:
    """Answers on standard output; what an engine prints there goes to standard error. Who asks
    decides when to stop: an interrupt from the keyboard is for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(lambda: Peak(target) if engine == PEAK else Session(engine, int(threads)), sys.stdin,
              answers)
