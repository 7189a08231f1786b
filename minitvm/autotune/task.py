"""What is tuned: a task is one computation on one target, its space, and what is right for it.

`extract_tasks` makes tasks of the kernels of a model: a fused function, found again in any model by
its structural hash, with the choices of its operators' recipes as space. `templates.py` makes them
of functions of a user, `sketch` of computes alone. A candidate is a point of the space, scheduled
and lowered to nested tir: all that measuring needs to know.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from minitvm import te
from minitvm.autotune.space import Space
from minitvm.driver import optimize
from minitvm.errors import LoweringError, MinitvmError, ScheduleError, TuningError
from minitvm.relay.interpret import run_function
from minitvm.relay.ir import Call, Function, GlobalVar, Module, tensor_type, walk_bindings
from minitvm.relay.lower import canonical, schedule_function, to_te
from minitvm.relay.memory_plan import is_view
from minitvm.relay.onnx import from_onnx
from minitvm.relay.op import Op
from minitvm.relay.structural_hash import structural_hash
from minitvm.runtime.tensor_info import TensorInfo
from minitvm.target import Target
from minitvm.te.recipes.knobs import Knob, deciding
from minitvm.te.steps import Step
from minitvm.tir.ir import Buffer, PrimFunc
from minitvm.tir.work import Work, count_work

Scheduled = tuple[te.Schedule, Sequence[te.Tensor]]
"""A schedule, and the parameters of the function that it becomes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule of a task, lowered. `config` are the values of the knobs that it used."""

    config: Mapping[str, Any]
    steps: tuple[Step, ...]
    func: PrimFunc


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arrays to run a candidate with: its inputs, and what its outputs must then be. None where no
    independent reference exists: then what the default schedule gives is right."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...] | None


@dataclass(frozen=True)
class Task:
    """`key` names the computation, `workload` says it in words, `weight` is how often a run of the
    model computes it."""

    key: str
    name: str
    workload: Mapping[str, Any]
    target: Target
    instantiate: Callable[[], Scheduled]
    reference: Callable[[Sequence[TensorInfo]], Arguments]
    weight: int = 1

    @cached_property
    def space(self) -> Space:
        """Every choice that is met by default, or with other choices of structure."""
        knobs: dict[str, Knob] = {}
        structures: list[dict[str, Any]] = [{}]
        for structure in structures:
            with deciding(structure) as met, suppress(ScheduleError):
                self.instantiate()
            for knob in met.knobs.values():
                if knob.is_structure and knob.name not in structure:
                    structures.extend({**structure, knob.name: value}
                                      for value in knob.alternatives)
                    break
            knobs = {**met.knobs, **knobs}  # defaults are those of the default structure
        return Space(tuple(knobs.values()))

    @cached_property
    def default(self) -> Candidate:
        """The schedule that the rules choose."""
        with deciding():
            return self._lowered({})

    @cached_property
    def work(self) -> Work:
        """What a call computes, by the default schedule."""
        return count_work(self.default.func)

    @cached_property
    def arguments(self) -> Arguments:
        """Inputs, and the right outputs."""
        return self.reference(self.params)

    @property
    def params(self) -> list[TensorInfo]:
        """What a call takes: inputs, then outputs."""
        return [TensorInfo(param.name, param.extents(), param.dtype)
                for param in self.default.func.params if isinstance(param, Buffer)]

    def candidate(self, number: int) -> Candidate:
        """The point of that number. Raises `ScheduleError` or `LoweringError` where a primitive
        refuses it."""
        values = self.space.values(number)
        with deciding(values) as met:
            found = self._lowered(values)
        return replace(found, config={name: value for name, value in values.items()
                                      if name in met.knobs})

    @cached_property
    def plain(self) -> Candidate:
        """The computation as it is written, without any schedule."""
        schedule, params = self.instantiate()
        plain = te.create_schedule(list(schedule.outputs))
        return Candidate({}, (), te.lower(plain, list(params), name="candidate"))

    def target_must_be_here(self) -> None:
        """Raises `TuningError` where code for the target can't be timed on this machine."""
        if not self.target.is_host():
            raise TuningError(f"candidates for '{self.target}' can't be timed here, on "
                              f"'{Target.host()}': tune on such a machine, and bring the log")

    def _lowered(self, values: Mapping[str, Any]) -> Candidate:
        schedule, params = self.instantiate()
        func = te.lower(schedule, list(params), name="candidate", target=self.target)
        return Candidate(values, schedule.steps, func)


