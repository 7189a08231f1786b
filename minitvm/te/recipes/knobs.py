"""Choices of a recipe that a tuner may make: a name, the rule's answer, and what else is legal.

    points = decide("points", rule(...), range(1, most + 1))

A recipe calls `decide` wherever a rule chooses between schedules that compute the same. By itself
that gives the rule's answer. Within `deciding(values)` it gives the value of that name, and the
knobs that were met are known afterwards: that is how a tuner learns the space of a kernel, and how
it tries a point of it. Values are what JSON can hold, tuples for lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from minitvm.errors import ScheduleError

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Knob:
    """One choice: the legal values, the default among them. By a choice of structure other knobs
    are met or not."""

    name: str
    default: Any
    alternatives: tuple[Any, ...]
    is_structure: bool = False


@dataclass(slots=True)
class Decisions:
    """What is decided, and the knobs that were met, in order."""

    values: Mapping[str, Any] = field(default_factory=dict)
    knobs: dict[str, Knob] = field(default_factory=dict)


_CURRENT: ContextVar[Decisions | None] = ContextVar("decisions", default=None)


def decide(name: str, default: Value,
           alternatives: Iterable[Value] | Callable[[], Iterable[Value]], *,
           structure: bool = False) -> Value:
    """The value decided for a knob; the default where nothing is. `alternatives` may be a function,
    which is only called where somebody decides. A knob that is met twice must be the same. Where
    other knobs are only met for some of the values, it is a choice of `structure`.

    Raises `ScheduleError` for a value that is not legal here.
    """
    current = _CURRENT.get()
    if current is None:
        return default
    legal = tuple(dict.fromkeys(
        (default, *(alternatives() if callable(alternatives) else alternatives))))
    knob = current.knobs.setdefault(name, Knob(name, default, legal, structure))
    if set(knob.alternatives) != set(legal):
        raise ScheduleError(f"a recipe has two knobs called {name!r}; give each a name of its own")
    value: Value = current.values.get(name, default)
    if value not in legal:
        raise ScheduleError(f"the knob {name!r} can't be {value!r} here; it may be "
                            f"{', '.join(map(repr, legal))}")
    return value


@contextmanager
def deciding(values: Mapping[str, Any] | None = None) -> Iterator[Decisions]:
    """Within this context recipes take these values by name, and defaults where there is none."""
    decisions = Decisions(values or {})
    token = _CURRENT.set(decisions)
    try:
        yield decisions
    finally:
        _CURRENT.reset(token)
