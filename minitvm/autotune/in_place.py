"""A tuned network, its log -> which of the best schedules of its kernels make the network faster.

    report = tune_in_place(autotune.extract_network("model.onnx"), measurer, log)

By themselves kernels find their data in the nearest cache; in a network they find what the kernel
before has left. So the best candidates of each kernel by the log are timed again in runs of the
whole network, beside the default schedules, in turns, and again on several threads: a schedule that
wins by itself and shares badly must not win. What beats the default beyond noise is *confirmed*: in
new processes, the network with all that won against the network with none of it. A schedule that
does not win again is dropped. If the network as a whole is not faster beyond noise, only what was
certainly faster stays, and is confirmed again; in the end that may be nothing.

The records of it say which network a kernel was timed in (`in_place`); those of the last contest
decide (`contest.decide`). A kernel that was dropped has only its default schedule in there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from minitvm.autotune.contest import decide, is_default, ratio, wins
from minitvm.autotune.measure.measurer import InPlace, NetworkMeasurer
from minitvm.autotune.records import (
    IN_PLACE,
    Record,
    measurement_key,
    network_task,
    target_features,
)
from minitvm.autotune.task import Network, Task
from minitvm.autotune.tune import Records
from minitvm.te.steps import Step

RIVALS = 3
"""How many schedules of a kernel are compared with its default one."""
NEAR = 1.05
"""How many times as long as the default schedule one may take by itself to be compared."""
CONFIRMATIONS = 4
"""How often, at most, what won is compared again."""
CERTAIN = 0.03
"""What a kernel must gain that stays where the network as a whole does not gain."""
NETWORK_MARGIN = 0.003
"""By how much of its time a network must be faster to be so."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule of a kernel."""

    config: Mapping[str, Any]
    steps: tuple[Step, ...]


Chosen = dict[str, Choice]
"""The schedules of kernels, by structural hash, that are not the default ones."""


@dataclass(frozen=True, slots=True)
class InPlaceRow:
    """A kernel: `alone` are its seconds by itself before and after, where both are known; `times`
    those in the network, by number of threads. `is_kept` where it is not the default schedule."""

    name: str
    weight: int
    compared: int
    alone: tuple[float, float] | None
    times: dict[int, tuple[float, float]]
    is_kept: bool


@dataclass(frozen=True, slots=True)
class NetworkTime:
    """The least seconds of a run before and after, on so many threads, and the ratio of the two by
    turns: median and quartiles. `is_faster` where that is beyond noise."""

    threads: int
    before_seconds: float
    after_seconds: float
    ratio: float
    quartiles: tuple[float, float]
    is_faster: bool


