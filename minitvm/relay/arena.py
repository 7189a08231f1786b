"""Lifetimes and sizes -> offsets in one arena, such that what lives at one time doesn't overlap.

Dynamic storage allocation is NP-hard; greedy placement in a good order is close to the lower bound
on networks. A block goes into the tightest gap that the blocks living at the same time leave. The
orders tried are those of "Efficient Memory Management for Deep Neural Net Inference" (arXiv
2001.03288) and two more; if none comes within `TARGET` of the bound, the best is improved: what
sticks out at the top is placed earlier.

Placing n blocks once takes n steps over numpy arrays of up to n elements: about half a second for
10,000.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

TARGET = 1.05
"""Stop looking at this ratio of the arena to the lower bound."""

PLACEMENTS = 6000
"""About how many blocks may be placed in all attempts to improve; keeps planning quick."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A block of `size` bytes that lives from step `start` to step `end`, both included."""

    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The offset of each block, and the size of the arena."""

    offsets: tuple[int, ...]
    size: int


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes that live at one step: no placement needs less."""
    return int(_live_bytes(lifetimes).max(initial=0))


def place(lifetimes: Sequence[Lifetime]) -> Placement:
    """The best placement found. Deterministic."""
    bound = lower_bound(lifetimes)
    best, best_order = Placement((), 0), np.zeros(0, np.int64)
    for order in _orders(lifetimes):
        found = _place_in_order(lifetimes, order)
        if not best.offsets or found.size < best.size:
            best, best_order = found, order
        if best.size == bound:
            break
    return _improve(lifetimes, best, best_order, bound)


def _live_bytes(lifetimes: Sequence[Lifetime]) -> np.ndarray:
    """The bytes that live at each step."""
    steps = max((item.end for item in lifetimes), default=-1) + 2
    change = np.zeros(steps, np.int64)
    for item in lifetimes:
        change[item.start] += item.size
        change[item.end + 1] -= item.size
    return np.cumsum(change)


def _orders(lifetimes: Sequence[Lifetime]) -> Iterator[np.ndarray]:
    """By size; by the fullest step in the lifetime; by duration; by time."""
    start = np.array([item.start for item in lifetimes], np.int64)
    duration = np.array([item.end - item.start for item in lifetimes], np.int64)
    size = np.array([item.size for item in lifetimes], np.int64)
    yield np.lexsort((start, -size))
    live = _live_bytes(lifetimes)
    fullest = _range_maxima(live, start, start + duration)
    yield np.lexsort((start, -size, -fullest))
    yield np.lexsort((start, -size, -duration))
    yield np.lexsort((start, -size * (duration + 1)))
    yield np.lexsort((-size, start))


def _range_maxima(values: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The greatest of `values[first[i]..last[i]]` for each i, by a sparse table."""
    table = [values]
    while 2 ** len(table) <= len(values):
        half = 2 ** (len(table) - 1)
        table.append(np.maximum(table[-1][:-half], table[-1][half:]))
    result = np.empty(len(first), np.int64)
    for index, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        level = (high - low + 1).bit_length() - 1
        result[index] = max(table[level][low], table[level][high + 1 - 2**level])
    return result


def _place_in_order(lifetimes: Sequence[Lifetime], order: np.ndarray) -> Placement:
    offsets = [0] * len(lifetimes)
    placed = _Placed(len(lifetimes))
    for index in order.tolist():
        if lifetimes[index].size:
            offsets[index] = placed.add(lifetimes[index])
    return Placement(tuple(offsets), placed.top)


class _Placed:
    """The blocks placed so far, ordered by offset."""

    def __init__(self, capacity: int) -> None:
        self.top = 0
        self._count = 0
        self._start, self._end, self._low, self._high = np.zeros((4, capacity), np.int64)

    def add(self, block: Lifetime) -> int:
        """Places a block into the tightest gap that it fits in; gives its offset."""
        count = self._count
        together = (self._start[:count] <= block.end) & (self._end[:count] >= block.start)
        offset = _tightest(self._low[:count][together], self._high[:count][together], block.size)
        at = int(np.searchsorted(self._low[:count], offset))
        new = (block.start, block.end, offset, offset + block.size)
        for column, value in zip((self._start, self._end, self._low, self._high), new, strict=True):
            column[at + 1 : count + 1] = column[at:count]
            column[at] = value
        self._count += 1
        self.top = max(self.top, offset + block.size)
        return offset


def _tightest(low: np.ndarray, high: np.ndarray, size: int) -> int:
    """The offset of the smallest gap of at least `size` between ranges ordered by `low`; behind
    all of them if there is none."""
    if not len(low):
        return 0
    reach = np.maximum.accumulate(high)
    begins = np.concatenate(([0], reach[:-1]))
    gaps = low - begins
    fits = np.flatnonzero(gaps >= size)
    if not len(fits):
        return int(reach[-1])
    return int(begins[fits[np.argmin(gaps[fits])]])


def _improve(
    lifetimes: Sequence[Lifetime], best: Placement, order: np.ndarray, bound: int
) -> Placement:
    """Places the blocks at the top of the arena earlier, again and again, while that is allowed
    and helps or at least leads elsewhere."""
    attempts = PLACEMENTS // max(len(lifetimes), 1)
    current = best
    for _ in range(attempts):
        if best.size <= TARGET * bound:
            break
        topmost = [
            index
            for index, offset in enumerate(current.offsets)
            if lifetimes[index].size and offset + lifetimes[index].size == current.size
        ]
        first = np.array(topmost, np.int64)
        order = np.concatenate((first, order[~np.isin(order, first)]))
        current = _place_in_order(lifetimes, order)
        if current.size < best.size:
            best = current
    return best
