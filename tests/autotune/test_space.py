"""Points of a space and their numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minitvm.autotune.space import Space
from minitvm.te.recipes.knobs import Knob

spaces = st.lists(st.integers(1, 6), min_size=1, max_size=5).map(
    lambda radices: Space(tuple(Knob(f"k{i}", radix - 1, tuple(range(radix)))
                                for i, radix in enumerate(radices))))


@given(spaces)
def test_numbers_digits_and_values_are_the_same_points(space):
    seen = set()
    for number in range(len(space)):
        digits = space.digits(number)
        assert space.number(digits) == number
        assert space.find(space.values(number)) == number
        seen.add(digits)
    assert len(seen) == len(space)
    assert space.values(space.default) == {k.name: k.default for k in space.knobs}


@given(spaces, st.integers(0, 2**32 - 1))
def test_a_neighbour_differs_in_one_knob_and_a_child_in_none_from_both(space, seed):
    generator = np.random.default_rng(seed)
    first, second = space.random(generator), space.random(generator)
    near = space.neighbour(first, generator)
    differing = sum(a != b for a, b in zip(space.digits(first), space.digits(near)))
    assert differing == int(len(space) > 1)
    child = space.digits(space.cross(first, second, generator))
    assert all(c in pair for c, pair in
               zip(child, zip(space.digits(first), space.digits(second))))


def test_a_value_that_is_not_in_the_space_has_no_number():
    space = Space((Knob("a", 1, (1, 2)),))
    assert space.find({"a": 3}) is None
    assert space.find({"b": 3}) == 0


def test_coordinates_are_logarithms_of_sizes_and_places_of_other_values():
    space = Space((
        Knob("tile", (1, 4), ((1, 4), (3, 7))), Knob("terms", 1, (1, 15)),
        Knob("order", "a", ("a", "b", "c")), Knob("count", "all", ("all", 1, 2)),
        Knob("local", False, (False, True))))
    used = {knob.name for knob in space.knobs}
    assert space.coordinates(space.number([0, 0, 0, 0, 0]), used) == [
        1, np.log2(5), 1, 0, 0, 0]
    assert space.coordinates(space.number([1, 1, 2, 1, 1]), used) == [2, 3, 4, 2, 1, 1]
    assert space.coordinates(space.number([1, 1, 2, 1, 1]), used - {"tile", "order"}) == [
        -1, -1, 4, -1, 1, 1]


@given(spaces)
def test_points_have_coordinates_of_their_own(space):
    used = {knob.name for knob in space.knobs}
    points = [space.coordinates(number, used) for number in range(len(space))]
    assert len(set(map(tuple, points))) == len(space)
    assert len(set(map(len, points))) == 1
