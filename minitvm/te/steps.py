"""The steps of a schedule: frozen data on stages and axes by name.

    Step = Split | Fuse | Reorder | Annotate | Pragma | ComputeAt | ComputeInline | ComputeRoot
         | SetScope | CacheRead | CacheWrite

A schedule is the tuple of its steps: replaying them on the same computes gives the same schedule.
`to_json` and `from_json` turn a step into plain lists and values and back, for tuning records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from minitvm.errors import ScheduleError
from minitvm.tir.ir import LoopKind


@dataclass(frozen=True, slots=True)
class Split:
    """An axis becomes two; `factor` is the extent of the inner one, or `nparts` of the outer."""

    stage: str
    axis: str
    factor: int | None = None
    nparts: int | None = None


@dataclass(frozen=True, slots=True)
class Fuse:
    """Neighbouring axes, outermost first, become one."""

    stage: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reorder:
    """These axes, in this order, take the places that they had between them."""

    stage: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Annotate:
    """A loop runs as `kind`: vectorized, unrolled or parallel."""

    stage: str
    axis: str
    kind: LoopKind


@dataclass(frozen=True, slots=True)
class Pragma:
    """A named remark on a loop, for whoever reads the schedule."""

    stage: str
    axis: str
    name: str
    value: int | str | bool | None = None


@dataclass(frozen=True, slots=True)
class ComputeAt:
    """A stage is computed inside the loop `axis` of `parent`, as far as it is needed there."""

    stage: str
    parent: str
    axis: str


@dataclass(frozen=True, slots=True)
class ComputeInline:
    """A stage has no loops: its value is computed where it is read."""

    stage: str


@dataclass(frozen=True, slots=True)
class ComputeRoot:
    """A stage is computed whole, before its consumers."""

    stage: str


@dataclass(frozen=True, slots=True)
class SetScope:
    """The memory of a stage: local (stack) or global."""

    stage: str
    scope: str


@dataclass(frozen=True, slots=True)
class CacheRead:
    """A new stage copies output `index` of `stage`; the readers read the copy."""

    stage: str
    index: int
    scope: str
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """A new stage computes what `stage` did, which then copies from it."""

    stage: str
    scope: str


Step = (Split | Fuse | Reorder | Annotate | Pragma | ComputeAt | ComputeInline | ComputeRoot
        | SetScope | CacheRead | CacheWrite)

KINDS: Mapping[str, type[Step]] = {
    kind.__name__: kind
    for kind in (Split, Fuse, Reorder, Annotate, Pragma, ComputeAt, ComputeInline, ComputeRoot,
                 SetScope, CacheRead, CacheWrite)
}


def to_json(step: Step) -> list[Any]:
    """The step as a list: its kind, then its fields in order; tuples as lists."""
    values = (getattr(step, item.name) for item in fields(step))
    return [type(step).__name__,
            *(list(value) if isinstance(value, tuple) else value for value in values)]


def from_json(data: list[Any]) -> Step:
    """The inverse of `to_json`; raises `ScheduleError` for what is no step."""
    kind: Any = KINDS.get(data[0]) if data and isinstance(data[0], str) else None
    if kind is None or len(data) - 1 != len(fields(kind)):
        raise ScheduleError(f"{data!r} is not a schedule step; the kinds are {', '.join(KINDS)}")
    step: Step = kind(*(tuple(value) if isinstance(value, list) else value for value in data[1:]))
    return step
