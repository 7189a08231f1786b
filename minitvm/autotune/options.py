"""How long to tune, and how."""

from __future__ import annotations

from dataclasses import dataclass

TUNER_NAMES = ("xgboost", "evolution", "genetic", "random", "grid")
"""What chooses candidates: `tuners.TUNERS` by name."""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How long, and how.

    trials: measurements, over all tasks; those that a log has already count. seconds: until no
    further round begins. early_stopping: how many trials of a task without gain end it. batch: how
    many candidates a round measures. identical_failures: after so many candidates of a task that
    fail alike, one after the other, tuning stops. contestants: how many meet the default schedule
    at the end. threads and cache are how candidates are timed, as the records say.
    """

    trials: int | None = None
    seconds: float | None = None
    tuner: str = "xgboost"
    seed: int = 0
    batch: int = 16
    early_stopping: int = 96
    identical_failures: int = 24
    contestants: int = 4
    threads: int = 1
    cache: str = "warm"
