"""Choices that cost something each and in pairs -> the choices of least total cost.

A partitioned boolean quadratic problem: each node takes one of its states, which costs `costs[n]`;
each edge costs what its matrix says of the states of its two nodes. Infinite costs forbid. It is
solved by taking the graph apart, a node at a time, and putting it together again backwards:

    R0    a node without edges takes its cheapest state
    RI    one with one edge is folded into its neighbour: the least over its states
    RII   one with two edges becomes an edge between its neighbours
    RN    if only larger ones are left, the one of most edges takes the state that is locally best

Without RN, which neither chains nor trees nor series of branches and joins need, the result is
exact. Each step takes time in the edges of its node, so the whole is near-linear. From "Nearly
Optimal Register Allocation with PBQP" (Hames and Scholz, JMLC 2006); for layouts it was used in
"Optimizing CNN Model Inference on CPUs" (Liu et al., USENIX ATC 2019).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Problem:
    """Nodes by number, and between them edges: `edges[u][v][i, j]` is the cost of state i of u
    beside state j of v, and `edges[v][u]` its transpose."""

    costs: list[np.ndarray] = field(default_factory=list)
    edges: list[dict[int, np.ndarray]] = field(default_factory=list)

    def add_node(self, costs: Sequence[float]) -> int:
        """A node with a state for each cost; gives its number."""
        self.costs.append(np.array(costs, np.float64))
        self.edges.append({})
        return len(self.costs) - 1

    def add_edge(self, first: int, second: int, costs: np.ndarray) -> None:
        """Costs by the states of two nodes, on top of those there are."""
        if second in self.edges[first]:
            costs = self.edges[first][second] + costs
        self.edges[first][second] = costs
        self.edges[second][first] = costs.T

    def total(self, states: Sequence[int]) -> float:
        """What a choice for every node costs."""
        nodes = sum(float(costs[state]) for costs, state in zip(self.costs, states, strict=True))
        return nodes + sum(
            float(costs[states[first], states[second]])
            for first, others in enumerate(self.edges)
            for second, costs in others.items()
            if first < second
        )


@dataclass(frozen=True, slots=True)
class Solution:
    """A state for each node, what they cost in all, and whether nothing can cost less."""

    states: tuple[int, ...]
    cost: float
    exact: bool


def solve(problem: Problem) -> Solution:
    """The states of least total cost, or, where `exact` is not said, of little."""
    reducer = _Reducer(problem)
    reducer.reduce()
    states = reducer.states()
    return Solution(states, problem.total(states), reducer.exact)


@dataclass(frozen=True, slots=True)
class _Removed:
    """A node as it was when it was removed; its state, if that is decided already."""

    node: int
    costs: np.ndarray
    edges: dict[int, np.ndarray]
    state: int | None = None


class _Reducer:
    """What is left of a problem, and what was removed of it, in order."""

    def __init__(self, problem: Problem) -> None:
        self.costs = [costs.copy() for costs in problem.costs]
        self.edges = [dict(others) for others in problem.edges]
        self.left = [True] * len(self.costs)
        self.removed: list[_Removed] = []
        self.exact = True

    def reduce(self) -> None:
        """Removes every node: while there are any, those of the fewest edges."""
        small = [node for node, others in enumerate(self.edges) if len(others) <= 2]
        large = [(-len(others), node) for node, others in enumerate(self.edges) if len(others) > 2]
        heapq.heapify(large)
        while small or large:
            if small:
                node = small.pop()
                if not self.left[node]:
                    continue
                touched = self.fold(node)
            else:
                degree, node = heapq.heappop(large)
                if not self.left[node]:
                    continue
                if -degree != len(self.edges[node]):
                    heapq.heappush(large, (-len(self.edges[node]), node))
                    continue
                touched = self.decide(node)
            small += [other for other in touched if len(self.edges[other]) <= 2]

    def fold(self, node: int) -> list[int]:
        """R0, RI or RII; gives the nodes that lost an edge."""
        others = self.remove(node)
        match list(others.items()):
            case [(other, matrix)]:
                self.costs[other] += (self.costs[node][:, None] + matrix).min(axis=0)
            case [(first, to_first), (second, to_second)]:
                both = self.costs[node][:, None, None] + to_first[:, :, None]
                self.join(first, second, (both + to_second[:, None, :]).min(axis=0))
        return list(others)

    def decide(self, node: int) -> list[int]:
        """RN: the state that is best with the best of each neighbour."""
        self.exact = False
        costs = self.costs[node].copy()
        for other, matrix in self.edges[node].items():
            costs += (matrix + self.costs[other]).min(axis=1)
        state = int(np.argmin(costs))
        others = self.remove(node, state)
        for other, matrix in others.items():
            self.costs[other] += matrix[state]
        return list(others)

    def remove(self, node: int, state: int | None = None) -> dict[int, np.ndarray]:
        """Takes a node and its edges out, and gives those."""
        others = self.edges[node]
        self.removed.append(_Removed(node, self.costs[node], others, state))
        self.left[node] = False
        for other in others:
            del self.edges[other][node]
        return others

    def join(self, first: int, second: int, costs: np.ndarray) -> None:
        """An edge between two nodes, on top of one that there is."""
        if second in self.edges[first]:
            costs = self.edges[first][second] + costs
        self.edges[first][second] = costs
        self.edges[second][first] = costs.T

    def states(self) -> tuple[int, ...]:
        """The state of each node, the last removed first: its neighbours have theirs by then."""
        chosen = [0] * len(self.costs)
        for item in reversed(self.removed):
            if item.state is not None:
                chosen[item.node] = item.state
                continue
            costs = item.costs.copy()
            for other, matrix in item.edges.items():
                costs += matrix[:, chosen[other]]
            chosen[item.node] = int(np.argmin(costs))
        return tuple(chosen)
