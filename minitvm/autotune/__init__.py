"""The tuner: measures schedules of kernels, and remembers the best of each.

    tasks = autotune.extract_tasks("model.onnx")
    with autotune.Log.open(Path("tune.jsonl")) as log, autotune.LocalMeasurer() as measurer:
        autotune.tune(tasks, measurer, log, autotune.TuneOptions(trials=1000))
    minitvm.compile("model.onnx", schedules=autotune.apply_history_best("tune.jsonl"))

The compiler does not know it: a schedule is found by the structural hash of a kernel.
"""

from minitvm.autotune.history import ApplyHistoryBest, apply_history_best, coverage, shipped
from minitvm.autotune.measure.kernel import Timing
from minitvm.autotune.measure.measurer import LocalMeasurer, MeasureOptions
from minitvm.autotune.records import Log, Record, read_log
from minitvm.autotune.space import Space
from minitvm.autotune.task import Candidate, Task, extract_tasks
from minitvm.autotune.tune import Memory, ReplayMeasurer, TuneOptions, TuneReport, tune

__all__ = [
    "ApplyHistoryBest", "Candidate", "LocalMeasurer", "Log", "MeasureOptions", "Memory", "Record",
    "ReplayMeasurer", "Space", "Task", "Timing", "TuneOptions", "TuneReport", "apply_history_best",
    "coverage", "extract_tasks", "read_log", "shipped", "tune",
]
