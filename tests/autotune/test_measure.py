"""Candidates that crash, never end, write where they must not, compute other values or want all the
memory cost themselves, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_tasks import scaled

from minitvm.autotune.measure.folder import PREFIX, OwnedFolder
from minitvm.autotune.measure.isolate import failure, isolate
from minitvm.autotune.measure.kernel import Timing, compare
from minitvm.autotune.measure.measurer import LocalMeasurer, MeasureOptions
from minitvm.autotune.records import ERRORS
from minitvm.autotune.task import Candidate, extract_tasks
from minitvm.errors import TuningError
from minitvm.origin import origin
from minitvm.target import Target
from minitvm.testing import zoo
from minitvm.tir import ir

HERE = origin("here")
N = 96
OPTIONS = MeasureOptions(
    build_timeout_seconds=30, run_timeout_seconds=3, memory_bytes=1 << 30,
    timing=Timing(repeat=3, min_repeat_ms=0.2))


@pytest.fixture(scope="module")
def measurer():
    with LocalMeasurer(OPTIONS) as made:
        yield made


def each(extent, body, *rest):
    """Loops around a statement made of their variables."""
    variables = [ir.Var(f"i{place}") for place in range(1 + len(rest))]
    statement = body(*variables)
    for var, count in zip(reversed(variables), reversed((extent, *rest))):
        statement = ir.For(var, ir.Const(0), ir.Const(count), "serial", statement, HERE)
    return statement


def candidate(make):
    a, b = ir.buffer("a", (N,)), ir.buffer("b", (N,))
    return Candidate({}, (), ir.PrimFunc("candidate", (a, b), make(a, b)))


def right(a, b):
    return each(N, lambda i: ir.Store(b, (i,), ir.Load(a, (i,)) * 2.0 + 1.0, HERE))


def wrong(a, b):
    """Right but for the last element."""
    return each(N, lambda i: ir.Store(b, (i,), ir.Load(a, (ir.Const(0),)) * 2.0 + 1.0, HERE))


def incomplete(a, b):
    return each(N - 1, lambda i: ir.Store(b, (i,), ir.Load(a, (i,)) * 2.0 + 1.0, HERE))


def crash(a, b):
    """Writes gigabytes away."""
    far = ir.Const(2**30 + 2**29)
    return ir.seq(right(a, b), each(N, lambda i: ir.Store(b, (i + far,), ir.Load(a, (i,)), HERE)))


def beyond(a, b):
    """Writes one element too many."""
    end = ir.Store(b, (ir.Const(N),), ir.Const(7.0, "float32"), HERE)
    return ir.seq(right(a, b), end)


def to_input(a, b):
    return ir.seq(right(a, b), ir.Store(a, (ir.Const(3),), ir.Const(9.0, "float32"), HERE))


def endless(a, b):
    zero = (ir.Const(0),)
    turn = each(2**30, lambda *_: ir.Store(b, zero, ir.Load(b, zero) * 0.5 + ir.Load(a, zero),
                                           HERE), 2**30)
    return ir.seq(turn, right(a, b))


def huge(a, b):
    scratch = ir.buffer("scratch", (2**29 + 2**28,), scope="local")
    fill = each(2**29, lambda i: ir.Store(scratch, (i,), ir.Load(a, (ir.Const(1),)), HERE))
    use = each(N, lambda i: ir.Store(b, (i,), ir.Load(scratch, (i,)), HERE))
    return ir.Allocate(scratch, ir.seq(fill, use), HERE)


def unbuildable(a, b):
    """Reads a variable that nothing defines."""
    return each(N, lambda i: ir.Store(b, (i,), ir.Load(a, (ir.Var("nowhere"),)), HERE))


BAD = {"wrong": (wrong, "wrong"), "incomplete": (incomplete, "wrong"), "crash": (crash, "crash"),
       "beyond": (beyond, "bounds"), "to_input": (to_input, "bounds"),
       "endless": (endless, "timeout"), "huge": (huge, "memory"),
       "unbuildable": (unbuildable, "build")}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_candidate_costs_itself_alone(measurer, name):
    make, kind = BAD[name]
    task = scaled(N)
    start = time.monotonic()
    good, bad, again = measurer.measure(task, [task.default, candidate(make), candidate(right)])
    assert bad.error == kind, bad
    assert bad.message and not bad.seconds
    for outcome in (good, again):
        assert not outcome.error and len(outcome.seconds) == 3 and min(outcome.seconds) > 0
    assert time.monotonic() - start < 60


def test_a_lost_worker_is_replaced(measurer):
    task = scaled(N)
    list(measurer.measure(task, [task.default]))
    os.kill(measurer._runner._process.pid, 9)
    measurer._runner._process.wait()
    assert not next(measurer.measure(task, [task.default])).error


def test_a_contest_times_in_turns(measurer):
    task = scaled(N)
    outcomes = measurer.contest(task, [task.default, candidate(right), candidate(unbuildable)], 1)
    assert [len(outcome.seconds) for outcome in outcomes] == [9, 9, 0]
    assert outcomes[2].error == "build"


def test_what_was_built_ahead_is_measured_alike(measurer):
    task, other = scaled(N), scaled(64)
    built = []
    ask = measurer._ask_builder
    measurer._ask_builder = lambda request: built.append(request["text"]) or ask(request)
    try:
        measurer.build_ahead([(task, task.default), (other, other.default),
                              (task, candidate(unbuildable)), (task, candidate(wrong))])
        assert len(built) == 4
        wanted = [task.default, candidate(wrong), task.candidate(7)]
        outcomes = list(measurer.measure(task, wanted))
        assert [outcome.error for outcome in outcomes] == ["", "wrong", ""] and len(built) == 5
        assert not next(measurer.measure(other, [other.default])).error and len(built) == 5
        assert next(measurer.measure(task, [candidate(unbuildable)])).error == "build"
    finally:
        del measurer._ask_builder
    assert not list(measurer.folder.glob("*.o"))


def test_cold_caches_take_longer():
    with LocalMeasurer(MeasureOptions(timing=Timing(3, 0.2, cache="cold"))) as cold, \
            LocalMeasurer(MeasureOptions(timing=Timing(3, 0.2))) as warm:
        task = scaled(1 << 16)
        times = [min(next(m.measure(task, [task.default])).seconds) for m in (cold, warm)]
    assert times[0] > times[1]


def test_a_slow_candidate_is_timed_once(measurer):
    task = scaled(N)
    assert len(next(measurer.measure(task, [task.default], 1e-12)).seconds) == 1


def test_a_kernel_that_takes_long_is_repeated_less():
    timing = Timing(repeat=10_000, min_repeat_ms=1, most_seconds=0.2)
    with LocalMeasurer(MeasureOptions(timing=timing)) as made:
        outcome = next(made.measure(scaled(N), [scaled(N).default]))
    assert 1 <= len(outcome.seconds) < 10_000


def test_kernels_of_a_model_are_right_by_the_interpreter_of_relay(measurer):
    tasks = extract_tasks(zoo.mobilenet_v2(weights=0, width=0.1, image=32))
    task = next(task for task in tasks if "conv2d" in task.name)
    assert task.arguments.outputs is not None
    numbers = (task.space.default, 0, len(task.space) - 1)
    for outcome in measurer.measure(task, [task.candidate(number) for number in numbers]):
        assert not outcome.error, outcome


def test_code_for_another_machine_is_not_timed():
    task = scaled(N)
    other = type(task)(task.key, task.name, task.workload,
                       Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"),
                       task.instantiate, task.reference)
    with LocalMeasurer(OPTIONS) as made, pytest.raises(TuningError, match="can't be timed here"):
        list(made.measure(other, [other.default]))


def test_comparing_outputs():
    one = np.array([1.0, 1000.0], np.float32)
    assert not compare(one, one)
    assert not compare(one + np.float32([0.05, 0.05]), one)
    assert "1 of 2 values are wrong; the first, at 0" in compare(one + np.float32([0.2, 0]), one)
    strange = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert not compare(strange, strange)
    assert compare(np.zeros(3, np.float32), strange)
    assert compare(np.array([np.nan], np.float32), np.array([0.0], np.float32))
    assert compare(np.array([1]), np.array([2])) and not compare(np.array([1]), np.array([1]))


def test_outcomes_come_one_by_one(measurer):
    task = scaled(N)
    outcomes = measurer.measure(task, [task.default, candidate(endless), candidate(right)])
    assert not next(outcomes).error
    start = time.monotonic()
    assert next(outcomes).error == "timeout"
    assert time.monotonic() - start > 0.9 * OPTIONS.run_timeout_seconds
    assert not next(outcomes).error and next(outcomes, None) is None


# --- processes and folders ----------------------------------------------------------------------


def test_kinds_of_failures_are_those_of_records():
    for error in ERRORS:
        assert failure(error, "a  b\nc") == {"error": error, "message": "a b c"}
    with pytest.raises(ValueError, match="'boredom' is no kind of failure; there are build"):
        failure("boredom", "none")


def test_waiting_costs_patience_and_no_time():
    """As does a machine that is busy with other things."""
    def wait(seconds):
        return isolate(lambda: time.sleep(seconds) or {"waited": seconds}, 0.5, 1 << 30, "run")

    assert wait(1.0) == {"waited": 1.0}
    assert wait(60.0)["error"] == "timeout"


def test_what_is_stopped_is_ended():
    """A stopped process takes no alarm."""
    start = time.monotonic()
    answer = isolate(lambda: os.kill(os.getpid(), signal.SIGSTOP), 0.5, 1 << 30, "run")
    assert answer["error"] == "timeout" and time.monotonic() - start < 30


def gone(pid):
    """Whether a process ended, soon."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def child_of(pid):
    """The first child that a process has within some seconds."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found:
            return int(found[0])
        time.sleep(0.02)
    raise AssertionError("it has no child")


@pytest.mark.parametrize("victim", ["owner", "worker"])
def test_no_process_outlives_its_owner(victim):
    """Killed in the midst of a candidate that runs for minutes: its owner, or its worker."""
    words = [sys.executable, "-c", "import sys, json; sys.path[:] = json.loads(sys.argv[1])\n"
             "from minitvm.autotune.measure.measurer import LocalMeasurer, MeasureOptions\n"
             "from test_measure import candidate, endless, scaled, N\n"
             "made = LocalMeasurer(MeasureOptions(run_timeout_seconds=300))\n"
             "print(made.folder, flush=True)\n"
             "list(made.measure(scaled(N), [candidate(endless)]))\n",
             json.dumps([str(Path(__file__).parent), *sys.path])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as owner:
        folder = Path(owner.stdout.readline().strip())
        try:
            worker = child_of(owner.pid)
            builders_end = time.monotonic() + 60
            while not list(folder.glob("*.npz")) and time.monotonic() < builders_end:
                time.sleep(0.02)
            runner = next(pid for pid in children_that_run(owner.pid))
            child = child_of(runner)
            os.kill(owner.pid if victim == "owner" else runner, signal.SIGKILL)
            assert gone(child), "the candidate runs on"
            if victim == "owner":
                assert gone(runner) and gone(worker)
        finally:
            owner.kill()
    assert folder.is_dir()
    OwnedFolder().close()
    assert not folder.exists()


def children_that_run(pid):
    """The workers that run something, of those that a process has."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if Path(f"/proc/{child}/task/{child}/children").read_text().split():
                yield int(child)
        time.sleep(0.02)


def test_a_folder_in_use_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = OwnedFolder()
    (tmp_path / f"{PREFIX}abandoned").mkdir()
    (tmp_path / f"{PREFIX}abandoned" / "1.o").write_text("")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    second = OwnedFolder()
    assert {path.name for path in tmp_path.iterdir()} == {
        first.path.name, second.path.name, "elsewhere", f"{PREFIX}link"}
    first.close()
    second.close()
    assert not first.path.exists() and not second.path.exists() and elsewhere.exists()
