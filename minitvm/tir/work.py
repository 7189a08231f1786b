"""A kernel -> the work of one call: floating-point operations, and the bytes it must move.

    count_work(func)  ->  Work(flops=602112, bytes_read=..., bytes_written=..., exact=True)

The count is that of the loop nest as it stands, by analysis, without running it: each statement
counts as often as its loops turn and its conditions hold. Where conditions depend on loop
variables (tails, padding, triangles), their values are computed for all turns at once and counted;
conditions without a common variable are counted apart and multiplied, so that a window with guards
for rows and for columns stays small. A condition on data can't be known: it counts as true, and the
result is an upper bound, not `exact`.

An addition, subtraction, multiplication, division, minimum, maximum and a call of a math function
are one operation for each lane, a fused multiply-add is two. What padding to whole vectors adds
counts, as it is computed. Bytes are those that must be moved if each element is touched once: of
each parameter, as many as it has or as are accessed, whichever is less; what a kernel reads back of
its own results is not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import LoweringError
from minitvm.tir import intrinsics, walk
from minitvm.tir.ir import (
    And,
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Not,
    Or,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    While,
)

MAXIMUM_GRID = 1 << 22
"""How many turns are looked at one by one for conditions that share variables."""

_ARITHMETIC = ("add", "sub", "mul", "div", "floordiv", "floormod", "min", "max")


@dataclass(frozen=True, slots=True)
class Work:
    """What one call does; `exact`, or at most so much."""

    flops: int
    bytes_read: int
    bytes_written: int
    exact: bool = True

    @property
    def bytes_moved(self) -> int:
        """Read and written."""
        return self.bytes_read + self.bytes_written


def count_work(func: PrimFunc) -> Work:
    """The work of a call of `func`; its sizes must be constant."""
    counter = _Counter()
    with np.errstate(all="ignore"):
        counter.statement(func.body, _Place())
    scratch = int(func.attrs.get("scratch_params", 0))
    params = func.params[:len(func.params) - scratch]
    buffers = [param for param in params if isinstance(param, Buffer)]
    read = sum(_moved(buffer, counter.loaded.get(buffer, 0)) for buffer in buffers
               if buffer not in counter.stored)
    written = sum(_moved(buffer, counter.stored.get(buffer, 0)) for buffer in buffers)
    return Work(counter.flops, read, written, counter.exact)


def _moved(buffer: Buffer, accesses: int) -> int:
    return min(math.prod(buffer.extents()), accesses) * dtypes.size_bytes(buffer.dtype)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: the loops around it, what must hold there, and what lets mean."""

    loops: tuple[For, ...] = ()
    conditions: tuple[Expr, ...] = ()
    lets: Mapping[Var, Expr] = field(default_factory=dict)

    def where(self, condition: Expr) -> _Place:
        """The place within a branch."""
        meant = walk.substitute(condition, self.lets)
        return _Place(self.loops, (*self.conditions, *_conjuncts(meant)), self.lets)

    def let(self, var: Var, value: Expr) -> _Place:
        """The place where `var` is `value`; only integers matter to loops and conditions."""
        if not dtypes.is_int(value.dtype) or dtypes.lanes(value.dtype) > 1:
            return self
        lets = {**self.lets, var: walk.substitute(value, self.lets)}
        return _Place(self.loops, self.conditions, lets)

    def inside(self, loop: For) -> _Place:
        """The place within a loop."""
        start, extent = (walk.substitute(e, self.lets) for e in (loop.start, loop.extent))
        if not (_is_known(start, self.loops) and _is_known(extent, self.loops)):
            raise LoweringError(f"the work of a loop over {loop.var.name} can't be counted: its "
                                "extent is known only when it runs; give every size as a constant")
        meant = For(loop.var, start, extent, loop.kind, loop.body)
        return _Place((*self.loops, meant), self.conditions, self.lets)


class _Counter:
    """Adds up a function, statement by statement."""

    def __init__(self) -> None:
        self.flops = 0
        self.exact = True
        self.loaded: dict[Buffer, int] = {}
        self.stored: dict[Buffer, int] = {}

    def statement(self, statement: Stmt, place: _Place) -> None:
        """One statement and all that is in it."""
        times = self.times(place)
        for expr in walk.expressions(statement):
            self.expression(expr, place, times)
        match statement:
            case For(body=body):
                self.statement(body, place.inside(statement))
            case Let(var, value, body):
                self.statement(body, place.let(var, value))
            case If(condition, then_body, else_body):
                self.statement(then_body, place.where(condition))
                if else_body is not None:
                    self.statement(else_body, place.where(Not(condition)))
            case While(_, body):
                self.exact = False
                self.statement(body, place)
            case _:
                if isinstance(statement, Store):
                    lanes = max(dtypes.lanes(statement.value.dtype),
                                *(dtypes.lanes(index.dtype) for index in statement.indices), 1)
                    _add(self.stored, statement.buffer, times * lanes)
                for body in walk.bodies(statement):
                    self.statement(body, place)

    def expression(self, expr: Expr, place: _Place, times: int) -> None:
        """An expression that is computed so many times."""
        lanes = dtypes.lanes(expr.dtype)
        match expr:
            case Call("if_then_else", (condition, true_value, false_value)) if (
                    dtypes.lanes(condition.dtype) == 1):
                self.expression(condition, place, times)
                for test, value in ((condition, true_value), (Not(condition), false_value)):
                    if walk.children(value):
                        branch = place.where(test)
                        self.expression(value, branch, self.times(branch))
                return
            case Binary(op, _, _) if dtypes.is_float(expr.dtype) and op in _ARITHMETIC:
                self.flops += times * lanes
            case Call(name, _, dtype) if dtypes.is_float(dtype):
                self.flops += times * lanes * _call_flops(name)
            case Load(buffer, _):
                _add(self.loaded, buffer, times * lanes)
        for operand in walk.children(expr):
            self.expression(operand, place, times)

    def times(self, place: _Place) -> int:
        """How often a run comes to a place."""
        result = 1
        known = []
        for condition in place.conditions:
            if _is_known(condition, place.loops):
                known.append(condition)
            else:
                self.exact = False
        for loops, conditions in _groups(place.loops, known):
            count = _count(loops, conditions)
            if count is None:
                self.exact = False
                count = _count(loops, [])
            result *= count or 0
        return result