@dataclass(frozen=True)
class Network:
    """A model as a fused graph, and its tasks. `name` tells it from others, also from such with the
    same name and other kernels."""

    name: str
    module: Module
    target: Target
    tasks: tuple[Task, ...]


def extract_network(model: Any, shapes: Mapping[str, Sequence[int]] | None = None,
                    target: Target | str | None = None,
                    fixed: Mapping[str, Any] | None = None) -> Network:
    """A model (as for `minitvm.compile`) with a task for each of its distinct kernels, those with
    most to compute first. Kernels that no recipe has a choice for are left out."""
    machine = target if isinstance(target, Target) else Target(target) if target else Target.host()
    if not isinstance(model, Module):
        model = from_onnx(model, {name: tuple(shape) for name, shape in (shapes or {}).items()},
                          fixed=fixed)
    module = optimize(model, machine)
    tasks = kernel_tasks(module, machine)
    digest = hashlib.sha256(repr(sorted((t.key, t.weight) for t in tasks)).encode()).hexdigest()
    name = f"{module.main.attrs.get('name') or 'model'} {digest[:8]}"
    chosen = [task for task in tasks if len(task.space) > 1]
    return Network(name, module, machine, tuple(
        sorted(chosen, key=lambda task: -task.weight * task.work.flops)))


def extract_tasks(model: Any, shapes: Mapping[str, Sequence[int]] | None = None,
                  target: Target | str | None = None,
                  fixed: Mapping[str, Any] | None = None) -> list[Task]:
    """The tasks of `extract_network`."""
    return list(extract_network(model, shapes, target, fixed).tasks)


def kernel_tasks(module: Module, target: Target) -> list[Task]:
    """A task for each distinct kernel of a module that is fused, in order."""
    calls = Counter(
        binding.value.callee.name
        for function in module.functions.values() if not function.is_primitive
        for binding in walk_bindings(function.body)
        if isinstance(binding.value, Call) and isinstance(binding.value.callee, GlobalVar)
        and not is_view(binding.value, module))
    weights: Counter[str] = Counter()
    functions: dict[str, tuple[str, Function]] = {}
    for name, function in module.functions.items():
        if function.is_primitive and calls[name]:
            shape = canonical(function)
            key = structural_hash(shape)
            weights[key] += calls[name]
            functions.setdefault(key, (name, shape))
    return [kernel_task(name, function, target, weights[key])
            for key, (name, function) in functions.items()]


def kernel_task(name: str, function: Function, target: Target, weight: int = 1) -> Task:
    """The task of a canonical primitive function."""

    def instantiate() -> Scheduled:
        graph = to_te(function)
        return schedule_function(graph, target), [*graph.inputs, *graph.outputs]

    def reference(params: Sequence[TensorInfo]) -> Arguments:
        inputs = example_arrays(params[:len(function.params)])
        result = run_function(function, *inputs)
        return Arguments(inputs, tuple(map(np.ascontiguousarray, result)))

    return Task(structural_hash(function), name, kernel_workload(name, function), target,
                instantiate, reference, weight)


def kernel_workload(name: str, function: Function) -> dict[str, Any]:
    """A kernel in words: its operators with their attributes, its parameters' types."""
    operators = []
    for binding in function.body.bindings:
        match binding.value:
            case Call(Op() as op, _):
                attributes = ", ".join(f"{k}={v!r}" for k, v in op.attributes().items())
                operators.append(f"{op.name}({attributes})")
            case _:
                pass
    params = [tensor_type(param) for param in function.params]
    return {"name": name, "operators": operators,
            "parameters": [f"{kind.dtype}{list(kind.extents())}" for kind in params]}


def example_arrays(infos: Sequence[TensorInfo], seed: int = 0) -> tuple[np.ndarray, ...]:
    """The same arrays each time. Floats are small integers, so that sums of their products are
    exact in any order, and a term that is missing shows; integers are 0 or 1, which are indices
    into almost anything."""
    generator = np.random.default_rng(seed)
    return tuple(
        generator.integers(-3, 4, info.shape).astype(info.dtype) if "float" in info.dtype
        else generator.integers(0, 2, info.shape).astype(info.dtype) for info in infos)


def check_default(task: Task) -> None:
    """Raises `TuningError` where the default schedule itself can't be made."""
    try:
        _ = task.default
    except (ScheduleError, LoweringError) as error:
        raise TuningError(f"the task {task.name} has no default schedule: {error}") from error
    except MinitvmError as error:
        error.add_note(f"in the task {task.name}")
        raise
