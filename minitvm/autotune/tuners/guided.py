"""Search guided by a cost model: simulated annealing and evolution both climb its scores.

Annealing: chains of points, each moved by one knob at a time, that accept what is worse less and
less often; they go on from where they stood in the round before. Evolution: children of the fastest
points that were measured.
Source: "Learning to Optimize Tensor Programs" (arXiv 1805.08166); Ansor (OSDI 2020).
"""

from __future__ import annotations

import math

from minitvm.autotune.candidates import Candidates
from minitvm.autotune.tuners.scored import ScoredTuner

CHAINS = 32
STEPS = 40
CHILDREN = 64


class GuidedTuner(ScoredTuner):
    """Annealing and evolution on a rank model's scores."""

    def __init__(self, candidates: Candidates, seed: int = 0) -> None:
        super().__init__(candidates, seed)
        self._chains: list[int] = []

    def look_around(self) -> None:
        """Anneals, and adds children of the best."""
        self._anneal()
        self._evolve()

    def _anneal(self) -> None:
        while len(self._chains) < CHAINS:
            self._chains.append(self.space.random(self.generator))
        scores = self.score(self._chains)
        for step in range(STEPS):
            if self._left <= 0:
                break
            heat = max(1e-3, 1 - step / STEPS)
            moved = [self.space.neighbour(number, self.generator) for number in self._chains]
            found = self.score(moved)
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
        self.score(children)
