"""Kernels on memory between pages that can't be touched: whether they stay within their arguments.

    assert not stray_access(compiled.kernels, threads=1)

Each kernel runs in a forked child, once with every argument and scratch buffer right in front of
such a page and once right behind one, so that a read or write out of bounds ends the child with a
signal. Both runs must give the same, though scratch memory holds other bytes at first: what a
kernel reads of that it must have written. Under POSIX.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from minitvm import dtypes
from minitvm.codegen.jit import KernelFunction, load_kernel, pool_threads
from minitvm.codegen.program import Kernel
from minitvm.codegen.scratch import buffer_bytes, scratch_params
from minitvm.tir import ir

NO_ACCESS = 0
OTHER_RESULT = 3
"""The exit status of a child whose kernel gave something else."""


def guarded_bytes(size: int, at_end: bool) -> np.ndarray:
    """`size` bytes between two pages without access: up to the second one (`at_end`), or
    from the first one on."""
    page = mmap.PAGESIZE
    inside = -(-max(size, 1) // page) * page
    memory = mmap.mmap(-1, inside + 2 * page)
    whole = np.frombuffer(memory, np.uint8)
    for start in (0, page + inside):
        _protect(whole.ctypes.data + start, page)
    first = page + inside - size if at_end else page
    return whole[first : first + size]


def _protect(address: int, size: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), NO_ACCESS):
        raise OSError(ctypes.get_errno(), "mprotect failed")


def stray_access(kernels: Iterable[Kernel], threads: int = 1, seed: int = 0) -> str:
    """The first kernel that leaves its memory, or reads scratch memory that it did not write, in
    words; empty if there is none. They must be for this machine, and take only buffers."""
    for kernel in kernels:
        arrays = _arguments(kernel, seed)
        function = load_kernel(kernel.func, kernel.object)
        child = os.fork()
        if not child:
            _run_child(function, arrays, threads)
        if fault := _fault(os.waitpid(child, 0)[1]):
            return f"{kernel.name} {fault}"
    return ""


def _arguments(kernel: Kernel, seed: int) -> list[np.ndarray]:
    """Small whole numbers for each parameter that is no scratch memory."""
    generator = np.random.default_rng(seed)
    scratch = len(scratch_params(kernel.func))
    arrays = []
    for param in kernel.func.params[: len(kernel.func.params) - scratch]:
        assert isinstance(param, ir.Buffer)
        count = buffer_bytes(param) // dtypes.size_bytes(param.dtype)
        arrays.append(generator.integers(0, 5, count).astype(dtypes.to_numpy(param.dtype)))
    return arrays


def _run_child(function: KernelFunction, arrays: Sequence[np.ndarray], threads: int) -> NoReturn:
    """Runs the kernel on both kinds of guarded memory, and ends the process."""
    faulthandler.disable()  # it would print where this process is when the signal comes
    status = 1
    try:
        in_front, behind = (_run(function, arrays, at_end, threads) for at_end in (True, False))
        status = 0 if all(map(_same_bits, in_front, behind)) else OTHER_RESULT
    finally:
        os._exit(status)


def _run(function: KernelFunction, arrays: Sequence[np.ndarray], at_end: bool, threads: int
         ) -> list[np.ndarray]:
    scratch = tuple(guarded_bytes(memory.nbytes, at_end) for memory in function.scratch)
    for memory in scratch:
        memory[:] = 0xFF if at_end else 0
    guarded = [_guarded(array, at_end) for array in arrays]
    with nullcontext() if threads == 1 else pool_threads(threads):
        replace(function, scratch=scratch)(*guarded)
    return guarded


def _guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    copy = guarded_bytes(array.nbytes, at_end).view(array.dtype)
    copy[:] = array
    return copy


def _same_bits(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a.view(np.uint8), b.view(np.uint8)))


def _fault(status: int) -> str:
    """What the exit status of a child means, in words."""
    if os.WIFSIGNALED(status):
        return f"leaves its memory: {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.waitstatus_to_exitcode(status)
    if code == OTHER_RESULT:
        return "reads what it did not write: its result depends on where its memory lies"
    return f"failed with status {code}" if code else ""
