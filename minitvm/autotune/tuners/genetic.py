"""A genetic algorithm: the fastest points so far have children, which differ a little.

Parents are drawn by rank. A child has each knob from one of two parents, and then now and then
another value of one knob; some points are drawn at random, so that no part of the space is lost.
"""

from __future__ import annotations

from minitvm.autotune.tuners.base import PATIENCE, Tuner

ELITE = 16
MUTATION = 0.4
EPSILON = 0.1
"""The share of random points."""


class GeneticTuner(Tuner):
    """Evolution guided by measured times alone."""

    def next(self) -> int | None:
        """A child of two of the best, or a random point."""
        elite = self.best(ELITE)
        if len(elite) < 2 or self.generator.random() < EPSILON:
            return self.fresh()
        for _ in range(PATIENCE):
            first, second = (elite[self._rank(len(elite))] for _ in range(2))
            child = self.space.cross(first, second, self.generator)
            if child in (first, second) or self.generator.random() < MUTATION:
                child = self.space.neighbour(child, self.generator)
            if child not in self.tried:
                return child
        return self.fresh()

    def _rank(self, count: int) -> int:
        """A place among `count`, the first twice as likely as the middle."""
        return int(count * (1 - (1 - self.generator.random()) ** 0.5)) % count
