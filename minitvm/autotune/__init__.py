"""The tuner: measures schedules of kernels, and remembers the best of each.

    tasks = autotune.extract_tasks("model.onnx")
    with autotune.Log.open(Path("tune.jsonl")) as log, autotune.LocalMeasurer() as measurer:
        autotune.tune_tasks(tasks, measurer, log, autotune.TuneOptions(trials=1000))
    minitvm.compile("model.onnx", schedules=autotune.apply_history_best("tune.jsonl"))

The compiler does not know it: a schedule is found by the structural hash of a kernel. Names load
when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minitvm.autotune.contest import pick_best
    from minitvm.autotune.history import ApplyHistoryBest, apply_history_best, coverage
    from minitvm.autotune.in_place import InPlaceReport, tune_in_place, usual_threads
    from minitvm.autotune.measure.kernel import Timing
    from minitvm.autotune.measure.measurer import LocalMeasurer, MeasureOptions
    from minitvm.autotune.options import TuneOptions
    from minitvm.autotune.policy import SketchPolicy
    from minitvm.autotune.records import Log, Record, read_log, write_records
    from minitvm.autotune.replay import ReplayMeasurer
    from minitvm.autotune.shipped_records import shipped
    from minitvm.autotune.sketch import SearchTask, best_schedule, register_workload
    from minitvm.autotune.space import Space
    from minitvm.autotune.task import Candidate, Network, Task, extract_network, extract_tasks
    from minitvm.autotune.templates import create_task, get_config, template
    from minitvm.autotune.tune import Memory, TuneReport, tune_tasks
    from minitvm.autotune.tuners.evolution import Evolution

_HOMES = {
    "ApplyHistoryBest": "history", "Candidate": "task", "Evolution": "tuners.evolution",
    "LocalMeasurer": "measure.measurer", "Log": "records", "MeasureOptions": "measure.measurer",
    "Memory": "tune", "Record": "records", "ReplayMeasurer": "replay", "SearchTask": "sketch",
    "SketchPolicy": "policy", "Space": "space", "Task": "task", "Timing": "measure.kernel",
    "TuneOptions": "options", "TuneReport": "tune", "apply_history_best": "history",
    "InPlaceReport": "in_place", "Network": "task",
    "best_schedule": "sketch", "coverage": "history", "create_task": "templates",
    "extract_network": "task", "extract_tasks": "task", "tune_in_place": "in_place",
    "usual_threads": "in_place", "get_config": "templates", "pick_best": "contest",
    "read_log": "records", "register_workload": "sketch", "shipped": "shipped_records",
    "template": "templates", "tune_tasks": "tune", "write_records": "records",
}

__all__ = [
    "ApplyHistoryBest", "Candidate", "Evolution", "InPlaceReport", "LocalMeasurer", "Log",
    "MeasureOptions", "Memory", "Network", "Record", "ReplayMeasurer", "SearchTask", "SketchPolicy",
    "Space", "Task", "Timing", "TuneOptions", "TuneReport", "apply_history_best", "best_schedule",
    "coverage", "create_task", "extract_network", "extract_tasks", "get_config", "pick_best",
    "read_log", "register_workload", "shipped", "template", "tune_in_place", "tune_tasks",
    "usual_threads", "write_records",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads a name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'minitvm.autotune' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"minitvm.autotune.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
