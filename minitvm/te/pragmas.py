"""Pragmas that change code: `auto_unroll_max_step`.

    s[B].pragma(i, "auto_unroll_max_step", 16)

Inside the loop `i`, serial loops of constant extent are unrolled, innermost first, as long as the
unrolled code holds no more than 16 stores. Other names are recorded and change nothing.
"""

from __future__ import annotations

from minitvm.tir import walk
from minitvm.tir.ir import Const, For, Stmt, Store

AUTO_UNROLL = "auto_unroll_max_step"


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
