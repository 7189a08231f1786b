"""The process that builds or runs candidates, started by `process.WorkerProcess`.

It reads a request of JSON on each line of its standard input, and answers on a line of its standard
output. It loads all that is needed once; each request is then carried out in a child (`isolate`).
It ends with its input, and where whoever started it is gone.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

from minitvm.autotune.measure.isolate import isolate
from minitvm.autotune.measure.kernel import Prepared, Timing, build, prepare, run
from minitvm.autotune.measure.network import build_variant, time_variants
from minitvm.codegen.jit import build_kernel
from minitvm.origin import origin
from minitvm.target import Target
from minitvm.tir import ir

OWNER = 0
"""Standard input: closed at the other end when whoever started this is gone."""


class Worker:
    """Answers requests; keeps the arrays of the last task."""

    def __init__(self) -> None:
        self.prepared: Prepared | None = None
        self.arrays = ""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Builds or runs a candidate, or variants of a network, in a child."""
        timeout, memory = request["timeout_seconds"], request["memory_bytes"]
        if request["do"] == "build":
            target, path = Target(request["target"]), Path(request["object"])
            return isolate(lambda: build(request["text"], target, path), timeout, memory, "build",
                           OWNER)
        if request["do"] == "build variant":
            with Path(request["schedules"]).open("rb") as stream:
                schedules = pickle.load(stream)
            network, path = Path(request["network"]), Path(request["object"])
            return isolate(lambda: build_variant(network, schedules, path), timeout, memory,
                           "build", OWNER)
        if request["do"] == "run variants":
            paths = [Path(path) for path in request["variants"]]
            return isolate(lambda: time_variants(
                paths, request["threads"], request["turns"], request["first"], request["plain"],
                request["most_seconds"]), timeout, memory, "run", OWNER)
        if self.prepared is None or self.arrays != request["arrays"]:
            self.prepared, self.arrays = prepare(request), request["arrays"]
        prepared = self.prepared
        timing = Timing(**request["timing"])
        return isolate(lambda: run(request["objects"], prepared, timing, request.get("results")),
                       timeout, memory, "run", OWNER)


def warm_up() -> None:
    """Loads LLVM and the thread pool's code, which every child then has."""
    data = ir.buffer("data", (1,))
    store = ir.Store(data, (ir.Const(0),), ir.Const(0.0, "float32"), origin("warm_up"))
    build_kernel(ir.PrimFunc("warm_up", (data,), store))


def main() -> None:
    """Answers until there are no more requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what code prints is no answer
    warm_up()
    worker = Worker()
    answers.write("ready\n")
    for line in sys.stdin:
        answers.write(json.dumps(worker.answer(json.loads(line))) + "\n")
