"""How long a call takes: `measure(call, number, repeat)` gives a `BenchmarkResult`, in seconds.

Each of `repeat` results is the mean over `number` calls in a row, after one call that is not
counted: caches are warm and pages are mapped. `measure_runs` times every call by itself, for so
many calls or so many seconds, which is what percentiles are made of.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minitvm.errors import OptionError


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Seconds a call, one for each repetition."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean, in seconds."""
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        """The least, in seconds."""
        return float(np.min(self.results))

    @property
    def minimum(self) -> float:
        """The least, in seconds."""
        return self.min

    @property
    def p50(self) -> float:
        """The median, in seconds."""
        return self.median

    @property
    def p99(self) -> float:
        """What 99 of 100 results don't exceed, in seconds; the greatest of fewer than 100."""
        return self.percentile(99)

    @property
    def runs(self) -> int:
        """How many results there are."""
        return len(self.results)

    def percentile(self, percent: float) -> float:
        """The least result that so many percent of all don't exceed, in seconds."""
        rank = math.ceil(percent / 100 * self.runs)
        return sorted(self.results)[max(rank - 1, 0)]

    def milliseconds(self) -> dict[str, float]:
        """The figures by name, for a report."""
        return {"p50": 1e3 * self.p50, "p99": 1e3 * self.p99, "min": 1e3 * self.minimum,
                "mean": 1e3 * self.mean, "max": 1e3 * self.max, "runs": self.runs}

    @property
    def max(self) -> float:
        """The greatest, in seconds."""
        return float(np.max(self.results))

    @property
    def std(self) -> float:
        """The standard deviation, in seconds."""
        return float(np.std(self.results))

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        head = "".join(f"{name + ' (ms)':>14}" for name in names)
        row = "".join(f"{1e3 * getattr(self, name):>14.4f}" for name in names)
        return f"Execution time summary:\n{head}\n{row}"


def measure(
    call: Callable[[], object], number: int = 10, repeat: int = 1, min_repeat_ms: float = 0
) -> BenchmarkResult:
    """Times a call. `number` grows until a repetition takes at least `min_repeat_ms`."""
    for name, count in (("number", number), ("repeat", repeat)):
        if count < 1:
            raise OptionError(f"{name} is {count}; a call is timed at least once: give 1 or more")
    call()
    results: list[float] = []
    while len(results) < repeat:
        start = time.perf_counter()
        for _ in range(number):
            call()
        seconds = time.perf_counter() - start
        if 1e3 * seconds < min_repeat_ms:
            number = max(2 * number, round(number * min_repeat_ms / max(1e3 * seconds, 1e-3)))
            number = min(number, 1_000_000_000)
        else:
            results.append(seconds / number)
    return BenchmarkResult(tuple(results))


WARM_UP = 3
"""Calls that are not counted."""
SECONDS = 1.0
"""How long `measure_runs` goes on unless it is told."""


def measure_runs(call: Callable[[], object], repeat: int | None = None,
                 seconds: float | None = None) -> BenchmarkResult:
    """Times each call by itself, after `WARM_UP` calls that are not counted.

    It ends after `repeat` calls, or when `seconds` have passed, whichever comes first; without
    either, after a second. It calls once at least. Raises `OptionError` for less than that.
    """
    if repeat is not None and repeat < 1:
        raise OptionError(f"repeat is {repeat}; a model is timed at least once: give 1 or more")
    if seconds is not None and not seconds > 0:
        raise OptionError(f"seconds is {seconds}; give more than 0")
    if repeat is None and seconds is None:
        seconds = SECONDS
    for _ in range(WARM_UP):
        call()
    results: list[float] = []
    clock = time.perf_counter
    end = float("inf") if seconds is None else clock() + seconds
    now = clock()
    while not results or ((repeat is None or len(results) < repeat) and now < end):
        start = clock()
        call()
        now = clock()
        results.append(now - start)
    return BenchmarkResult(tuple(results))
