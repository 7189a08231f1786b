"""StorageFolding: scratch memory of which a loop uses a sliding window shrinks to that window.

In iteration y of the loop that the memory is allocated around, every access lies in

    factor * y + low <= index <= factor * y + high

in one dimension. The window moves one way, so what leaves it is never touched again, and two
elements in one window never have the same remainder by its width, high - low + 1: the remainder
can stand for the index. (An element that two iterations touch is in the window of all between.)

The rest of an index is taken over all values of inner loops, whatever guards say. Loops that run in
parallel or as lanes don't fold; nor does memory that is passed to a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from minitvm import dtypes
from minitvm.tir import walk
from minitvm.tir.canonical import Sum
from minitvm.tir.ir import (
    Address,
    Allocate,
    Buffer,
    Const,
    Expr,
    For,
    Let,
    Load,
    PrimFunc,
    Stmt,
    Store,
    Var,
)
from minitvm.tir.passes.copying import with_body
from minitvm.tir.simplify import Analyzer
from minitvm.tir.walk import walk_statements
from minitvm.transform import make_pass


@make_pass("StorageFolding", opt_level=2)
def storage_folding(func: PrimFunc) -> PrimFunc:
    """Shrinks scratch memory to the window of it that a loop uses at a time. Any spec.

    Before:
        def f(A: Buffer((66, 64), "float32"), B: Buffer((64, 64), "float32")):
            rows = allocate((66, 64), "float32")
            for y in range(64):
                for r in range(3):
                    if y < 1 or r > 1:
                        for x in range(64):
                            rows[y + r, x] = A[y + r, x] * 2.0
                for x_1 in range(64):
                    B[y, x_1] = rows[y, x_1] + rows[y + 1, x_1] + rows[y + 2, x_1]
    After:
        def f(A: Buffer((66, 64), "float32"), B: Buffer((64, 64), "float32")):
            rows = allocate((3, 64), "float32")
            for y in range(64):
                for r in range(3):
                    if y < 1 or r > 1:
                        for x in range(64):
                            rows[(y + r) % 3, x] = A[y + r, x] * 2.0
                for x_1 in range(64):
                    B[y, x_1] = rows[y % 3, x_1] + rows[(y + 1) % 3, x_1] + rows[(y + 2) % 3, x_1]
    """
    return with_body(func, _Folding().statement(func.body))


class _Folding:
    """One walk, with the ranges of the loops around."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def statement(self, statement: Stmt) -> Stmt:
        if isinstance(statement, Allocate):
            statement = self.folded(statement)
        if isinstance(statement, For):
            self.analyzer.bind(statement.var, statement.start, statement.extent)
        inner = tuple(map(self.statement, walk.bodies(statement)))
        return walk.with_parts(statement, walk.expressions(statement), inner)

    def folded(self, allocate: Allocate) -> Allocate:
        """The allocation with each dimension folded that may be; its body not yet looked at."""
        buffer, loop = allocate.buffer, _only_loop(allocate)
        if loop is None or loop.kind not in ("serial", "unrolled"):
            return allocate
        accesses = list(_accesses(buffer, allocate.body))
        if not accesses or any(indices is None for indices in accesses):
            return allocate
        for item in walk_statements(loop):
            if isinstance(item, For):
                self.analyzer.bind(item.var, item.start, item.extent)
        windows = {}
        for dimension, extent in enumerate(buffer.extents()):
            found = self.window([indices[dimension] for indices in accesses if indices], loop.var)
            if found is not None and found < extent:
                windows[dimension] = found
        return _replace(allocate, windows) if windows else allocate

    def window(self, indices: list[Expr], var: Var) -> int | None:
        """How wide a window of a dimension is used at a time; None if that isn't certain."""
        factors: set[int] = set()
        lows, highs = [], []
        for index in indices:
            if dtypes.lanes(index.dtype) > 1:
                return None
            factor, rest = _take(self.analyzer.sum_of(index), var)
            span = self.analyzer.sums.interval(rest)
            if not span.is_finite or any(_mentions(atom.expr, var) for atom in rest.terms):
                return None
            factors.add(factor)
            lows.append(span.low)
            highs.append(span.high)
        return max(highs) - min(lows) + 1 if len(factors) == 1 and factors != {0} else None


def _only_loop(allocate: Allocate) -> For | None:
    """The loop that is all of the allocation's body, but for allocations and lets."""
    body: Stmt = allocate.body
    while isinstance(body, Allocate | Let):
        body = body.body
    return body if isinstance(body, For) else None


def _accesses(buffer: Buffer, body: Stmt) -> Iterator[tuple[Expr, ...] | None]:
    """The indices of every access; None for one by address, or outside of the loop."""
    for statement in walk_statements(body):
        if isinstance(statement, Store) and statement.buffer is buffer:
            yield statement.indices
        for expr in walk.expressions(statement):
            for node in walk.walk(expr):
                if isinstance(node, Load) and node.buffer is buffer:
                    yield node.indices
                if isinstance(node, Address) and node.buffer is buffer:
                    yield None


def _take(index: Sum, var: Var) -> tuple[int, Sum]:
    """The factor of a variable in a sum, and the rest."""
    factor, rest = 0, {}
    for atom, coefficient in index.terms.items():
        if atom.source is var and not atom.is_split:
            factor = coefficient
        else:
            rest[atom] = coefficient
    return factor, Sum(rest, index.constant, index.dtype)


def _mentions(expr: Expr, var: Var) -> bool:
    return any(node is var for node in walk.walk(expr))


def _replace(allocate: Allocate, windows: dict[int, int]) -> Allocate:
    """The allocation with windows instead of whole dimensions."""
    old = allocate.buffer
    shape = tuple(Const(windows.get(dimension, int(extent)), like.dtype)
                  for dimension, (extent, like) in enumerate(zip(old.extents(), old.shape)))
    new = Buffer(old.name, shape, old.dtype, old.scope)

    def fold(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(index % windows[dimension] if dimension in windows else index
                     for dimension, index in enumerate(indices))

    def node(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer is old:
            return Load(new, fold(expr.indices))
        return expr

    def store(item: Stmt) -> Stmt:
        if isinstance(item, Store) and item.buffer is old:
            return Store(new, fold(item.indices), item.value, item.origin)
        return item

    body = walk.rewrite_statement(allocate.body, store, lambda expr: walk.rewrite(expr, node))
    return Allocate(new, body, allocate.origin)
