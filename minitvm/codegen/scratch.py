"""Large scratch memory of a kernel -> parameters of the kernel, taken from the model's workspace.

    Before:                                     After:
        def k(A: ..., B: ...):                      def k(A: ..., B: ..., T: ...):
            T = allocate((9999,), "float32")            T[i] = ...
            T[i] = ...

A thread's stack may be small, so the rule is: an allocation of at most `STACK_BYTES`, while all of
a kernel's together take at most `STACK_BYTES_IN_ALL`, lives on the stack (or in registers). Every
other one becomes a parameter, after the outputs. `attrs["scratch_params"]` says how many there
are and `attrs["scratch_bytes"]` what they need when laid out one after the other, each aligned to
`ALIGNMENT` bytes; `lay_out` gives the offsets. `add_scratch` makes `main` pass them.

What is allocated inside a parallel loop is memory of each thread. Its parameter holds several
copies, one after the other, as `attrs["scratch_copies"]` says; in the tir the first is used, which
is right for loops that run serially, and thread `i` starts at copy `i` (`llvm`). No more threads
take part in the loop than there are copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minitvm import dtypes
from minitvm.codegen.parallel import runs_parallel
from minitvm.errors import CodegenError
from minitvm.remarks import remark
from minitvm.tir import ir, walk
from minitvm.tir.walk import walk_statements

STACK_BYTES = 16 * 1024
STACK_BYTES_IN_ALL = 64 * 1024
ALIGNMENT = 64
MOST_COPIES = 32
"""For so many threads there is scratch memory of their own at most, in one kernel,"""
MOST_BYTES_OF_COPIES = 16 * 2**20
"""and so much of it, for one loop."""


def lift_scratch(func: ir.PrimFunc) -> ir.PrimFunc:
    """Turns the large allocations of a kernel into parameters; the same kernel if it has none."""
    large = _large(func.body)
    if not large:
        return func
    copies, body = _copies(func, large)

    def lift(statement: ir.Stmt) -> ir.Stmt:
        if isinstance(statement, ir.Allocate) and statement.buffer in copies:
            return statement.body
        return statement

    attrs = {**func.attrs, "scratch_params": len(large)}
    params = (*func.params, *large)
    lifted = replace(func, params=params, body=walk.rewrite_statement(body, lift), attrs=attrs)
    for buffer in large:
        if copies[buffer] > 1:
            count = copies[buffer] * stride_bytes(buffer) // dtypes.size_bytes(buffer.dtype)
            wide = ir.buffer(buffer.name, (count,), buffer.dtype, scope=buffer.scope)
            lifted = with_buffer(lifted, buffer, wide)
    if max(copies.values()) > 1:
        attrs["scratch_copies"] = [copies[buffer] for buffer in large]
    _, attrs["scratch_bytes"] = lay_out(scratch_params(lifted))
    return lifted


def _large(body: ir.Stmt) -> list[ir.Buffer]:
    """What is allocated and must not be on the stack."""
    found, taken = [], 0
    for statement in walk_statements(body):
        if isinstance(statement, ir.Allocate):
            size = buffer_bytes(statement.buffer)
            if size <= STACK_BYTES and taken + size <= STACK_BYTES_IN_ALL:
                taken += size
            else:
                found.append(statement.buffer)
    return found


def _copies(func: ir.PrimFunc, large: list[ir.Buffer]) -> tuple[dict[ir.Buffer, int], ir.Stmt]:
    """For how many threads each needs memory; and the body, in which parallel loops are serial for
    whose iterations there is not enough for two."""
    copies = dict.fromkeys(large, 1)

    def visit(statement: ir.Stmt) -> ir.Stmt:
        if not isinstance(statement, ir.For) or statement.kind != "parallel":
            return statement
        own = [inner.buffer for inner in walk_statements(statement.body)
               if isinstance(inner, ir.Allocate) and inner.buffer in copies]
        if not own:
            return statement
        size = sum(map(stride_bytes, own))
        extent = statement.extent
        wanted = min(int(extent.value) if isinstance(extent, ir.Const) else MOST_COPIES,
                     MOST_COPIES)
        count = max(min(wanted, MOST_BYTES_OF_COPIES // size), 1)
        if count < wanted:
            most = f"at most {count} threads" if count > 1 else "one thread"
            remark("LiftScratch", f"the parallel loop over {statement.var.name} runs on {most}: "
                   f"each needs {size} bytes of scratch memory, and all together get at most "
                   f"{MOST_BYTES_OF_COPIES}", statement.origin)
        if count == 1:
            return replace(statement, kind="serial")  # loops inside it may be parallel
        copies.update(dict.fromkeys(own, count))
        return statement

    if not runs_parallel(func):
        return copies, func.body
    return copies, walk.rewrite_statement(func.body, visit)


def stride_bytes(buffer: ir.Buffer) -> int:
    """The size of a buffer, rounded up to the alignment: of one of its copies."""
    return -(-buffer_bytes(buffer) // ALIGNMENT) * ALIGNMENT


def thread_copies(func: ir.PrimFunc) -> dict[ir.Buffer, int]:
    """The parameters that hold memory for several threads, and for how many."""
    buffers = scratch_params(func)
    counts = func.attrs.get("scratch_copies", [1] * len(buffers))
    return {buffer: count for buffer, count in zip(buffers, counts, strict=True) if count > 1}


def buffer_bytes(buffer: ir.Buffer) -> int:
    """The size of a buffer, whose shape must be constant."""
    size = dtypes.size_bytes(buffer.dtype)
    for extent in buffer.shape:
        if not isinstance(extent, ir.Const):
            raise CodegenError(f"the buffer {buffer.name!r} has a shape that is not constant, "
                               f"{buffer.shape}; give every size with --shape")
        size *= int(extent.value)
    return size


def scratch_params(func: ir.PrimFunc) -> tuple[ir.Buffer, ...]:
    """The parameters that `lift_scratch` added."""
    count = int(func.attrs.get("scratch_params", 0))
    buffers = func.params[len(func.params) - count:]
    return tuple(buffer for buffer in buffers if isinstance(buffer, ir.Buffer))


def lay_out(buffers: list[ir.Buffer] | tuple[ir.Buffer, ...]) -> tuple[list[int], int]:
    """The offset of each buffer in one piece of memory, and the size of that."""
    offsets, total = [], 0
    for buffer in buffers:
        offsets.append(total)
        total += -(-buffer_bytes(buffer) // ALIGNMENT) * ALIGNMENT
    return offsets, total


def add_scratch(main: ir.PrimFunc, kernels: Mapping[str, ir.PrimFunc]) -> ir.PrimFunc:
    """Makes `main` pass scratch memory to the kernels that take it, behind its own workspace.

    The workspace is the last parameter of `main`; kernels run one after the other and share what
    is added to it.
    """
    needed = max((int(k.attrs.get("scratch_bytes", 0)) for k in kernels.values()), default=0)
    if not needed:
        return main
    old = workspace_of(main)
    start = -(-buffer_bytes(old) // ALIGNMENT) * ALIGNMENT
    new = ir.buffer(old.name, (start + needed,), "uint8")
    like = next((node.offset.dtype for statement in walk_statements(main.body)
                 for argument in walk.expressions(statement) for node in walk.walk(argument)
                 if isinstance(node, ir.Address)), ir.INDEX)

    def extend(statement: ir.Stmt) -> ir.Stmt:
        if not isinstance(statement, ir.Invoke) or statement.callee not in kernels:
            return statement
        offsets, _ = lay_out(scratch_params(kernels[statement.callee]))
        extra = tuple(ir.Address(old, ir.Const(start + offset, like)) for offset in offsets)
        return replace(statement, arguments=(*statement.arguments, *extra))

    extended = replace(main, body=walk.rewrite_statement(main.body, extend))
    return with_buffer(extended, old, new)


def workspace_of(function: ir.PrimFunc) -> ir.Buffer:
    """The workspace of `main` or of a function that it calls: its last parameter."""
    found = function.params[-1]
    if not isinstance(found, ir.Buffer) or found.dtype != "uint8":
        raise CodegenError(f"the last parameter of {function.name} must be the workspace, a uint8 "
                           "buffer")
    return found


def with_buffer(function: ir.PrimFunc, old: ir.Buffer, new: ir.Buffer) -> ir.PrimFunc:
    """The function with another buffer in place of a parameter."""

    def swap(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Address(buffer, offset) if buffer is old:
                return ir.Address(new, offset)
            case ir.Load(buffer, indices) if buffer is old:
                return ir.Load(new, indices)
            case _:
                return expr

    def store(statement: ir.Stmt) -> ir.Stmt:
        if isinstance(statement, ir.Store) and statement.buffer is old:
            return replace(statement, buffer=new)
        return statement

    body = walk.rewrite_statement(function.body, store, lambda expr: walk.rewrite(expr, swap))
    params = tuple(new if param is old else param for param in function.params)
    return replace(function, params=params, body=body)
