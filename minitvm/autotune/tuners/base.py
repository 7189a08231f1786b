"""What proposes candidates: a tuner is asked for points of a space and told what became of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minitvm.autotune.candidates import Candidates

PATIENCE = 200
"""How many points that are known a tuner may draw in a row before it looks for one in order; how
many with known schedules it may draw for a batch."""


class Tuner:
    """The base: remembers what was proposed. Times are seconds, infinite for failures."""

    by_rules = 0.0
    """The share of a random point's knobs that are as the rules choose."""

    def __init__(self, candidates: Candidates, seed: int = 0) -> None:
        self.candidates = candidates
        self.space = candidates.task.space
        self.generator = np.random.default_rng(seed)
        self.tried: set[int] = set()
        self.seconds: dict[int, float] = {}

    def propose(self, count: int) -> list[int]:
        """Up to `count` points that were not proposed before, each with a schedule of its own; none
        where there are no more."""
        found: list[int] = []
        repeats = 0
        while len(found) < count and repeats < PATIENCE and (number := self.next()) is not None:
            self.tried.add(number)
            if self.candidates.is_repeat(number):
                repeats += 1
            else:
                found.append(number)
        return found

    def next(self) -> int | None:
        """One point that was not tried."""
        raise NotImplementedError

    def update(self, results: Iterable[tuple[int, float]]) -> None:
        """What proposed points took; again for those that were measured again."""
        self.seconds.update(results)
        self.tried.update(self.seconds)

    def random(self) -> int:
        """Any point."""
        return self.space.random(self.generator, self.by_rules)

    def fresh(self) -> int | None:
        """Any point that was not tried; None where all were."""
        for _ in range(PATIENCE):
            number = self.random()
            if number not in self.tried:
                return number
        if len(self.tried) >= len(self.space):
            return None
        start = self.space.random(self.generator)
        return next(number for step in range(len(self.space))
                    if (number := (start + step) % len(self.space)) not in self.tried)

    def best(self, count: int) -> list[int]:
        """The fastest points so far."""
        working = [number for number, time in self.seconds.items() if np.isfinite(time)]
        return sorted(working, key=lambda number: (self.seconds[number], number))[:count]
