"""Measurements of one kernel -> the schedule to use: the best that beats the default one.

Records count together where they were made on one machine and timed alike. Where candidates were
compared in turns (a contest), the last comparison decides; else the trials, and for candidates that
were measured again in between, the last time of these. The default schedule wins unless another
beats it beyond noise (`beats`), so that tuning never ends slower than not tuning.

A kernel that takes least time by itself need not in a network, whose other kernels leave other data
in the caches and want other data there. Where kernels were compared in the runs of whole networks
(`in_place`), these records alone decide: what is used beats the default schedule in one, on some
number of threads, and is slower in none of those that it was compared in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minitvm.autotune.records import Record
from minitvm.te.steps import Step

MARGIN = 0.01
"""By how much of its time a schedule must beat the default one."""
TURNS_WON = 0.75
"""In how many of the turns of a contest, at least. Of two schedules that are alike, one wins so
many of 24 turns about once in a hundred contests."""
SLOWER = 0.005
"""By how much of its time a schedule may seem slower in a network without being so."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The schedule to use for a kernel, and the default one as it was timed beside it, if it was:
    the same record where the default is to be used. `gain` is how many times as fast it is as the
    default; 1 where that was not measured. `records` alone lead to the same decision."""

    best: Record
    default: Record | None
    gain: float
    records: tuple[Record, ...]


def is_default(record: Record) -> bool:
    """Whether this is the schedule that the rules choose."""
    return not record.config


def beats(record: Record, default: Record) -> bool:
    """Whether a schedule is faster than the default one beyond noise.

    Its least time must be less by `MARGIN`. In a contest, where a repetition of each follows upon
    one of the other, it must also win `TURNS_WON` of them; else the times are of different moments,
    and half of its own must be less than any of the default's.
    """
    if not record.minimum < (1 - MARGIN) * default.minimum:
        return False
    if 0 < record.contest == default.contest and len(record.seconds) == len(default.seconds):
        won = sum(mine < other for mine, other in zip(record.seconds, default.seconds))
        return won >= TURNS_WON * len(record.seconds)
    return record.median < default.minimum


def wins(seconds: Sequence[float], others: Sequence[float], margin: float) -> bool:
    """Whether times are less than others beyond noise, turn by turn."""
    if not seconds or len(seconds) != len(others):
        return False
    ratios = np.divide(seconds, others)
    return bool(np.median(ratios) <= 1 - margin and (ratios < 1).mean() >= TURNS_WON)


def ratio(seconds: Sequence[float], others: Sequence[float]) -> float:
    """The time as a share of another one, turn by turn; infinite where there are no such turns."""
    if not seconds or len(seconds) != len(others):
        return float("inf")
    return float(np.median(np.divide(seconds, others)))


def decide(records: Sequence[Record]) -> Decision | None:
    """What to use, by the records of a kernel on one machine, timed alike; None where nothing
    works."""
    working = [record for record in records if record.seconds]
    if not working:
        return None
    if working[0].in_place:
        return _decide_in_place(working)
    compared = _compared(working)
    default = next((record for record in compared if is_default(record)), None)
    if default is None:
        best = min(compared, key=_time)
        return Decision(best, None, 1.0, (best,))
    rivals = [record for record in compared if beats(record, default)]
    best = min(rivals, key=_time, default=default)
    return Decision(best, default, default.minimum / best.minimum,
                    (best,) if best is default else (default, best))


def _decide_in_place(working: Sequence[Record]) -> Decision | None:
    """By what was timed in networks. A contest is of one network and number of threads; one in
    which the default schedule did not work says nothing."""
    defaults = {_contest(record): record for record in working if is_default(record)}
    last: dict[tuple[str, int], int] = {}
    for network, threads, number in defaults:
        last[network, threads] = max(number, last.get((network, threads), number))
    if not last:
        return None
    usual = min((defaults[*place, number] for place, number in last.items()),
                key=lambda record: (record.threads, record.in_place))
    rivals: dict[tuple[Step, ...], dict[tuple[str, int], Record]] = {}
    for record in sorted(working, key=lambda record: record.contest):
        if not is_default(record) and _contest(record) in defaults:
            rivals.setdefault(record.steps, {})[record.in_place, record.threads] = record
    best, best_ratio = None, 1.0
    for met in rivals.values():
        ratios = {place: ratio(record.seconds, defaults[_contest(record)].seconds)
                  for place, record in met.items()}
        won = any(record.contest == last[place]
                  and wins(record.seconds, defaults[_contest(record)].seconds, MARGIN)
                  for place, record in met.items())
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        if won and max(ratios.values()) <= 1 + SLOWER and mean < best_ratio:
            best, best_ratio = met, mean
    if best is None:
        return Decision(usual, usual, 1.0, (usual,))
    shown = min(best.values(), key=lambda record: (record.threads, record.in_place))
    kept = [each for record in best.values() for each in (defaults[_contest(record)], record)]
    return Decision(shown, defaults[_contest(shown)], 1 / best_ratio, tuple(kept))


def _contest(record: Record) -> tuple[str, int, int]:
    return record.in_place, record.threads, record.contest


def winner(records: Sequence[Record]) -> Record | None:
    """The record of `decide`."""
    decision = decide(records)
    return None if decision is None else decision.best


def _compared(working: Sequence[Record]) -> list[Record]:
    """The records between which to choose: those of the last contest in which the default schedule
    worked, else the last time of each schedule."""
    contests = [record.contest for record in working if is_default(record)]
    last = max(contests, default=0)
    if last > 0:
        return [record for record in working if record.contest == last]
    ordered = sorted(working, key=lambda record: -record.contest)
    trials = {record.steps: record for record in ordered if record.contest <= 0}
    return list(trials.values()) or ordered


def _time(record: Record) -> float:
    return record.minimum


def pick_best(logs: Iterable[Iterable[Record]]) -> list[Record]:
    """Of each kernel, machine and way of timing only the records that lead to the decision: the
    best schedule, and the default one that it was compared with. Where a kernel was compared in
    networks, that is the only way that counts.

    Times of different logs are not compared, as they are of different moments: where several logs
    know a kernel, the one in which the best schedule gains most over the default decides.
    """
    chosen: dict[tuple[str, str], dict[str, Decision]] = {}
    for log in logs:
        for (task, machine, group), records in _groups(log).items():
            decision = decide(records)
            known = chosen.setdefault((task, machine), {})
            if decision is not None and (
                    group not in known or decision.gain > known[group].gain):
                known[group] = decision
    found: list[Record] = []
    for ways in chosen.values():
        in_place = [decision for decision in ways.values() if decision.best.in_place]
        for decision in in_place or ways.values():
            found += decision.records
    return found


def _groups(records: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """Records of kernels by what must be equal for their times to be compared."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if not record.is_network:
            key = (record.task, record.machine, repr(record.conditions))
            groups.setdefault(key, []).append(record)
    return groups
