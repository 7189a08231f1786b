"""Schedules are kept that make the network faster, on each number of threads, and no others."""

from __future__ import annotations

import os

import numpy as np
import pytest
from tiny_models import two_convolutions
from tiny_tasks import scaled

from minitvm import autotune
from minitvm.autotune.contest import decide, pick_best
from minitvm.autotune.history import apply_history_best
from minitvm.autotune.in_place import tune_in_place
from minitvm.autotune.measure import network as network_module
from minitvm.autotune.measure.measurer import InPlace, LocalMeasurer, MeasureOptions
from minitvm.autotune.records import Record, parse_line, target_features
from minitvm.autotune.replay import ReplayMeasurer
from minitvm.autotune.task import Network, extract_network
from minitvm.autotune.tune import Memory

FAST = 1e-6
NETWORK = Network("pair 0", None, scaled().target, (scaled(96, name="a"), scaled(64, name="b")))
"""Its graph is not looked at by a measurer without a clock."""
TURNS = 24


def factor_of(task, steps):
    """The factor that a schedule of `scaled` splits by; none for the default one."""
    return None if steps is None or steps == task.default.steps else steps[0].factor


class Invented:
    """A network whose times are said by a function: of the task's name, the factor (or None), the
    number of threads. With other kernels, `rest`, a run takes so long more."""

    def __init__(self, seconds, rest=lambda factors, threads: 0.0, noise=0.0, seed=0):
        self.seconds, self.rest, self.noise = seconds, rest, noise
        self.generator = np.random.default_rng(seed)
        self.asked = []

    def turns(self, base):
        spread = 1 + self.noise * self.generator.exponential(1.0, TURNS)
        return tuple(float(x) for x in np.round(base * spread, 12))

    def in_place(self, network, variants, number, threads, watch):
        self.asked.append((number, threads, len(variants)))
        kernels, runs = [], []
        for variant in variants:
            factors = {task.name: factor_of(task, variant.get(task.key)) for task in network.tasks}
            times = {task.key: self.seconds(task.name, factors[task.name], threads)
                     for task in network.tasks}
            whole = sum(times[t.key] * t.weight for t in network.tasks)
            kernels.append({key: self.turns(time) for key, time in times.items()})
            runs.append(self.turns(whole + self.rest(factors, threads)))
        watch(1, 1)
        return InPlace(tuple(kernels), tuple(runs))


def alone(task, number, seconds, contest=0):
    """The record of a schedule by itself: of the default one, or of the point with that factor."""
    made = task.default if number is None else task.candidate(number)
    return Record(task.key, task.workload, target_features(task.target), made.config, made.steps,
                  (seconds,) * 4, contest=contest)


def log_of(*tasks):
    """By themselves factors of 4, 8 and 12 are faster the greater they are, that of 20 is slower by
    much."""
    rows = []
    for task in tasks or NETWORK.tasks:
        points = {task.space.values(n)["factor"]: n for n in range(24 * 3)
                  if task.space.values(n)["inner"] == "serial"}
        rows.append(alone(task, None, 1.0 * FAST))
        rows += [alone(task, points[factor], (1 - 0.02 * factor) * FAST) for factor in (4, 8, 12)]
        rows.append(alone(task, points[20], 1.5 * FAST))
    return Memory(rows)


def kept(log, tasks=NETWORK.tasks):
    """The factors that the log decides for."""
    history = apply_history_best(log.records, NETWORK.target)
    return {task.name: factor_of(task, history(task.key)) for task in tasks}


def test_without_a_network_the_fastest_by_itself_is_used():
    assert kept(log_of()) == {"a": 12, "b": 12}


def test_what_is_fastest_in_the_network_is_used():
    def seconds(name, factor, threads):
        return FAST * ({None: 1.0, 4: 0.9, 8: 0.8, 12: 1.1} if name == "a" else
                       {None: 1.0, 4: 1.0, 8: 0.995, 12: 1.02})[factor]

    log = log_of()
    report = tune_in_place(NETWORK, Invented(seconds, noise=0.01), log, (1, 2))
    assert kept(log) == {"a": 8, "b": None}
    row, other = report.rows
    assert row.is_kept and not other.is_kept and report.kept == 1 and row.compared == 3
    assert row.alone == (FAST, pytest.approx(0.84 * FAST))
    for before, after in row.times.values():
        assert after / before == pytest.approx(0.8, rel=0.02)
    assert [run.threads for run in report.networks] == [1, 2]
    assert all(run.is_faster and run.ratio == pytest.approx(0.9, rel=0.02)
               for run in report.networks)