@dataclass(frozen=True, slots=True)
class InPlaceReport:
    """What was compared, and what is kept. Without `networks` nothing won, and nothing is kept."""

    network: str
    rows: tuple[InPlaceRow, ...]
    networks: tuple[NetworkTime, ...]
    problem: str = ""

    @property
    def kept(self) -> int:
        """How many kernels have another schedule than the default one."""
        return sum(row.is_kept for row in self.rows)

    def data(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {**asdict(self), "kept": self.kept}


def usual_threads(threads: int = 1) -> tuple[int, ...]:
    """The numbers of threads to compare on where a model is tuned for `threads`: one, and that or,
    where there are two processors, two."""
    other = threads if threads > 1 else min(2, len(os.sched_getaffinity(0)))
    return (1,) if other == 1 else (1, other)


Watch = Callable[[str, int, int], None]
"""`watch(what, done, total)`"""


def tune_in_place(network: Network, measurer: NetworkMeasurer, log: Records,
                  threads: Sequence[int] = (1,), watch: Watch | None = None,
                  sources: Sequence[Sequence[Record]] | None = None) -> InPlaceReport:
    """Compares the best schedules that the log has of a network's kernels in the network itself,
    and adds the records to the log; what it has of that already is not measured again. `sources`
    are logs in which else to look for schedules."""
    return _Contest(network, measurer, log, tuple(threads), watch or _silent, sources or ()).run()


def _silent(what: str, done: int, total: int) -> None:
    """Watches nothing."""


@dataclass(slots=True)
class _Round:
    """A contest of variants: the whole runs of each, by number of threads."""

    number: int
    runs: dict[int, list[tuple[float, ...]]] = field(default_factory=dict)


class _Contest:
    """One call of `tune_in_place`."""

    def __init__(self, network: Network, measurer: NetworkMeasurer, log: Records,
                 threads: tuple[int, ...], watch: Watch,
                 sources: Sequence[Sequence[Record]]) -> None:
        self.network, self.measurer, self.log = network, measurer, log
        self.threads, self.watch, self.sources = threads, watch, sources
        self.features = target_features(network.target)
        self.number = 0
        self.problem = ""

    def run(self) -> InPlaceReport:
        """A contest of all, then confirmations."""
        rivals = {task.key: found for task in self.network.tasks if (found := self._rivals(task))}
        if not rivals:
            return self._report({}, None)
        most = max(map(len, rivals.values()))
        compared = self._compare([{}, *({key: found[place] for key, found in rivals.items()
                                         if place < len(found)} for place in range(most))],
                                 "kernels in the network")
        chosen = {} if compared is None else self._winners(self.number)
        confirmed = None
        for _ in range(CONFIRMATIONS):
            compared = self._compare([{}, chosen], "the whole network") if chosen else None
            if compared is None:
                break
            confirmed, is_faster = compared, self._is_faster(compared)
            holding = self._winners(self.number)
            if is_faster and len(holding) == len(chosen):
                break
            chosen = holding if is_faster else self._certain(holding)
        if confirmed is not None and not self._is_faster(confirmed):
            self._drop_all(confirmed)
        return self._report(rivals, confirmed)

    # --- who takes part -------------------------------------------------------------------------

    def _of_task(self, task: Task, records: Sequence[Record] | None = None) -> list[Record]:
        return [record for record in (self.log.records if records is None else records)
                if record.task == task.key and record.target == self.features and record.seconds]

    def _rivals(self, task: Task) -> list[Choice]:
        """The best schedules by the logs: those that take the least share of the time of the
        default one, timed alike, and for the last of them what won in another network."""
        shares: list[tuple[float, str, Record]] = []
        for source in (self.log.records, *self.sources):
            for group in _groups(r for r in self._of_task(task, source) if not r.in_place):
                known = _best_known(group)
                default = known.get(task.default.steps)
                if default is not None:
                    shares += [(record.minimum / default.minimum, record.key, record)
                               for record in known.values() if record is not default]
        near = [record for share, _, record in sorted(shares, key=lambda item: item[:2])
                if share <= NEAR]
        found = {record.steps: Choice(record.config, record.steps) for record in near}
        chosen = list(found.values())[:RIVALS]
        elsewhere = self._decided([record for record in self._of_task(task) if record.in_place
                                   and record.in_place != self.network.name])
        if elsewhere is not None and all(choice.steps != elsewhere.steps for choice in chosen):
            chosen = [*chosen[:RIVALS - 1], Choice(elsewhere.config, elsewhere.steps)]
        return chosen

    @staticmethod
    def _decided(in_place: Sequence[Record]) -> Record | None:
        """What such records decide for, if not for the default schedule."""
        decision = decide(in_place)
        return None if decision is None or is_default(decision.best) else decision.best

    def _in_place(self, task: Task, until: int) -> list[Record]:
        """What was timed in networks, in this one up to a contest."""
        return [record for record in self._of_task(task) if record.in_place and (
            record.in_place != self.network.name or record.contest <= until)]

    def _winners(self, until: int) -> Chosen:
        """What the log decides for each kernel, but for default schedules."""
        return {task.key: Choice(best.config, best.steps) for task in self.network.tasks
                if (best := self._decided(self._in_place(task, until))) is not None}

    def _certain(self, chosen: Chosen) -> Chosen:
        """Those that gain most; none where that are all."""
        kept = {}
        for task in self.network.tasks:
            decision = decide(self._in_place(task, self.number)) if task.key in chosen else None
            if decision is not None and decision.gain >= 1 + CERTAIN:
                kept[task.key] = chosen[task.key]
        return kept if len(kept) < len(chosen) else {}

    # --- contests -------------------------------------------------------------------------------

    def _compare(self, variants: Sequence[Chosen], what: str) -> _Round | None:
        """The next contest, on each number of threads; from the log where that has all of it. None
        where the network does not run."""
        self.number += 1
        while True:
            known = [self.log.find(key) is not None for threads in self.threads
                     for key in self._keys(variants, threads)]
            if all(known) or not any(known):
                break
            self.number += 1
        done = _Round(self.number)
        for place, threads in enumerate(self.threads):
            if not any(known) and not self._measure(variants, threads, what, place):
                return None
            runs = [self.log.find(self._network_key(variant, threads)) for variant in variants]
            done.runs[threads] = [record.seconds if record else () for record in runs]
        return done

    def _measure(self, variants: Sequence[Chosen], threads: int, what: str, place: int) -> bool:
        """Whether the network runs."""
        steps = list(map(_steps, variants))

        def watch(done: int, total: int) -> None:
            self.watch(f"{what} on {threads} thread{'s' * (threads > 1)}", place * total + done,
                       len(self.threads) * total)

        watch(0, 1)
        found = self.measurer.in_place(self.network, steps, self.number, threads, watch)
        self.problem = found.problem or self.problem
        if not found.runs[0]:
            self.problem = self.problem or "there are no times of the network"
            return False
        for record in self._records(variants, threads, found):
            self.log.append(record)
        return True

    def _records(self, variants: Sequence[Chosen], threads: int, found: InPlace) -> list[Record]:
        """What was measured as records. Of several equal schedules of a kernel the first counts."""
        records: dict[str, Record] = {}
        for variant, kernels, runs in zip(variants, found.kernels, found.runs, strict=True):
            for task in self.network.tasks:
                seconds = kernels.get(task.key)
                if seconds:
                    choice = variant.get(task.key) or Choice({}, task.default.steps)
                    record = Record(task.key, task.workload, self.features, choice.config,
                                    choice.steps, seconds, contest=self.number, threads=threads,
                                    cache=IN_PLACE, in_place=self.network.name)
                    records.setdefault(record.key, record)
            if runs:
                config = {"kernels": tuple(sorted(variant))} if variant else {}
                record = Record(network_task(_steps(variant)), {"name": self.network.name},
                                self.features, config, (), runs, contest=self.number,
                                threads=threads, cache=IN_PLACE, in_place=self.network.name)
                records.setdefault(record.key, record)
        return list(records.values())

    def _keys(self, variants: Sequence[Chosen], threads: int) -> list[str]:
        keys = [self._network_key(variant, threads) for variant in variants]
        for variant in variants:
            for task in self.network.tasks:
                choice = variant.get(task.key)
                steps = choice.steps if choice else task.default.steps
                keys.append(self._key(task.key, steps, threads))
        return keys

    def _network_key(self, variant: Chosen, threads: int) -> str:
        return self._key(network_task(_steps(variant)), (), threads)

    def _key(self, task: str, steps: Sequence[Step], threads: int) -> str:
        return measurement_key(task, self.features, steps, self.number, threads, IN_PLACE,
                               self.network.name)

    def _is_faster(self, compared: _Round) -> bool:
        """Whether the last variant is faster than the first on some number of threads, and slower
        on none."""
        times = [_network_time(threads, runs) for threads, runs in compared.runs.items()]
        return any(time.is_faster for time in times) and all(
            time.ratio <= 1 + NETWORK_MARGIN for time in times)

    def _drop_all(self, last: _Round) -> None:
        """Nothing is kept: a contest that has default schedules alone, as they were timed last."""
        wanted = [record for record in self.log.records
                  if record.in_place == self.network.name and record.contest == last.number
                  and record.target == self.features
                  and is_default(record) and not record.is_network]
        if not self._winners(last.number):
            return
        message = "the network as a whole was not faster with other schedules"
        for record in wanted:
            dropped = replace(record, contest=last.number + 1, message=message)
            if self.log.find(dropped.key) is None:
                self.log.append(dropped)

    # --- the end --------------------------------------------------------------------------------

    def _report(self, rivals: Mapping[str, Sequence[Choice]],
                confirmed: _Round | None) -> InPlaceReport:
        rows = tuple(self._row(task, len(rivals.get(task.key, ())))
                     for task in self.network.tasks)
        times = () if confirmed is None else tuple(
            _network_time(threads, runs) for threads, runs in confirmed.runs.items())
        return InPlaceReport(self.network.name, rows, times, self.problem)

    def _row(self, task: Task, compared: int) -> InPlaceRow:
        records = self._of_task(task)
        best = self._decided([record for record in records if record.in_place])
        steps = task.default.steps if best is None else best.steps
        alone = None
        for group in _groups(record for record in records if not record.in_place):
            known = _best_known(group)
            if task.default.steps in known and steps in known:
                alone = known[task.default.steps].minimum, known[steps].minimum
        times = {threads: found for threads in self.threads if (found := _times(
            [record for record in records if record.in_place == self.network.name
             and record.threads == threads], steps)) is not None}
        return InPlaceRow(task.name, task.weight, compared, alone, times, best is not None)


def _times(records: Sequence[Record], steps: Sequence[Step]) -> tuple[float, float] | None:
    """The median seconds with the default schedule and with another one, where they were compared
    at last."""
    ordered = sorted(records, key=lambda record: -record.contest)
    other = next((record for record in ordered if record.steps == steps), None)
    default = next((record for record in ordered if is_default(record) and other is not None
                    and record.contest == other.contest), None)
    if other is None or default is None:
        return None
    median = float(np.median(default.seconds))
    return median, median * ratio(other.seconds, default.seconds)


def _groups(records: Iterable[Record]) -> list[list[Record]]:
    """Those that were timed alike."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(record.conditions, []).append(record)
    return list(groups.values())


def _best_known(group: Sequence[Record]) -> dict[tuple[Step, ...], Record]:
    """Of each schedule the record to believe, of such that were timed alike: of the last contest,
    else the last time that it was measured again, else its trial."""
    known: dict[tuple[Step, ...], Record] = {}
    for record in sorted(group, key=lambda record: (record.contest > 0, abs(record.contest))):
        known[record.steps] = record
    return known


def _steps(variant: Chosen) -> dict[str, tuple[Step, ...]]:
    return {key: choice.steps for key, choice in variant.items()}


def _network_time(threads: int, runs: Sequence[Sequence[float]]) -> NetworkTime:
    """The first variant against the last."""
    before, after = runs[0], runs[-1]
    if not after or len(before) != len(after):
        return NetworkTime(threads, min(before), min(before), 1.0, (1.0, 1.0), False)
    low, middle, high = map(float, np.quantile(np.divide(after, before), (0.25, 0.5, 0.75)))
    return NetworkTime(threads, min(before), min(after), middle, (low, high),
                       wins(after, before, NETWORK_MARGIN))

