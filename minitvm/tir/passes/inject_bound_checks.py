"""InjectBoundChecks, on request: an access out of bounds is reported, and not made.

With `PassContext(config={"tir.bound_checks": True})`, each statement whose accesses are not proven
to be within their buffers is guarded by tests of the indices that aren't. Where one fails, the
statement is skipped, and the first failure of a run is left in a further parameter:

    report[0]   1
    report[1]   the number that the caller gave this call, the last parameter
    report[2]   which check: a place in attrs["bound_checks"], a row of the buffer's name, the
                dimension, its extent, and the origins
    report[3]   the index

An access in a branch of `if_then_else` is tested only where the branch is taken. Vectors of indices
that are no ramps, and conditions of While, are not tested. Code generation gives the parameters,
makes an error code of a report, and a sentence of that in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from minitvm import dtypes
from minitvm.tir import ir, walk
from minitvm.tir.ir import (
    And,
    Broadcast,
    Buffer,
    Call,
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
    Stmt,
    Store,
    Var,
    While,
    seq,
)
from minitvm.tir.passes.narrow_data_type import index_dtype
from minitvm.tir.simplify import Analyzer
from minitvm.transform import PassContext, make_pass

CHECKS = "bound_checks"
"""The attribute with what a function checks."""


@make_pass("InjectBoundChecks")
def inject_bound_checks(func: PrimFunc) -> PrimFunc:
    """Guards what may access memory out of bounds; only with `tir.bound_checks`. Any spec.

    Before:
        def f(A: Buffer((8,), "float32")):
            for i in range(8):
                A[i] = 1.0
    After:
        def f(A: Buffer((8,), "float32")):
            for i in range(8):
                A[i] = 1.0
    """
    if not PassContext.current().config.get("tir.bound_checks", False) or CHECKS in func.attrs:
        return func
    return with_bound_checks(func)


def with_bound_checks(func: PrimFunc) -> PrimFunc:
    """The function with tests of all that isn't proven; the same one if there is nothing to test.

        def f(A: Buffer((8,), "float32"), n: int32):
            A[n] = 1.0  #: "store"

        @attrs(bound_checks=(("A", 0, 8, ("store",)),))
        def f(A: Buffer((8,), "float32"), n: int32, report: Buffer((4,), "int64"), call: int64):
            if n < 0 or n >= 8:
                if report[0] == 0:
                    report[1] = call
                    report[2] = 0
                    report[3] = cast(n, "int64")
                    report[0] = 1
            else:
                A[n] = 1.0  #: "store"
    """
    checker = _Checker(index_dtype(func) or ir.INDEX)
    body = checker.statement(func.body)
    if not checker.rows:
        return func
    attrs = {**func.attrs, CHECKS: tuple(checker.rows)}
    return PrimFunc(func.name, (*func.params, checker.report, checker.call), body, attrs)


Violation = tuple[Expr, Expr, tuple[str, int, int]]
"""When an index is out of bounds, the index, and what it belongs to."""


class _Checker:
    """One walk, with what is known at each place."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.analyzer = Analyzer()
        self.report = ir.buffer("report", (4,), "int64")
        self.call = Var("call", "int64")
        self.rows: list[tuple[object, ...]] = []

    def statement(self, statement: Stmt) -> Stmt:
        exprs = walk.expressions(statement)
        found = [] if isinstance(statement, While) else self.all(exprs)
        if isinstance(statement, Store):
            found += self.access(statement.buffer, statement.indices)
        result = walk.with_parts(statement, exprs, self.inside(statement))
        for violation, index, place in reversed(found):
            result = If(violation, self.failure(index, place, statement), result, statement.origin)
        return result

    def inside(self, statement: Stmt) -> tuple[Stmt, ...]:
        match statement:
            case For(var, start, extent):
                self.analyzer.bind(var, start, extent)
            case Let(var, value, _) if var.dtype in ("int32", "int64"):
                low, high = self.analyzer.interval(value)
                self.analyzer.bind(var, Const(low, var.dtype), Const(high - low + 1, var.dtype))
            case If(condition, then_body, else_body):
                with self.knowing(condition):
                    bodies = [self.statement(then_body)]
                if else_body is not None:
                    with self.knowing(Not(condition)):
                        bodies.append(self.statement(else_body))
                return tuple(bodies)
        return tuple(map(self.statement, walk.bodies(statement)))

    def knowing(self, condition: Expr) -> AbstractContextManager[None]:
        """What holds in a branch; nothing where the branch may change what was tested."""
        if any(isinstance(node, Load) for node in walk.walk(condition)):
            return nullcontext()
        return self.analyzer.constraint(condition)

    def failure(self, index: Expr, place: tuple[str, int, int], statement: Stmt) -> Stmt:
        """Reports a failed check, unless one was reported before."""
        origin, zero = statement.origin, Const(0, self.dtype)
        row: tuple[object, ...] = (*place, origin.names)
        values: Iterable[tuple[int, Expr]] = (
            (1, self.call), (2, Const(len(self.rows), "int64")), (3, ir.cast(index, "int64")),
            (0, Const(1, "int64")),
        )
        self.rows.append(row)
        stores = [Store(self.report, (Const(slot, self.dtype),), value, origin)
                  for slot, value in values]
        first = ir.equal(Load(self.report, (zero,)), 0)
        return If(first, seq(*stores), None, origin)

    # --- expressions ----------------------------------------------------------------------------

    def all(self, exprs: Iterable[Expr]) -> list[Violation]:
        return [found for expr in exprs for found in self.expr(expr)]

    def expr(self, expr: Expr) -> list[Violation]:
        """What may be out of bounds in an expression, in the order of evaluation."""
        match expr:
            case Call("if_then_else", (condition, a, b)):
                return [*self.expr(condition), *self.under(condition, a),
                        *self.under(Not(condition), b)]
            case And(a, b) if expr.dtype == "bool":
                return [*self.expr(a), *self.under(a, b)]
            case Or(a, b) if expr.dtype == "bool":
                return [*self.expr(a), *self.under(Not(a), b)]
            case Load(buffer, indices):
                return self.all(indices) + self.access(buffer, indices)
        return self.all(walk.children(expr))

    def under(self, condition: Expr, expr: Expr) -> list[Violation]:
        """What may be out of bounds in an expression that is evaluated if a condition holds."""
        with self.knowing(condition):
            found = self.expr(expr)
        return [(And(condition, violation), index, place) for violation, index, place in found]

    def access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[Violation]:
        found: list[Violation] = []
        for dimension, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            if not isinstance(extent, Const):
                continue
            size = int(extent.value)
            for end in _ends(index):
                outside = [test for test in (end < 0, end >= Const(size, end.dtype))
                           if not self.analyzer.prove(Not(test))]
                if outside:
                    place = (buffer.name, dimension, size)
                    found.append((ir.disjunction(*outside), end, place))
        return found


def _ends(index: Expr) -> tuple[Expr, ...]:
    """The scalars between which an index lies; none for vectors that are not known as ramps."""
    match index:
        case Ramp(base, stride, lanes):
            return base, base + stride * Const(lanes - 1, stride.dtype)
        case Broadcast(value, _):
            return (value,)
    return (index,) if dtypes.lanes(index.dtype) == 1 else ()
