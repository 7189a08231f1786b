"""Templates: a user's function that schedules a compute, with choices for the tuner to make.

    @autotune.template("matmul")
    def matmul(n, l, m):
        ...
        s = te.create_schedule(C.op)
        y, x = s[C].op.axis
        cfg = autotune.get_config()
        cfg.define_split("tile_y", y, num_outputs=2)
        yo, yi = cfg["tile_y"].apply(s, C, y)
        ...
        return s, [A, B, C]

    task = autotune.create_task("matmul", args=(512, 512, 512), target="llvm")
    with autotune.apply_history_best("matmul.jsonl"):
        s, args = matmul(512, 512, 512)         scheduled by the best record

Names and meaning are those of TVM's AutoTVM. A `define_*` is a knob like those of the operators'
own recipes (`te/recipes/knobs.py`); called by itself, a template takes its defaults: splits that
tile nothing, the order given, no annotation, the first candidate.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import te
from minitvm.autotune.history import current_history
from minitvm.autotune.records import frozen
from minitvm.autotune.task import Arguments, Scheduled, Task, example_arrays
from minitvm.errors import OptionError, TuningError
from minitvm.runtime.tensor_info import TensorInfo
from minitvm.target import Target
from minitvm.te.recipes.inline import extent_of
from minitvm.te.recipes.knobs import decide, deciding

Build = Callable[..., Scheduled]
Axis = te.IterVar


# --- what a config holds ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SplitEntity:
    """The extents of the parts of an axis, outermost first; the outermost is what is left."""

    size: tuple[int, ...]

    def apply(self, s: te.Schedule, tensor: te.Tensor, axis: Axis) -> list[Axis]:
        """Splits; gives the parts."""
        parts = []
        for size in reversed(self.size[1:]):
            axis, inner = s[tensor].split(axis, factor=size)
            parts.append(inner)
        return [axis, *reversed(parts)]


@dataclass(frozen=True, slots=True)
class ReorderEntity:
    """Where the axes go: `perm[i]` is the place, among those given, of the i-th outermost."""

    perm: tuple[int, ...]

    def apply(self, s: te.Schedule, tensor: te.Tensor, axes: Sequence[Axis]) -> list[Axis]:
        """Reorders; gives the axes, outermost first."""
        ordered = [axes[place] for place in self.perm]
        s[tensor].reorder(*ordered)
        return ordered


@dataclass(frozen=True, slots=True)
class AnnotateEntity:
    """What becomes of each axis: "none", "unroll" or "vec"."""

    anns: tuple[str, ...]

    def apply(self, s: te.Schedule, tensor: te.Tensor, axes: Sequence[Axis]) -> list[Axis]:
        """Annotates; gives the axes."""
        for axis, annotation in zip(axes, self.anns, strict=True):
            if annotation == "unroll":
                s[tensor].unroll(axis)
            elif annotation == "vec":
                s[tensor].vectorize(axis)
        return list(axes)


@dataclass(frozen=True, slots=True)
class OtherEntity:
    """The value of a knob of one's own, as `val`."""

    val: Any


Entity = SplitEntity | ReorderEntity | AnnotateEntity | OtherEntity

# --- the config ---------------------------------------------------------------------------------


class Config:
    """What a template declares, and what is decided of it."""

    def __init__(self) -> None:
        self._entities: dict[str, Entity] = {}

    def __getitem__(self, name: str) -> Any:
        """What was decided for a knob."""
        if name not in self._entities:
            raise OptionError(f"the template has no knob {name!r}; it has "
                              f"{', '.join(self._entities) or 'none yet'}")
        return self._entities[name]

    def define_split(self, name: str, axis: Axis | int, policy: str = "factors",
                     num_outputs: int = 2, max_factor: int | None = None,
                     filter: Callable[[SplitEntity], bool] | None = None,
                     candidate: Iterable[Sequence[int]] | None = None) -> None:
        """How an axis (or an extent) is split. policy: "factors", all ways that leave no rest;
        "power2", inner parts that are powers of two; "verbose", both; "candidate", those given."""
        extent = axis if isinstance(axis, int) else extent_of(axis)
        if extent < 1:
            raise OptionError(f"the split {name!r} is of an axis without a constant extent")
        ways = _splits(extent, policy, num_outputs, candidate)
        wanted = [size for size in ways if (max_factor is None or max(size[1:]) <= max_factor)
                  and (filter is None or filter(SplitEntity(size)))]
        default = (extent, *(1,) * (num_outputs - 1))
        if default not in wanted:
            if not wanted:
                raise OptionError(f"the split {name!r} has no candidate left")
            default = wanted[0]
        self._entities[name] = SplitEntity(decide(name, default, wanted))

    def define_reorder(self, name: str, axes: Sequence[Axis], policy: str = "all",
                       candidate: Iterable[Sequence[int]] | None = None) -> None:
        """In which order axes stand. policy: "all" orders, "identity", or "candidate", those
        given, as places among `axes`."""
        identity = tuple(range(len(axes)))
        orders = {"identity": lambda: [identity],
                  "all": lambda: list(itertools.permutations(identity)),
                  "candidate": lambda: [tuple(order) for order in candidate or ()]}
        found = _choice("reorder", policy, orders)()
        default = identity if policy != "candidate" else found[0]
        self._entities[name] = ReorderEntity(decide(name, default, found))

    def define_annotate(self, name: str, axes: Sequence[Axis], policy: str = "try_unroll") -> None:
        """Which axes are unrolled or vectorized. policy: "try_unroll", each or not; "try_vec", the
        innermost or not; "try_unroll_vec", both."""
        count = len(axes)
        none = ("none",) * count
        unrolled = list(itertools.product(("none", "unroll"), repeat=count))
        vector = [none, (*none[1:], "vec")]
        ways = {"try_unroll": unrolled, "try_vec": vector,
                "try_unroll_vec": [*unrolled, *((*way[:-1], "vec") for way in unrolled)]}
        self._entities[name] = AnnotateEntity(
            decide(name, none, _choice("annotation", policy, ways)))

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """A choice among values that JSON can hold."""
        values = [frozen(value) for value in candidate]
        if not values:
            raise OptionError(f"the knob {name!r} has no candidates")
        self._entities[name] = OtherEntity(decide(name, values[0], values))


