"""Tuning without a clock: the same measurements give the same log, whatever happens in between."""

from __future__ import annotations

import sys

import pytest
from tiny_tasks import Invented, invented_seconds, scaled

from minitvm.autotune.contest import winner
from minitvm.autotune.measure.measurer import Outcome
from minitvm.autotune.options import TUNER_NAMES
from minitvm.autotune.records import Log, read_log
from minitvm.autotune.replay import ReplayMeasurer
from minitvm.autotune.scheduler import Progress, expected_gain, next_task
from minitvm.autotune.tune import Memory, TuneOptions, tune_tasks
from minitvm.autotune.tuners import TUNERS
from minitvm.errors import OptionError, TuningError

pytest.importorskip("xgboost")


def lines(memory):
    return [record.to_line() for record in memory.records]


@pytest.mark.parametrize("tuner", TUNERS)
def test_the_same_seed_and_times_give_the_same_log(tuner):
    logs = []
    for _ in range(2):
        memory = Memory()
        tune_tasks([scaled()], Invented(), memory, TuneOptions(trials=30, tuner=tuner, batch=8))
        logs.append(lines(memory))
    assert logs[0] == logs[1] and len(logs[0]) >= 30


@pytest.mark.parametrize("tuner", ["random", "genetic", "xgboost"])
def test_another_seed_gives_another_log(tuner):
    logs = []
    for seed in range(2):
        memory = Memory()
        tune_tasks([scaled()], Invented(), memory,
             TuneOptions(trials=20, tuner=tuner, batch=8, seed=seed))
        logs.append(lines(memory))
    assert logs[0] != logs[1]


@pytest.mark.parametrize("tuner", TUNERS)
def test_every_tuner_finds_the_best_of_a_whole_space(tuner):
    memory = Memory()
    options = TuneOptions(tuner=tuner, early_stopping=1000)
    report = tune_tasks([scaled()], Invented(), memory, options)
    best = winner(memory.records)
    assert (best.config["factor"], best.config["inner"]) == (16, "vectorized")
    assert report.tasks[0].after_seconds == best.minimum < report.tasks[0].before_seconds
    assert len({record.steps for record in memory.records if not record.contest}) == len(
        [record for record in memory.records if not record.contest])


def test_a_guided_tuner_needs_fewer_trials_than_a_random_one():
    """By the sum over seeds of how far the best of 33 trials is from the best there is."""
    def regret(tuner):
        total = 0.0
        for seed in range(5):
            memory = Memory()
            tune_tasks([scaled()], Invented(), memory,
                 TuneOptions(trials=33, tuner=tuner, batch=8, seed=seed))
            total += min(record.minimum for record in memory.records) - 2e-6
        return total

    assert regret("xgboost") < regret("random")


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.93])
def test_tuning_that_was_cut_short_ends_with_the_same_log(tmp_path, cut):
    options = TuneOptions(trials=25, tuner="xgboost", batch=8)
    tasks = [scaled(96), scaled(64)]
    with Log.open(tmp_path / "whole.jsonl") as log:
        tune_tasks(tasks, Invented(), log, options)
    whole = (tmp_path / "whole.jsonl").read_bytes()
    trials = b"".join(line for line in whole.splitlines(True) if b'"contest":0' in line)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(whole[:int(len(trials) * cut)])
    known = path.read_bytes().count(b"\n")
    measurer = Invented()
    with Log.open(path) as log:
        tune_tasks(tasks, measurer, log, options)
    assert path.read_bytes() == whole
    assert measurer.asked == whole.count(b"\n") - known


def test_a_contest_that_was_cut_short_is_held_again(tmp_path):
    path = tmp_path / "tune.jsonl"
    options = TuneOptions(trials=30, batch=8)
    with Log.open(path) as log:
        report = tune_tasks([scaled()], Invented(), log, options)
    path.write_bytes(path.read_bytes()[:-5])
    with Log.open(path) as log:
        assert tune_tasks([scaled()], Invented(), log, options) == report
    assert read_log(path)[-1].contest == 2


