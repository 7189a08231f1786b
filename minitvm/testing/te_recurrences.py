"""Random recurrences: `random_scan(draw, x, name)`, a scan over the rows of a matrix.

One or two states, up to three steps back, which updates read straight or through stages of their
own: shifted, transposed, chained or halved in time, with conditions, with sums over columns or
steps. Such a stage is only meant at the steps that updates read it at: elsewhere it would read
steps that are not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minitvm import te
from minitvm.te.tensor import Tensor
from minitvm.testing.choices import Choices
from minitvm.tir import ir
from minitvm.tir.ir import Expr

Value = Callable[[Expr, Expr], Expr]
"""A number for a step and a column."""

_BOUND = 16


@dataclass(frozen=True, slots=True)
class _Source:
    """What an update may read: a state, `x` of the same shape, and how many steps are given."""

    draw: Choices
    state: Tensor
    x: Tensor
    first: int
    name: str

    def back(self) -> int:
        """A number of steps that one can go back from any step that is computed."""
        return self.draw.integer(1, min(3, self.first))


def random_scan(draw: Choices, x: Tensor, name: str) -> Tensor:
    """The first state over time; the second, if there is one, is read by the first's update."""
    rows, columns = x.extents()
    first = draw.integer(1, rows)
    count = draw.integer(1, 2)
    states = [te.placeholder(x.shape, name=f"{name}_state{number}") for number in range(count)]
    inits = [te.compute((first, columns), lambda t, i: x[t, i] + 1.0, name=f"{name}_init{number}")
             for number in range(count)]
    updates: list[Tensor] = []
    for number in reversed(range(count)):
        read = draw.pick(states)
        source = _Source(draw, read, x, first, f"{name}_{number}")
        updates.insert(0, _update(source, states[number], updates))
    return te.scan(inits, updates, states, name=name)[0]  # type: ignore[no-any-return]


def _update(source: _Source, state: Tensor, made: list[Tensor]) -> Tensor:
    draw, x, name = source.draw, source.x, f"{source.name}_update"
    value = draw.pick(_VALUES)(source)
    if draw.integer(0, 3) == 0:
        k = te.reduce_axis((0, source.back()), "k")
        reducer = draw.pick([te.max, te.min])
        return _tensor(te.compute(
            x.shape, lambda t, i: reducer(value(t, i) - state[t - 1 - k, i], axis=k), name=name))
    other: Value = draw.pick([
        lambda t, i: state[t - 1, i] * x[t, i], lambda t, i: x[t - 1, i] - 1.0,
        *(lambda t, i, update=update: update[t, i] + 2.0 for update in made),
    ])
    return _tensor(te.compute(
        x.shape,
        lambda t, i: ir.minimum(ir.maximum(value(t, i) + other(t, i), -_BOUND), _BOUND),
        name=name))


def _stage(source: _Source, shape: tuple[int, ...], value: Callable[..., Any], what: str) -> Tensor:
    return _tensor(te.compute(shape, value, name=f"{source.name}_{what}"))


def _straight(source: _Source) -> Value:
    back, state = source.back(), source.state
    return lambda t, i: state[t - back, i]


def _mirrored(source: _Source) -> Value:
    back, state, x = source.back(), source.state, source.x
    end = x.extents()[1] - 1
    made = _stage(source, x.extents(), lambda t, i: state[t - back, end - i] - x[t - 1, i], "last")
    return lambda t, i: made[t, i]


def _shifted(source: _Source) -> Value:
    """A stage whose rows are not the steps that it is read at."""
    back, state, x = source.back(), source.state, source.x
    made = _stage(source, x.extents(), lambda s, i: state[s, i] + 1.0, "shifted")
    return lambda t, i: made[t - back, i]


def _transposed(source: _Source) -> Value:
    back, state, (rows, columns) = source.back(), source.state, source.x.extents()
    made = _stage(source, (columns, rows), lambda i, t: state[t - back, i] - 1.0, "turned")
    return lambda t, i: made[i, t]


def _chained(source: _Source) -> Value:
    """A stage that is read at two steps, through another one."""
    back, state, x = source.back(), source.state, source.x
    first = _stage(source, x.extents(), lambda t, i: state[t - 1, i] * 2.0, "first")
    then = _stage(source, x.extents(), lambda t, i: first[t, i] - first[t - back + 1, i], "then")
    return lambda t, i: then[t, i]


def _halved(source: _Source) -> Value:
    state, (rows, columns) = source.state, source.x.extents()
    made = _stage(source, ((rows + 1) // 2, columns), lambda h, i: state[h, i] + 1.0, "half")
    return lambda t, i: made[(t - 1) // 2, i]


def _where(source: _Source) -> Value:
    back, state, x = source.draw.integer(1, 4), source.state, source.x
    made = _stage(source, x.extents(),
                  lambda t, i: ir.if_then_else(t >= back, state[t - back, i], 1.0), "where")
    return lambda t, i: made[t, i]


def _row_sum(source: _Source) -> Value:
    state, (rows, columns) = source.state, source.x.extents()
    r = te.reduce_axis((0, columns), "r")
    made = _stage(source, (rows,), lambda t: te.sum(state[t - 1, r], axis=r), "sum")
    return lambda t, i: made[t]


def _steps_sum(source: _Source) -> Value:
    back, state, x = source.back(), source.state, source.x
    r = te.reduce_axis((1, back + 1), "r")
    made = _stage(source, x.extents(), lambda t, i: te.sum(state[t - r, i], axis=r), "steps")
    return lambda t, i: made[t, i]


def _tensor(made: Any) -> Tensor:
    assert isinstance(made, Tensor)
    return made


_VALUES = (_straight, _mirrored, _shifted, _transposed, _chained, _halved, _where, _row_sum,
           _steps_sum)