def test_what_shares_badly_among_threads_does_not_win():
    def seconds(name, factor, threads):
        gain = {None: 1.0, 4: 0.95, 8: 0.9, 12: 0.7}[factor]
        return FAST * (1.2 if factor == 12 and threads == 2 else gain)

    log = log_of()
    tune_in_place(NETWORK, Invented(seconds), log, (1, 2))
    assert kept(log) == {"a": 8, "b": 8}
    log = log_of()
    tune_in_place(NETWORK, Invented(seconds), log, (1,))
    assert kept(log) == {"a": 12, "b": 12}


def test_a_network_that_is_not_faster_keeps_what_is_certainly_faster_or_nothing():
    """Each wins where it is, and makes what is no kernel with a choice slower by as much."""
    def seconds(name, factor, threads):
        return FAST * (1.0 if factor is None else 0.98 if name == "a" else 0.9)

    def nothing_gained(factors, threads):
        return FAST * sum(0.5 for factor in factors.values() if factor is not None)

    log = log_of()
    report = tune_in_place(NETWORK, Invented(seconds, nothing_gained), log)
    assert kept(log) == {"a": None, "b": None} and report.kept == 0
    assert any("not faster" in record.message for record in log.records)

    def a_disturbs(factors, threads):
        return FAST * (0.5 if factors["a"] is not None else 0.0)

    log = log_of()
    report = tune_in_place(NETWORK, Invented(seconds, a_disturbs), log)
    assert kept(log)["a"] is None and kept(log)["b"] is not None
    assert report.networks[0].is_faster


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_schedules_that_are_no_faster_do_not_win_by_noise(noise):
    wrong = 0
    for seed in range(20):
        log = log_of()
        tune_in_place(NETWORK, Invented(lambda *_: FAST, noise=noise, seed=seed), log, (1, 2))
        wrong += kept(log) != {"a": None, "b": None}
    assert wrong == 0


def test_the_same_log_is_not_measured_again_and_is_replayed():
    def seconds(name, factor, threads):
        return FAST * (1.0 if factor is None else 0.98 if name == "a" else 0.9)

    for rest in (lambda factors, threads: 0.0,
                 lambda factors, threads: FAST * (factors["a"] is not None),
                 lambda factors, threads: FAST * sum(f is not None for f in factors.values())):
        log, known = log_of(), len(log_of().records)
        first = tune_in_place(NETWORK, Invented(seconds, rest), log, (1, 2))
        lines = [record.to_line() for record in log.records]
        again = Invented(seconds, rest)
        assert tune_in_place(NETWORK, again, log, (1, 2)) == first and not again.asked
        assert [record.to_line() for record in log.records] == lines
        replayed = Memory(log.records[:known])
        assert tune_in_place(NETWORK, ReplayMeasurer(log.records), replayed, (1, 2)) == first
        assert [record.to_line() for record in replayed.records] == lines


def test_what_another_network_has_slower_is_not_used():
    """The kernel is faster in the first network and slower in the second; the other way round it is
    not even compared unless it was known by then."""
    other = Network("other 1", None, NETWORK.target, NETWORK.tasks[:1])
    faster = Invented(lambda name, factor, threads: FAST * (1.0 if factor is None else 0.9))
    slower = Invented(lambda name, factor, threads: FAST * (1.0 if factor is None else 1.1))
    log = log_of()
    tune_in_place(NETWORK, faster, log)
    before = kept(log)
    assert before["a"] is not None and before["b"] is not None
    tune_in_place(other, slower, log)
    assert kept(log) == {"a": None, "b": before["b"]}


def test_what_won_in_another_network_is_compared_too():
    other = Network("other 1", None, NETWORK.target, NETWORK.tasks[:1])

    def seconds(name, factor, threads):
        return FAST * (0.5 if factor == 12 else 1.0)

    log = log_of()
    tune_in_place(NETWORK, Invented(seconds), log)
    task = NETWORK.tasks[0]
    faster_alone = [alone(task, n, FAST * 0.1) for n in range(3 * 24)
                    if task.space.values(n)["inner"] == "vectorized"][:6]
    log.records += faster_alone
    log = Memory(log.records)
    tune_in_place(other, Invented(seconds), log)
    assert any(record.in_place == other.name and record.task == task.key
               and factor_of(task, record.steps) == 12
               for record in log.records)


