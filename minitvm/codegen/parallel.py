"""What a parallel loop takes from the code around it, when it becomes a function of its own.

    for i in parallel(n):         region(context, begin, end): loads A, B, m from the context, calls
        B[i] = A[i] + m     ->    body(A, B, m, begin, end): for i in range(begin, end): ...

The body has its buffers as parameters, so that what is known about them (they don't overlap, they
are aligned) holds in it as it does in the kernel. A parallel loop inside another runs as a serial
one. So do those of a kernel that reports accesses out of bounds: threads would mix their reports.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitvm.tir import ir, walk
from minitvm.tir.passes.inject_bound_checks import CHECKS
from minitvm.tir.walk import walk_statements


@dataclass(frozen=True, slots=True)
class Captures:
    """Buffers and variables that a loop uses and does not define, in order of first use."""

    buffers: tuple[ir.Buffer, ...]
    variables: tuple[ir.Var, ...]


def captures(loop: ir.For) -> Captures:
    """What the iterations of a loop take from outside; start and extent are not part of them."""
    buffers: dict[ir.Buffer, None] = {}
    variables: dict[ir.Var, None] = {}
    own_buffers: set[ir.Buffer] = set()
    own_variables: set[ir.Var] = {loop.var}
    for statement in walk_statements(loop.body):
        match statement:
            case ir.For(var) | ir.Let(var):
                own_variables.add(var)
            case ir.Allocate(buffer):
                own_buffers.add(buffer)
            case ir.Store(buffer):
                buffers[buffer] = None
        for expr in walk.expressions(statement):
            for node in walk.walk(expr):
                if isinstance(node, ir.Var):
                    variables[node] = None
                elif isinstance(node, ir.Load | ir.Address):
                    buffers[node.buffer] = None
    return Captures(tuple(b for b in buffers if b not in own_buffers),
                    tuple(v for v in variables if v not in own_variables))


def runs_parallel(func: ir.PrimFunc) -> bool:
    """Whether the parallel loops of a function may run as such."""
    return CHECKS not in func.attrs


def parallel_loops(func: ir.PrimFunc) -> int:
    """How many regions of a function threads share."""
    if not runs_parallel(func):
        return 0
    return sum(isinstance(s, ir.For) and s.kind == "parallel" for s in walk_statements(func.body))
