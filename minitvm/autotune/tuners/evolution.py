"""Evolution of whole schedules, by a model's scores: the search for spaces of sketches.

A population starts with the fastest points that were measured and with random ones, of any
structure. In each generation parents are drawn by score; a child differs from its parent in one
choice that it uses, or has each of its choices from one of two parents. Most changes are of tile
sizes: a factor moves from one level of an axis to another. The best of all generations that were
not measured make the batch.
Source: Ansor (OSDI 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitvm.autotune.candidates import Candidates
from minitvm.autotune.tuners.scored import EPSILON, ScoredTuner
from minitvm.te.recipes.knobs import Knob


@dataclass(frozen=True, slots=True)
class Evolution:
    """How schedules evolve. population: points a generation; from_best: the share of the first one
    that was measured; mutation: the share of children that have one parent; tile_sizes, structure:
    how likely a mutation changes these, else another choice; epsilon: the share of a batch that is
    random; by_rules: the share of a random point's choices that are as the rules make them."""

    population: int = 128
    generations: int = 4
    from_best: float = 0.2
    mutation: float = 0.85
    tile_sizes: float = 0.8
    structure: float = 0.05
    epsilon: float = EPSILON
    by_rules: float = 0.0


class EvolutionTuner(ScoredTuner):
    """Generations of points, each by the scores of the one before."""

    def __init__(self, candidates: Candidates, seed: int = 0,
                 evolution: Evolution | None = None) -> None:
        super().__init__(candidates, seed)
        self.evolution = evolution or Evolution()
        self.epsilon = self.evolution.epsilon
        self.by_rules = self.evolution.by_rules
        self.looked_at = self.evolution.population * (self.evolution.generations + 1)

    def look_around(self) -> None:
        """Scores all generations."""
        size = self.evolution.population
        population = self.best(round(self.evolution.from_best * size))
        population += [self.random() for _ in range(size - len(population))]
        scores = self.score(population)
        for _ in range(self.evolution.generations):
            chances = _chances(scores)
            pairs = self.generator.choice(size, (size, 2), p=chances)
            population = [self._child(population[a], population[b]) for a, b in pairs]
            scores = self.score(population)

    def _child(self, first: int, second: int) -> int:
        if self.generator.random() >= self.evolution.mutation:
            return self.space.cross(first, second, self.generator)
        return self.mutate(first)

    def mutate(self, number: int) -> int:
        """A point that differs in one choice that the point uses."""
        made = self.candidates.get(number)
        used = [place for place, knob in enumerate(self.space.knobs) if len(knob.alternatives) > 1
                and (made is None or not made.config or knob.name in made.config)]
        groups: dict[str, list[int]] = {}
        for place in used:
            groups.setdefault(_kind(self.space.knobs[place]), []).append(place)
        if not groups:
            return number
        rules = self.evolution
        weights = {"tile": rules.tile_sizes, "structure": rules.structure,
                   "other": 1 - rules.tile_sizes - rules.structure}
        kinds = list(groups)
        share = np.array([weights[kind] for kind in kinds]) + 1e-9
        kind = kinds[int(self.generator.choice(len(kinds), p=share / share.sum()))]
        place = groups[kind][int(self.generator.integers(len(groups[kind])))]
        digits = list(self.space.digits(number))
        digits[place] = self._other_value(place, digits[place])
        return self.space.number(digits)

    def _other_value(self, place: int, digit: int) -> int:
        knob = self.space.knobs[place]
        near = moves(knob, digit) if _kind(knob) == "tile" else []
        if near:
            return near[int(self.generator.integers(len(near)))]
        step = 1 + int(self.generator.integers(len(knob.alternatives) - 1))
        return (digit + step) % len(knob.alternatives)


def _chances(scores: list[float]) -> np.ndarray:
    """How likely each point is a parent: twice as likely for each half unit of score; never where
    it is refused."""
    values = np.array(scores)
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(len(values), 1 / len(values))
    weights = np.where(finite, np.exp2(2 * (values - values[finite].max())), 0.0)
    chances: np.ndarray = weights / weights.sum()
    return chances


def _kind(knob: Knob) -> str:
    if knob.is_structure:
        return "structure"
    sizes = isinstance(knob.default, tuple) and all(isinstance(n, int) for n in knob.default)
    return "tile" if sizes else "other"


def moves(knob: Knob, digit: int) -> list[int]:
    """The values of tile sizes that are got by moving a factor from one level to another; the
    outermost level has what the others leave."""
    value = knob.alternatives[digit]
    return [place for place, other in enumerate(knob.alternatives)
            if place != digit and _is_move(value, other)]


def _is_move(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    if len(pairs) == 1:
        return max(pairs[0]) % min(pairs[0]) == 0
    return len(pairs) == 2 and pairs[0][0] * pairs[1][0] == pairs[0][1] * pairs[1][1] and all(
        max(pair) % min(pair) == 0 for pair in pairs)
