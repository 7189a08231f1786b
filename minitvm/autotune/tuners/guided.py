"""Search guided by a cost model, which learns from each batch what is fast here.

Simulated annealing and evolution both climb the model's scores. Annealing: chains of points, each
moved by one knob at a time, that accept what is worse less and less often; they go on from where
they stood in the round before. Evolution: children of the fastest points that were measured. Of all
points looked at, a batch takes the best by score, but no more than half of it from one value of the
knob that has most values (diversity), and a share of random points (epsilon-greedy), which keep the
model honest. Only so many new points are scheduled a round, as that is what a round costs.
Source: "Learning to Optimize Tensor Programs" (arXiv 1805.08166); Ansor (OSDI 2020).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from minitvm.autotune.candidates import Candidates
from minitvm.autotune.model import RankModel
from minitvm.autotune.tuners.base import Tuner

CHAINS = 32
STEPS = 40
EPSILON = 0.08
"""The share of a batch that is random."""
CHILDREN = 64
LOOKED_AT = 400
"""How many points are scheduled a round, at most."""


class GuidedTuner(Tuner):
    """Annealing and evolution on a rank model's scores."""

    def __init__(self, candidates: Candidates, seed: int = 0) -> None:
        super().__init__(candidates, seed)
        self.model = RankModel(seed)
        self._chains: list[int] = []
        self._scores: dict[int, float] = {}
        self._left = 0

    def update(self, results: Sequence[tuple[int, float]]) -> None:
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
        self._left = LOOKED_AT
        if len(self.space) <= LOOKED_AT:
            self._score(range(len(self.space)))
        else:
            self._anneal()
            self._evolve()
        pool = sorted((number for number, score in self._scores.items()
                       if number not in self.tried and score > -math.inf),
                      key=lambda number: (-self._scores[number], number))
        wanted = count - max(1, round(EPSILON * count))
        chosen = self._diverse(pool, wanted)
        self.tried.update(chosen)
        return self._random(count, chosen)

    def next(self) -> int | None:
        """A random point."""
        return self.fresh()

    def _random(self, count: int, chosen: list[int]) -> list[int]:
        return chosen + super().propose(count - len(chosen))

    def _score(self, numbers: Sequence[int]) -> list[float]:
        """The model's scores; minus infinity for what is refused, or beyond what may be looked
        at."""
        rows, places = [], []
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

    def _anneal(self) -> None:
        while len(self._chains) < CHAINS:
            self._chains.append(self.space.random(self.generator))
        scores = self._score(self._chains)
        for step in range(STEPS):
            if self._left <= 0:
                break
            heat = max(1e-3, 1 - step / STEPS)
            moved = [self.space.neighbour(number, self.generator) for number in self._chains]
            found = self._score(moved)
            luck = self.generator.random(len(moved))
            for place, (old, new) in enumerate(zip(scores, found, strict=True)):
                if new > -math.inf and (new >= old or luck[place] < math.exp((new - old) / heat)):
                    self._chains[place], scores[place] = moved[place], new

    def _evolve(self) -> None:
        self._left = max(self._left, CHILDREN)
        parents = self.best(CHAINS)
        if len(parents) < 2:
            return
        children = []
        for _ in range(CHILDREN):
            pair = self.generator.integers(len(parents), size=2)
            child = self.space.cross(parents[pair[0]], parents[pair[1]], self.generator)
            children.append(self.space.neighbour(child, self.generator))
        self._score(children)

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
