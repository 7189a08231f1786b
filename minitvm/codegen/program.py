"""A compiled model before it is linked or loaded: kernels as objects, `main`, weights, facts.

`compile_kernel` takes machine tir to a `Kernel`; `make_program` joins kernels and `main` to a
`Program`; `program_objects` gives the object files that a shared library is linked from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitvm.codegen import interface
from minitvm.codegen.bound_checks import Report, add_report
from minitvm.codegen.cpu_check import required_features
from minitvm.codegen.frames import stack_frames
from minitvm.codegen.llvm import function_to_llvm, program_to_llvm
from minitvm.codegen.machine import emit_assembly, emit_object
from minitvm.codegen.parallel import parallel_loops
from minitvm.codegen.scratch import add_scratch, buffer_bytes, lift_scratch
from minitvm.codegen.thread_pool import pool_object
from minitvm.errors import CodegenError
from minitvm.origin import Origin
from minitvm.runtime import abi
from minitvm.runtime.tensor_info import TensorInfo
from minitvm.target import Target
from minitvm.tir import ir
from minitvm.tir.text import print_func
from minitvm.tir.walk import walk_statements

__all__ = ["Kernel", "Program", "TensorInfo", "compile_kernel", "kernel_assembly", "make_program",
           "metadata_text", "pool", "program_objects", "provenance"]

@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel. `func` has its large scratch memory as parameters; `text` is its tir.

    The object's debug lines are those of `text`. `line_origins` says what the names in the text's
    origins stand for in the model; a name that it lacks stands for itself.
    """

    name: str
    func: ir.PrimFunc
    text: str
    object: bytes = field(repr=False)
    line_origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Program:
    """A whole model. `main` calls `kernels` and `functions`, as these do; its last two parameters
    are weights and workspace. Where a run may have to stop (functions that call themselves too
    deeply), `status_offset` is the place in the workspace of the byte that says so."""

    name: str
    main: ir.PrimFunc
    kernels: tuple[Kernel, ...]
    weights: np.ndarray = field(repr=False)
    workspace_bytes: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    target: Target
    metadata: Mapping[str, Any] = field(default_factory=dict)
    functions: tuple[ir.PrimFunc, ...] = ()
    status_offset: int | None = None
    report: Report | None = None
    """Where a kernel says that an access was out of bounds, if kernels check."""
    weights_sha256: str = ""


def compile_kernel(func: ir.PrimFunc, target: Target,
                   line_origins: Mapping[str, Origin] | None = None) -> Kernel:
    """Machine tir -> object code. The same text gives the same bytes."""
    func = lift_scratch(func)
    data = emit_object(function_to_llvm(func, target), target)
    return Kernel(func.name, func, print_func(func), data, line_origins or {})


def kernel_assembly(kernel: Kernel, target: Target) -> str:
    """The assembly of a kernel, with the lines of its tir as `.loc` directives."""
    return emit_assembly(function_to_llvm(kernel.func, target), target)


def make_program(name: str, main: ir.PrimFunc, kernels: Iterable[Kernel], weights: np.ndarray,
                 inputs: Iterable[TensorInfo], outputs: Iterable[TensorInfo], target: Target,
                 metadata: Mapping[str, Any] | None = None, *,
                 functions: Sequence[ir.PrimFunc] = (), recursion_limit: int = 0,
                 status_offset: int | None = None) -> Program:
    """Joins a model: `main` gets room in its workspace for the scratch memory of kernels, and for
    the frames of functions."""
    kernels, inputs, outputs = tuple(kernels), tuple(inputs), tuple(outputs)
    by_name = {kernel.name: kernel.func for kernel in kernels}
    main, functions, report = add_report(main, functions, by_name)
    if functions:
        main, functions = stack_frames(main, functions, by_name, recursion_limit)
    else:
        main = add_scratch(main, by_name)
    wanted = len(inputs) + len(outputs) + 2
    if len(main.params) != wanted:
        raise CodegenError(f"main of {name!r} has {len(main.params)} parameters; with "
                           f"{len(inputs)} inputs, {len(outputs)} outputs, the weights and the "
                           f"workspace it must have {wanted}")
    workspace = main.params[-1]
    size = buffer_bytes(workspace) if isinstance(workspace, ir.Buffer) else 0
    flat = np.ascontiguousarray(weights).reshape(-1).view(np.uint8)
    facts = dict(metadata or {})
    if report is not None:
        facts["bound_checks"] = report.metadata
    return Program(name, main, kernels, flat, size, inputs, outputs, target, facts,
                   tuple(functions), status_offset, report,
                   hashlib.sha256(flat.data).hexdigest())


