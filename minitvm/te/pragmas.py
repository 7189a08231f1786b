"""Pragmas that change code: `auto_unroll_max_step`, `prefetch_bytes`.

    s[B].pragma(i, "auto_unroll_max_step", 16)

Inside the loop `i`, serial loops of constant extent are unrolled, innermost first, as long as the
unrolled code holds no more than 16 stores.

    s[B].pragma(i, "prefetch_bytes", 4096)

At each turn of `i`, the memory 4096 bytes behind the vectors that it reads of inputs is asked for.
It is what later turns read where inputs lie in the order of the loops, such as packed weights; else
it costs an instruction and changes no result. Other names are recorded and change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from minitvm import dtypes
from minitvm.origin import Origin
from minitvm.tir import ir, walk
from minitvm.tir.ir import (
    Address,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    Load,
    Stmt,
    Store,
    Var,
)
from minitvm.tir.passes.flatten_buffers import row_major

AUTO_UNROLL = "auto_unroll_max_step"
PREFETCH = "prefetch_bytes"
COUNTS = {AUTO_UNROLL: "steps", PREFETCH: "bytes"}
"""The pragmas that change code, and what their values count."""


def auto_unroll(body: Stmt, most_steps: int) -> Stmt:
    """`body` with its small inner loops unrolled."""
    return _unroll(body, most_steps)[0]


def _unroll(statement: Stmt, most_steps: int) -> tuple[Stmt, int | None]:
    """The statement, and the stores that it makes once unrolled; None if a loop stays."""
    if isinstance(statement, Store):
        return statement, 1
    inner = [_unroll(body, most_steps) for body in walk.bodies(statement)]
    result = walk.with_parts(
        statement, walk.expressions(statement), tuple(body for body, _ in inner)
    )
    counts = [count for _, count in inner]
    steps = None if None in counts else sum(count for count in counts if count is not None)
    if not isinstance(result, For):
        return result, steps
    if result.kind == "vectorized":
        return result, steps
    if steps is None or not isinstance(result.extent, Const):
        return result, None
    total = steps * int(result.extent.value)
    if result.kind == "serial" and total <= most_steps:
        result = For(result.var, result.start, result.extent, "unrolled", result.body,
                     result.origin)
    return result, total if result.kind == "unrolled" else None


def prefetch(body: Stmt, bytes_ahead: int, inputs: Collection[Buffer], origin: Origin) -> Stmt:
    """`body` behind requests for the memory so far behind each vector that it reads of `inputs`,
    each in copies of the loops that its place depends on."""
    requests: dict[tuple[Buffer, Expr], Stmt] = {}
    for load, loops in _vectors_read(body, ()):
        lanes = loops[-1].var
        first = {lanes: Const(0, lanes.dtype)}
        place = row_major(load.buffer.shape, [walk.substitute(i, first) for i in load.indices])
        if load.buffer in inputs and (load.buffer, place) not in requests:
            elements = bytes_ahead // dtypes.size_bytes(load.buffer.dtype)
            ahead = place + Const(elements, place.dtype)
            requests[load.buffer, place] = _request(load.buffer, ahead, loops[:-1], origin)
    return ir.seq(*requests.values(), body)


def _vectors_read(
    statement: Stmt, loops: tuple[For, ...]
) -> Iterator[tuple[Load, tuple[For, ...]]]:
    """The loads that a vectorized loop spreads over lanes, each with the loops around it."""
    if isinstance(statement, For):
        loops = (*loops, statement)
    if loops and loops[-1].kind == "vectorized":
        for expr in walk.expressions(statement):
            for node in walk.walk(expr):
                if isinstance(node, Load) and _depends(node.indices[-1:], loops[-1].var):
                    yield node, loops
    for inner in walk.bodies(statement):
        yield from _vectors_read(inner, loops)


def _depends(exprs: tuple[Expr, ...], var: Var) -> bool:
    return any(node is var for expr in exprs for node in walk.walk(expr))


def _request(buffer: Buffer, place: Expr, loops: tuple[For, ...], origin: Origin) -> Stmt:
    """Asks for `place`, in copies of those loops that it depends on."""
    needed = [loop for loop in loops if _depends((place,), loop.var)]
    renamed = {loop.var: Var(f"{loop.var.name}_ahead", loop.var.dtype) for loop in needed}
    address = Address(buffer, walk.substitute(place, renamed))
    request: Stmt = Evaluate(Call("prefetch", (address,), "int32"), origin)
    for loop in reversed(needed):
        request = For(renamed[loop.var], loop.start, loop.extent, loop.kind, request, loop.origin)
    return request