def _choice(what: str, policy: str, table: dict[str, Any]) -> Any:
    if policy not in table:
        raise OptionError(f"there is no policy {policy!r} for a {what}; there are "
                          f"{', '.join(table)}")
    return table[policy]


def _splits(extent: int, policy: str, parts: int,
            candidate: Iterable[Sequence[int]] | None) -> list[tuple[int, ...]]:
    """The sizes of the parts; the first is what is left, rounded up."""
    def powers() -> list[tuple[int, ...]]:
        steps = [1 << place for place in range(extent.bit_length())]
        inner = itertools.product(steps, repeat=parts - 1)
        return [(-(-extent // int(np.prod(sizes))), *sizes) for sizes in inner
                if int(np.prod(sizes)) <= extent]

    def factors() -> list[tuple[int, ...]]:
        return list(factorizations(extent, parts))

    ways: dict[str, Callable[[], list[tuple[int, ...]]]] = {
        "factors": factors, "power2": powers,
        "verbose": lambda: list(dict.fromkeys([*factors(), *powers()])),
        "candidate": lambda: [tuple(size) for size in candidate or ()]}
    found: list[tuple[int, ...]] = _choice("split", policy, ways)()
    return found


def factorizations(extent: int, parts: int) -> Iterable[tuple[int, ...]]:
    """Every way to write an extent as a product of so many factors, in order."""
    if parts == 1:
        yield (extent,)
        return
    for first in range(1, extent + 1):
        if extent % first == 0:
            for rest in factorizations(extent // first, parts - 1):
                yield (first, *rest)


# --- templates ----------------------------------------------------------------------------------

TEMPLATES: dict[str, Build] = {}
_CONFIG: ContextVar[Config | None] = ContextVar("config", default=None)


def get_config() -> Config:
    """The config of the template that is being called; by itself, one of defaults."""
    config = _CONFIG.get()
    return Config() if config is None else config


def template(name: str) -> Callable[[Build], Build]:
    """Registers a template: a function of arguments that JSON can hold, to a schedule and the
    tensors that are the function's parameters, inputs first."""

    def register(function: Build) -> Build:
        TEMPLATES[name] = function

        @functools.wraps(function)
        def scheduled(*arguments: Any) -> Scheduled:
            history = current_history()
            record = history.best.get(template_key(name, arguments)) if history else None
            with deciding({} if record is None else record.config):
                return _call(function, arguments)

        return scheduled

    return register


def _call(function: Build, arguments: Sequence[Any]) -> Scheduled:
    token = _CONFIG.set(Config())
    try:
        return function(*arguments)
    finally:
        _CONFIG.reset(token)


def template_key(name: str, arguments: Sequence[Any]) -> str:
    """What records of a template with arguments are found by."""
    return hashlib.sha256(json.dumps([name, arguments]).encode()).hexdigest()


def create_task(name: str, args: Sequence[Any], target: Target | str | None = None) -> Task:
    """The task of a template with arguments. Raises `OptionError` for a name that no template
    has."""
    function = _choice_of_template(name)
    machine = target if isinstance(target, Target) else Target(target) if target else Target.host()
    workload = {"name": name, "operators": [], "parameters": [], "arguments": list(args)}
    return te_task(template_key(name, args), workload, machine, lambda: _call(function, args))


def _choice_of_template(name: str) -> Build:
    if name not in TEMPLATES:
        raise OptionError(f"there is no template {name!r}; there are "
                          f"{', '.join(TEMPLATES) or 'none'}")
    return TEMPLATES[name]


def te_task(key: str, workload: dict[str, Any], target: Target,
            instantiate: Callable[[], Scheduled]) -> Task:
    """A task of computes alone: right is what the unscheduled program gives."""

    def reference(params: Sequence[TensorInfo]) -> Arguments:
        schedule, tensors = instantiate()
        outputs = [isinstance(t.op, te.Compute) for t in tensors]
        count = outputs.index(True) if True in outputs else len(outputs)
        if not all(outputs[count:]) or not schedule.outputs:
            raise TuningError(f"the parameters of {workload['name']} must be its inputs, then its "
                              "outputs")
        return Arguments(example_arrays(params[:count]), None)

    return Task(key, workload["name"], workload, target, instantiate, reference)
