"""VectorizeLoop: flat -> machine. The iterations of a vectorized loop become lanes of vectors.

The loop's variable becomes a Ramp; what doesn't depend on it stays scalar, and is broadcast where
it meets a vector. Loops inside stay loops around vector statements. A choice by lanes becomes a
Select where both values may be evaluated: their loads are in bounds, their divisors constant.
Neighbours that may lie out of bounds are loaded under a mask: only the lanes that are chosen.

What can't be vectorized runs as a serial loop, with a remark: a guard that differs by lane,
iterations that depend on each other (`lane_dependence`), memory of each iteration's own.
"""

from __future__ import annotations

from minitvm import dtypes
from minitvm.remarks import remark
from minitvm.tir import ir, walk
from minitvm.tir.ir import (
    And,
    Binary,
    Broadcast,
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
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from minitvm.tir.passes.copying import copy_statement, map_body, substitute_statement
from minitvm.tir.passes.lane_dependence import dependent_buffer
from minitvm.tir.simplify import Analyzer
from minitvm.tir.walk import walk_statements
from minitvm.transform import PassContext, make_pass


@make_pass("VectorizeLoop")
def vectorize_loop(func: PrimFunc) -> PrimFunc:
    """Replaces vectorized loops by vector statements. Flat -> machine.

    Before:
        def f(A: Buffer((64,), "float32"), W: Buffer((16,), "float32"), n: int32):
            for j in vectorized(16):
                for k in range(4):
                    A[k * 16 + j] = max(A[k * 16 + j] + W[j] * A[3], 0.0)
            for l in vectorized(4):
                if l < n:
                    A[l * 2] = 1.0
    After:
        def f(A: Buffer((64,), "float32"), W: Buffer((16,), "float32"), n: int32):
            for j in range(16):
                for k in range(4):
                    A[k * 16 + j] = max(A[k * 16 + j] + W[j] * A[3], 0.0)
            for l in range(4):
                if l < n:
                    A[l * 2] = 1.0

    (A[3] may be written by another lane, and a guard differs by lane: both are declined.)

    Before:
        def f(A: Buffer((64,), "float32"), W: Buffer((16,), "float32"), x: float32):
            for j in vectorized(16):
                for k in range(4):
                    A[k * 16 + j] = max(A[k * 16 + j] + W[j] * x, 0.0)
    After:
        def f(A: Buffer((64,), "float32"), W: Buffer((16,), "float32"), x: float32):
            for k in range(4):
                A[ramp(k * 16, 1, 16)] = max(A[ramp(k * 16, 1, 16)] + W[ramp(0, 1, 16)] * \
broadcast(x, 16), broadcast(0.0, 16))

    Before:
        def f(A: Buffer((10,), "float32"), B: Buffer((16,), "float32")):
            for j in vectorized(16):
                B[j] = if_then_else(j < 10, A[j], 0.0)
    After:
        def f(A: Buffer((10,), "float32"), B: Buffer((16,), "float32")):
            B[ramp(0, 1, 16)] = if_then_else(ramp(0, 1, 16) < broadcast(10, 16), \
A[ramp(0, 1, 16)], broadcast(0.0, 16))
    """
    enabled = not PassContext.current().config.get("tir.disable_vectorize", False)
    return map_body(func, _Vectorize(func, enabled).statement)


@make_pass("VectorizeLoop")
def serialize_vectorized(func: PrimFunc) -> PrimFunc:
    """Runs vectorized loops as serial ones: `VectorizeLoop` where it is not enabled."""
    return map_body(func, _Vectorize(func, enabled=False).statement)


class DeclinedError(Exception):
    """A statement can't be vectorized, for a reason given as a sentence."""


class _Vectorize:
    """Finds the vectorized loops, with the ranges of the loops around them."""

    def __init__(self, func: PrimFunc, enabled: bool) -> None:
        self.analyzer = Analyzer()
        params = [param for param in func.params if isinstance(param, Buffer)]
        self.aliases = params if func.attrs.get("may_alias") else []
        self.enabled = enabled

    def statement(self, statement: Stmt) -> Stmt:
        if isinstance(statement, For):
            self.analyzer.bind(statement.var, statement.start, statement.extent)
            if statement.kind == "vectorized":
                return self.loop(statement)
        inner = tuple(map(self.statement, walk.bodies(statement)))
        return walk.with_parts(statement, walk.expressions(statement), inner)

    def loop(self, loop: For) -> Stmt:
        if loop.extent == Const(1, loop.var.dtype):
            return substitute_statement(loop.body, {loop.var: loop.start})
        serial = For(loop.var, loop.start, loop.extent, "serial", loop.body, loop.origin)
        if not self.enabled or not isinstance(loop.extent, Const):
            return serial
        for item in walk_statements(loop.body):
            if isinstance(item, For):
                self.analyzer.bind(item.var, item.start, item.extent)
        buffer = dependent_buffer(loop, self.analyzer, self.aliases)
        if buffer is not None:
            remark("VectorizeLoop", f"the loop over {loop.var.name} runs serially: iterations may "
                   f"depend on each other through {buffer.name}", loop.origin)
            return serial
        return _Lanes(loop, int(loop.extent.value), self.analyzer).attempt(loop.body)


class _Lanes:
    """Turns the body of one loop into vector statements; its iterations are independent."""

    def __init__(self, loop: For, count: int, analyzer: Analyzer) -> None:
        self.loop = loop
        self.count = count
        self.analyzer = analyzer
        self.values: dict[Var, Expr] = {
            loop.var: Ramp(loop.start, Const(1, loop.var.dtype), count)
        }
        self.known: dict[int, tuple[Expr, Expr]] = {}
        self.mask: Expr | None = None
        """Which lanes of the value at hand matter, where not all do."""

    # --- statements -----------------------------------------------------------------------------

    def attempt(self, statement: Stmt) -> Stmt:
        """The vector statement, or a serial loop around the scalar one."""
        if isinstance(statement, Seq):
            return seq(*map(self.attempt, statement.statements))
        try:
            return self.statement(statement)
        except DeclinedError as declined:
            if len(self.values) > 1:  # a vector let is in scope, which a loop can't be inside of
                raise
            remark("VectorizeLoop", f"a statement under {self.loop.var.name} runs serially: "
                   f"{declined}", statement.origin)
        loop, var = self.loop, Var(self.loop.var.name, self.loop.var.dtype)
        body = copy_statement(statement, {loop.var: var})
        return For(var, loop.start, loop.extent, "serial", body, loop.origin)

    def statement(self, statement: Stmt) -> Stmt:
        match statement:
            case Store(buffer, indices, value, origin):
                place = self.indices(indices)
                if not place or dtypes.lanes(place[-1].dtype) == 1:
                    raise DeclinedError(f"all lanes write the same element of {buffer.name}")
                return Store(buffer, place, self.wide(self.expr(value)), origin)
            case For(var, start, extent, kind, body, origin):
                first, length = self.scalar(start), self.scalar(extent)
                if kind == "vectorized":
                    raise DeclinedError("a vectorized loop is inside of another")
                return For(var, first, length, kind, self.attempt(body), origin)
            case If(condition, then_body, else_body, origin):
                test = self.scalar(condition, "a guard differs by lane")
                otherwise = None if else_body is None else self.attempt(else_body)
                return If(test, self.attempt(then_body), otherwise, origin)
            case Let(var, value, body, origin):
                return self.let(var, self.expr(value), body, statement)
            case Seq():
                return self.attempt(statement)
        raise DeclinedError(f"{type(statement).__name__} can't run for several lanes at once")

    def let(self, var: Var, value: Expr, body: Stmt, statement: Let) -> Stmt:
        if dtypes.lanes(value.dtype) == 1:
            return walk.with_parts(statement, (value,), (self.attempt(body),))
        lanes = Var(var.name, value.dtype)
        self.values[var] = lanes
        try:
            return Let(lanes, value, self.attempt(body), statement.origin)
        finally:
            del self.values[var]
            self.known.clear()

    def scalar(self, expr: Expr, reason: str = "a loop's bounds differ by lane") -> Expr:
        value = self.expr(expr)
        if isinstance(value, Broadcast):
            return value.value
        if dtypes.lanes(value.dtype) > 1:
            raise DeclinedError(reason)
        return value

    def indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices of an access, of which the last may be a vector."""
        if not indices:
            return ()
        first = tuple(self.scalar(index, "lanes differ in an outer dimension")
                      for index in indices[:-1])
        last = self.expr(indices[-1])
        if dtypes.lanes(last.dtype) > 1 and not isinstance(last, Ramp):
            last = self.analyzer.simplify(last)
        return (*first, last.value if isinstance(last, Broadcast) else last)

    # --- expressions ----------------------------------------------------------------------------

    def wide(self, value: Expr) -> Expr:
        """The value in every lane."""
        return Broadcast(value, self.count) if dtypes.lanes(value.dtype) == 1 else value

    def expr(self, expr: Expr) -> Expr:
        """The lanes of an expression; a scalar where all are equal."""
        if isinstance(expr, Var):
            return self.values.get(expr, expr)
        operands = walk.children(expr)
        if not operands:
            return expr
        known = self.known.get(id(expr))
        if known is None:
            known = self.known[id(expr)] = (expr, self.node(expr, operands))
        return known[1]

    def node(self, expr: Expr, operands: tuple[Expr, ...]) -> Expr:
        if isinstance(expr, Load):
            return self.load(expr)
        if isinstance(expr, Call) and expr.name == "if_then_else":
            return self.choice(expr)
        if self.mask is not None:
            self.require_divisor(expr)
        new = tuple(map(self.expr, operands))
        if all(dtypes.lanes(operand.dtype) == 1 for operand in new):
            return walk.with_children(expr, new)
        match expr:
            case Binary(op, _, _):
                return _combine(op, new[0], new[1], self.count)
            case Cast(dtype, _):
                return Cast(dtypes.vector(dtype, self.count), new[0])
            case Call():
                return self.call(expr, new)
            case And(_, b) | Or(_, b):
                self.require_total(b)
            case Select():
                condition = new[0]
                return Select(condition, self.wide(new[1]), self.wide(new[2]))
            case Compare() | Not():
                pass
            case _:
                raise DeclinedError(f"{type(expr).__name__} has no vector form")
        return walk.with_children(expr, tuple(map(self.wide, new)))

    def call(self, call: Call, new: tuple[Expr, ...]) -> Expr:
        if call.name == "likely":
            return new[0]
        return Call(call.name, tuple(map(self.wide, new)), dtypes.vector(call.dtype, self.count))

    def choice(self, call: Call) -> Expr:
        """A lazy choice: between the lanes of both values, where it differs by lane."""
        condition = self.expr(call.arguments[0])
        if dtypes.lanes(condition.dtype) == 1:
            a, b = map(self.expr, call.arguments[1:])
            if dtypes.lanes(a.dtype) == dtypes.lanes(b.dtype) == 1:
                return walk.with_children(call, (condition, a, b))
            wide = condition, self.wide(a), self.wide(b)
            return Call(call.name, wide, dtypes.vector(call.dtype, self.count))
        a = self.under(condition, call.arguments[1])
        b = self.under(Not(condition), call.arguments[2])
        match a:
            case Call("if_then_else", (mask, loaded, _), dtype) if mask == condition:
                return Call(call.name, (mask, loaded, b), dtype)
        return Select(condition, a, b)

    def under(self, condition: Expr, expr: Expr) -> Expr:
        """The lanes of an expression, of which only those matter where a condition holds too."""
        before = self.mask, self.known
        self.mask = condition if self.mask is None else And(self.mask, condition)
        self.known = {}
        try:
            return self.wide(self.expr(expr))
        finally:
            self.mask, self.known = before

    def load(self, load: Load) -> Expr:
        buffer, operands = load.buffer, load.indices
        indices = self.indices(operands)
        if self.mask is not None and not self.in_bounds(buffer.shape, operands):
            match indices[-1:]:
                case (Ramp(_, Const(1)),):
                    loaded = Load(buffer, indices)
                    nothing = self.wide(ir.convert(0, buffer.dtype))
                    return Call("if_then_else", (self.mask, loaded, nothing), loaded.dtype)
            raise DeclinedError(
                f"a choice differs by lane, and {buffer.name} may be read out of bounds")
        same = all(a is b for a, b in zip(indices, operands, strict=True))
        return load if same else Load(buffer, indices)

    def require_total(self, expr: Expr) -> None:
        """Declines unless an expression may be evaluated where the program would not."""
        for node in walk.walk(expr):
            if isinstance(node, Load) and not self.in_bounds(node.buffer.shape, node.indices):
                raise DeclinedError(
                    f"a choice differs by lane, and {node.buffer.name} may be read out of bounds")
            self.require_divisor(node)

    def require_divisor(self, expr: Expr) -> None:
        match expr:
            case Binary("floordiv" | "floormod" | "shl" | "shr", _, right):
                if not isinstance(right, Const) or right.value == 0:
                    raise DeclinedError("a choice differs by lane, and a divisor may be zero")

    def in_bounds(self, shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> bool:
        return all(
            isinstance(extent, Const)
            and self.analyzer.interval(index).within(0, int(extent.value) - 1)
            for extent, index in zip(shape, indices, strict=True)
        )


def _combine(op: str, a: Expr, b: Expr, count: int) -> Expr:
    """`op` of two values of which one is a vector; sums and products of ramps stay ramps."""
    match op, a, b:
        case "add" | "sub", Ramp(base, stride, _), _ if dtypes.lanes(b.dtype) == 1:
            return Ramp(ir.binary(op, base, b), stride, count)
        case "add", _, Ramp(base, stride, _) if dtypes.lanes(a.dtype) == 1:
            return Ramp(a + base, stride, count)
        case "sub", _, Ramp(base, stride, _) if dtypes.lanes(a.dtype) == 1:
            return Ramp(a - base, 0 - stride, count)
        case "mul", Ramp(base, stride, _), _ if dtypes.lanes(b.dtype) == 1:
            return Ramp(_times(base, b), _times(stride, b), count)
        case "mul", _, Ramp(base, stride, _) if dtypes.lanes(a.dtype) == 1:
            return Ramp(_times(a, base), _times(a, stride), count)
        case "add" | "sub", Ramp(base, stride, _), Ramp(other, step, _):
            return Ramp(ir.binary(op, base, other), ir.binary(op, stride, step), count)
    left = Broadcast(a, count) if dtypes.lanes(a.dtype) == 1 else a
    right = Broadcast(b, count) if dtypes.lanes(b.dtype) == 1 else b
    return Binary(op, left, right)


def _times(a: Expr, b: Expr) -> Expr:
    zeros = [side for side in (a, b) if isinstance(side, Const) and side.value == 0]
    return zeros[0] if zeros else a * b
