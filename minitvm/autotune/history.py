"""Records -> schedules: which one is the best for a kernel, and why a kernel has none.

    module = minitvm.compile("model.onnx", schedules=autotune.apply_history_best("tune.jsonl"))

    with autotune.apply_history_best("tune.jsonl"):      the same for all that is compiled inside,
        module = minitvm.compile("model.onnx")           and for templates that are called there

`contest` says what is best; nothing applies that does not beat the default schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from minitvm.autotune.contest import is_default, winner
from minitvm.autotune.records import CLASS_FEATURES, Record, read_log, target_features
from minitvm.autotune.task import kernel_tasks
from minitvm.driver import SCHEDULES, FindSchedule
from minitvm.relay.ir import Module
from minitvm.target import Target
from minitvm.te.steps import Step


class ApplyHistoryBest:
    """The best known schedule by the structural hash of a kernel, for one target. Calling it with a
    hash gives the steps, or None where the default schedule is to be used.

    A record counts where the features of its class (`CLASS_FEATURES`) are the target's. Of several
    machines of the class, or ways of timing, those of this very machine are believed first, then
    those made in the runs of networks, else those with most records of the kernel; they are never
    mixed.
    """

    def __init__(self, records: Iterable[Record], target: Target) -> None:
        self.target = target
        self.records = tuple(record for record in records if not record.is_network)
        features = target_features(target)
        groups: dict[str, list[Record]] = {}
        for record in self.records:
            if all(record.target.get(name) == features[name] for name in CLASS_FEATURES):
                groups.setdefault(record.task, []).append(record)
        self.best: dict[str, Record] = {}
        for task, found in groups.items():
            if (best := winner(_alike(found, features))) is not None:
                self.best[task] = best
        self._tokens: list[Token[FindSchedule | None]] = []

    def __call__(self, task: str) -> tuple[Step, ...] | None:
        """The steps to take for a kernel."""
        record = self.best.get(task)
        return None if record is None or is_default(record) else record.steps

    def __enter__(self) -> ApplyHistoryBest:
        self._tokens.append(SCHEDULES.set(self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        SCHEDULES.reset(self._tokens.pop())


def _alike(records: Sequence[Record], features: Mapping[str, Any]) -> list[Record]:
    """Those of one machine that were timed alike."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(record.conditions, []).append(record)
    return max(groups.values(), key=lambda group: (
        group[0].target == features, bool(group[0].in_place), len(group)))


def apply_history_best(log: str | PathLike[str] | Iterable[Record],
                       target: Target | str | None = None) -> ApplyHistoryBest:
    """The best schedules in a tuning log (or records) for a target, by default this machine. Raises
    `TuningError` for a log that can't be read."""
    machine = target if isinstance(target, Target) else Target(target) if target else Target.host()
    records = read_log(Path(log)) if isinstance(log, str | PathLike) else log
    return ApplyHistoryBest(records, machine)


def current_history() -> ApplyHistoryBest | None:
    """The innermost history that was entered."""
    found = SCHEDULES.get()
    return found if isinstance(found, ApplyHistoryBest) else None


# --- what is missing ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Miss:
    """A kernel without a record: the nearest one, and in what it differs."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of a model's kernels that have a choice of schedules have a record."""

    tuned: int
    total: int
    misses: tuple[Miss, ...]

    def __str__(self) -> str:
        return f"{self.tuned}/{self.total} kernels tuned"


def coverage(module: Module, history: ApplyHistoryBest) -> Coverage:
    """Which kernels of a module that is fused have a schedule, and why the others have none."""
    tuned, misses = 0, []
    for task in kernel_tasks(module, history.target):
        if task.key in history.best:
            tuned += 1
        elif len(task.space) > 1:
            misses.append(explain_miss(task.key, task.workload, history))
    return Coverage(tuned, tuned + len(misses), tuple(misses))


def explain_miss(task: str, workload: Mapping[str, Any], history: ApplyHistoryBest) -> Miss:
    """Why a kernel has no schedule: the field in which the nearest record differs."""
    name = str(workload["name"])
    features = target_features(history.target)
    for record in history.records:
        if record.task == task:
            field = next((f for f in CLASS_FEATURES if record.target.get(f) != features[f]), None)
            if field is None:
                return Miss(name, f"every candidate failed; the last: {record.error}: "
                                  f"{record.message}")
            return Miss(name, f"the nearest record is of another target: its {field} is "
                              f"{record.target.get(field)}, here it is {features[field]}")
    nearest = min(history.records, default=None,
                  key=lambda record: len(_differences(record.workload, workload)))
    if nearest is None:
        return Miss(name, "the log has no records")
    there, here = _differences(nearest.workload, workload)[0] if (
        _differences(nearest.workload, workload)) else ("another structure", "this")
    return Miss(name, f"the nearest record is of {nearest.workload.get('name')}: it has {there}, "
                      f"this kernel has {here}")


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What two workloads have in the same place and different."""
    found = []
    for field in ("operators", "parameters", "arguments"):
        left, right = (list(map(str, workload.get(field, ()))) for workload in (first, second))
        length = max(len(left), len(right))
        left += ["nothing more"] * (length - len(left))
        right += ["nothing more"] * (length - len(right))
        # An operator that differs is further away than a shape.
        weight = 4 if field == "operators" else 1
        found += [pair for pair in zip(left, right) if pair[0] != pair[1]] * weight
    return found