def test_a_replay_needs_nothing_but_the_log(tmp_path):
    options = TuneOptions(trials=20, batch=8)
    first = Memory()
    report = tune_tasks([scaled()], Invented(), first, options)
    second = Memory()
    assert tune_tasks([scaled()], ReplayMeasurer(first.records), second, options) == report
    assert lines(second) == lines(first)


def test_more_trials_go_on_from_the_log(tmp_path):
    path = tmp_path / "tune.jsonl"
    with Log.open(path) as log:
        tune_tasks([scaled()], Invented(), log, TuneOptions(trials=10))
    with Log.open(path) as log:
        report = tune_tasks([scaled()], Invented(), log, TuneOptions(trials=40))
    assert report.trials == 40
    assert sum(not record.contest for record in read_log(path)) == 40


def test_tuning_stops_early_without_gain():
    flat = Invented(lambda candidate: (1e-6,))
    report = tune_tasks([scaled()], flat, Memory(), TuneOptions(early_stopping=16, batch=8))
    assert report.trials == 17


def test_the_default_schedule_wins_unless_another_is_clearly_faster():
    def seconds(candidate):
        return (1e-6 if not candidate.config else 0.995e-6,)

    memory = Memory()
    report = tune_tasks([scaled()], Invented(seconds), memory, TuneOptions(trials=9, batch=8))
    assert not winner(memory.records).config
    assert report.after_seconds == report.before_seconds


def test_what_was_only_lucky_loses_the_contest():
    class Lucky(Invented):
        def contest(self, task, candidates, number):
            return [Outcome((1e-6 if not c.config else 2e-6,)) for c in candidates]

    memory = Memory()
    report = tune_tasks([scaled()], Lucky(), memory, TuneOptions(trials=30, batch=8))
    assert not winner(memory.records).config
    assert report.after_seconds == report.before_seconds == 2e-6


def test_failures_are_counted_and_do_not_win():
    def seconds(candidate):
        factor = candidate.config.get("factor", 1)
        return Outcome((), "crash", f"at {factor}") if factor % 3 == 0 else invented_seconds(
            candidate)

    memory = Memory()
    report = tune_tasks([scaled()], Invented(seconds), memory, TuneOptions(trials=40, batch=8))
    failed = report.tasks[0].failures["crash"]
    assert failed == sum(record.error == "crash" for record in memory.records) > 0
    assert winner(memory.records).config["factor"] % 3


def test_failures_that_are_all_alike_stop_it_with_the_first():
    def seconds(candidate):
        return Outcome((), "run", f"no such symbol {candidate.config['factor']}"
                       ) if candidate.config else (1e-6,)

    memory = Memory()
    with pytest.raises(TuningError) as error:
        tune_tasks([scaled()], Invented(seconds), memory, TuneOptions(identical_failures=10))
    first = next(record for record in memory.records if record.error)
    assert "10 candidates of scaled failed alike" in str(error.value)
    assert str(error.value).endswith(first.message)


def test_a_default_that_fails_everywhere_is_an_error():
    broken = Invented(lambda candidate: Outcome((), "crash", "at once"))
    with pytest.raises(TuningError, match=r"no task works.*scaled: crash: at once"):
        tune_tasks([scaled()], broken, Memory(), TuneOptions(trials=9))


def test_a_task_whose_default_fails_does_not_stop_the_others():
    def seconds(candidate):
        extents = candidate.func.params[0].extents()
        return Outcome((), "wrong", "bad") if extents == (64,) else invented_seconds(candidate)

    tasks = [scaled(64), scaled(96)]
    report = tune_tasks(tasks, Invented(seconds), Memory(), TuneOptions(trials=30))
    assert report.tasks[0].problem == "wrong: bad"
    assert report.tasks[1].after_seconds < report.tasks[1].before_seconds


def test_an_interrupt_ends_it_with_what_there_is():
    class Interrupted(Invented):
        def measure(self, task, candidates, best_seconds):
            if self.asked >= 9:
                raise KeyboardInterrupt
            return super().measure(task, candidates, best_seconds)

        def contest(self, task, candidates, number):
            return [self.outcome(candidate) for candidate in candidates]

    memory = Memory()
    report = tune_tasks([scaled()], Interrupted(), memory, TuneOptions(trials=100, batch=8))
    trials = [record for record in memory.records if not record.contest]
    assert report.interrupted and report.trials == len(trials) == 9
    assert report.tasks[0].after_seconds == min(record.minimum for record in trials)


