"""Search by scores: of the points that a tuner looks at, a model chooses which to measure.

The model learns from each batch what is fast here. A batch takes the best by score, but no more
than half of it from one value of the knob that has most values (diversity), and a share of random
points (epsilon-greedy), which keep the model honest. Only so many new points are scheduled a round,
as that is what a round costs. Where points are looked at is what such tuners differ in.
Source: "Learning to Optimize Tensor Programs" (arXiv 1805.08166).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from minitvm.autotune.candidates import Candidates
from minitvm.autotune.model import RankModel
from minitvm.autotune.tuners.base import Tuner

EPSILON = 0.08
"""The share of a batch that is random."""
LOOKED_AT = 400
"""How many points are scheduled a round, at most."""


class ScoredTuner(Tuner):
    """The base of tuners that have a model."""

    epsilon = EPSILON
    looked_at = LOOKED_AT

    def __init__(self, candidates: Candidates, seed: int = 0) -> None:
        super().__init__(candidates, seed)
        self.model = RankModel(seed)
        self._scores: dict[int, float] = {}
        self._left = 0

    def look_around(self) -> None:
        """Scores points that may be good, by `score`."""
        raise NotImplementedError

    def update(self, results: Iterable[tuple[int, float]]) -> None:
        """Learns all that was measured so far."""
        super().update(results)
        rows = [(features, self.seconds[number]) for number in self.seconds
                if (features := self.candidates.features(number)) is not None]
        self.model.fit([row[0] for row in rows], [row[1] for row in rows])
        self._scores.clear()

    def propose(self, count: int) -> list[int]:
        """The best of those looked at by the model's scores, and some at random."""
        if not self.model.is_fitted:
            return self._random(count, [])
        self._left = self.looked_at
        if len(self.space) <= self.looked_at:
            self.score(range(len(self.space)))
        else:
            self.look_around()
        pool = sorted((number for number, score in self._scores.items()
                       if number not in self.tried and score > -math.inf
                       and not self.candidates.is_repeat(number)),
                      key=lambda number: (-self._scores[number], number))
        wanted = count - max(1, round(self.epsilon * count))
        chosen = self._diverse(pool, wanted)
        self.tried.update(chosen)
        return self._random(count, chosen)

    def next(self) -> int | None:
        """A random point."""
        return self.fresh()

    def _random(self, count: int, chosen: list[int]) -> list[int]:
        return chosen + super().propose(count - len(chosen))

    def score(self, numbers: Sequence[int]) -> list[float]:
        """The model's scores; minus infinity for what is refused, or beyond what may be looked
        at."""
        rows, places = [], []
        new = [number for number in dict.fromkeys(numbers) if number not in self._scores]
        self.candidates.prepare(new[:max(0, self._left)])
        for number in dict.fromkeys(numbers):
            if number in self._scores or self._left <= 0:
                continue
            self._left -= 1
            features = self.candidates.features(number)
            if features is None:
                self._scores[number] = -math.inf
            else:
                rows.append(features)
                places.append(number)
        scores = self.model.predict(rows)
        self._scores.update(zip(places, map(float, scores), strict=True))
        return [self._scores.get(number, -math.inf) for number in numbers]

    def _diverse(self, pool: Sequence[int], count: int) -> list[int]:
        """The first of the pool, in which no value of the widest knob has more than half."""
        widest = int(np.argmax(self.space.radices))
        seen: Counter[int] = Counter()
        chosen, later = [], []
        for number in pool:
            digit = self.space.digits(number)[widest]
            if seen[digit] < max(1, count // 2):
                seen[digit] += 1
                chosen.append(number)
            else:
                later.append(number)
            if len(chosen) == count:
                return chosen
        return (chosen + later)[:count]