def test_what_is_kept_of_logs_decides_alike_and_is_small():
    log = log_of()
    tune_in_place(NETWORK, Invented(
        lambda name, factor, threads: FAST * (0.9 if factor == 8 and name == "a" else 1.0)), log,
        (1, 2))
    best = pick_best([log.records])
    assert kept(Memory(best)) == kept(log) == {"a": 8, "b": None}
    assert pick_best([best]) == best and len(best) == 5
    assert all(record.in_place and not record.is_network for record in best)
    for record in log.records:
        assert parse_line(record.to_line(), "it") == record


def test_records_of_older_logs_have_no_such_field():
    record = log_of().records[0]
    assert '"in_place"' not in record.to_line()
    assert parse_line(record.to_line(), "it").in_place == ""


def test_a_kernel_without_the_default_in_place_decides_nothing():
    rows = [Record("t", {}, {}, {"f": 1}, (), (1.0,), contest=1, cache="network", in_place="n")]
    assert decide(rows) is None


# --- on this machine ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two():
    return extract_network(two_convolutions())


def some_records(network):
    """Of each kernel two other schedules, said to be faster."""
    rows = []
    for task in network.tasks:
        others = [made for number in range(0, len(task.space), max(1, len(task.space) // 8))
                  if (made := task.candidate(number)).steps != task.default.steps]
        for made, seconds in ((task.default, 1.0), *((made, 0.5) for made in others[:2])):
            rows.append(Record(task.key, task.workload, target_features(task.target), made.config,
                               made.steps, (seconds,) * 3))
    return rows


def test_kernels_are_timed_in_the_network(two):
    log = Memory(some_records(two))
    moves = []
    with LocalMeasurer(MeasureOptions()) as measurer:
        report = tune_in_place(two, measurer, log, (1,), lambda *move: moves.append(move))
    assert not report.problem and [row.compared for row in report.rows] == [2] * len(two.tasks)
    contests = [record for record in log.records if record.contest == 1]
    assert len([r for r in contests if not r.is_network]) == 3 * len(two.tasks)
    for record in contests:
        assert len(record.seconds) == 24 and min(record.seconds) > 0
    runs = [r for r in contests if r.is_network]
    kernels = sum(t.weight * next(r for r in contests if r.task == t.key).minimum
                  for t in two.tasks)
    assert 0 < kernels < 1.5 * min(runs[0].seconds)
    assert moves[-1][1] == moves[-1][2]


def test_a_variant_that_crashes_costs_itself_alone(two, monkeypatch):
    """Its program is damaged once it is built."""
    task = two.tasks[0]
    other = next(made for number in range(len(task.space))
                 if (made := task.candidate(number)).steps != task.default.steps)
    bad = {task.key: other.steps}
    with LocalMeasurer(MeasureOptions()) as measurer:
        built = measurer._variants(two, [{}, bad])
        with open(built[1]["object"], "wb") as stream:
            stream.write(b"c__builtin__\nexit\n.")
        found = measurer.in_place(two, [{}, bad], 1, 1, lambda done, total: None)
    assert found.problem and len(found.runs[0]) == 24 and not found.runs[1]
    assert task.key in found.kernels[0] and not found.kernels[1]


def test_a_schedule_that_does_not_fit_is_not_timed(two, tmp_path):
    task = two.tasks[0]
    steps = scaled().candidate(5).steps
    network_module.write_network(two.module, two.target, tmp_path / "module")
    network_module.build_variant(tmp_path / "module", {task.key: steps}, tmp_path / "bad.program")
    loaded = network_module.load_variants([tmp_path / "bad.program"], 1)
    assert task.key not in loaded[0].keys and len(loaded[0].keys) >= len(two.tasks) - 1


def test_usual_numbers_of_threads(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert autotune.usual_threads() == (1,) and autotune.usual_threads(4) == (1, 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert autotune.usual_threads() == (1, 2)
