"""Processes that lower candidates: right ones in order, and bad ones cost themselves alone."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import numpy as np
import pytest
from tiny_tasks import scaled

from minitvm.autotune import lowering
from minitvm.autotune.candidates import Candidates
from minitvm.autotune.features import extract_features
from minitvm.autotune.lowering import LoweringPool
from minitvm.autotune.task import Task
from minitvm.tir.text import print_func


@dataclass(frozen=True)
class Bad(Task):
    """Point 3 hangs where no Python sees a signal's handler, 5 dies, 7 ends, 9 is a bug."""

    def candidate(self, number):
        if number == 3:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            time.sleep(600)
        if number == 5:
            os.kill(os.getpid(), signal.SIGSEGV)
        if number == 7:
            os._exit(3)
        if number == 9:
            raise KeyError("what is it")
        return super().candidate(number)


def bad():
    task = scaled()
    return Bad(task.key, task.name, task.workload, task.target, task.instantiate, task.reference)


@pytest.mark.parametrize("processes", [1, 3])
def test_candidates_are_those_that_are_made_here(processes):
    tasks = [scaled(96), scaled(64)]
    numbers = [5, 70, 5, 0, 33, 12]
    with LoweringPool(tasks, processes) as pool:
        for place, task in enumerate(tasks):
            for number, lowered in zip(numbers, pool.lower(place, numbers), strict=True):
                here = task.candidate(number)
                assert lowered.steps == here.steps and lowered.candidate.config == here.config
                assert print_func(lowered.candidate.func) == print_func(here.func)
                code = extract_features(here.func, task.target)
                choices = task.space.coordinates(number, here.config)
                assert np.array_equal(lowered.features, [*code, *np.float32(choices)])


@pytest.mark.parametrize("processes", [1, 2])
def test_what_hangs_or_crashes_is_refused_and_the_others_are_made(processes, monkeypatch):
    monkeypatch.setattr(lowering, "LOWERING_SECONDS", 0.5)
    task = bad()
    with LoweringPool([task], processes) as pool:
        candidates = Candidates(task, pool)
        candidates.prepare(range(12))
        assert candidates.refused == {
            3: "it was not lowered within 0.5 s", 5: "lowering it ended its process: SIGSEGV",
            7: "lowering it ended its process: status 3", 9: "KeyError: 'what is it'"}
        for number in range(12):
            assert (candidates.get(number) is None) == (number in candidates.refused)
            assert (candidates.features(number) is None) == (number in candidates.refused)


def test_no_process_is_left(monkeypatch):
    with LoweringPool([scaled()], 2) as pool:
        pool.lower(0, [1, 2, 3])
        pids = [process._pid for process in pool._processes]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_alarm_of_this_process_is_its_own():
    """Whoever tunes may wait for one meanwhile."""
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with LoweringPool([scaled()], 1) as pool:
            end = time.monotonic() + 30
            while not rung and time.monotonic() < end:
                pool.lower(0, range(8))
        assert rung and signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
