"""A schedule that is accepted computes the same values, in bounds, and so does each prefix.

For long runs: `python -m minitvm.testing.fuzz te --cases 10000 --seed 0`.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import te
from minitvm.errors import ScheduleError
from minitvm.te import steps
from minitvm.te.schedule import Schedule
from minitvm.testing import fuzz, fuzz_te, te_steps
from minitvm.testing.te_machine import run_interpreter
from minitvm.testing.te_oracle import evaluate, random_inputs
from minitvm.testing.te_strategies import programs, schedules
from minitvm.tir import passes
from minitvm.tir.interpret import run
from minitvm.tir.text import print_func
from minitvm.tir.verify import verify


@given(programs(), st.integers(0, 2**16), st.data())
def test_accepted_schedules_compute_the_same(program, seed, data):
    schedule = data.draw(schedules(program))
    assert not fuzz_te.difference(schedule, program, seed, machine=False), schedule


@given(programs(3), st.integers(0, 2**16), st.data())
def test_the_passes_of_tir_keep_what_is_lowered(program, seed, data):
    schedule = data.draw(schedules(program))
    inputs = random_inputs(program, seed)
    expected = evaluate(program, inputs)
    func = te.lower(schedule, program.args)
    machine = passes.lower(func)
    verify(machine, "machine")
    outputs = [np.zeros(tensor.extents(), tensor.dtype) for tensor in program.outputs]
    run(machine, [array.reshape(-1) for array in (*inputs, *outputs)])
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"{schedule}\n{print_func(func)}")


@given(programs(3), st.integers(0, 2**16), st.data())
def test_every_prefix_lowers_and_computes_the_same(program, seed, data):
    schedule = data.draw(schedules(program, most_steps=6))
    inputs = random_inputs(program, seed)
    expected = evaluate(program, inputs)
    for count in range(len(schedule.steps)):
        prefix = schedule.prefix(count)
        for got, want in zip(run_interpreter(prefix, program, inputs), expected, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=str(prefix))


@given(programs(), st.data())
def test_steps_replay_from_json_and_from_the_log(program, data):
    schedule = data.draw(schedules(program))
    stored = json.loads(json.dumps(steps.steps_to_json(schedule.steps)))
    for taken in (steps.steps_from_json(stored), Schedule.parse_log(str(schedule))):
        assert taken == schedule.steps
        again = Schedule.replay(program.outputs, taken)
        assert again.show() == schedule.show()
        assert print_func(te.lower(again, program.args)) == \
            print_func(te.lower(schedule, program.args))


def test_long_schedules_by_seed_with_a_sample_compiled(capsys):
    outcome = fuzz_te.fuzz(40, seed=5_000)
    assert not outcome.failures
    with capsys.disabled():
        print(f" {outcome.accepted_share:.0%} of {outcome.attempts.accepted} steps accepted ",
              end="")
    assert outcome.accepted_share >= 0.4
    assert outcome.attempts.accepted > 300


def test_the_command_reports_what_fails(capsys, monkeypatch):
    assert fuzz.main(["te", "--cases", "3", "--seed", "5"]) == 0
    assert "3 schedules, 0 failed" in capsys.readouterr().out
    monkeypatch.setattr(te_steps, "_PRIMITIVES", (lambda draw, schedule, stage: 1 // 0,))
    assert fuzz.main(["te", "--cases", "2", "--seed", "7"]) == 1
    out = capsys.readouterr().out
    assert "seed 7: ZeroDivisionError" in out and "2 schedules, 2 failed" in out
    assert fuzz.main(["nothing"]) == 2


def test_refusals_without_choices_are_findings(monkeypatch):
    def refuse(draw, schedule, stage):
        raise ScheduleError("no")

    monkeypatch.setattr(te_steps, "_PRIMITIVES", (refuse,))
    (failure,) = fuzz_te.fuzz(1, seed=1).failures
    assert "must name the legal choices" in failure.reason


@pytest.mark.parametrize("seed", range(4))
def test_wrong_results_are_findings(seed, monkeypatch):
    honest = fuzz_te.evaluate
    monkeypatch.setattr(fuzz_te, "evaluate",
                        lambda *arguments: [array + 1 for array in honest(*arguments)])
    (failure,) = fuzz_te.fuzz(1, seed).failures
    assert "run_interpreter: output 0 is" in failure.reason
