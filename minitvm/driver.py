"""The pipeline: ONNX -> relay -> te -> tir -> LLVM -> a module that runs and exports as a `.so`.

    module = minitvm.compile("mobilenet_v2.onnx")
    module.run({"input": image})["logits"]
    module.export("mobilenet_v2.so")

The whole way is in this file: `relay_passes` is what happens to the graph, `_Build.finish` turns
the fused graph into kernels and `main`, and `_Build._kernel` takes one kernel from relay through te
and tir to object code.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm.codegen.cache import KernelCache
from minitvm.codegen.jit import load_program
from minitvm.codegen.link import check_output, check_weights, export, find_linker
from minitvm.codegen.program import Kernel, Program, TensorInfo, compile_kernel, make_program
from minitvm.errors import LoweringError, OptionError, ScheduleError
from minitvm.instruments import DumpIR, PassTimer, dump_file
from minitvm.origin import Origin
from minitvm.profile import REPEAT, Profile, profile_program
from minitvm.relay.ir import Call, Function, GlobalVar, Module, TensorType, walk_bindings
from minitvm.relay.lower import canonical, check_sizes, line_origins, lower_function
from minitvm.relay.lower_program import RECURSION_LIMIT, lower_program
from minitvm.relay.memory import MemoryPlan, plan_functions
from minitvm.relay.memory_plan import is_view, output_tensors
from minitvm.relay.onnx import from_onnx
from minitvm.relay.passes import (
    alter_op_layout,
    canonicalize_cast,
    canonicalize_ops,
    combine_parallel_batch_matmul,
    combine_parallel_conv2d,
    combine_parallel_dense,
    dead_code_elimination,
    dynamic_to_static,
    eliminate_common_subexpr,
    fast_math,
    fold_constant,
    fold_scale_axis,
    fuse_attention,
    fuse_depthwise,
    fuse_gelu,
    fuse_layer_norm,
    fuse_ops,
    infer_type,
    inline,
    lambda_lift,
    legalize,
    remove_unused_functions,
    simplify_expr,
    simplify_inference,
    winograd,
)
from minitvm.relay.printer import large_constants, print_function
from minitvm.relay.structural_hash import structural_hash
from minitvm.relay.text import print_module
from minitvm.remarks import Remark, collect, remark
from minitvm.target import Target
from minitvm.tir import ir as tir
from minitvm.tir.passes import lower as lower_tir
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.walk import walk_statements
from minitvm.transform import PassContext, Sequential

if TYPE_CHECKING:
    from minitvm.runtime import BenchmarkResult
    from minitvm.runtime import Module as RuntimeModule
from minitvm.runtime.abi import EMBEDDED

Progress = Callable[[str, int, int], None]
"""`progress(step, done, total)`: called as the compilation goes on; a total of 0 is unknown."""

FindSchedule = Callable[[str], Sequence[Any] | None]
"""The steps for a kernel by its structural hash; None for the default schedule."""

SCHEDULES: ContextVar[FindSchedule | None] = ContextVar("schedules", default=None)
"""What finds schedules where `compile` is given none."""


def relay_passes(target: Target) -> Sequential[Module]:
    """The passes over the graph, in order."""
    return Sequential(
        [
            infer_type,
            lambda_lift,  # first: what follows knows functions only as callees
            inline,
            remove_unused_functions,
            legalize,  # composite operators become simple ones
            canonicalize_ops,
            dynamic_to_static,  # shapes that are constants
            fold_constant,  # so that statistics are constants
            simplify_inference,  # batch norm becomes a multiplication and an addition
            fold_constant,  # so that scales are constants
            fold_scale_axis,  # and move into the weights of convolutions
            combine_parallel_conv2d(),  # from level 4 on: one wide product for several
            combine_parallel_dense(),
            combine_parallel_batch_matmul(),
            simplify_expr,
            eliminate_common_subexpr,
            fuse_layer_norm,  # layers that come in small operators, once common parts are one
            fuse_attention,
            alter_op_layout(target),  # packed data and weights, transforms at the edges
            winograd(target),  # convolutions of 3x3 with fewer products, where that pays
            simplify_expr,  # which meet other moves of elements there
            fast_math,  # from level 4 on: approximations
            fuse_gelu,  # what is not approximated
            fold_constant,  # packs the weights
            dead_code_elimination,
            canonicalize_cast,  # after equal values were joined, which would undo it
            fuse_ops,  # fusion depends on layouts
            fuse_depthwise(target),  # last: joins two kernels
        ]
    )


@dataclass(eq=False)
class CompiledModule:
    """A compiled model: runs in this process, and exports as a shared library. `threads` can be
    set; nothing else of it changes.

    `program` is what was made, `relay` the graph it was made of, `plan` where its tensors lie,
    `timer` where the time went, `remarks` what was declined and why.
    """

    program: Program
    relay: Module
    plan: MemoryPlan
    timer: PassTimer
    remarks: tuple[Remark, ...]
    cache_hits: int
    structures: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The structural hashes of kernels, by which schedules are found, by the kernels' names."""
    unfit: tuple[str, ...] = ()
    """The structural hashes of kernels that a schedule was found for which does not fit them."""

    @property
    def target(self) -> Target:
        """The machine this is for."""
        return self.program.target

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, each with its tir, its text and its object code."""
        return self.program.kernels

    @property
    def main(self) -> tir.PrimFunc:
        """The entry: a sequence of kernel calls."""
        return self.program.main

    @property
    def kernel_calls(self) -> int:
        """How many kernels a run calls."""
        return sum(isinstance(s, tir.Invoke) for s in walk_statements(self.main.body))

    @cached_property
    def runtime(self) -> RuntimeModule:
        """The module in this process; raises `TargetError` if it is for another machine."""
        return load_program(self.program)

    @property
    def threads(self) -> int:
        """On how many threads a run in this process computes; 1 until it is set."""
        return self.runtime.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self.runtime.threads = count

    def run(self, inputs: Mapping[str, Any],
            outputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Runs the model on arrays by name, into those of `outputs` where given; see
        `runtime.Module.run`. Raises `InputError` for what does not fit."""
        return self.runtime.run(inputs, outputs)

    def benchmark(self, inputs: Mapping[str, Any] | None = None, repeat: int | None = None,
                  seconds: float | None = None) -> BenchmarkResult:
        """The time of a run: `p50`, `p99`, `minimum`, `mean`; see `runtime.Module.benchmark`."""
        return self.runtime.benchmark(inputs, repeat, seconds)

    def profile(self, inputs: Mapping[str, Any] | None = None, repeat: int = REPEAT,
                threads: int = 1) -> Profile:
        """Where the time of a run goes, by kernel and by ONNX node; see `profile`."""
        return profile_program(self.program, inputs, repeat, threads)

    def export(self, path: str | PathLike[str], weights: str = EMBEDDED) -> None:
        """Writes the shared library, and beside it a C header and a sample; with `weights`
        "separate" the weights, too, in a file of their own that the library then needs.

        Raises `LinkError` if there is no linker for the target, or `path` can't be written.
        """
        with self.timer.measure("link"):
            export(self.program, Path(path), weights=weights)

    def summary(self) -> dict[str, Any]:
        """What was made, as data for a report."""
        seconds = sorted(self.timer.seconds.items(), key=lambda item: -item[1])
        return {
            "name": self.program.name,
            "target": str(self.target),
            "inputs": [_tensor_data(item) for item in self.program.inputs],
            "outputs": [_tensor_data(item) for item in self.program.outputs],
            "kernels": len(self.kernels),
            "kernel_calls": self.kernel_calls,
            "kernels_from_cache": self.cache_hits,
            "weights_bytes": int(self.program.weights.nbytes),
            "workspace_bytes": self.program.workspace_bytes,
            "arena_bytes": self.plan.workspace_bytes,
            "workspace_lower_bound_bytes": self.plan.lower_bound_bytes,
            "steps": [{"name": name, "seconds": time, "runs": self.timer.runs[name]}
                      for name, time in seconds],
            "remarks": [str(remark) for remark in self.remarks],
        }


