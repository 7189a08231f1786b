"""Object files -> code in this process.

The objects are the same that a shared library is linked from, loaded by LLVM's LLJIT: no compiler
or linker of the system is needed. `build_kernel` makes one callable of one kernel, for tests and
for measuring schedules; `load_program` makes a `runtime.Module` of a whole model.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.codegen.bound_checks import PARAMS
from minitvm.codegen.interface import WEIGHTS
from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.machine import emit_object
from minitvm.codegen.program import Program, pool, program_objects
from minitvm.codegen.scratch import buffer_bytes, lift_scratch, scratch_params
from minitvm.codegen.text import symbol
from minitvm.codegen.thread_pool import ENTER, LEAVE, SYMBOLS
from minitvm.errors import CodegenError, InputError, RunError, TargetError
from minitvm.runtime import abi
from minitvm.runtime.bound_report import REPORT_BYTES, report_sentence
from minitvm.runtime.module import Library, Module, aligned_bytes
from minitvm.target import Target
from minitvm.tir import ir, walk
from minitvm.tir.passes.inject_bound_checks import CHECKS

_C_TYPES: dict[str, Any] = {
    "bool": ctypes.c_bool, "int8": ctypes.c_int8, "int16": ctypes.c_int16,
    "int32": ctypes.c_int32, "int64": ctypes.c_int64, "uint8": ctypes.c_uint8,
    "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
}


@cache
def _compiler() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


_NUMBERS = itertools.count()
"""A name for each library loaded."""


def load_objects(objects: Sequence[bytes], names: Sequence[str],
                 addresses: Mapping[str, int] | None = None) -> Any:
    """Loads objects as one library; gives a tracker that keeps it, `tracker[name]` an address.

    `addresses` are symbols that lie elsewhere in this process.
    """
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder()
    for data in objects:
        builder.add_object_img(data)
    for name, address in (addresses or {}).items():
        builder.import_symbol(name, address)
    builder.add_current_process()
    for name in names:
        builder.export_symbol(name)
    try:
        return builder.link(_compiler(), f"minitvm{next(_NUMBERS)}")
    except RuntimeError as error:
        raise CodegenError(f"LLVM could not load the code into this process: {error}") from error


@cache
def _pool() -> tuple[Mapping[str, int], Any]:
    """The addresses of the thread pool that all code loaded into this process shares, and what
    keeps it: its threads never end, so it is never unloaded."""
    tracker = load_objects([pool(Target.host())], SYMBOLS)
    return {name: int(tracker[name]) for name in SYMBOLS}, tracker


@contextmanager
def pool_threads(count: int) -> Iterator[None]:
    """Within this context kernels that are called run on so many threads. Where another run has the
    pool already, they run on the caller's alone."""
    addresses, _ = _pool()
    owned = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(addresses[ENTER])(count)
    try:
        yield
    finally:
        if owned:
            ctypes.CFUNCTYPE(None)(addresses[LEAVE])()


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """A kernel that can be called with arrays, in the order of its parameters, in place.

    Arrays must be C-contiguous, of the dtype and the size of their buffer. Scratch memory that the
    kernel takes is added by itself.
    """

    func: ir.PrimFunc
    object: bytes = field(repr=False)
    address: int
    tracker: Any = field(repr=False)
    scratch: tuple[np.ndarray, ...] = field(repr=False)

    def __call__(self, *arrays: Any) -> None:
        self.bind(*arrays)()

    def bind(self, *arrays: Any) -> BoundCall:
        """A call with these arguments fixed and checked once: what a benchmark should time."""
        checks = CHECKS in self.func.attrs
        added = len(self.scratch) + (PARAMS if checks else 0)
        wanted = self.func.params[:len(self.func.params) - added]
        if len(arrays) != len(wanted):
            raise InputError(f"the kernel {self.func.name} takes {len(wanted)} arguments, "
                             f"not {len(arrays)}")
        sizes = {p: ir.Const(int(a), p.dtype) for p, a in zip(wanted, arrays)
                 if isinstance(p, ir.Var) and dtypes.is_int(p.dtype)}
        arguments = [_argument(p, a, sizes) for p, a in zip(wanted, arrays)]
        report = np.zeros(REPORT_BYTES // 8, np.int64) if checks else None
        if report is not None:
            arguments += [ctypes.c_void_p(report.ctypes.data), ctypes.c_int64(0)]
        arguments += [ctypes.c_void_p(array.ctypes.data) for array in self.scratch]
        function = ctypes.CFUNCTYPE(None, *(type(argument) for argument in arguments))(self.address)
        return BoundCall(function, tuple(arguments), (self, arrays), self.func, report)


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A C function with its arguments; keeps alive what they point to. Raises `RunError` for an
    access out of bounds, if the kernel checks."""

    function: Callable[..., None]
    arguments: tuple[Any, ...]
    keep: tuple[Any, ...] = field(repr=False)
    func: ir.PrimFunc = field(repr=False)
    report: np.ndarray | None = field(default=None, repr=False)

    def __call__(self) -> None:
        self.function(*self.arguments)
        if self.report is not None and self.report[0]:
            _, _, check, index = map(int, self.report)
            self.report[:] = 0
            row = self.func.attrs[CHECKS][check]
            raise RunError(report_sentence(self.func.name, row, index))


def _argument(parameter: ir.Buffer | ir.Var, given: Any, sizes: Mapping[ir.Var, ir.Expr]) -> Any:
    if isinstance(parameter, ir.Var):
        return _C_TYPES[parameter.dtype](given)
    if not isinstance(given, np.ndarray) or not given.flags.c_contiguous:
        raise InputError(f"the argument {parameter.name!r} must be a C-contiguous numpy array")
    if given.dtype != dtypes.to_numpy(parameter.dtype):
        raise InputError(f"the argument {parameter.name!r} must be of dtype {parameter.dtype}, "
                         f"not {given.dtype}")
    shape = tuple(walk.substitute(extent, sizes) for extent in parameter.shape)
    wanted = buffer_bytes(replace(parameter, shape=shape))
    if given.nbytes != wanted:
        raise InputError(f"the argument {parameter.name!r} has {given.nbytes} bytes, its buffer "
                         f"{wanted}")
    return ctypes.c_void_p(given.ctypes.data)


def build_kernel(func: ir.PrimFunc, target: Target | None = None) -> KernelFunction:
    """Compiles one machine-form kernel and loads it into this process."""
    target = target or Target.host()
    check_host(target)
    func = lift_scratch(func)
    return load_kernel(func, emit_object(function_to_llvm(func, target), target))


def load_kernel(func: ir.PrimFunc, data: bytes) -> KernelFunction:
    """Loads a kernel into this process that was compiled for it: a function with its scratch memory
    as parameters, and its object file."""
    addresses, _ = _pool()
    tracker = load_objects([data], [symbol(func.name)], addresses)
    scratch = tuple(aligned_bytes(buffer_bytes(buffer)) for buffer in scratch_params(func))
    return KernelFunction(func, data, tracker[symbol(func.name)], tracker, scratch)


def check_host(target: Target) -> None:
    """Raises `TargetError` if code for `target` can't run in this process."""
    if not target.is_host():
        raise TargetError(f"code for '{target}' can't run on this machine, which is "
                          f"'{Target.host()}'; export it and load it there")


def load_program(program: Program, threads: int | None = None,
                 cpus: Sequence[int] | None = None) -> Module:
    """Loads a model into this process; its weights stay where they are in numpy's memory."""
    check_host(program.target)
    weights = program.weights
    if not weights.size or weights.ctypes.data % abi.WORKSPACE_ALIGNMENT:
        copy = aligned_bytes(max(weights.size, 1))
        copy[:weights.size] = weights
        weights = copy
    names = abi.function_names(program.name)
    addresses, _ = _pool()
    tracker = load_objects(program_objects(program), names,
                           {**addresses, WEIGHTS: weights.ctypes.data})
    return Module(Library(lambda name: int(tracker[name]), (tracker, weights)), threads, cpus)
