"""Sketches compute what the program says, for every value of their knobs."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_tasks import Invented

import minitvm
from minitvm import autotune, te
from minitvm.autotune.candidates import Candidates
from minitvm.autotune.sketch import SearchTask, best_schedule, register_workload
from minitvm.autotune.task import example_arrays
from minitvm.errors import OptionError


@register_workload
def dense_relu(n, m, k):
    a = te.placeholder((n, k), "float32", name="a")
    b = te.placeholder((k, m), "float32", name="b")
    bias = te.placeholder((m,), "float32", name="bias")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="c")
    d = te.compute((n, m), lambda y, x: c[y, x] + bias[x], name="d")
    e = te.compute((n, m), lambda y, x: d[y, x] * 2.0, name="e")
    return [a, b, bias, e]


@register_workload
def product(n, m, k):
    a = te.placeholder((n, k), "float32", name="a")
    b = te.placeholder((k, m), "float32", name="b")
    r = te.reduce_axis((0, k), "r")
    return [a, b, te.compute((n, m), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="c")]


@register_workload
def row_sums(n, k):
    a = te.placeholder((n, k), "float32", name="a")
    r = te.reduce_axis((0, k), "r")
    return [a, te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="sums")]


@register_workload
def centred(n, k):
    """A reduction that is read by rows."""
    a = te.placeholder((n, k), "float32", name="a")
    r = te.reduce_axis((0, k), "r")
    sums = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="sums")
    return [a, te.compute((n, k), lambda i, j: a[i, j] - sums[i], name="centred")]


@register_workload
def window(size, taps):
    """A reduction over two axes, and one axis that no tile divides."""
    a = te.placeholder((3, size + taps - 1, size), "float32", name="a")
    w = te.placeholder((taps, 3), "float32", name="w")
    t, c = te.reduce_axis((0, taps), "t"), te.reduce_axis((0, 3), "ch")
    return [a, w, te.compute(
        (size, size), lambda y, x: te.sum(a[c, y + t, x] * w[t, c], axis=[t, c]), name="out")]


@register_workload
def elementwise(n):
    a = te.placeholder((n,), "float32", name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    return [a, te.compute((n,), lambda i: b[i] * 2.0, name="c")]


def shifted(a, w):
    taps, size = w.shape[0], a.shape[2]
    return sum(np.tensordot(w[t], a[:, t:t + size], 1) for t in range(taps))


CASES = {
    "dense_relu": ((12, 40, 9), lambda a, b, bias: (a @ b + bias) * 2),
    "product": ((7, 48, 16), lambda a, b: a @ b),
    "row_sums": ((3, 1024), lambda a: a.sum(1)),
    "centred": ((6, 20), lambda a: a - a.sum(1, keepdims=True)),
    "window": ((11, 3), shifted),
    "elementwise": ((100,), lambda a: (a + 1) * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_points_of_a_sketch_compute_the_program(name):
    arguments, meaning = CASES[name]
    task = SearchTask(name, arguments)
    *inputs, output = task.params
    arrays = example_arrays(inputs)
    wanted = meaning(*arrays)
    generator = np.random.default_rng(0)
    candidates = Candidates(task)
    numbers = {task.space.default, *(task.space.random(generator) for _ in range(10))}
    for number in sorted(numbers):
        made = candidates.get(number)
        assert made is not None, candidates.refused
        got = np.zeros(output.shape, np.float32)
        minitvm.build(made.func)(*arrays, got)
        np.testing.assert_array_equal(got, wanted, err_msg=str(made.config))


def test_the_rules_that_apply_are_the_knobs_there_are():
    names = {name: {knob.name for knob in SearchTask(name, CASES[name][0]).space.knobs}
             for name in CASES}
    assert names["dense_relu"] == {"e.y", "e.x", "c.r", "c.place", "c.unroll"}
    assert names["product"] == {"c.y", "c.x", "c.local.r", "c.local.place", "c.local.unroll"}
    assert "sums.parts" in names["row_sums"]
    assert names["elementwise"] == {"c.vectors"}


def test_the_best_of_a_log_is_replayed():
    task = SearchTask(product, (16, 32, 8))

    def seconds(candidate):
        return (1e-6 if candidate.config.get("c.local.r") == 4 else 2e-6,)

    memory = autotune.Memory()
    autotune.tune_tasks([task], Invented(seconds), memory,
                        autotune.TuneOptions(trials=40, tuner="genetic"))
    history = autotune.apply_history_best(memory.records)
    schedule, tensors = best_schedule(task, history)
    assert schedule.steps == history.best[task.key].steps != task.default.steps
    a, b = example_arrays(task.params[:2])
    c = np.zeros((16, 32), np.float32)
    minitvm.build(schedule, tensors)(a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    assert best_schedule(task, autotune.apply_history_best([]))[0].steps == task.default.steps


def test_a_workload_that_there_is_not():
    with pytest.raises(OptionError, match="no workload 'none'"):
        SearchTask("none", ())
