"""Recurrences: values, schedules of what happens in a step, and what is refused."""

import numpy as np
import pytest

from minitvm import te
from minitvm.errors import LoweringError, ScheduleError
from minitvm.te.bounds import infer_bounds
from minitvm.te.schedule import Schedule
from minitvm.testing.te_machine import run_interpreter, run_machine
from minitvm.testing.te_oracle import Program, evaluate, random_inputs
from minitvm.tir.text import print_func

STEPS, WIDTH = 6, 5


def cumulative():
    X = te.placeholder((STEPS, WIDTH), name="X")
    state = te.placeholder((STEPS, WIDTH), name="state")
    init = te.compute((1, WIDTH), lambda _, i: X[0, i], name="init")
    update = te.compute((STEPS, WIDTH), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    return X, state, init, update, te.scan(init, update, state, inputs=[X], name="sums")


def check(schedule, program, expected=None, tolerance=0.0):
    inputs = random_inputs(program, seed=3)
    wanted = evaluate(program, inputs) if expected is None else expected(*inputs)
    for run in (run_interpreter, run_machine):
        for got, want in zip(run(schedule, program, inputs), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_cumulative_sum():
    X, *_, sums = cumulative()
    s = te.create_schedule(sums)
    check(s, Program((X,), (sums,)), lambda x: [np.cumsum(x, axis=0)])
    assert s.show() == (
        "for _ in range(1):\n    for i in range(5):\n        init[_, i] = compute(X)\n"
        "for t in range(5):\n    for t in range(1):\n        for i in range(5):\n"
        "            update[t, i] = compute(state, X)\n")


def test_update_is_split_and_vectorized_and_its_producer_placed():
    X, state, init, _, _ = cumulative()
    scaled = te.compute((STEPS, WIDTH), lambda t, i: X[t, i] * 2.0, name="scaled")
    decayed = te.compute((STEPS, WIDTH), lambda t, i: state[t - 1, i] * 3.0 - 1.0, name="decayed")
    update = te.compute((STEPS, WIDTH), lambda t, i: decayed[t, i] + scaled[t, i], name="update")
    result = te.scan(init, update, state, name="result")
    s = te.create_schedule(result)
    outer, inner = s[update].split(update.op.axis[1], factor=2)
    s[update].vectorize(inner)
    s[decayed].compute_at(s[update], outer)
    s[scaled].compute_at(s[result], result.op.scan_axis)
    program = Program((X,), (result,))
    check(s, program)
    text = print_func(te.lower(s, program.args))
    assert text.index("for t in range(1, 6)") < text.index("scaled = allocate((1, 5)")
    assert text.index("for i_outer") < text.index("decayed = allocate((1, 2)")
    again = Schedule.replay(result, Schedule.parse_log(str(s)))
    assert print_func(te.lower(again, program.args)) == text


def test_rnn_cell_with_a_reduction_and_an_input_as_first_state():
    X = te.placeholder((STEPS, 3), name="X")
    h0, W, U = (te.placeholder(shape, name=name)
                for shape, name in (((1, 4), "h0"), ((4, 3), "W"), ((4, 4), "U")))
    state = te.placeholder((STEPS + 1, 4), name="state")
    k, r = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 4), "r")
    wx = te.compute((STEPS, 4), lambda t, i: te.sum(X[t, k] * W[i, k], axis=k), name="wx")
    uh = te.compute((STEPS + 1, 4), lambda t, i: te.sum(state[t - 1, r] * U[i, r], axis=r),
                    name="uh")
    update = te.compute((STEPS + 1, 4), lambda t, i: te.tanh((wx[t - 1, i] + uh[t, i]) * 0.125),
                        name="update")
    h = te.scan(h0, update, state, name="h")
    program = Program((X, W, h0, U), (h,))

    def expected(x, w, first, u):
        states = [first[0]]
        for row in x:
            states.append(np.tanh((w @ row + u @ states[-1]) * 0.125))
        return [np.stack(states)]

    s = te.create_schedule(h)
    check(s, program, expected, tolerance=1e-5)
    s[uh].reorder(r, uh.op.axis[1])
    s[uh].vectorize(uh.op.axis[1])
    s[wx].compute_at(s[update], update.op.axis[0])
    s.rfactor(wx, k)
    check(s, program, expected, tolerance=1e-5)


