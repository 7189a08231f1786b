"""Functions of a program -> the same with room for the memory of all their calls.

    main's workspace:   | main's own | scratch memory of a kernel that main calls
                                     | frame of f | scratch memory of a kernel that f calls
                                                  | frame of g | ...

Lowering gives `main` and each function a workspace of the size of their own frame, and passes what
lies behind it to the function they call. While a kernel runs no callee's frame is alive, so
scratch memory starts there too. Here workspaces get their full size: what a function and all that
it calls need at most.

Functions that call each other in a circle have a first parameter `depth`: how many calls may still
be nested. They need `depth * S + C` bytes, S being the greatest of their frames, and C what one of
them needs beside calls within the circle. Entered with the recursion limit L, that is L * S + C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minitvm.codegen.scratch import (
    ALIGNMENT,
    add_scratch,
    buffer_bytes,
    with_buffer,
    workspace_of,
)
from minitvm.errors import CodegenError
from minitvm.tir import ir
from minitvm.tir.call_graph import circles
from minitvm.tir.walk import walk_statements

MAXIMUM_BYTES = 2**31 - 1
"""Of a workspace: offsets are 32-bit integers."""

NATIVE_STACK_BYTES = 4 * 2**20
"""Of the native stack, for nested calls; threads have at least 8 MiB where C programs run."""

NATIVE_FRAME_BYTES = 512
"""More than the native frame of a function that only calls others, without its arguments."""


@dataclass(frozen=True, slots=True)
class Need:
    """`fixed + depth * by_depth` bytes of workspace; the same of native stack."""

    fixed: int
    by_depth: int
    native: int
    native_by_depth: int

    def entered(self, depth: int) -> tuple[int, int]:
        """The bytes of workspace and of native stack at a depth."""
        return self.fixed + depth * self.by_depth, self.native + depth * self.native_by_depth


def stack_frames(
    main: ir.PrimFunc, functions: Sequence[ir.PrimFunc], kernels: Mapping[str, ir.PrimFunc],
    recursion_limit: int,
) -> tuple[ir.PrimFunc, tuple[ir.PrimFunc, ...]]:
    """`main` and the functions with workspaces of full size, and scratch memory passed to kernels.

    Raises `CodegenError` where recursion up to the limit needs more memory than there can be.
    """
    program = {function.name: function for function in (main, *functions)}
    calls = {name: _callees(function, program) for name, function in program.items()}
    needs: dict[str, Need] = {}
    for group in circles(calls):
        needs.update(_group_needs(group, program, calls, needs, kernels, recursion_limit))
    for name, need in needs.items():
        _check(name, need, recursion_limit)
    framed = {name: _with_workspace(function, needs[name], kernels)
              for name, function in program.items()}
    return framed[main.name], tuple(framed[function.name] for function in functions)


def _callees(function: ir.PrimFunc, program: Mapping[str, ir.PrimFunc]) -> list[str]:
    names = [s.callee for s in walk_statements(function.body) if isinstance(s, ir.Invoke)]
    return [name for name in dict.fromkeys(names) if name in program]


def _group_needs(
    group: list[str], program: Mapping[str, ir.PrimFunc], calls: Mapping[str, Sequence[str]],
    needs: Mapping[str, Need], kernels: Mapping[str, ir.PrimFunc], limit: int,
) -> dict[str, Need]:
    """What the functions of one component need; those outside of it that they call are known."""
    frame = fixed = native_frame = native = 0
    for name in group:
        function = program[name]
        outer = [needs[callee].entered(limit) for callee in calls[name] if callee not in group]
        own, own_native = _frame_bytes(function), _native_frame_bytes(function)
        behind = max([_scratch_bytes(function, kernels), *(memory for memory, _ in outer)])
        frame, fixed = max(frame, own), max(fixed, own + behind)
        native_frame = max(native_frame, own_native)
        native = max([native, own_native, *(own_native + bytes_ for _, bytes_ in outer)])
    if any(name in calls[caller] for caller in group for name in group):
        return dict.fromkeys(group, Need(fixed, frame, native, native_frame))
    return dict.fromkeys(group, Need(fixed, 0, native, 0))


def _frame_bytes(function: ir.PrimFunc) -> int:
    return -(-buffer_bytes(workspace_of(function)) // ALIGNMENT) * ALIGNMENT


def _native_frame_bytes(function: ir.PrimFunc) -> int:
    invokes = [s for s in walk_statements(function.body) if isinstance(s, ir.Invoke)]
    most = max((len(invoke.arguments) for invoke in invokes), default=0)
    return NATIVE_FRAME_BYTES + 16 * (len(function.params) + most)


def _scratch_bytes(function: ir.PrimFunc, kernels: Mapping[str, ir.PrimFunc]) -> int:
    called = {s.callee for s in walk_statements(function.body) if isinstance(s, ir.Invoke)}
    return max((int(kernels[name].attrs.get("scratch_bytes", 0)) for name in called
                if name in kernels), default=0)


def _check(name: str, need: Need, limit: int) -> None:
    memory, native = need.entered(limit if need.by_depth else 0)
    if memory > MAXIMUM_BYTES:
        raise CodegenError(
            f"{name} needs a workspace of {memory} bytes, more than {MAXIMUM_BYTES}; where it "
            f"calls itself, its frame of {need.by_depth} bytes counts {limit} times: lower the "
            f"option relay.recursion_limit")
    if native > NATIVE_STACK_BYTES:
        raise CodegenError(
            f"{name} may need {native} bytes of the native stack, more than {NATIVE_STACK_BYTES}, "
            f"for calls nested {limit} deep: lower the option relay.recursion_limit")


def _with_workspace(function: ir.PrimFunc, need: Need,
                    kernels: Mapping[str, ir.PrimFunc]) -> ir.PrimFunc:
    called = {s.callee for s in walk_statements(function.body) if isinstance(s, ir.Invoke)}
    used = {name: kernel for name, kernel in kernels.items() if name in called}
    function = add_scratch(function, used)
    old, depth = workspace_of(function), function.params[0]
    size: ir.Expr = ir.Const(need.fixed)
    if isinstance(depth, ir.Var) and need.by_depth:
        size = depth * need.by_depth + need.fixed
    return with_buffer(function, old, replace(old, shape=(size,)))
