"""A schedule, or a loop nest, to a function that runs: `minitvm.lower` and `minitvm.build`.

    s = te.create_schedule(C.op)
    print(minitvm.lower(s, [A, B, C], name="matmul"))
    f = minitvm.build(s, [A, B, C], "llvm", name="matmul")
    f(a, b, c)                        numpy arrays, in place
    f.export_library("matmul.so")     minitvm.runtime.load_module("matmul.so")(a, b, c)

The function is compiled as a model of one kernel, whose outputs are the parameters that are
written to: one way of running, exporting and loading serves both. Where sizes are variables
(`te.var`), they are taken from the arrays when it is called; such a function runs in this process
and can't be exported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from minitvm import te
from minitvm.codegen import link
from minitvm.codegen.jit import build_kernel, load_program
from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.machine import optimized_text
from minitvm.codegen.program import Kernel, Program, compile_kernel, kernel_assembly, make_program
from minitvm.codegen.scratch import lift_scratch
from minitvm.errors import InputError, LoweringError, OptionError
from minitvm.origin import origin
from minitvm.runtime.abi import c_name
from minitvm.runtime.function_module import (
    Bind,
    FunctionModule,
    argument_array,
    bind_parameters,
    check_count,
    check_overlap,
)
from minitvm.runtime.tensor_info import TensorInfo
from minitvm.target import Target
from minitvm.tir import ir, walk
from minitvm.tir.passes import lower as lower_tir
from minitvm.tir.text import print_func

Argument = te.Tensor | ir.Var


def lower(
    inputs: te.Schedule | ir.PrimFunc, args: Sequence[Argument] | None = None, name: str = "main",
    simple_mode: bool = False, target: Target | str | None = None,
) -> ir.PrimFunc:
    """The loop nest of a schedule, with a parameter for each of `args`.

    `simple_mode` changes nothing: the nest is the short form. `minitvm.tir.lower` goes on to
    vectors and flat memory. `target` chooses between the bodies of tensor intrinsics.
    Raises `LoweringError`.
    """
    if isinstance(inputs, ir.PrimFunc):
        _check_names(inputs)
        return inputs
    if not isinstance(inputs, te.Schedule):
        raise LoweringError(f"a schedule (te.create_schedule) or a PrimFunc can be lowered, not a "
                            f"{type(inputs).__name__}")
    if args is None:
        raise LoweringError("a schedule is lowered with its inputs and outputs: give them as args, "
                            "such as [A, B, C]")
    machine = Target(target) if isinstance(target, str) else target
    return te.lower(inputs, args, name=name, target=machine)


def _check_names(func: ir.PrimFunc) -> None:
    names = [param.name for param in func.params]
    if twice := [name for name in names if names.count(name) > 1]:
        raise LoweringError(f"the function {func.name} has two parameters called {twice[0]!r}; "
                            "give each a name of its own")


def build(
    inputs: te.Schedule | ir.PrimFunc, args: Sequence[Argument] | None = None,
    target: Target | str | None = None, target_host: Target | str | None = None,
    name: str = "default_function",
) -> BuiltFunction:
    """Compiles a schedule, with its inputs and outputs `args`, or a loop nest.

    target: the machine to compile for; by default this one. `target_host` is the same machine.
    name: of the function; a loop nest has one already.

    Raises `MinitvmError` for whatever can't be compiled.
    """
    machine = target if isinstance(target, Target) else Target(target) if target else Target.host()
    if target_host is not None and Target(str(target_host)) != machine:
        raise OptionError(f"the target '{machine}' is a CPU and its own host; target_host must be "
                          "left out, or be the same")
    return BuiltFunction(lower(inputs, args, name, target=machine), machine)


class BuiltFunction(FunctionModule):
    """A compiled function; runs in this process, if that is of its target, and exports.

    `func` is its loop nest, `machine_func` what LLVM was given.
    """

    def __init__(self, func: ir.PrimFunc, target: Target) -> None:
        super().__init__(func.name, self._bind_first)
        self.func = func
        self.target = target
        self.machine_func = lift_scratch(lower_tir(func))
        self._kernel: Kernel | None = None

    @property
    def program(self) -> Program:
        """The function as a model of one kernel. Raises `LoweringError` if sizes are variables."""
        variables = [str(param) for param in self.func.params if isinstance(param, ir.Var)]
        if variables:
            raise LoweringError(
                f"the function {self.entry_name} takes {', '.join(variables)} when it is called; a "
                f"library holds functions of constant sizes: give them as integers"
            )
        if self._kernel is None:
            self._kernel = compile_kernel(self.machine_func, self.target)
        return function_program(self.func, self._kernel, self.target)

    def export_library(self, path: str | PathLike[str]) -> None:
        """Writes a shared library, with a C header and a sample; `runtime.load_module` loads it."""
        link.export(self.program, Path(path))

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the object file (`.o`), assembly (`.s`), LLVM IR (`.ll`) or loop nest (`.tir`)."""
        file = Path(path)
        kind = file.suffix.removeprefix(".")
        if kind == "o":
            file.write_bytes(self.program.kernels[0].object)
        else:
            file.write_text(self.get_source(kind), encoding="utf-8")

    def get_source(self, fmt: str = "ll") -> str:
        """The code as text: `ll`, LLVM IR after its optimisation; `asm` or `s`; `tir`, the loop
        nest; `machine`, the tir that LLVM was given."""
        match fmt:
            case "ll":
                return optimized_text(function_to_llvm(self.machine_func, self.target), self.target)
            case "asm" | "s":
                kernel = Kernel(self.func.name, self.machine_func, "", b"")
                return kernel_assembly(kernel, self.target)
            case "tir":
                return print_func(self.func)
            case "machine":
                return print_func(self.machine_func)
        raise OptionError(f"there is no source of the kind {fmt!r}; there are ll, asm, tir and "
                          "machine")

    def _bind_first(self, arguments: Sequence[Any]) -> Callable[[], None]:
        """Loads the code when it is first called."""
        if any(isinstance(param, ir.Var) for param in self.func.params):
            self._bind = _bind_with_sizes(self.func, self.machine_func, self.target)
        else:
            order = [param.name for param in self.func.params]
            self._bind = bind_parameters(load_program(self.program), order)
        return self._bind(arguments)


