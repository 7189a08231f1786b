"""Search for a schedule of a compute without a template, from its sketches to a schedule.

    task = autotune.SearchTask(matmul, args=(512, 512, 512))
    policy = autotune.SketchPolicy(task)
    s, args = policy.tune(autotune.TuneOptions(trials=300))
    function = minitvm.build(s, args)

Sketches give structures (`sketch_rules`). Random annotations near the rules' own are measured, and
from then on evolution climbs what a model learnt of the measurements (`tuners.evolution`).
Source: Ansor (OSDI 2020), whose policy of that name this is.
"""

from __future__ import annotations

from dataclasses import replace

from minitvm.autotune.history import apply_history_best
from minitvm.autotune.measure.measurer import LocalMeasurer, Measurer
from minitvm.autotune.options import TuneOptions
from minitvm.autotune.records import Log
from minitvm.autotune.sketch import best_schedule
from minitvm.autotune.task import Scheduled, Task
from minitvm.autotune.tune import Memory, TuneReport, tune_tasks
from minitvm.autotune.tuners import Evolution, EvolutionTuner

SEARCH = Evolution(population=40, generations=3, from_best=0.4, tile_sizes=0.4, structure=0.1,
                   by_rules=0.7)
"""Few points a round, as scheduling a sketch takes a good part of the time that measuring one does;
random ones near what the rules choose, as far from it most are slow; tiles are good from the start,
so that other choices change as often."""


class SketchPolicy:
    """Tunes one `SearchTask`. `report` is what the last `tune` made of it."""

    def __init__(self, task: Task, evolution: Evolution | None = None) -> None:
        self.task = task
        self.evolution = evolution or SEARCH
        self.report: TuneReport | None = None

    def tune(self, options: TuneOptions | None = None, measurer: Measurer | None = None,
             log: Memory | Log | None = None) -> Scheduled:
        """The best schedule that is found, and the tensors that are its parameters. Measurements
        are looked up in `log` and kept there: a `Log`, or memory by default; with a
        `ReplayMeasurer` nothing is timed. Raises `TuningError`."""
        log = Memory() if log is None else log
        if measurer is not None:
            return self._tune(options or TuneOptions(), measurer, log)
        with LocalMeasurer() as here:
            return self._tune(options or TuneOptions(), here, log)

    def _tune(self, options: TuneOptions, measurer: Measurer, log: Memory | Log) -> Scheduled:
        self.report = tune_tasks(
            [self.task], measurer, log, replace(options, tuner="evolution"),
            make_tuner=lambda candidates, seed: EvolutionTuner(candidates, seed, self.evolution))
        history = apply_history_best(log.records, self.task.target)
        return best_schedule(self.task, history)