def test_a_package_that_is_missing_is_missed_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    measurer = Invented()
    with pytest.raises(TuningError, match=r"install minitvm\[tune\], or use --tuner genetic"):
        tune_tasks([scaled()], measurer, Memory(), TuneOptions(trials=9))
    assert not measurer.asked
    tune_tasks([scaled()], measurer, Memory(), TuneOptions(trials=9, tuner="genetic"))


def test_unknown_tuners_and_no_tasks_are_refused():
    with pytest.raises(OptionError, match="no tuner 'magic'; there are xgboost"):
        tune_tasks([scaled()], Invented(), Memory(), TuneOptions(tuner="magic"))
    with pytest.raises(TuningError, match="nothing to tune"):
        tune_tasks([], Invented(), Memory(), TuneOptions())


def test_the_scheduler_prefers_what_gains_most():
    heavy = Progress(10, 1_000_000, [1e-3, 0.9e-3])
    light = Progress(1, 1_000_000, [1e-3, 0.9e-3])
    assert expected_gain(heavy, 1e9) > expected_gain(light, 1e9) > 0
    assert next_task([light, heavy]) == 1
    near_the_limit = Progress(10, 1_000_000, [1e-3, 1e-3])
    assert next_task([near_the_limit, light]) == 0
    assert expected_gain(Progress(1, 1_000_000, [1e-6, 1e-6]), 1e9) == 0  # can't be faster
    heavy.done = True
    assert next_task([light, heavy]) == 0
    assert next_task([heavy]) is None
    fresh = Progress(1, 1, [1.0])
    assert next_task([light, fresh]) == 1  # one round for each first


def test_the_command_line_knows_all_tuners():
    assert tuple(TUNERS) == TUNER_NAMES


class Noisy(Invented):
    """Trials that are lucky now and then; in turns nothing is."""

    def measure(self, task, candidates, best_seconds):
        self.asked += len(candidates)
        return [Outcome(tuple(s * self.luck(c) for s in self.seconds(c))) for c in candidates]

    def contest(self, task, candidates, number):
        return [self.outcome(c) for c in candidates]

    @staticmethod
    def luck(candidate):
        return 0.2 if candidate.config.get("factor") in (3, 24) else 1.0


@pytest.mark.parametrize("tuner", ["xgboost", "genetic"])
def test_what_was_only_lucky_does_not_lead_the_search(tuner):
    memory = Memory()
    told = {}

    def make_tuner(candidates, seed):
        made = TUNERS[tuner](candidates, seed)
        told[tuner] = made
        return made

    report = tune_tasks([scaled()], Noisy(), memory, TuneOptions(trials=60, batch=8),
                        make_tuner=make_tuner)
    lucky = [r for r in memory.records if r.config.get("factor") in (3, 24) and not r.contest]
    again = {r.steps: r.minimum for r in memory.records if r.contest < 0}
    first = min(lucky, key=lambda record: record.minimum)
    assert again[first.steps] == pytest.approx(5 * first.minimum)
    assert again[first.steps] in told[tuner].seconds.values()
    best = winner(memory.records)
    assert best.config["factor"] not in (3, 24)
    assert report.curve[-1][1] == pytest.approx(2 * best.minimum)


def test_noise_decides_how_many_are_measured_again():
    """Times of repetitions that spread far make more candidates as good as the best."""
    def again(spread):
        def seconds(candidate):
            base = 1e-6 * (1 + 0.03 * abs(candidate.config.get("factor", 1) - 16))
            return tuple(round(base * (1 + spread * step), 12) for step in range(3))

        memory = Memory()
        tune_tasks([scaled()], Invented(seconds), memory, TuneOptions(trials=25, batch=8))
        return [record.contest for record in memory.records if record.contest < 0]

    few, many = again(0.0), again(0.09)
    assert max(map(few.count, few)) <= max(map(many.count, many)) == 4
    assert len(few) < len(many)