def function_program(func: ir.PrimFunc, kernel: Kernel, target: Target) -> Program:
    """A model whose run is one call of a kernel: its outputs are the buffers written to."""
    written = written_buffers(func)
    buffers = [param for param in func.params if isinstance(param, ir.Buffer)]
    flat = {buffer: ir.buffer(buffer.name, (_elements(buffer),), buffer.dtype)
            for buffer in buffers}
    here = origin(func.name)
    call = ir.Invoke(kernel.name, tuple(ir.Address(flat[b], ir.Const(0)) for b in buffers), here)
    inputs = [buffer for buffer in buffers if buffer not in written]
    outputs = [buffer for buffer in buffers if buffer in written]
    spare = [ir.buffer(name, (1,), "uint8") for name in ("weights", "workspace")]
    main = ir.PrimFunc("main", (*(flat[b] for b in (*inputs, *outputs)), *spare), ir.seq(call))
    facts = {"function": {"name": func.name, "parameters": [b.name for b in buffers]}}
    return make_program(c_name(func.name), main, [kernel], np.zeros(0, np.uint8),
                        map(_info, inputs), map(_info, outputs), target, facts)


def written_buffers(func: ir.PrimFunc) -> set[ir.Buffer]:
    """The parameters that are written to."""
    stores = {statement.buffer for statement in walk.walk_statements(func.body)
              if isinstance(statement, ir.Store)}
    return {param for param in func.params if isinstance(param, ir.Buffer) and param in stores}


def _elements(buffer: ir.Buffer) -> int:
    return int(np.prod(buffer.extents(), dtype=np.int64))


def _info(buffer: ir.Buffer) -> TensorInfo:
    return TensorInfo(buffer.name, buffer.extents(), buffer.dtype)


# --- sizes that are known when the function is called -------------------------------------------


def _bind_with_sizes(func: ir.PrimFunc, machine_func: ir.PrimFunc, target: Target) -> Bind:
    """Arguments are all parameters, or all but the sizes that the shapes of arrays tell."""
    kernel = build_kernel(machine_func, target)
    written = {buffer.name for buffer in written_buffers(func)}
    implied = {dim for param in func.params if isinstance(param, ir.Buffer)
               for dim in param.shape if isinstance(dim, ir.Var)}
    needed = [param for param in func.params if param not in implied]

    def bind(arguments: Sequence[Any]) -> Callable[[], None]:
        params = func.params if len(arguments) == len(func.params) else needed
        check_count(func.name, [param.name for param in params], arguments)
        given = dict(zip(params, arguments))
        sizes = _sizes(func, given)
        arrays = {
            param.name: argument_array(_info_with_sizes(param, sizes), value, param.name in written)
            for param, value in given.items() if isinstance(param, ir.Buffer)
        }
        check_overlap(arrays, written)
        return kernel.bind(*(arrays[param.name] if isinstance(param, ir.Buffer) else sizes[param]
                             for param in func.params))

    return bind


def _sizes(func: ir.PrimFunc, given: dict[ir.Buffer | ir.Var, Any]) -> dict[ir.Var, Any]:
    """The value of each variable: as given, or the size of a dimension that it names."""
    sizes = {param: value for param, value in given.items() if isinstance(param, ir.Var)}
    for param in func.params:
        shape = getattr(given.get(param), "shape", ())
        if isinstance(param, ir.Buffer) and len(shape) == len(param.shape):
            for dim, extent in zip(param.shape, shape):
                if isinstance(dim, ir.Var):
                    sizes.setdefault(dim, int(extent))
    return sizes


def _info_with_sizes(buffer: ir.Buffer, sizes: dict[ir.Var, Any]) -> TensorInfo:
    values = {var: ir.Const(value, var.dtype) for var, value in sizes.items()}
    shape = []
    for dim in buffer.shape:
        extent = walk.substitute(dim, values)
        if not isinstance(extent, ir.Const):
            raise InputError(f"the size {dim!r} of {buffer.name!r} is not known from the arguments")
        shape.append(int(extent.value))
    return TensorInfo(buffer.name, tuple(shape), buffer.dtype)
