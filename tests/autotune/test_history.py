"""The best of a log is what is compiled; what is not in it is said, with the field that differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import minitvm
from minitvm.autotune.contest import MARGIN, winner
from minitvm.autotune.history import apply_history_best, coverage, explain_miss
from minitvm.autotune.records import Record, target_features
from minitvm.autotune.task import extract_tasks, kernel_tasks
from minitvm.driver import optimize
from minitvm.errors import ScheduleError
from minitvm.relay.onnx import from_onnx
from minitvm.target import Target
from minitvm.te.steps import Split
from minitvm.testing import zoo
from minitvm.transform import PassContext

HOST = Target.host()


def record(task, candidate, seconds, contest=0, target=HOST):
    return Record(task.key, task.workload, target_features(target), candidate.config,
                  candidate.steps, (seconds,), contest=contest)


@pytest.fixture(scope="module")
def network():
    return zoo.mobilenet_v2(weights=0, width=0.1, image=32)


@pytest.fixture(scope="module")
def tasks(network):
    return extract_tasks(network)


@pytest.fixture(autouse=True)
def no_cache():
    with PassContext(config={"cache.directory": None}):
        yield


def other(task):
    """A candidate that is not the default."""
    for number in range(len(task.space)):
        candidate = task.candidate(number)
        if candidate.steps != task.default.steps:
            return candidate
    raise AssertionError("the space has nothing else")


def test_tasks_are_the_distinct_kernels_weighed_by_use(network, tasks):
    module = optimize(from_onnx(network), HOST)
    every = kernel_tasks(module, HOST)
    assert sum(task.weight for task in every) == minitvm.compile(network).kernel_calls
    assert len({task.key for task in tasks}) == len(tasks) <= len(every)
    assert all(len(task.space) > 1 for task in tasks)
    work = [task.weight * task.work.flops for task in tasks]
    assert work == sorted(work, reverse=True)


def test_the_default_point_of_a_space_is_the_default_schedule(tasks):
    for task in tasks:
        assert task.candidate(task.space.default).steps == task.default.steps


def test_a_model_compiled_with_a_log_uses_it_and_computes_the_same(network, tasks, tmp_path):
    rows = [record(task, task.default, 2e-3) for task in tasks]
    rows += [record(task, other(task), 1e-3) for task in tasks]
    log = tmp_path / "tune.jsonl"
    log.write_text("".join(row.to_line() for row in rows))
    plain = minitvm.compile(network)
    tuned = minitvm.compile(network, schedules=apply_history_best(log))
    with apply_history_best(log):
        also = minitvm.compile(network)
    assert {k.text for k in tuned.kernels} == {k.text for k in also.kernels}
    assert len({k.text for k in tuned.kernels} - {k.text for k in plain.kernels}) == len(tasks)
    assert not [r for r in tuned.remarks if r.pass_name == "Schedules"]
    x = {"input": np.random.default_rng(0).random((1, 3, 32, 32), np.float32)}
    np.testing.assert_allclose(tuned.run(x)["logits"], plain.run(x)["logits"], rtol=1e-3,
                               atol=1e-3)
    assert str(coverage(tuned.relay, apply_history_best(log))) == (
        f"{len(tasks)}/{len(tasks)} kernels tuned")


def test_a_record_that_does_not_fit_is_a_remark_and_an_error_where_it_was_asked_for(
        network, tasks):
    stale = replace(record(tasks[0], other(tasks[0]), 1e-3), steps=(Split("gone", "i", 4),))
    compiled = minitvm.compile(network, schedules=apply_history_best([stale]))
    remarks = [str(r) for r in compiled.remarks if r.pass_name == "Schedules"]
    assert len(remarks) == 1 and "does not fit it, the default one is used" in remarks[0]
    with pytest.raises(ScheduleError, match="gone"):
        minitvm.compile(network, schedules={stale.task: stale.steps})


def test_the_last_contest_decides_and_the_default_wins_by_a_margin(tasks):
    task = tasks[0]
    default, fast = task.default, other(task)
    assert winner([]) is None
    assert winner([record(task, default, 1.0), record(task, fast, 0.5)]).seconds == (0.5,)
    near = 1 - MARGIN / 2
    assert winner([record(task, default, 1.0), record(task, fast, near)]).config == {}
    rows = [record(task, default, 1.0), record(task, fast, 0.5), record(task, fast, 0.9, -1)]
    assert winner(rows).seconds == (0.9,)  # measured again
    assert winner([*rows, record(task, fast, 1.5, -2)]).config == {}
    rows = [record(task, default, 1.0), record(task, fast, 0.5),
            record(task, default, 1.0, 1), record(task, fast, 2.0, 1)]
    assert winner(rows).config == {}
    assert apply_history_best(rows)(task.key) is None
    rows += [record(task, default, 1.0, 2), record(task, fast, 0.8, 2)]
    assert apply_history_best(rows)(task.key) == fast.steps
    lost = replace(rows[-1], seconds=(), error="timeout", contest=3)
    assert apply_history_best([*rows, lost])(task.key) == fast.steps  # a contest that never was


def test_records_are_of_a_class_of_targets(tasks):
    task = tasks[0]
    narrow = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    wide = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    rows = [record(task, other(task), 1.0, target=narrow)]
    assert apply_history_best(rows, narrow)(task.key)
    assert apply_history_best(rows, Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver3"))(task.key)
    assert apply_history_best(rows, wide)(task.key) is None
    said = str(explain_miss(task.key, task.workload, apply_history_best(rows, wide)))
    assert "vector_bits is 256, here it is 512" in said


def test_a_miss_names_the_nearest_record_and_what_differs(tasks):
    task = tasks[0]
    rows = [record(other_task, other_task.default, 1.0) for other_task in tasks[1:]]
    history = apply_history_best(rows)
    params = [*task.workload["parameters"][:-1], "float32[1, 2, 3]"]
    said = str(explain_miss("none", {**task.workload, "parameters": params},
                            apply_history_best([record(task, task.default, 1.0), *rows])))
    assert task.name in said and "this kernel has float32[1, 2, 3]" in said
    assert "no records" in str(explain_miss("none", task.workload, apply_history_best([])))
    covered = coverage(optimize(from_onnx(
        zoo.mobilenet_v2(weights=0, width=0.1, image=32)), HOST), history)
    assert covered.tuned == len(tasks) - 1 and covered.total == len(tasks)
    assert len(covered.misses) == 1 and covered.misses[0].name == task.name


def test_records_that_were_timed_in_different_ways_are_not_compared(tasks):
    task, fast = tasks[0], other(tasks[0])
    cold = [replace(record(task, task.default, 9.0), cache="cold"),
            replace(record(task, fast, 5.0), cache="cold")]
    warm = [record(task, task.default, 1.0), record(task, fast, 2.0), record(task, fast, 2.0, -1)]
    assert apply_history_best([*cold, *warm])(task.key) is None
    assert apply_history_best([*warm[:1], *cold])(task.key) == fast.steps
