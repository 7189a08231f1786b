"""What is chosen beats the default schedule beyond noise, and is chosen again of what is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_tasks import Invented, scaled

from minitvm.autotune.contest import MARGIN, beats, decide, pick_best, winner
from minitvm.autotune.measure.measurer import Outcome
from minitvm.autotune.records import Record, read_log, target_features, write_records
from minitvm.autotune.tune import Memory, TuneOptions, tune_tasks
from minitvm.errors import TuningError
from minitvm.target import Target
from minitvm.te.steps import Split

TARGETS = [target_features(Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"))
           for cpu in ("x86-64-v3", "x86-64-v4")]


def record(factor, seconds, contest=0, task="ab", target=TARGETS[0], **more):
    """Of the default schedule where `factor` is None."""
    config = {} if factor is None else {"factor": factor}
    steps = (Split("c", "i", factor or 1),)
    return Record(task, {"name": task}, target, config, steps, tuple(seconds), contest=contest,
                  **more)


TURNS = 24


def turns(level, noise, generator):
    """Times of a schedule in the turns of a contest: some longer, few much longer."""
    spread = noise * generator.exponential(1.0, TURNS)
    spread += np.where(generator.random(TURNS) < 0.05, generator.random(TURNS), 0.0)
    return level * (1 + spread)


# --- beyond noise -------------------------------------------------------------------------------


def test_a_lucky_repetition_does_not_beat_the_default():
    default = record(None, [1.0] * TURNS, 1)
    lucky = record(2, [0.5] + [1.1] * (TURNS - 1), 1)
    assert lucky.minimum < default.minimum and not beats(lucky, default)
    assert winner([default, lucky]) is default
    steady = record(3, [0.9] * TURNS, 1)
    assert winner([default, lucky, steady]) is steady


def test_drift_that_both_suffer_hides_no_gain():
    """The machine gets slower by half in the course of a contest: turns are compared."""
    drift = np.linspace(1.0, 1.5, TURNS)
    default, faster = record(None, drift, 1), record(2, 0.95 * drift, 1)
    assert beats(faster, default)
    moments = [record(None, drift), record(2, 0.95 * drift)]
    assert winner(moments) is moments[0]  # trials of different moments prove no such thing


def test_margin():
    default = record(None, [1.0] * TURNS, 1)
    assert not beats(record(2, [1 - MARGIN / 2] * TURNS, 1), default)
    assert beats(record(2, [1 - 2 * MARGIN] * TURNS, 1), default)


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2])
def test_schedules_that_are_slower_by_little_hardly_ever_win(noise):
    """Four rivals, each 1% slower than the default: in 500 contests one wins at most now and then;
    what is 10% faster wins nearly always, unless noise is twice as large."""
    generator = np.random.default_rng(0)
    wrong = missed = 0
    for _ in range(500):
        default = record(None, turns(1.0, noise, generator), 1)
        slower = [record(2 + n, turns(1.01, noise, generator), 1) for n in range(4)]
        wrong += winner([default, *slower]) is not default
        faster = record(7, turns(0.9, noise, generator), 1)
        missed += winner([default, faster]) is default
    assert wrong <= 5
    assert missed <= (500 if noise > 0.1 else 5)


class Loaded(Invented):
    """A machine under load: each measurement is longer by its own share, some repetitions much."""

    def __init__(self, true_seconds, seed, noise):
        super().__init__(true_seconds)
        self.generator, self.noise = np.random.default_rng(seed), noise

    def outcome(self, candidate):
        moment = 1 + self.noise * self.generator.random()
        return Outcome(tuple(moment * turns(self.seconds(candidate), self.noise,
                                            self.generator)[:8]))

    def contest(self, task, candidates, number):
        moments = 1 + self.noise * self.generator.random(TURNS)
        return [Outcome(tuple(moments * turns(self.seconds(c), self.noise, self.generator)))
                for c in candidates]


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_tuning_under_load_never_ends_slower_than_not_tuning(noise):
    """The default is the best there is, by 0.5 to 12%, and others are lucky in some of their many
    trials."""
    def seconds(candidate):
        factor = candidate.config.get("factor", 1)
        serial = candidate.config.get("inner", "serial") == "serial"
        return 1e-6 * (1 if factor == 1 and serial else 1 + 0.005 * factor)

    for seed in range(8):
        memory = Memory()
        options = TuneOptions(trials=60, tuner="random", batch=8, seed=seed)
        report = tune_tasks([scaled()], Loaded(seconds, seed, noise), memory, options)
        assert any(r.minimum < memory.records[0].minimum for r in memory.records[1:])
        assert not winner(memory.records).config
        assert report.after_seconds == report.before_seconds


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_tuning_under_load_finds_what_is_faster(noise):
    def seconds(candidate):
        return 1e-6 * (1 - 0.02 * (candidate.config.get("factor", 1) - 1))

    for seed in range(4):
        memory = Memory()
        options = TuneOptions(trials=60, tuner="random", batch=8, seed=seed)
        report = tune_tasks([scaled()], Loaded(seconds, seed, noise), memory, options)
        assert winner(memory.records).config["factor"] > 12
        assert report.after_seconds < 0.85 * report.before_seconds


def test_a_contest_in_which_the_default_failed_decides_nothing():
    rows = [record(None, [1.0]), record(2, [0.7]), record(None, [1.0] * 4, 1),
            record(2, [0.8] * 4, 1), record(None, (), 2, error="timeout"), record(2, [0.1] * 4, 2)]
    assert winner(rows).seconds == (0.8,) * 4
    assert winner(rows[:2] + rows[4:]).seconds == (0.7,)


def test_nothing_works_and_no_default():
    assert decide([]) is None and decide([record(2, (), error="crash")]) is None
    only = record(2, [1.0])
    assert decide([only]).best is only and decide([only]).gain == 1.0


# --- what is kept -------------------------------------------------------------------------------


def test_of_each_kernel_and_machine_the_best_and_its_default_are_kept():
    log = [record(None, [1.0]), record(2, [0.9]), record(3, [0.8]), record(4, (), error="crash"),
           record(None, [1.0] * 4, 1), record(3, [0.8] * 4, 1), record(2, [0.9] * 4, 1),
           record(None, [2.0], target=TARGETS[1]), record(5, [1.0], target=TARGETS[1]),
           record(None, [1.0], task="cd"), record(2, [3.0], task="cd"),
           record(6, (), task="ef", error="wrong")]
    kept = pick_best([log])
    assert kept == [log[4], log[5], log[7], log[8], log[9]]


def test_of_several_logs_the_one_in_which_more_was_gained_decides():
    quiet = [record(None, [1.0] * 4, 1), record(2, [0.8] * 4, 1)]
    loaded = [record(None, [3.0] * 4, 1), record(4, [1.5] * 4, 1)]
    nothing = [record(None, [0.1] * 4, 1), record(2, [0.2] * 4, 1)]
    assert pick_best([quiet, loaded, nothing]) == loaded
    assert pick_best([nothing, quiet]) == quiet
    assert pick_best([nothing]) == nothing[:1]
    # put behind each other they would be one contest
    assert winner([*quiet, *loaded, *nothing]).config != {"factor": 4}


seconds = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=6)
logs = st.lists(st.builds(
    record, st.sampled_from([None, 2, 3]), seconds | st.just([]), st.integers(-2, 2),
    st.sampled_from(["ab", "cd"]), st.sampled_from(TARGETS),
    cache=st.sampled_from(["warm", "cold"])), max_size=30, unique_by=lambda r: r.key)


@given(st.lists(logs, max_size=3))
def test_what_is_kept_leads_to_the_same_decisions(several):
    kept = pick_best(several)
    assert pick_best([kept]) == kept
    if len(several) == 1:
        groups = {(r.task, r.conditions) for r in several[0]}
        for group in groups:
            before, after = (winner([r for r in rows if (r.task, r.conditions) == group])
                             for rows in (several[0], kept))
            assert before == after


@pytest.mark.parametrize("name", ["best.jsonl", "best.jsonl.xz"])
def test_what_is_kept_is_read_back(tmp_path, name):
    rows = [record(factor, [1.0, 2.0]) for factor in range(2, 40)]
    write_records(tmp_path / "new" / name, rows)
    assert read_log(tmp_path / "new" / name) == rows
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_what_is_no_compressed_log_is_refused(tmp_path):
    path = tmp_path / "best.jsonl.xz"
    path.write_bytes(b"no such thing")
    with pytest.raises(TuningError, match="can't be read"):
        read_log(path)
    with pytest.raises(TuningError, match="can't be written"):
        write_records(path / "best.jsonl", [])
