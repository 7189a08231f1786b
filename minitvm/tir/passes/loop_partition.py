"""LoopPartition: loops are split where their guards change, so that the interior has none.

Guards come from te: `if likely(c)` around the tail of a split that doesn't divide, and
`if_then_else(c, load, 0)` for padding. Each condition is a conjunction of comparisons. For a loop,
outermost first, `Comparisons` gives the part of its range in which a comparison holds whatever
the loops inside it do. The loop becomes up to three, [before, interior, after]:

    for i in range(9):                              for i in range(4):
        for j in range(2):                              for j in range(2):
            if likely(i * 2 + j < 9):       ->              A[i * 2 + j] = ...
                A[i * 2 + j] = ...                      A[8] = ...

A guard `if likely(a or b)` says that `a` is the rare case: the loop that decides it is split there,
so that `b` is left in the interior. (What a rolling buffer computes: all in the first iteration, or
what is new.)

A comparison that no value of the outer variable decides is left to the loops inside it. In a piece
where a guard around all that it does never holds, the piece vanishes: a tail becomes a small tile.

How much code. A border of less than a quarter of a loop's iterations is cold: within it tails are
still split off, padding keeps its guard at each access but for what one serial loop decides: in the
first row, that a tap is above the image. (Splitting for all guards there made the depthwise layers
of MobileNetV2 2.4 times longer, and no faster.) Tails are split off first, so that padding is
looked at with the extents that smaller tiles have. A parallel loop is not split, which would take
several regions: its body chooses between the pieces. A vectorized loop is only ever cut short. A
function grows to at most `MOST_LEAVES` statements with an effect; what is declined is a remark.

The values of guards never change, so what is multiplied by the zeros of padding still is.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitvm.remarks import remark
from minitvm.tir import ir, walk
from minitvm.tir.affine import Comparisons
from minitvm.tir.bounds import Interval
from minitvm.tir.ir import (
    Call,
    Compare,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Invoke,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from minitvm.tir.passes.copying import (
    NOTHING,
    copy_statement,
    is_nothing,
    map_body,
    substitute_statement,
)
from minitvm.tir.passes.guards import alternatives, conjuncts, disjunction, is_likely, usual
from minitvm.tir.walk import walk_statements
from minitvm.transform import make_pass

MOST_LEAVES = 256
"""The most statements with an effect that a function may grow to."""
COLD = 4
"""A border of less than 1 / COLD of the iterations keeps its padding guards."""


@make_pass("LoopPartition", opt_level=1)
def loop_partition(func: PrimFunc) -> PrimFunc:
    """Splits loops so that guards vanish from their interior. Any spec.

    Before:
        def f(A: Buffer((10,), "float32"), B: Buffer((10,), "float32")):
            for i in range(10):
                B[i] = if_then_else(i > 0 and i < 9, A[i - 1] + A[i + 1], 0.0)
            for k in range(3):
                for j in unrolled(4):
                    if likely(k * 4 + j < 10):
                        A[k * 4 + j] = 1.0
    After:
        def f(A: Buffer((10,), "float32"), B: Buffer((10,), "float32")):
            B[0] = 0.0
            for i in range(1, 9):
                B[i] = A[i - 1] + A[i + 1]
            B[9] = 0.0
            for k in range(2):
                for j in unrolled(4):
                    A[k * 4 + j] = 1.0
            for j_1 in unrolled(2):
                A[8 + j_1] = 1.0
    """
    func = map_body(func, _Partition(func, cold=True).statement)
    return map_body(func, _Partition(func, cold=False).statement)


@dataclass(frozen=True, slots=True)
class _Interior:
    """Where in [start, stop) of a loop comparisons hold: [low, high)."""

    start: int
    low: int
    high: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Guards:
    """The comparisons of the guards in a piece of code, by what they guard."""

    tails: tuple[Expr, ...]
    padding: tuple[Expr, ...]


class _Partition:
    """One walk. `cold` says that padding keeps its guards in the code at hand."""

    def __init__(self, func: PrimFunc, cold: bool) -> None:
        self.known = Comparisons()
        self.leaves = count_leaves(func.body)
        self.cold = cold
        self.in_border = False
        self.guards: dict[int, tuple[Expr, tuple[Expr, ...]]] = {}
        self.guards_inside: dict[int, tuple[Stmt, _Guards]] = {}
        self.bind_loops(func.body)

    def bind_loops(self, statement: Stmt) -> None:
        """Tells the ranges of all loops, so that outer ones are split for what inner ones do."""
        for item in walk_statements(statement):
            if isinstance(item, For):
                self.known.bind(item.var, item.start, item.extent)

    def copy(self, body: Stmt, values: dict[Var, Expr]) -> Stmt:
        result = copy_statement(body, values)
        self.bind_loops(result)
        return result

    # --- statements -----------------------------------------------------------------------------

    def statement(self, statement: Stmt) -> Stmt:
        match statement:
            case For(_, Const(), Const()):
                return self.loop(statement)
            case If(condition, then_body, else_body):
                return self.conditional(statement, condition, then_body, else_body)
            case Seq(statements):
                new = tuple(map(self.statement, statements))
                same = all(a is b for a, b in zip(new, statements, strict=True))
                return statement if same else seq(*new)
        inner = tuple(map(self.statement, walk.bodies(statement)))
        if inner and all(map(is_nothing, inner)):
            return NOTHING
        exprs = tuple(map(self.expr, walk.expressions(statement)))
        return walk.with_parts(statement, exprs, inner)

    def conditional(
        self, statement: If, condition: Expr, then_body: Stmt, else_body: Stmt | None
    ) -> Stmt:
        decided = self.condition(condition)
        if isinstance(decided, Const):
            taken = then_body if decided.value else else_body
            return NOTHING if taken is None else self.statement(taken)
        inner = [self.statement(then_body)]
        if else_body is not None:
            inner.append(self.statement(else_body))
        elif is_nothing(inner[0]):
            return NOTHING
        return walk.with_parts(statement, (decided,), tuple(inner))

    def expr(self, expr: Expr) -> Expr:
        """The expression without the choices that are decided here."""
        if not self.guards_of(expr):
            return expr
        if isinstance(expr, Call) and expr.name == "if_then_else":
            condition, true_value, false_value = expr.arguments
            decided = self.condition(condition)
            if isinstance(decided, Const):
                return self.expr(true_value if decided.value else false_value)
            operands = (decided, self.expr(true_value), self.expr(false_value))
            return walk.with_children(expr, operands)
        return walk.with_children(expr, tuple(map(self.expr, walk.children(expr))))

    def condition(self, condition: Expr) -> Expr:
        """The conjunction of the comparisons that are not certain; false if one never holds."""
        parts = conjuncts(condition)
        kept = [self.undecided(part) for part in parts if not self.holds(part)]
        if any(self.fails(part) for part in kept):
            return Const(False, "bool")
        if len(kept) == len(parts) and all(a is b for a, b in zip(kept, parts, strict=True)):
            return condition
        remaining = ir.conjunction(*kept)
        likely = is_likely(condition) and kept
        return Call("likely", (remaining,), "bool") if likely else remaining

    def holds(self, part: Expr) -> bool:
        """Whether a part of a conjunction certainly holds."""
        return any(map(self.known.holds, alternatives(part)))

    def fails(self, part: Expr) -> bool:
        """Whether a part of a conjunction certainly does not hold."""
        return all(map(self.known.fails, alternatives(part)))

    def undecided(self, part: Expr) -> Expr:
        """A part of a conjunction without alternatives that never hold; one of them stays."""
        options = alternatives(part)
        if len(options) == 1:
            return part
        kept = [option for option in options if not self.known.fails(option)] or options[:1]
        return part if len(kept) == len(options) else disjunction(kept)

    # --- loops ----------------------------------------------------------------------------------

    def loop(self, loop: For) -> Stmt:
        start, extent = int(loop.start.value), int(loop.extent.value)  # type: ignore[attr-defined]
        if extent <= 0:
            return NOTHING
        if extent == 1:
            return self.statement(substitute_statement(loop.body, {loop.var: loop.start}))
        self.known.bind(loop.var, loop.start, loop.extent)
        interior = self.interior(loop, start, start + extent)
        if interior is None or not self.worthwhile(loop, interior):
            body = self.statement(loop.body)
            return NOTHING if is_nothing(body) else walk.with_parts(
                loop, (loop.start, loop.extent), (body,)
            )
        if loop.kind == "parallel":
            return self.choose(loop, interior)
        return self.split(loop, interior)

    def interior(self, loop: For, start: int, stop: int) -> _Interior | None:
        """The part of a loop in which as many comparisons hold as hold together."""
        low, high = start, stop
        for part in self.candidates(loop):
            found = self.known.solve(part, loop.var)
            if found is None:
                continue
            first = low if found[0] is None else max(low, found[0])
            last = high if found[1] is None else min(high, found[1])
            if first < last:
                low, high = first, last
        return None if (low, high) == (start, stop) else _Interior(start, low, high, stop)

    def candidates(self, loop: For) -> tuple[Expr, ...]:
        """The comparisons of the guards in a body that are to be split for, each once.

        In cold code of padding only what a serial loop decides alone: `ky >= 1` in the first row.
        """
        inside = self.guards_in(loop.body)
        if not self.cold or loop.kind != "serial":
            return inside.tails if self.cold else inside.tails + inside.padding
        if not self.in_border:
            return inside.tails
        alone = (part for part in inside.padding if self.known.depends_on(part) == {loop.var})
        return (*inside.tails, *alone)

    def guards_in(self, statement: Stmt) -> _Guards:
        """The comparisons that guard what is in a statement."""
        known = self.guards_inside.get(id(statement))
        if known is not None:
            return known[1]
        tails: dict[Expr, None] = {}
        padding: dict[Expr, None] = {}
        if isinstance(statement, If) and is_likely(statement.condition):
            for part in conjuncts(statement.condition):
                tails[usual(part)] = None
        for expr in walk.expressions(statement):
            padding.update(dict.fromkeys(self.guards_of(expr)))
        for body in walk.bodies(statement):
            inside = self.guards_in(body)
            tails.update(dict.fromkeys(inside.tails))
            padding.update(dict.fromkeys(inside.padding))
        result = _Guards(tuple(tails), tuple(padding))
        self.guards_inside[id(statement)] = (statement, result)
        return result

    def guards_of(self, expr: Expr) -> tuple[Expr, ...]:
        """The comparisons of the conditions of `if_then_else` in an expression."""
        operands = walk.children(expr)
        if not operands:
            return ()
        known = self.guards.get(id(expr))
        if known is None:
            found: list[Expr] = []
            if isinstance(expr, Call) and expr.name == "if_then_else":
                found.extend(conjuncts(operands[0]))
            for operand in operands:
                found.extend(self.guards_of(operand))
            known = self.guards[id(expr)] = (expr, tuple(dict.fromkeys(found)))
        return known[1]

    def worthwhile(self, loop: For, interior: _Interior) -> bool:
        """Whether the pieces may be made; counts them if so."""
        borders = [
            piece for piece in ((interior.start, interior.low), (interior.high, interior.stop))
            if piece[0] < piece[1] and not self.vanishes(loop, *piece)
        ]
        if loop.kind == "vectorized":
            return not borders
        more = len(borders) * count_leaves(loop.body)
        if self.leaves + more > MOST_LEAVES:
            remark("LoopPartition",
                   f"the loop over {loop.var.name} keeps its guards: split, the function would "
                   f"have {self.leaves + more} statements, more than {MOST_LEAVES}", loop.origin)
            return False
        self.leaves += more
        return True

    def vanishes(self, loop: For, first: int, last: int) -> bool:
        """Whether a body does nothing where the variable is in [first, last)."""
        self.known.ranges[loop.var] = Interval(first, last - 1)
        result = self.idle(loop.body)
        self.known.bind(loop.var, loop.start, loop.extent)
        return result

    def idle(self, statement: Stmt) -> bool:
        match statement:
            case If(condition, then_body, None):
                return any(map(self.fails, conjuncts(condition))) or self.idle(then_body)
            case Store() | Invoke() | Evaluate():
                return is_nothing(statement)
        return all(map(self.idle, walk.bodies(statement)))

    def split(self, loop: For, interior: _Interior) -> Stmt:
        """The loop as up to three."""
        pieces = [self.border(loop, interior, interior.start, interior.low)]
        last = self.border(loop, interior, interior.high, interior.stop)
        pieces.append(self.piece(loop, loop.body, loop.var, interior.low, interior.high))
        return seq(*pieces, last)

    def border(self, loop: For, interior: _Interior, first: int, last: int) -> Stmt:
        if first >= last:
            return NOTHING
        var = Var(loop.var.name, loop.var.dtype)
        body = self.copy(loop.body, {loop.var: var})
        outer = self.enter_border(interior, first, last)
        result = self.piece(loop, body, var, first, last)
        self.cold, self.in_border = outer
        return result

    def enter_border(self, interior: _Interior, first: int, last: int) -> tuple[bool, bool]:
        """Says of the code from here on that it is a border; gives what held outside."""
        outer = self.cold, self.in_border
        if (last - first) * COLD < interior.stop - interior.start:
            self.cold = self.in_border = True
        return outer

    def piece(self, loop: For, body: Stmt, var: Var, first: int, last: int) -> Stmt:
        start, extent = Const(first, var.dtype), Const(last - first, var.dtype)
        piece = For(var, start, extent, loop.kind, body, loop.origin)
        return self.loop(piece)

    def choose(self, loop: For, interior: _Interior) -> Stmt:
        """A parallel loop whose body chooses between the pieces."""
        var, dtype = loop.var, loop.var.dtype
        before = self.branch(loop, interior, interior.start, interior.low)
        after = self.branch(loop, interior, interior.high, interior.stop)
        self.known.ranges[var] = Interval(interior.low, interior.high - 1)
        body = self.statement(loop.body)
        self.known.bind(var, loop.start, loop.extent)
        if interior.high < interior.stop:
            condition = Compare("lt", var, Const(interior.high, dtype))
            body = _choice(condition, body, after, loop)
        if interior.low > interior.start:
            condition = Compare("lt", var, Const(interior.low, dtype))
            body = _choice(condition, before, body, loop)
        return NOTHING if is_nothing(body) else walk.with_parts(
            loop, (loop.start, loop.extent), (body,)
        )

    def branch(self, loop: For, interior: _Interior, first: int, last: int) -> Stmt:
        """The body of a parallel loop where its variable is in [first, last)."""
        if first >= last:
            return NOTHING
        outer = self.enter_border(interior, first, last)
        if last - first == 1:
            values: dict[Var, Expr] = {loop.var: Const(first, loop.var.dtype)}
            result = self.statement(self.copy(loop.body, values))
        else:
            self.known.ranges[loop.var] = Interval(first, last - 1)
            result = self.statement(self.copy(loop.body, {}))
        self.cold, self.in_border = outer
        return result


def count_leaves(statement: Stmt) -> int:
    """The statements with an effect."""
    return sum(isinstance(item, Store | Invoke) for item in walk_statements(statement))


def _choice(condition: Expr, then_body: Stmt, else_body: Stmt, loop: For) -> Stmt:
    if is_nothing(then_body):
        return NOTHING if is_nothing(else_body) else If(
            ir.Not(condition), else_body, None, loop.origin
        )
    return If(condition, then_body, None if is_nothing(else_body) else else_body, loop.origin)
