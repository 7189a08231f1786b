"""Choices: what a random program or schedule is made with, by hypothesis or by a seed.

    DrawnChoices(draw)      hypothesis decides, and shrinks what fails
    SeededChoices(seed)     a random generator decides: quick, for long runs
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Choices(Protocol):
    """Decides."""

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""

    def permutation(self, items: Sequence[T]) -> list[T]:
        """The items in some order."""


class DrawnChoices:
    """Hypothesis decides."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return int(self._draw(st.integers(low, high)))

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.integer(0, len(items) - 1)]

    def permutation(self, items: Sequence[T]) -> list[T]:
        """The items in some order."""
        return list(self._draw(st.permutations(list(items))))


class SeededChoices:
    """A random generator decides."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return self._random.randint(low, high)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return self._random.choice(items)

    def permutation(self, items: Sequence[T]) -> list[T]:
        """The items in some order."""
        return self._random.sample(items, len(items))
