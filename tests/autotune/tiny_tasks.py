"""Small tasks, and times for their candidates that no clock tells."""

from __future__ import annotations

import hashlib

import numpy as np

from minitvm import te
from minitvm.autotune.measure.measurer import Outcome
from minitvm.autotune.task import Arguments, Task, example_arrays
from minitvm.target import Target
from minitvm.te.recipes.knobs import decide

HOST = Target.host()


def scaled(n=96, knobs=True, name="scaled"):
    """2 * a + 1, with a split that leaves rests and two ways to run its loops."""

    def instantiate():
        a = te.placeholder((n,), "float32", name="a")
        b = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="b")
        s = te.create_schedule([b])
        if knobs:
            factor = decide("factor", 1, range(1, 25))
            _, inner = s[b].split(b.op.axis[0], factor=factor)
            if decide("inner", "serial", ("serial", "unrolled", "vectorized")) != "serial":
                kind = decide("inner", "serial", ("serial", "unrolled", "vectorized"))
                (s[b].unroll if kind == "unrolled" else s[b].vectorize)(inner)
        return s, [a, b]

    def reference(params):
        (a,) = example_arrays(params[:1])
        return Arguments((a,), (a * np.float32(2) + np.float32(1),))

    return Task(hashlib.sha256(f"{name} {n}".encode()).hexdigest(), name,
                {"name": name, "operators": ["scale()"], "parameters": [f"float32[{n}]"]}, HOST,
                instantiate, reference, 2)


def invented_seconds(candidate):
    """Falls towards a factor of 16, vectorized; the same for the same schedule."""
    factor = candidate.config.get("factor", 1)
    kind = candidate.config.get("inner", "serial")
    base = 1e-6 * (2 + abs(factor - 16) + {"serial": 4, "unrolled": 2, "vectorized": 0}[kind])
    return (round(base, 10), round(base * 1.05, 10), round(base * 1.2, 10))


class Invented:
    """A measurer without a clock; counts what it is asked."""

    def __init__(self, seconds=invented_seconds):
        self.seconds = seconds
        self.asked = 0

    def build_ahead(self, candidates):
        """Nothing is built."""

    def outcome(self, candidate):
        found = self.seconds(candidate)
        return found if isinstance(found, Outcome) else Outcome(found)

    def measure(self, task, candidates, best_seconds):
        self.asked += len(candidates)
        return [self.outcome(candidate) for candidate in candidates]

    def contest(self, task, candidates, number):
        return self.measure(task, candidates, 0.0)
