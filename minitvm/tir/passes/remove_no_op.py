"""RemoveNoOp: what has no effect goes: empty loops, unused lets, memory that nobody reads.

Memory is dead if all that is read of it goes into dead memory, itself included; stores to it are
then dropped, and so on for what only they used. A While stays: that it ends is not known.
"""

from __future__ import annotations

from collections import Counter

from minitvm.tir import walk
from minitvm.tir.ir import (
    Address,
    Allocate,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Let,
    Load,
    Not,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from minitvm.tir.passes.copying import NOTHING, is_nothing, map_body
from minitvm.tir.walk import walk_statements
from minitvm.transform import make_pass


@make_pass("RemoveNoOp")
def remove_no_op(func: PrimFunc) -> PrimFunc:
    """Removes what has no effect. Any spec.

    Before:
        def f(A: Buffer((8,), "float32")):
            s = allocate((8,), "float32")
            t = allocate((8,), "float32")
            for i in range(8):
                A[i] = A[i]
            for j in range(8):
                x: float32 = A[j] * 2.0
                s[j] = x
                t[j] = s[j] + 1.0
                if A[j] > 0.0:
                    s[j] = 0.0
                else:
                    A[j] = 1.0
            for k in range(0):
                A[k] = 1.0
    After:
        def f(A: Buffer((8,), "float32")):
            for j in range(8):
                if not A[j] > 0.0:
                    A[j] = 1.0
    """
    return map_body(func, _until_stable)


def _until_stable(body: Stmt) -> Stmt:
    while True:
        remover = _Remover(body)
        body = remover.statement(body)
        if not remover.freed:
            return body


class _Remover:
    """One walk, with how often each variable is used and which memory is dead.

    `freed`: reads of scratch memory were dropped, so that more of it may be dead now.
    """

    def __init__(self, body: Stmt) -> None:
        self.uses: Counter[Var] = Counter()
        self.freed = False
        self.scratch: set[Buffer] = set()
        self.readers: dict[Buffer, set[Buffer | None]] = {}
        for item in walk_statements(body):
            self.note(item)
        self.dead = self.scratch - self.live()

    def note(self, statement: Stmt) -> None:
        """Counts what a statement uses; `readers` says into which memory what is read goes."""
        if isinstance(statement, Allocate):
            self.scratch.add(statement.buffer)
        reader = statement.buffer if isinstance(statement, Store) else None
        for expr in walk.expressions(statement):
            for node in walk.walk(expr):
                if isinstance(node, Var):
                    self.uses[node] += 1
                elif isinstance(node, Load | Address):
                    self.readers.setdefault(node.buffer, set()).add(reader)

    def live(self) -> set[Buffer | None]:
        """Memory whose content matters: that of parameters, and what is read for live memory."""
        sources: dict[Buffer | None, list[Buffer]] = {}
        live: list[Buffer | None] = [None]
        for buffer, readers in self.readers.items():
            for reader in readers:
                sources.setdefault(reader, []).append(buffer)
                if reader is not None and reader not in self.scratch:
                    live.append(reader)
        found: set[Buffer | None] = set(live)
        while live:
            for source in sources.get(live.pop(), ()):
                if source not in found:
                    found.add(source)
                    live.append(source)
        return found

    def drop(self, exprs: tuple[Expr, ...]) -> None:
        """Forgets what is used by expressions that go."""
        for expr in exprs:
            for node in walk.walk(expr):
                if isinstance(node, Var):
                    self.uses[node] -= 1
                elif isinstance(node, Load) and node.buffer in self.scratch:
                    self.freed = self.freed or node.buffer not in self.dead

    def nothing(self, statement: Stmt) -> Stmt:
        """What is left of a statement that goes; those inside of it are gone."""
        self.drop(walk.expressions(statement))
        return NOTHING

    def remove_all(self, statement: Stmt) -> Stmt:
        for item in walk_statements(statement):
            self.drop(walk.expressions(item))
        return NOTHING

    def statement(self, statement: Stmt) -> Stmt:
        match statement:
            case Store(buffer, indices, value):
                return self.nothing(statement) if buffer in self.dead or (
                    isinstance(value, Load) and value.buffer is buffer and value.indices == indices
                ) else statement
            case Evaluate(Const() | Call("prefetch")):  # no other intrinsic is for its effect
                return statement
            case Evaluate():
                return self.nothing(statement)
            case For(_, _, Const(extent)) if extent <= 0:
                return self.remove_all(statement)
        inner = tuple(map(self.statement, walk.bodies(statement)))
        match statement:
            case Let(var, _, _) if self.uses[var] == 0:
                self.drop(walk.expressions(statement))
                return inner[0]
            case Allocate(buffer, _) if buffer in self.dead:
                return inner[0]
            case For() | Let() | Allocate() | If() if all(map(is_nothing, inner)):
                return self.nothing(statement)
            case If(condition, _, Stmt(), origin) if is_nothing(inner[0]):
                return If(Not(condition), inner[1], None, origin)
            case If(condition, _, Stmt(), origin) if is_nothing(inner[1]):
                return If(condition, inner[0], None, origin)
            case Seq():
                same = all(a is b for a, b in zip(inner, statement.statements, strict=True))
                return statement if same else seq(*inner)
        return walk.with_parts(statement, walk.expressions(statement), inner)