def lstm():
    """c' = f * c + i, h' = tanh(c') * o, gates from the last h: two states, one read by the other's
    update of the same step."""
    X = te.placeholder((STEPS, 4), name="X")
    c_state, h_state = (te.placeholder((STEPS, 4), name=name) for name in ("c_state", "h_state"))
    zeros = te.compute((1, 4), lambda _, i: 0.0, name="zeros")
    gate = te.compute((STEPS, 4), lambda t, i: te.sigmoid(X[t, i] + h_state[t - 1, i]), name="gate")
    next_c = te.compute((STEPS, 4), lambda t, i: c_state[t - 1, i] * gate[t, i] + X[t, i],
                        name="next_c")
    next_h = te.compute((STEPS, 4), lambda t, i: te.tanh(next_c[t, i]) * gate[t, 3 - i],
                        name="next_h")
    c, h = te.scan([zeros, zeros], [next_c, next_h], [c_state, h_state], [X], name="lstm")
    return X, gate, next_c, next_h, c, h


def lstm_reference(x):
    c, h, states = np.zeros(4), np.zeros(4), [[np.zeros(4)], [np.zeros(4)]]
    for row in x[1:]:
        gate = 1 / (1 + np.exp(-(row + h)))
        c = c * gate + row
        h = np.tanh(c) * gate[::-1]
        states[0].append(c)
        states[1].append(h)
    return [np.stack(state) for state in states]


def test_lstm_like_cell_with_two_states():
    X, gate, _, next_h, c, h = lstm()
    program = Program((X,), (c, h))
    s = te.create_schedule(c)
    check(s, program, lstm_reference, tolerance=1e-5)
    s[next_h].vectorize(next_h.op.axis[1])
    s[gate].vectorize(gate.op.axis[1])
    check(s, program, lstm_reference, tolerance=1e-5)


def test_result_is_read_and_caches_stay_in_the_loop():
    X, state, _, update, sums = cumulative()
    out = te.compute((STEPS, WIDTH), lambda t, i: sums[STEPS - 1 - t, i] * 2.0, name="out")
    s = te.create_schedule(out)
    kept = s.cache_write(update, "local")
    last = s.cache_read(state, "local", [kept])
    copied = s.cache_read(sums, "global", [out])
    s[copied].compute_at(s[out], out.op.axis[0])
    assert {s[t].stage.attach.stage.name for t in (kept, last)} == {"sums"}
    check(s, Program((X,), (out,)))


def last_step(steps):
    """A scan whose update reads a stage that reads the state a step before."""
    X = te.placeholder((steps, WIDTH), name="X")
    state = te.placeholder((steps, WIDTH), name="state")
    init = te.compute((1, WIDTH), lambda t, i: X[t, i] + 1.0, name="init")
    last = te.compute((steps, WIDTH), lambda t, i: state[t - 1, WIDTH - 1 - i], name="last")
    update = te.compute((steps, WIDTH), lambda t, i: last[t, i] + X[t, i], name="update")
    return X, last, update, te.scan(init, update, state, name="sums")


@pytest.mark.parametrize("steps", [2, 3, STEPS])
@pytest.mark.parametrize("factor", [2, 3, 4, 7])
def test_loops_in_a_step_never_compute_other_steps(steps, factor):
    """Tails of fused loops reach over the end of the row, which is the next step."""
    X, last, update, sums = last_step(steps)
    s = te.create_schedule(sums)
    kept = s.cache_write(update, "local")
    outer, _ = s[kept].split(s[kept].fuse(*kept.op.axis), factor=factor)
    s[last].compute_at(s[kept], outer)
    fused = s[last].fuse(*last.op.axis)
    s[kept].compute_at(s[update], update.op.axis[0])
    s[last].split(fused, factor=2)
    check(s, Program((X,), (sums,)))


def test_what_is_needed_of_a_stage_is_its_row_of_the_step():
    X, last, update, sums = last_step(STEPS)
    copied = te.compute((STEPS, WIDTH), lambda t, i: last[t, i], name="copied")
    update = te.compute((STEPS, WIDTH), lambda t, i: copied[t, i] + X[t, i], name="update")
    sums = te.scan(sums.op.init[0], update, sums.op.states[0], name="sums")
    s = te.create_schedule(sums)
    outer, _ = s[copied].split(s[copied].fuse(*copied.op.axis), factor=4)
    s[last].compute_at(s[copied], outer)
    nests = infer_bounds(s.graph)
    (row, _) = nests.needed[s[last].stage]
    assert row.extent == 1 and row.low is nests.nests[s[sums].stage].points[sums.op.scan_axis.var]
    check(s, Program((X,), (sums,)))


