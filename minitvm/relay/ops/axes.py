"""Axes given by users -> axes counted from the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitvm.relay.op import Op


def one_axis(op: Op, types: tuple[Any, ...], axis: int, rank: int) -> int:
    """A negative axis counts from the back; raises the operator's type error outside the rank."""
    if not -rank <= axis < rank:
        where = f"-{rank} to {rank - 1}" if rank else "none, as the tensor has no dimensions"
        raise op.fail(types, f"there is no axis {axis}; the axes are {where}")
    return axis % rank


def all_axes(
    op: Op, types: tuple[Any, ...], axes: Sequence[int] | int | None, rank: int
) -> tuple[int, ...]:
    """Several axes, sorted, or one, or all of them for None; raises for one named twice."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else axes
    found = sorted(one_axis(op, types, axis, rank) for axis in given)
    if len(set(found)) != len(found):
        raise op.fail(types, f"the axes {tuple(given)} name one axis twice")
    return tuple(found)
