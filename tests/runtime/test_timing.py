"""What is timed, how often, and what the figures mean."""

import time

import numpy as np
import pytest
from toy import toy_input, toy_program

from minitvm.codegen.jit import load_program
from minitvm.errors import InputError, OptionError
from minitvm.runtime.timing import WARM_UP, BenchmarkResult, measure_runs


@pytest.fixture(scope="module")
def module():
    return load_program(toy_program())


def test_figures_are_those_of_numpy():
    seconds = np.random.default_rng(0).permutation(np.arange(1, 201)) / 1e3
    result = BenchmarkResult(tuple(seconds))
    assert (result.minimum, result.max, result.runs) == (0.001, 0.2, 200)
    assert result.p50 == result.median == pytest.approx(0.1005)
    assert result.p99 == 0.198 and result.mean == pytest.approx(0.1005)
    assert result.milliseconds() == pytest.approx(
        {"p50": 100.5, "p99": 198, "min": 1, "mean": 100.5, "max": 200, "runs": 200})
    assert BenchmarkResult((3.0, 1.0, 2.0)).p99 == 3.0


def test_every_call_is_timed_after_a_warm_up():
    calls = []

    def call():
        calls.append(len(calls))
        time.sleep(0.02 if len(calls) <= WARM_UP else 0.002)

    result = measure_runs(call, repeat=5)
    assert len(calls) == WARM_UP + 5 and result.runs == 5
    assert 0.002 <= result.minimum <= result.p50 <= result.p99 <= result.max
    assert result.p50 < 0.02


def test_time_ends_it_too():
    start = time.perf_counter()
    result = measure_runs(lambda: time.sleep(0.001), repeat=10**9, seconds=0.05)
    assert 1 < result.runs <= 50 and time.perf_counter() - start < 1
    assert measure_runs(lambda: time.sleep(0.002), seconds=1e-9).runs == 1


@pytest.mark.parametrize("options, message", [
    ({"repeat": 0}, "repeat is 0; .* at least once"), ({"seconds": 0}, "seconds is 0; give more"),
    ({"seconds": float("nan")}, "seconds is nan"),
])
def test_unfit_options_are_refused(module, options, message):
    with pytest.raises(OptionError, match=message):
        module.benchmark(**options)


def test_a_model_is_timed_on_given_or_random_inputs(module):
    assert module.benchmark(repeat=7).runs == 7
    assert module.benchmark({"x": toy_input()}, repeat=3).runs == 3
    with pytest.raises(InputError, match="no input 'y'"):
        module.benchmark({"y": toy_input()})