def test_a_copy_of_a_state_for_readers_at_several_distances_reads_no_later_step():
    """From half of the steps ago to the last one: a box of one size for all steps holds more."""
    X = te.placeholder((9, WIDTH), name="X")
    state = te.placeholder((9, WIDTH), name="state")
    init = te.compute((3, WIDTH), lambda t, i: X[t, i] + 1.0, name="init")
    half = te.compute((5, WIDTH), lambda h, i: state[h, i] + 1.0, name="half")
    last = te.compute((9, WIDTH), lambda t, i: te.if_then_else(
        t >= 2, state[t - 1, i] - state[t - 2, i], 1.0), name="last")
    update = te.compute((9, WIDTH), lambda t, i: half[(t - 1) // 2, i] - last[t, i], name="update")
    result = te.scan(init, update, state, name="result")
    out = te.compute((9, WIDTH), lambda t, i: result[8 - t, i] + 1.0, name="out")
    s = te.create_schedule(out)
    check(s, Program((X,), (out,)))
    copied = s.cache_read(state, "local", [half, last])
    check(s, Program((X,), (out,)))
    s.cache_read(copied, "local", [half, last])
    check(s, Program((X,), (out,)))


def test_several_first_steps_and_symbolic_time():
    m = te.var("m")
    X = te.placeholder((2, 3), name="X")
    state = te.placeholder((m, 3), name="state")
    update = te.compute((m, 3), lambda t, i: state[t - 1, i] + state[t - 2, i], name="update")
    fib = te.scan(X, update, state, name="fib")
    s = te.create_schedule(fib)
    program = Program((X,), (fib,))
    x = np.array([[0, 1, 2], [1, 1, 5]], "float32")
    for steps in (2, 3, 8):
        rows = [*x]
        while len(rows) < steps:
            rows.append(rows[-1] + rows[-2])
        for run in (run_interpreter, run_machine):
            (got,) = run(s, program, [x], {m: steps})
            np.testing.assert_array_equal(got, np.stack(rows))


REFUSALS = {
    "update at the root": (lambda s: s["update"].compute_root(), "must stay inside its loop"),
    "update inline": (lambda s: s["update"].compute_inline(), "it is the update of the scan sums"),
    "update elsewhere": (lambda s: s["update"].compute_at(s["sums"], "t"), "it is the update"),
    "init inline": (lambda s: s["init"].compute_inline(), "it is the initial value of the scan"),
    "scan inline": (lambda s: s["sums"].compute_inline(), "it is a scan"),
    "scan in a loop": (lambda s: s["sums"].compute_at(s["out"], "t"), "it is a scan"),
    "time split": (lambda s: s["sums"].split("t", 2), "follow one another"),
    "time parallel": (lambda s: s["sums"].parallel("t"), "follow one another"),
    "time vectorized": (lambda s: s["sums"].vectorize("t"), "follow one another"),
    "cached scan": (lambda s: s.cache_write("sums", "local"), "it is a scan"),
    "reading a part": (lambda s: s.cache_read("init", "local", ["sums"]), "a part of a scan"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    X, *_, sums = cumulative()
    out = te.compute((STEPS, WIDTH), lambda t, i: sums[t, i] * 2.0, name="out")
    s = te.create_schedule(out)
    action, message = REFUSALS[name]
    with pytest.raises(ScheduleError, match=message) as caught:
        action(s)
    assert "Legal choices: none" not in str(caught.value)
    check(s, Program((X,), (out,)))


def test_time_may_be_unrolled():
    X, *_, sums = cumulative()
    s = te.create_schedule(sums)
    s[sums].unroll("t")
    check(s, Program((X,), (sums,)))


def test_a_part_of_a_scan_is_no_argument_and_no_output():
    X, _, init, update, sums = cumulative()
    s = te.create_schedule(sums)
    with pytest.raises(LoweringError, match="part of a scan"):
        te.lower(s, [X, init, sums])
    with pytest.raises(ScheduleError, match="computed into the memory of sums"):
        te.create_schedule([sums, update])
    other = te.compute((STEPS, WIDTH), lambda t, i: update[t, i] + sums[t, i], name="other")
    with pytest.raises(ScheduleError, match="other is an output that depends on a state"):
        te.create_schedule(other)


def test_a_scan_inside_of_a_scan_is_refused():
    _X, state, init, update, _sums = cumulative()
    outer_state = te.placeholder((STEPS, WIDTH), name="outer_state")
    first = te.compute((1, WIDTH), lambda _, i: outer_state[0, i], name="first")
    inner = te.scan(first, update, state, name="inner")
    outer_update = te.compute((STEPS, WIDTH), lambda t, i: inner[t, i], name="outer_update")
    outer = te.scan(init, outer_update, outer_state, name="outer")
    with pytest.raises(ScheduleError, match="a scan inside of another is not supported"):
        te.create_schedule(outer)


@pytest.mark.parametrize(("shapes", "message"), [
    (((1, 4), (6, 5), (6, 5)), "same shape"),
    (((1, 5), (7, 5), (6, 5)), "same shape"),
])
def test_shapes_that_do_not_fit(shapes, message):
    init, update = (te.compute(shape, lambda *_: 0.0, name="x") for shape in shapes[:2])
    with pytest.raises(TypeError, match=message):
        te.scan(init, update, te.placeholder(shapes[2]))
