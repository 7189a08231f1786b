"""Rounds of engines in turn -> figures: percentiles, ratios, shares of the machine's peak."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm.bench.engines import OURS, TUNED
from minitvm.bench.workers import Worker
from minitvm.runtime.timing import BenchmarkResult

ROUNDS = 30
PAUSE_SECONDS = 0.01
"""Between engines: long enough for the threads of the one before to fall asleep."""
MOST_CALLS = 2000


@dataclass(frozen=True, slots=True)
class Measured:
    """The seconds of each call, `times[engine][round]`, and the peak of each round."""

    times: Mapping[str, list[list[float]]]
    peaks: list[float]


def calls_for(workers: Sequence[Worker], seconds: float) -> dict[str, int]:
    """How many calls of each engine take about so long."""
    found = {}
    for worker in workers:
        once = min(worker.round(3))
        found[worker.engine] = min(max(math.ceil(seconds / max(once, 1e-9)), 1), MOST_CALLS)
    return found


def measure(workers: Sequence[Worker], peak: Worker, calls: Mapping[str, int], rounds: int,
            moved: Callable[[int], None]) -> Measured:
    """Each round all engines, in an order that goes round, and then the peak; one at a time."""
    times: dict[str, list[list[float]]] = {worker.engine: [] for worker in workers}
    peaks = []
    for index in range(rounds):
        moved(index)
        first = index % len(workers)
        for worker in (*workers[first:], *workers[:first]):
            times[worker.engine].append(worker.round(calls[worker.engine]))
            time.sleep(PAUSE_SECONDS)
        peaks.append(peak.gflops())
    return Measured(times, peaks)


def summary(found: Measured, flops: float, threads: int) -> dict[str, Any]:
    """The peak, and the figures of each engine, with minitvm's time as a share of its; and that of
    tuned minitvm, where it was measured."""
    peak = float(np.median(found.peaks))
    every = {name: BenchmarkResult(tuple(second for row in rows for second in row))
             for name, rows in found.times.items()}
    engines = {}
    for name, result in every.items():
        engines[name] = {
            "milliseconds": result.milliseconds(),
            "ratio": _ratio(found, every, OURS, name),
            "gflops": flops / result.minimum / 1e9,
            "share_of_peak": flops / result.minimum / 1e9 / peak / threads,
        }
        if TUNED in every:
            engines[name]["tuned_ratio"] = _ratio(found, every, TUNED, name)
    return {"peak_gflops": peak, "round_peaks": found.peaks, "engines": engines}


def _ratio(found: Measured, every: Mapping[str, BenchmarkResult], mine: str,
           other: str) -> dict[str, Any]:
    """The time of one engine by that of another: the median of the rounds' ratios, and others."""
    pairs = zip(found.times[mine], found.times[other], strict=True)
    ratios = [float(np.median(ours) / np.median(theirs)) for ours, theirs in pairs]
    return {"by_round": float(np.median(ratios)), "p50": every[mine].p50 / every[other].p50,
            "min": every[mine].minimum / every[other].minimum,
            "quartiles": [float(np.quantile(ratios, q)) for q in (0.25, 0.75)]}
