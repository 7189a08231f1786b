"""The steps of a schedule: frozen data on stages and axes by name.

    Step = Split | Fuse | Reorder | Annotate | Bind | Pragma | ComputeAt | ComputeInline
         | ComputeRoot | SetScope | StorageAlign | ReorderStorage | RollingBuffer | CacheRead
         | CacheWrite | Rfactor | Tensorize

A schedule is the tuple of its steps: replaying them on the same computes gives the same schedule.
`to_json` and `from_json` turn a step into plain lists and values and back, for tuning records;
`steps_to_json` and `steps_from_json` do so for all of a schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
class Bind:
    """A loop runs on the GPU threads `tag`."""

    stage: str
    axis: str
    tag: str


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
class StorageAlign:
    """In the memory of a stage, the stride of an axis is a multiple of `factor`, plus `offset`."""

    stage: str
    axis: str
    factor: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ReorderStorage:
    """In the memory of a stage, its axes lie in this order, outermost first; the last one in blocks
    of `factor`, whose number is outermost, if one is given."""

    stage: str
    axes: tuple[str, ...]
    factor: int | None = None


@dataclass(frozen=True, slots=True)
class RollingBuffer:
    """A stage keeps what the loop that it is computed at needs again, and computes the rest."""

    stage: str


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


@dataclass(frozen=True, slots=True)
class Rfactor:
    """A new stage reduces over all loops of `stage` but `axis`, which `stage` then reduces."""

    stage: str
    axis: str
    factor_axis: int = 0


@dataclass(frozen=True, slots=True)
class Tensorize:
    """The tensor intrinsic of that name does what the loops from `axis` inwards do."""

    stage: str
    axis: str
    intrin: str


Step = (Split | Fuse | Reorder | Annotate | Bind | Pragma | ComputeAt | ComputeInline | ComputeRoot
        | SetScope | StorageAlign | ReorderStorage | RollingBuffer | CacheRead | CacheWrite
        | Rfactor | Tensorize)

KINDS: Mapping[str, type[Step]] = {
    kind.__name__: kind
    for kind in (Split, Fuse, Reorder, Annotate, Bind, Pragma, ComputeAt, ComputeInline,
                 ComputeRoot, SetScope, StorageAlign, ReorderStorage, RollingBuffer, CacheRead,
                 CacheWrite, Rfactor, Tensorize)
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "int | None": (int, type(None)), "LoopKind": (str,),
    "tuple[str, ...]": (), "int | str | bool | None": (int, str, bool, type(None)),
}
"""What a field of a step may hold, by its annotation."""


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
    for item, value in zip(fields(kind), data[1:], strict=True):
        if not _fits(value, str(item.type)):
            raise ScheduleError(
                f"{data!r} is not a schedule step: {item.name} of {data[0]} takes {item.type}, "
                f"not {value!r}"
            )
    step: Step = kind(*(tuple(value) if isinstance(value, list) else value for value in data[1:]))
    return step


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, list | tuple):
        return kind.startswith("tuple") and all(isinstance(part, str) for part in value)
    if isinstance(value, bool):
        return "bool" in kind
    return isinstance(value, _TYPES[kind])


def steps_to_json(steps: Iterable[Step]) -> list[list[Any]]:
    """All steps of a schedule as lists."""
    return [to_json(step) for step in steps]


def steps_from_json(data: Iterable[list[Any]]) -> tuple[Step, ...]:
    """The inverse of `steps_to_json`."""
    return tuple(map(from_json, data))
