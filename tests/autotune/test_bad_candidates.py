"""Tuning among candidates that are bad in every way: each costs itself alone, the best is found.

    python tests/autotune/test_bad_candidates.py 100        with so many of them
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace

from test_measure import BAD, HERE, OPTIONS, N, candidate, each, right
from tiny_tasks import scaled

from minitvm.autotune import lowering
from minitvm.autotune.contest import winner
from minitvm.autotune.measure.measurer import LocalMeasurer
from minitvm.autotune.space import Space
from minitvm.autotune.task import Candidate, Task
from minitvm.autotune.tune import Memory, TuneOptions, tune_tasks
from minitvm.errors import LoweringError
from minitvm.te.recipes.knobs import Knob
from minitvm.te.steps import Split
from minitvm.tir import ir

GOOD = (40, 20, 1, 30, 10)
"""How much good ones have to do: the third is the fastest, the first the default."""
KINDS = (*BAD, "hang in lowering", "crash in lowering", "refused")


def after_work(times):
    """The right computation, after a chain of so many operations that matter to nobody."""
    def make(a, b):
        zero = (ir.Const(0),)
        step = ir.Store(b, zero, ir.Load(b, zero) * 0.5 + ir.Load(a, zero), HERE)
        return ir.seq(each(times * 1000, lambda _: step), right(a, b))

    return make


@dataclass(frozen=True)
class Planted(Task):
    """`numbers` of candidates: good ones, then bad ones of all kinds in turn."""

    bad: int = 0

    @property
    def space(self):
        numbers = tuple(range(len(GOOD) + self.bad))
        return Space((Knob("number", 0, numbers, False),))

    @property
    def default(self):
        return self.candidate(0)

    def candidate(self, number):
        if number < len(GOOD):
            made = candidate(after_work(GOOD[number]))
        else:
            kind = KINDS[(number - len(GOOD)) % len(KINDS)]
            if kind == "refused":
                raise LoweringError("planted")
            while kind == "hang in lowering":
                time.sleep(0.01)
            if kind == "crash in lowering":
                os.abort()
            made = candidate(BAD[kind][0])
        config = {"number": number} if number else {}
        return Candidate(config, (Split("b", "i", number + 1),), made.func)


def check(count, tuner="random"):
    """Tunes among so many bad candidates; how often each kind of failure was recorded."""
    plain = scaled(N)
    task = Planted(plain.key, "planted", plain.workload, plain.target, plain.instantiate,
                   plain.reference, bad=count)
    memory = Memory()
    options = TuneOptions(tuner=tuner, batch=8, early_stopping=10**6)
    limits = replace(OPTIONS, run_timeout_seconds=2, build_timeout_seconds=60)
    with LocalMeasurer(limits) as measurer:
        report = tune_tasks([task], measurer, memory, options)
    met = Counter(record.error for record in memory.records if not record.contest)
    planted = Counter(KINDS[number % len(KINDS)] for number in range(count))
    expected = Counter()
    for kind, (_, error) in BAD.items():
        expected[error] += planted[kind]
    assert met == expected + Counter({"": len(GOOD)}), (met, expected)
    assert report.trials == len(GOOD) + sum(expected.values())
    assert winner(memory.records).config == {"number": GOOD.index(1)}
    assert report.after_seconds < 0.5 * report.before_seconds
    return met


def test_each_bad_candidate_costs_itself_alone(monkeypatch):
    monkeypatch.setattr(lowering, "LOWERING_SECONDS", 0.2)
    assert sum(check(len(KINDS)).values()) == len(GOOD) + len(BAD)


if __name__ == "__main__":
    lowering.LOWERING_SECONDS = 0.5
    print(dict(check(int(sys.argv[1]))))
