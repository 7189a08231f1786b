"""The space of a task: every combination of the values of its knobs, numbered.

A point is a tuple of digits, one for each knob, or the number that they make. Knobs that a recipe
meets only after certain decisions are in the space when they are met by default, or after a choice
of structure; two points that differ in nothing that is used give the same schedule, which is
measured once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import numpy as np

from minitvm.te.recipes.knobs import Knob


@dataclass(frozen=True, slots=True)
class Space:
    """Knobs, and all combinations of their values."""

    knobs: tuple[Knob, ...]

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        return tuple(len(knob.alternatives) for knob in self.knobs)

    def __len__(self) -> int:
        return prod(self.radices)

    @property
    def default(self) -> int:
        """The number of the point at which every knob is as the rules choose."""
        return self.number([knob.alternatives.index(knob.default) for knob in self.knobs])

    def number(self, digits: Sequence[int]) -> int:
        """The number of a point."""
        result = 0
        for digit, radix in zip(digits, self.radices, strict=True):
            result = result * radix + int(digit)
        return result

    def digits(self, number: int) -> tuple[int, ...]:
        """The inverse of `number`."""
        found = []
        for radix in reversed(self.radices):
            number, digit = divmod(number, radix)
            found.append(digit)
        return tuple(reversed(found))

    def values(self, number: int) -> dict[str, Any]:
        """What is decided at a point, by the knobs' names."""
        return {knob.name: knob.alternatives[digit]
                for knob, digit in zip(self.knobs, self.digits(number), strict=True)}

    def coordinates(self, number: int, used: Collection[str]) -> list[float]:
        """A point as numbers: logarithms of sizes, places of other values among those of a knob;
        -1 for knobs that the point does not use. As many for all points."""
        found: list[float] = []
        for knob, digit in zip(self.knobs, self.digits(number), strict=True):
            width = _width(knob)
            if knob.name not in used:
                found += [-1.0] * max(width, 1)
            elif width:
                value = knob.alternatives[digit]
                found += [log2(1 + n) for n in (value if isinstance(value, tuple) else (value,))]
            else:
                found.append(float(digit))
        return found

    def find(self, values: Mapping[str, Any]) -> int | None:
        """The number of a point by its values; None where the space has no such point."""
        digits = []
        for knob in self.knobs:
            value = values.get(knob.name, knob.default)
            if value not in knob.alternatives:
                return None
            digits.append(knob.alternatives.index(value))
        return self.number(digits)

    def random(self, generator: np.random.Generator, by_rules: float = 0.0) -> int:
        """Any point, each as likely; or one at which each knob is, with the chance `by_rules`, as
        the rules choose."""
        digits = [int(generator.integers(radix)) for radix in self.radices]
        if by_rules:
            kept = generator.random(len(digits)) < by_rules
            rules = self.digits(self.default)
            digits = [b if keep else a for a, b, keep in zip(digits, rules, kept, strict=True)]
        return self.number(digits)

    def neighbour(self, number: int, generator: np.random.Generator) -> int:
        """A point that differs in one knob; the point itself where it is the only one."""
        digits = list(self.digits(number))
        movable = [place for place, radix in enumerate(self.radices) if radix > 1]
        if not movable:
            return number
        place = movable[int(generator.integers(len(movable)))]
        step = 1 + int(generator.integers(self.radices[place] - 1))
        digits[place] = (digits[place] + step) % self.radices[place]
        return self.number(digits)

    def cross(self, first: int, second: int, generator: np.random.Generator) -> int:
        """A point with each knob as in one of two points."""
        pairs = zip(self.digits(first), self.digits(second), strict=True)
        return self.number([pair[int(generator.integers(2))] for pair in pairs])


def _width(knob: Knob) -> int:
    """How many sizes each value of a knob has; 0 where values are no sizes, or differ in that."""
    parts = [value if isinstance(value, tuple) else (value,) for value in knob.alternatives]
    sizes = all(type(n) is int and n >= 0 for part in parts for n in part)
    return len(parts[0]) if sizes and len({len(part) for part in parts}) == 1 else 0
