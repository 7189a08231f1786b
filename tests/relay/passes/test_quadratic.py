"""Quadratic problems: exact where the graph reduces, never better than all assignments tried."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.relay.passes.quadratic import Problem, solve


def brute_force(problem: Problem) -> float:
    return min(problem.total(states)
               for states in itertools.product(*(range(len(costs)) for costs in problem.costs)))


@st.composite
def problems(draw: st.DrawFn, edges: str) -> Problem:
    problem = Problem()
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    count = draw(st.integers(1, 7))
    for _ in range(count):
        problem.add_node(random.integers(0, 20, draw(st.integers(1, 3))).tolist())
    pairs = [(a, b) for b in range(count) for a in range(b)]
    if edges == "chain":
        pairs = [(node - 1, node) for node in range(1, count)]
    elif edges == "tree":
        pairs = [(draw(st.integers(0, node - 1)), node) for node in range(1, count)]
    else:
        pairs = [pair for pair in pairs if draw(st.booleans())]
    for first, second in pairs:
        shape = (len(problem.costs[first]), len(problem.costs[second]))
        costs = random.integers(0, 20, shape).astype(float)
        if draw(st.booleans()):
            costs[random.random(shape) < 0.2] = np.inf
        problem.add_edge(first, second, costs)
    return problem


@pytest.mark.parametrize("edges", ["chain", "tree"])
@given(data=st.data())
def test_chains_and_trees_are_exact(edges: str, data: st.DataObject) -> None:
    problem = data.draw(problems(edges))
    solution = solve(problem)
    assert solution.exact
    assert solution.cost == problem.total(solution.states) == brute_force(problem)


@given(problems("any"))
def test_any_graph_is_exact_where_it_says_so(problem: Problem) -> None:
    solution = solve(problem)
    best = brute_force(problem)
    assert solution.cost == problem.total(solution.states) >= best
    if solution.exact:
        assert solution.cost == best


def test_the_greedy_step_is_only_for_graphs_that_do_not_reduce() -> None:
    """A complete graph of four nodes is the smallest of these."""
    for count, exact in ((3, True), (4, False)):
        problem = Problem()
        for node in range(count):
            problem.add_node([node, 2.0])
        for first, second in itertools.combinations(range(count), 2):
            problem.add_edge(first, second, np.array([[3.0, 0.0], [1.0, 3.0]]))
        assert solve(problem).exact is exact


def test_edges_between_the_same_nodes_add_up() -> None:
    problem = Problem()
    first, second = problem.add_node([0, 0]), problem.add_node([0, 0])
    problem.add_edge(first, second, np.array([[5.0, 1.0], [9.0, 9.0]]))
    problem.add_edge(second, first, np.array([[0.0, 9.0], [7.0, 9.0]]))
    assert solve(problem).cost == 5
    assert solve(problem).states == (0, 0)


def test_long_chains_and_wide_stars_take_linear_time() -> None:
    chain, star = Problem(), Problem()
    costs = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [2.0, 1.0, 0.0]])
    for node in range(10_000):
        chain.add_node([node % 3, 1.0, 2.0])
        star.add_node([node % 3, 1.0, 2.0])
        if node:
            chain.add_edge(node - 1, node, costs)
            star.add_edge(0, node, costs)
    start = time.process_time()
    assert solve(chain).exact and solve(star).exact
    assert time.process_time() - start < 3