def _tensor_data(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "dtype": info.dtype, "shape": list(info.shape)}


def compile(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    target: Target | str | None = None,
    opt_level: int | None = None,
    schedules: Mapping[str, Sequence[Any]] | FindSchedule | None = None,
    *,
    name: str = "",
    dump: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    export: str | PathLike[str] | None = None,
    weights: str = EMBEDDED,
    fixed: Mapping[str, Any] | None = None,
) -> CompiledModule:
    """Compiles an ONNX model: a path, bytes, an `onnx.ModelProto`; or a `relay.Module`.

    shapes: the shapes of inputs by name, where the model leaves dimensions open.
    target: the machine to compile for; by default this one.
    opt_level: 0 to 4; by default that of the current `PassContext`, which is 3.
    schedules: schedule steps by the structural hash of a kernel, instead of its default schedule;
        one that is of no kernel is a remark. Or a function that finds them, such as
        `autotune.apply_history_best(log)`; where one of those does not fit its kernel, that is a
        remark, and the default schedule is used.
    name: the prefix of the C functions; by default the model's name.
    dump: a directory for the program after every pass; kernels then don't come from the cache.
    export: also write the shared library there; that this is possible is found out first.
    weights: where an exported library has its weights: "embedded", or "separate", in a file beside
        it.
    fixed: inputs that become constants, by name: arrays, or a number for all elements. What they
        decide, such as the branch of an `If`, is decided when compiling.

    Raises `MinitvmError` for whatever can't be compiled.
    """
    machine = target if isinstance(target, Target) else Target(target) if target else Target.host()
    if export is not None:
        find_linker(machine)
        check_output(Path(export))
        check_weights(weights)
    current = PassContext.current()
    timer = PassTimer()
    level = current.opt_level if opt_level is None else opt_level
    context = replace(current, opt_level=level, instruments=(*current.instruments, timer))
    with context, collect() as remarks:
        if isinstance(model, Module):
            module = model
        else:
            with timer.measure("import ONNX"):
                module = from_onnx(model, _shape_tuples(shapes), name, fixed)
        directory = None if dump is None else Path(dump)
        module = optimize(module, machine, directory)
        found = SCHEDULES.get() if schedules is None else schedules
        built = _Build(module, machine, timer, found or {}, directory, progress or _silent)
        compiled = built.finish(name or str(module.main.attrs.get("name", "") or "model"), remarks)
    if export is not None:
        (progress or _silent)("linking", 0, 0)
        compiled.export(export, weights)
    return compiled


