"""A log -> what would be measured: tuning without a clock, for `--replay` and for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minitvm.autotune.measure.measurer import InPlace, Outcome, Variant
from minitvm.autotune.records import (
    IN_PLACE,
    Record,
    measurement_key,
    network_task,
    target_features,
)
from minitvm.autotune.task import Candidate, Network, Task
from minitvm.te.steps import Step


class ReplayMeasurer:
    """Knows what a log knows, and nothing else: `tune_tasks` with it costs no time."""

    def __init__(self, records: Sequence[Record], threads: int = 1, cache: str = "warm") -> None:
        self._found = {record.key: record for record in records}
        self._options = (threads, cache)

    def build_ahead(self, candidates: Sequence[tuple[Task, Candidate]]) -> None:
        """Nothing is built."""

    def measure(self, task: Task, candidates: Sequence[Candidate],
                best_seconds: float) -> list[Outcome | None]:
        """What was recorded; None for other candidates."""
        return self.contest(task, candidates, 0)

    def contest(self, task: Task, candidates: Sequence[Candidate],
                number: int) -> list[Outcome | None]:
        """The same for a contest."""
        features = target_features(task.target)
        found = [self._found.get(measurement_key(task.key, features, candidate.steps, number,
                                                 *self._options)) for candidate in candidates]
        return [None if r is None else Outcome(r.seconds, r.error, r.message) for r in found]

    def in_place(self, network: Network, variants: Sequence[Variant], number: int, threads: int,
                 watch: Callable[[int, int], None]) -> InPlace:
        """The same for a contest in a network; nothing of variants that the log does not know."""
        features = target_features(network.target)

        def seconds(task: str, steps: Sequence[Step]) -> tuple[float, ...]:
            found = self._found.get(measurement_key(task, features, steps, number, threads,
                                                    IN_PLACE, network.name))
            return () if found is None else found.seconds

        kernels = tuple(
            {task.key: times for task in network.tasks
             if (times := seconds(task.key, variant.get(task.key, task.default.steps)))}
            for variant in variants)
        runs = tuple(seconds(network_task(variant), ()) for variant in variants)
        return InPlace(kernels, runs)