def _add(counts: dict[Buffer, int], buffer: Buffer, amount: int) -> None:
    counts[buffer] = counts.get(buffer, 0) + amount


def _call_flops(name: str) -> int:
    if name in ("likely", "if_then_else", "prefetch"):
        return 0
    return 2 if name == "fma" else int(name in intrinsics.TABLE)


# --- how often ----------------------------------------------------------------------------------


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    match condition:
        case And(a, b):
            yield from _conjuncts(a)
            yield from _conjuncts(b)
        case Not(Or(a, b)):
            yield from _conjuncts(Not(a))
            yield from _conjuncts(Not(b))
        case Call("likely", (inner,)):
            yield from _conjuncts(inner)
        case Not(Not(inner)):
            yield from _conjuncts(inner)
        case _:
            yield condition


def _variables(*exprs: Expr) -> set[Var]:
    return {node for expr in exprs for node in walk.walk(expr) if isinstance(node, Var)}


def _is_known(condition: Expr, loops: tuple[For, ...]) -> bool:
    """Whether loop variables decide the condition."""
    bound = {loop.var for loop in loops}
    return all(isinstance(node, Const | Binary | Compare | And | Or | Not | Select | Cast)
               or (isinstance(node, Var) and node in bound)
               or (isinstance(node, Call) and node.name in ("likely", "if_then_else"))
               for node in walk.walk(condition))


def _groups(
    loops: tuple[For, ...], conditions: list[Expr]
) -> Iterator[tuple[list[For], list[Expr]]]:
    """Loops and conditions parted so that no two groups share a variable."""
    groups: list[tuple[set[Var], list[For], list[Expr]]] = []
    parts: list[tuple[set[Var], list[For], list[Expr]]] = [
        ({loop.var} | _variables(loop.start, loop.extent), [loop], []) for loop in loops]
    parts += [(_variables(condition), [], [condition]) for condition in conditions]
    for names, some_loops, some_conditions in parts:
        apart = []
        for group in groups:
            if group[0] & names:
                names = names | group[0]
                some_loops = [*group[1], *some_loops]
                some_conditions = [*group[2], *some_conditions]
            else:
                apart.append(group)
        groups = [*apart, (names, some_loops, some_conditions)]
    for _, some_loops, some_conditions in groups:
        yield [loop for loop in loops if any(loop is one for one in some_loops)], some_conditions


def _count(loops: list[For], conditions: list[Expr]) -> int | None:
    """How many turns of the loops there are in which the conditions hold; None if too many to
    look at."""
    if not conditions and all(isinstance(loop.extent, Const) for loop in loops):
        return math.prod(max(int(_evaluate(loop.extent, {})), 0) for loop in loops)
    values: dict[Var, Any] = {}
    held: Any = np.True_
    size = 1
    for loop in loops:
        start, extent = (np.asarray(_evaluate(e, values)) for e in (loop.start, loop.extent))
        low, high = int(start.min()), int((start + extent).max())
        if high <= low:
            return 0
        size *= high - low
        if size > MAXIMUM_GRID:
            return None
        axis = np.arange(low, high, dtype=np.int64)
        values = {var: value[..., None] for var, value in values.items()}
        held = np.asarray(held)[..., None]
        held = held & (axis >= start[..., None]) & (axis < (start + extent)[..., None])
        values[loop.var] = axis
    for condition in conditions:
        held = held & np.asarray(_evaluate(condition, values), bool)
    shape = np.broadcast_shapes(np.shape(held), *(np.shape(value) for value in values.values()))
    return int(np.count_nonzero(np.broadcast_to(held, shape)))


_INTEGER_OPS: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "floormod": np.mod, "min": np.minimum, "max": np.maximum, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
    "div": np.divide, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}


def _evaluate(expr: Expr, values: Mapping[Var, Any]) -> Any:
    """An expression for which `_is_known` holds, for all values of the variables at once."""
    match expr:
        case Const(value, _):
            return np.asarray(value)
        case Var():
            return values[expr]
        case Binary(op, a, b) | Compare(op, a, b):
            return _INTEGER_OPS[op](_evaluate(a, values), _evaluate(b, values))
        case And(a, b):
            return np.logical_and(_evaluate(a, values), _evaluate(b, values))
        case Or(a, b):
            return np.logical_or(_evaluate(a, values), _evaluate(b, values))
        case Not(a):
            return np.logical_not(_evaluate(a, values))
        case Cast(dtype, value):
            return np.asarray(_evaluate(value, values)).astype(dtypes.to_numpy(dtype))
        case Call("likely", (a,)):
            return _evaluate(a, values)
        case Select(condition, a, b) | Call("if_then_else", (condition, a, b)):
            return np.where(*(_evaluate(part, values) for part in (condition, a, b)))
    raise TypeError(f"the value of {expr!r} does not follow from loop variables")
