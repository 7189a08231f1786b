"""Measurements of one kernel -> the schedule to use: the best that beats the default one.

Records count together where they were made on one machine and timed alike. Where candidates were
compared in turns (a contest), the last comparison decides; else the trials, and for candidates that
were measured again in between, the last time of these. The default schedule wins unless another
beats it beyond noise (`beats`), so that tuning never ends slower than not tuning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minitvm.autotune.records import Record

MARGIN = 0.01
"""By how much of its time a schedule must beat the default one."""
TURNS_WON = 0.75
"""In how many of the turns of a contest, at least. Of two schedules that are alike, one wins so
many of 24 turns about once in a hundred contests."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The schedule to use for a kernel, and the default one as it was timed beside it, if it was:
    the same record where the default is to be used."""

    best: Record
    default: Record | None

    @property
    def gain(self) -> float:
        """How many times as fast as the default schedule; 1 where that was not measured."""
        return 1.0 if self.default is None else self.default.minimum / self.best.minimum

    @property
    def records(self) -> tuple[Record, ...]:
        """The records that alone lead to the same decision."""
        if self.default is None or self.default is self.best:
            return (self.best,)
        return self.default, self.best


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


def decide(records: Sequence[Record]) -> Decision | None:
    """What to use, by the records of a kernel on one machine, timed alike; None where nothing
    works."""
    working = [record for record in records if record.seconds]
    if not working:
        return None
    compared = _compared(working)
    default = next((record for record in compared if is_default(record)), None)
    if default is None:
        return Decision(min(compared, key=_time), None)
    rivals = [record for record in compared if beats(record, default)]
    return Decision(min(rivals, key=_time, default=default), default)


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
    best schedule, and the default one that it was compared with.

    Times of different logs are not compared, as they are of different moments: where several logs
    know a kernel, the one in which the best schedule gains most over the default decides.
    """
    chosen: dict[str, Decision] = {}
    for log in logs:
        for group, records in _groups(log).items():
            decision = decide(records)
            known = chosen.get(group)
            if decision is not None and (known is None or decision.gain > known.gain):
                chosen[group] = decision
    return [record for decision in chosen.values() for record in decision.records]


def _groups(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by what must be equal for their times to be compared."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(repr((record.task, record.conditions)), []).append(record)
    return groups