def compile_fused(module: Module, target: Target,
                  schedules: Mapping[str, Sequence[Any]] | FindSchedule) -> CompiledModule:
    """Compiles a graph that `optimize` gave, so that it is compiled with several schedules without
    going through the passes each time."""
    timer = PassTimer()
    with _more_instruments(timer), collect() as remarks:
        built = _Build(module, target, timer, schedules, None, _silent)
        return built.finish(str(module.main.attrs.get("name", "") or "model"), remarks)


def _silent(step: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""


def _shape_tuples(shapes: Mapping[str, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    """The shapes as tuples of int, whatever kind of integers and sequences they are given as."""
    found = {}
    for name, shape in (shapes or {}).items():
        try:
            found[name] = tuple(operator.index(extent) for extent in shape)
        except TypeError:
            raise OptionError(f"the shape given for the input {name!r} is {shape!r}; it must be a "
                              "sequence of integers, such as (1, 3, 224, 224)") from None
    return found


def optimize(module: Module, target: Target, dump: Path | None = None) -> Module:
    """The fused module: `main` that calls kernels, and the kernels."""
    passes = relay_passes(target)
    if dump is None:
        return passes(module)
    constants: dict[str, np.ndarray] = {}

    def show(shown: Module) -> str:
        constants.update(large_constants(shown))
        return print_module(shown)

    with _more_instruments(DumpIR(dump / "relay", show)):
        module = passes(module)
    named: dict[str, Any] = {key.removeprefix("sha256:"): data for key, data in constants.items()}
    with dump_file(dump / "relay" / "constants.npz") as path:
        np.savez(path, **named)
    return module


def _more_instruments(*instruments: Any) -> PassContext:
    now = PassContext.current()
    return replace(now, instruments=(*now.instruments, *instruments))


class _Build:
    """From a fused module to a program: one kernel for each primitive function, and `main`."""

    def __init__(self, module: Module, target: Target, timer: PassTimer,
                 schedules: Mapping[str, Sequence[Any]] | FindSchedule, dump: Path | None,
                 progress: Progress) -> None:
        self.module, self.target, self.timer = module, target, timer
        self.dump, self.progress = dump, progress
        self.unused_schedules = set(schedules) if isinstance(schedules, Mapping) else set()
        self.find_schedule = schedules.get if isinstance(schedules, Mapping) else schedules
        self.must_fit = isinstance(schedules, Mapping)
        self.cache = KernelCache.current() if dump is None else None
        self.cache_hits = 0
        self.structures: dict[str, str] = {}
        self.unfit: list[str] = []

    def finish(self, name: str, remarks: Sequence[Remark]) -> CompiledModule:
        """Compiles every kernel and `main`."""
        for function in self.module.functions.values():
            check_sizes(function)
        with self.timer.measure("plan memory"):
            plans = plan_functions(self.module)
        called = self._kernels_called(plans)
        functions = {key: f for key, f in self.module.functions.items() if key in called}
        kernels: dict[str, Kernel] = {}
        for index, (key, function) in enumerate(functions.items()):
            self.progress("compiling kernels", index, len(functions))
            kernels[key] = self._kernel(key, function)
        self.progress("compiling kernels", len(functions), len(functions))
        for digest in sorted(self.unused_schedules):
            remark("Schedules", f"the schedule for {digest} is of no kernel of this model")
        context = PassContext.current()
        lowered = lower_program(
            self.module, plans, {key: kernel.name for key, kernel in kernels.items()},
            context.config.get("relay.recursion_limit", RECURSION_LIMIT))
        copies = [self._to_object(lower_tir(func), {}) for func in lowered.copy_kernels]
        metadata: dict[str, Any] = {"opt_level": context.opt_level}
        if lowered.status_offset is not None:
            metadata["recursion_limit"] = lowered.recursion_limit
        program = make_program(
            name, lowered.main, [*kernels.values(), *copies], lowered.weights,
            _inputs(self.module.main), _outputs(self.module.main), self.target, metadata,
            functions=lowered.functions, recursion_limit=lowered.recursion_limit,
            status_offset=lowered.status_offset,
        )
        if self.dump is not None:
            self._dump_program(program)
        return CompiledModule(
            program, self.module, plans["main"], self.timer, tuple(remarks), self.cache_hits,
            self.structures, tuple(self.unfit)
        )

    def _kernels_called(self, plans: Mapping[str, MemoryPlan]) -> set[str]:
        return {
            binding.value.callee.name
            for name in plans
            for binding in walk_bindings(self.module.functions[name].body)
            if isinstance(binding.value, Call) and isinstance(binding.value.callee, GlobalVar)
            and binding.value.callee.name not in plans and not is_view(binding.value, self.module)
        }

    def _dump_program(self, program: Program) -> None:
        assert self.dump is not None
        with dump_file(self.dump / "main.tir") as path:
            path.write_text(print_func(program.main), encoding="utf-8")
        for function in program.functions:
            with dump_file(self.dump / "functions" / f"{function.name}.tir") as path:
                path.write_text(print_func(function), encoding="utf-8")

    def _kernel(self, name: str, function: Function) -> Kernel:
        """One primitive function as object code, from the cache where it is known."""
        shape = canonical(function)
        structure = structural_hash(shape)
        self.unused_schedules.discard(structure)
        kernel = self._scheduled(name, function, shape, self.find_schedule(structure))
        self.structures[kernel.name] = structure
        return kernel

    def _scheduled(self, name: str, function: Function, shape: Function,
                   steps: Sequence[Any] | None) -> Kernel:
        """A canonical function with a schedule: `steps`, or the default."""
        digest = self._key(shape, steps)
        symbol = f"{re.sub(r'_[0-9]+$', '', name)}_{digest[:8]}"
        origins = line_origins(function)
        if self.cache is not None and (entry := self.cache.get(digest)) is not None:
            self.cache_hits += 1
            return Kernel(symbol, parse_func(entry.text), entry.text, entry.object, origins)
        try:
            with self.timer.measure("te"):
                func = lower_function(symbol, shape, self.target, steps)
        except (ScheduleError, LoweringError) as error:
            if steps is None or self.must_fit:
                raise
            remark("Schedules", f"the schedule found for {name} does not fit it, the default one "
                   f"is used: {str(error).splitlines()[0]}", function.body.bindings[-1].origin)
            self.unfit.append(structural_hash(shape))
            return self._scheduled(name, function, shape, None)
        if self.dump is None:
            func = lower_tir(func)
        else:
            with _more_instruments(DumpIR(self.dump / "kernels" / symbol, print_func)):
                func = lower_tir(func)
        kernel = self._to_object(func, origins)
        if self.cache is not None:
            self.cache.put(digest, kernel.text, kernel.object)
        return kernel

    def _to_object(self, func: tir.PrimFunc, origins: Mapping[str, Origin]) -> Kernel:
        with self.timer.measure("LLVM"):
            return compile_kernel(func, self.target, origins)

    def _key(self, function: Function, steps: Sequence[Any] | None) -> str:
        """What the object code depends on, minitvm's own sources and llvmlite apart. Kernels are
        named by it, so it must not say where they are kept."""
        context = PassContext.current()
        config = {key: value for key, value in context.config.items() if key != "cache.directory"}
        parts = (print_function(function), repr(steps), str(self.target), str(context.opt_level),
                 repr(sorted(context.disabled_pass)), repr(sorted(context.required_pass)),
                 repr(sorted(config.items())))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _inputs(main: Function) -> tuple[TensorInfo, ...]:
    return tuple(_info(param.name, param.type) for param in main.params)


def _outputs(main: Function) -> tuple[TensorInfo, ...]:
    names = main.attrs.get("output_names")
    return tuple(_info(name, kind) for name, kind in output_tensors(main.result_type, names))


def _info(name: str, kind: Any) -> TensorInfo:
    assert isinstance(kind, TensorType)
    return TensorInfo(name, kind.extents(), kind.dtype)
