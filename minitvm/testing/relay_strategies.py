"""Hypothesis strategies: well-typed relay modules over the registered operators, and their inputs.

    @given(relay_cases())
    def test_pass_keeps_results(case):
        assert_same(run(my_pass(case.module), case.inputs), run(case.module, case.inputs))

A module grows by moves: each takes values at hand, draws an operator and its attributes, and adds
the result to the values at hand, which later moves may use again. Operators that the moves do not
know by name are found in `REGISTRY`: every elementwise, broadcasting and reducing one takes part.

In *exact* cases all data are small integers held as floats, only operators that keep them so take
part, and no value leaves the range in which float32 counts exactly: results must be equal, in any
order of summation. Other cases draw normal data and, if *special*, NaN, infinities, -0 and
subnormals among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minitvm.relay.ir import (
    Module,
)
from minitvm.relay.op import REGISTRY
from minitvm.testing import relay_layout_moves  # noqa: F401  (adds its moves)
from minitvm.testing.features import features as find_features
from minitvm.testing.relay_growth import Grower, Move
from minitvm.testing.relay_moves import MOVES, branch, draw_shape

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A module, inputs by name, and the features that occur in it (see `testing.features`)."""

    module: Module
    inputs: dict[str, np.ndarray]
    features: frozenset[str]


@st.composite
def relay_cases(
    draw: Draw,
    *,
    exact: bool | None = None,
    special: bool | None = None,
    max_moves: int = 8,
    branches: bool = False,
    operators: Sequence[str] | None = None,
) -> Case:
    """Cases; `exact` and `special` are drawn unless given, `operators` restricts what takes part,
    and `branches` adds `if`s.

    What is drawn is a seed for the parameters and one for each move, so that every operator is as
    likely as its weight says, and a failing case shrinks by leaving moves out.
    """
    exact = draw(st.booleans()) if exact is None else exact
    special = not exact and (draw(st.booleans()) if special is None else special)
    seeds = draw(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=max_moves + 1))
    return grow_case(
        seeds, exact=exact, special=special, branches=branches, operators=operators
    )


def relay_modules(**settings: Any) -> st.SearchStrategy[Module]:
    """The modules of `relay_cases`."""
    return relay_cases(**settings).map(lambda case: case.module)


def grow_case(
    seeds: Sequence[int],
    *,
    exact: bool = False,
    special: bool = False,
    branches: bool = False,
    operators: Sequence[str] | None = None,
) -> Case:
    """The case that grows from seeds: the first gives the parameters, each other one a move (equal
    ones give different moves)."""
    allowed = frozenset(REGISTRY if operators is None else operators)
    grower = Grower(seeds[0], exact, special, allowed)
    for _ in range(grower.integer(1, 2)):
        grower.add_parameter(draw_shape(grower))
    moves = [move for move in MOVES if move.needs <= allowed]
    if branches:
        moves.append(Move(branch, 12, frozenset()))
    weighted = [move for move in moves for _ in range(move.weight)]
    for position, seed in enumerate(seeds[1:]):
        grower.attempt(weighted, (seeds[0], seed, seeds[:position].count(seed)))
    module = grower.finish()
    return Case(module, grower.inputs, find_features(module))
