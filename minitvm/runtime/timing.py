"""How long a call takes: `measure(call, number, repeat)` gives a `BenchmarkResult`, in seconds.

Each of `repeat` results is the mean over `number` calls in a row, after one call that is not
counted: caches are warm and pages are mapped.
"""

from __future__ import annotations

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
