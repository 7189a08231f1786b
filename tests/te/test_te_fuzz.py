"""A schedule that is accepted computes the same values, in bounds, and so does each prefix."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minitvm import te
from minitvm.te import steps
from minitvm.te.schedule import Schedule
from minitvm.testing.te_oracle import evaluate, random_inputs
from minitvm.testing.te_strategies import programs, random_schedule
from minitvm.tir import passes
from minitvm.tir.interpret import run
from minitvm.tir.text import print_func
from minitvm.tir.verify import verify


def outputs_of(schedule, program, inputs):
    func = te.lower(schedule, program.args)
    verify(func, "nested")
    outputs = [np.full(tensor.extents(), np.nan, tensor.dtype) for tensor in program.outputs]
    try:
        run(func, [*inputs, *outputs])
    except Exception as error:
        error.add_note(print_func(func))
        raise
    return func, outputs


@given(programs(), st.integers(0, 2**16), st.data())
def test_accepted_schedules_compute_the_same(program, seed, data):
    schedule = random_schedule(data.draw, program)
    inputs = random_inputs(program, seed)
    expected = evaluate(program, inputs)
    func, outputs = outputs_of(schedule, program, inputs)
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"{schedule.steps}\n{print_func(func)}")


@given(programs(3), st.integers(0, 2**16), st.data())
def test_the_passes_of_tir_keep_what_is_lowered(program, seed, data):
    schedule = random_schedule(data.draw, program)
    inputs = random_inputs(program, seed)
    expected = evaluate(program, inputs)
    func = te.lower(schedule, program.args)
    machine = passes.lower(func)
    verify(machine, "machine")
    outputs = [np.zeros(tensor.extents(), tensor.dtype) for tensor in program.outputs]
    run(machine, [array.reshape(-1) for array in (*inputs, *outputs)])
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"{schedule.steps}\n{print_func(func)}")


@given(programs(3), st.integers(0, 2**16), st.data())
def test_every_prefix_lowers_and_computes_the_same(program, seed, data):
    schedule = random_schedule(data.draw, program, most_steps=6)
    inputs = random_inputs(program, seed)
    expected = evaluate(program, inputs)
    for count in range(len(schedule.steps)):
        prefix = schedule.prefix(count)
        _, outputs = outputs_of(prefix, program, inputs)
        for got, want in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{prefix.steps}")


@given(programs(), st.data())
def test_steps_replay_from_json(program, data):
    schedule = random_schedule(data.draw, program)
    stored = json.dumps([steps.to_json(step) for step in schedule.steps])
    again = Schedule.replay(program.outputs, [steps.from_json(item) for item in json.loads(stored)])
    assert again.steps == schedule.steps
    assert again.show() == schedule.show()
    assert print_func(te.lower(again, program.args)) == print_func(te.lower(schedule, program.args))