def _is_straight(program: Program) -> bool:
    """Whether there are calls of kernels and nothing else. Between branches LLVM finds nothing to
    optimise either, but looks for it in more than linear time."""
    return not program.functions and not any(
        isinstance(statement, ir.If) for statement in walk_statements(program.main.body))


def _check_invokes(program: Program) -> None:
    counts = {kernel.name: len(kernel.func.params) for kernel in program.kernels}
    for function in program.functions:
        if function.name in counts:
            raise CodegenError(f"a kernel and a function are both called {function.name!r}")
        counts[function.name] = len(function.params)
    for kernel in program.kernels:
        if kernel.name != kernel.func.name:
            raise CodegenError(f"the kernel {kernel.name!r} holds the code of another name, "
                               f"{kernel.func.name!r}; its object would not be found")
    for caller in (program.main, *program.functions):
        for statement in walk_statements(caller.body):
            if isinstance(statement, ir.Invoke):
                _check_invoke(caller, statement, counts)


def _check_invoke(caller: ir.PrimFunc, statement: ir.Invoke, counts: Mapping[str, int]) -> None:
    wanted = counts.get(statement.callee)
    if wanted is None:
        raise CodegenError(f"{caller.name} calls the kernel {statement.callee!r}, "
                           "which was not compiled")
    if len(statement.arguments) != wanted:
        raise CodegenError(f"{caller.name} calls the kernel {statement.callee!r} with "
                           f"{len(statement.arguments)} arguments; it takes {wanted}")


def metadata_text(program: Program, weights_file: str | None = None) -> str:
    """The JSON that `<name>_metadata` returns; equal programs give equal text. `weights_file` is
    the name of the file that holds the weights, if the library does not."""
    facts = {
        **program.metadata,
        "abi_version": abi.ABI_VERSION,
        "name": program.name,
        "inputs": [_row(info) for info in program.inputs],
        "outputs": [_row(info) for info in program.outputs],
        "target": str(program.target),
        "required_features": required_features(program.target),
        "workspace_bytes": program.workspace_bytes,
        "weights_bytes": program.weights.nbytes,
        "weights_sha256": program.weights_sha256,
        "weights_file": weights_file,
        "maximum_threads": abi.MAXIMUM_THREADS,
        "parallel_kernels": sum(parallel_loops(k.func) > 0 for k in program.kernels),
        "provenance": provenance(program),
    }
    return json.dumps(facts, sort_keys=True)


def _row(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "shape": list(info.shape), "dtype": info.dtype}


def provenance(program: Program) -> str:
    """A hash of what the model computes: target, main, kernels and weights."""
    digest = hashlib.sha256()
    texts = [kernel.text for kernel in program.kernels]
    texts += [print_func(function) for function in program.functions]
    for text in (str(program.target), print_func(program.main), *texts, program.weights_sha256):
        digest.update(text.encode() + b"\0")
    return "sha256:" + digest.hexdigest()


def pool(target: Target) -> bytes:
    """The object file of the thread pool."""
    return pool_object(baseline(target))


def baseline(target: Target) -> Target:
    """What every processor of the target's kind runs: the functions that ask whether this one has
    more must not use more themselves."""
    if target.isa not in ("x86_64", "aarch64"):
        return target
    return Target(f"llvm -mtriple={target.triple} -mcpu=generic")


def program_objects(program: Program, weights_file: str | None = None) -> list[bytes]:
    """The object files of everything but the weights and the thread pool (`pool`): kernels, main,
    the C interface. `weights_file`: the weights lie in a file of this name, not in the library."""
    _check_invokes(program)
    target = program.target
    text = program_to_llvm(program.main, program.functions, target, interface.MAIN)
    main = emit_object(text, target, optimize=_is_straight(program))
    text = interface.interface_to_llvm(program.name, metadata_text(program, weights_file),
                                       program.inputs, program.outputs, program.workspace_bytes,
                                       target, program.status_offset,
                                       program.report.offset if program.report else None,
                                       separate=weights_file is not None)
    # Not optimised: the function behind the CPU check is machine code that LLVM can't see into.
    functions = emit_object(text, baseline(target), optimize=False)
    return [*(kernel.object for kernel in program.kernels), main, functions]
