"""The blocks of random relay programs: values of a type, and the steps that a block is made of.

What `relay_program_strategies` makes functions of. Everything is drawn from one generator with a
seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from minitvm.origin import Origin, origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Atom,
    Block,
    Call,
    Constant,
    Function,
    FuncType,
    GlobalVar,
    If,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
    holds_function,
)
from minitvm.relay.op import lookup

MATRIX = TensorType((2, 3), "float32")
OTHER_MATRIX = TensorType((3, 2), "float32")
VECTOR = TensorType((6,), "float32")
COUNT = TensorType((), "int32")
FLAG = TensorType((), "bool")
PAIR = TupleType((VECTOR, MATRIX))
NEST = TupleType((PAIR, COUNT, TupleType((VECTOR,))))
DATA = (MATRIX, OTHER_MATRIX, VECTOR, VECTOR, MATRIX, COUNT, PAIR, NEST)
LIMIT = 1000.0
"""What elements stay within; sums and products of two are then clipped exactly."""

MOST_TURNS = 4
"""The greatest counter that a recursion starts with."""


@dataclass(slots=True)
class Scope:
    """A block being written: its builder, and the variables that it sees."""

    builder: BlockBuilder
    seen: list[Var]

    def inner(self) -> Scope:
        return Scope(BlockBuilder(parent=self.builder), list(self.seen))


@dataclass(slots=True)
class BlockGrower:
    random: Random
    size: int
    functions: dict[str, Function] = field(default_factory=dict)
    count: int = 0

    # --- values ---------------------------------------------------------------------------------

    def place(self) -> Origin:
        self.count += 1
        return origin(f"n{self.count}")

    def emit(self, scope: Scope, value: Value, keep: bool = True) -> Var:
        var = scope.builder.emit(value, origin=self.place())
        if keep:
            scope.seen.append(var)
        return var

    def operator(self, scope: Scope, name: str, *arguments: Atom, **attributes: Any) -> Var:
        op = lookup(name)(**attributes)
        return self.emit(scope, Call(op, arguments))

    def of_type(self, scope: Scope, kind: Type) -> Atom:
        """A value of a type: one at hand (recent ones more likely), or a new one."""
        found = [var for var in scope.seen if var.type == kind]
        if found and self.random.random() < 0.85:
            return found[-1 - min(int(self.random.expovariate(0.5)), len(found) - 1)]
        match kind:
            case TupleType(items):
                return self.emit(scope, Tuple(tuple(self.of_type(scope, item) for item in items)))
            case FuncType():
                return self.function_value(scope, kind)
            case TensorType():
                if kind == FLAG:
                    return self.condition(scope)
                return self.constant(kind)

    def constant(self, kind: TensorType) -> Constant:
        values = [self.random.randint(-4, 4) for _ in range(kind.elements())]
        if kind == COUNT:
            values = [self.random.randint(0, MOST_TURNS)]
        return Constant(np.array(values, kind.dtype).reshape(kind.extents()))

    def condition(self, scope: Scope) -> Atom:
        """A bool of rank 0, computed from data."""
        kind = self.random.choice((COUNT, VECTOR, MATRIX))
        value, name = self.of_type(scope, kind), self.random.choice(("less", "greater_equal"))
        if kind != COUNT:
            axes = tuple(range(len(kind.shape)))
            value = self.operator(scope, self.random.choice(("max", "min")), value, axis=axes)
        bound = Constant(np.asarray(self.random.randint(-2, 4), kind.dtype))
        return self.operator(scope, name, value, bound)

    def counter(self, scope: Scope) -> Atom:
        """A count that no recursion is too long for."""
        if self.random.random() < 0.4:
            return self.constant(COUNT)
        value = self.of_type(scope, COUNT)
        value = self.operator(scope, "minimum", value, integer(MOST_TURNS))
        return self.operator(scope, "maximum", value, integer(-1))

    def clipped(self, scope: Scope, value: Var) -> Var:
        return self.operator(scope, "clip", value, a_min=-LIMIT, a_max=LIMIT)

    # --- steps ----------------------------------------------------------------------------------

    def steps(self, scope: Scope, depth: int) -> None:
        """Some steps of a block; the deeper, the fewer."""
        for _ in range(self.random.randint(1, max(1, self.size // (depth + 1)))):
            step = self.random.choice(_STEPS if depth < 3 else _FLAT_STEPS)
            step(self, scope, depth)

    def block(self, scope: Scope, depth: int, kind: Type) -> Block:
        """A nested block with a value of a type."""
        inner = scope.inner()
        if self.random.random() < 0.8:
            self.steps(inner, depth + 1)
        return inner.builder.finish(self.of_type(inner, kind))

    def arithmetic(self, scope: Scope, depth: int) -> None:
        kind = self.random.choice((MATRIX, OTHER_MATRIX, VECTOR))
        name = self.random.choice(("add", "subtract", "maximum", "minimum", "multiply"))
        left, right = self.of_type(scope, kind), self.of_type(scope, kind)
        self.clipped(scope, self.operator(scope, name, left, right))

    def unary(self, scope: Scope, depth: int) -> None:
        kind = self.random.choice((MATRIX, OTHER_MATRIX, VECTOR))
        name = self.random.choice(("negative", "abs", "nn.relu", "sign"))
        self.operator(scope, name, self.of_type(scope, kind))

    def counting(self, scope: Scope, depth: int) -> None:
        value = self.operator(scope, "add", self.of_type(scope, COUNT), integer(1))
        self.operator(scope, "minimum", value, integer(9))

    def view(self, scope: Scope, depth: int) -> None:
        old, new = self.random.sample((MATRIX, OTHER_MATRIX, VECTOR), 2)
        self.operator(scope, "reshape", self.of_type(scope, old), newshape=new.extents())

    def transpose(self, scope: Scope, depth: int) -> None:
        self.operator(scope, "transpose", self.of_type(scope, MATRIX), axes=(1, 0))

    def split(self, scope: Scope, depth: int) -> None:
        parts = self.operator(scope, "split", self.of_type(scope, VECTOR), indices_or_sections=2)
        items = [self.emit(scope, TupleGetItem(parts, index)) for index in (1, 0)]
        self.operator(scope, "concatenate", *items, axis=0)

    def group(self, scope: Scope, depth: int) -> None:
        self.of_type(scope, self.random.choice((PAIR, NEST)))
        kind = self.random.choice((PAIR, NEST))
        items = tuple(self.of_type(scope, item) for item in kind.fields)
        self.emit(scope, Tuple(items))

    def take(self, scope: Scope, depth: int) -> None:
        kind = self.random.choice((PAIR, NEST))
        index = self.random.randrange(len(kind.fields))
        self.emit(scope, TupleGetItem(self.of_type(scope, kind), index))

    def alias(self, scope: Scope, depth: int) -> None:
        self.emit(scope, self.of_type(scope, self.random.choice(DATA)))

    def branch(self, scope: Scope, depth: int) -> None:
        condition = self.of_type(scope, FLAG)
        kind = self.random.choice(DATA)
        self.emit(scope, If(condition, self.block(scope, depth, kind),
                            self.block(scope, depth, kind)))

    def closure(self, scope: Scope, depth: int) -> None:
        params = tuple(self.random.choice(DATA) for _ in range(self.random.randint(1, 2)))
        kind = FuncType(params, self.random.choice(DATA))
        function = self.function_value(scope, kind, depth)
        if self.random.random() < 0.7:
            arguments = tuple(self.of_type(scope, item) for item in kind.params)
            self.emit(scope, Call(function, arguments))

    def choice(self, scope: Scope, depth: int) -> None:
        """A function, or a tuple with one, that a condition chooses."""
        kind = self.function_type(scope)
        held: Type = kind
        if self.random.random() < 0.3:
            held = TupleType((kind, self.random.choice(DATA), kind))
        condition = self.of_type(scope, FLAG)
        chosen = self.emit(scope, If(condition, self.block(scope, depth, held),
                                     self.block(scope, depth, held)))
        if isinstance(held, TupleType):
            chosen = self.emit(scope, TupleGetItem(chosen, self.random.choice((0, 2))))
        if self.random.random() < 0.7:
            self.call_value(scope, chosen)

    def open_tuple(self, scope: Scope, depth: int) -> None:
        """A field of a tuple with a function inside."""
        found = [var for var in scope.seen
                 if isinstance(var.type, TupleType) and holds_function(var.type)]
        if found:
            source = self.random.choice(found)
            assert isinstance(source.type, TupleType)
            self.emit(scope, TupleGetItem(source, self.random.randrange(len(source.type.fields))))

    def function_type(self, scope: Scope | None = None) -> FuncType:
        """A type of functions: of one at hand, of functions of data, at times of functions."""
        found = [var.type for var in (scope.seen if scope else ())
                 if isinstance(var.type, FuncType)]
        if found and self.random.random() < 0.5:
            return self.random.choice(found)
        kind = FuncType((self.random.choice(DATA),), self.random.choice(DATA))
        if self.random.random() < 0.2:
            return FuncType((kind, kind.params[0]), kind.result)
        return kind

    def function_value(self, scope: Scope, kind: FuncType, depth: int = 1) -> Atom:
        """A function of a type: one of the module, what one gives, or a closure."""
        known = [name for name, f in self.functions.items() if f.type == kind]
        if known and self.random.random() < 0.5:
            name = self.random.choice(known)
            return GlobalVar(name, self.functions[name].type)
        givers = [name for name, f in self.functions.items() if f.result_type == kind]
        if givers and self.random.random() < 0.4:
            return self.call_global(scope, self.random.choice(givers))
        params = tuple(Var(f"a{index}", item) for index, item in enumerate(kind.params))
        inner = scope.inner()
        inner.seen += params
        if depth < 3:
            self.steps(inner, depth + 1)
        body = inner.builder.finish(self.of_type(inner, kind.result))
        return self.emit(scope, Function(params, body, kind.result))

    def call(self, scope: Scope, depth: int) -> None:
        """A call of a function at hand, or of the module."""
        local = [var for var in scope.seen if isinstance(var.type, FuncType)]
        if local and self.random.random() < 0.5:
            self.call_value(scope, self.random.choice(local))
        elif self.functions:
            self.call_global(scope, self.random.choice(list(self.functions)))

    def call_value(self, scope: Scope, callee: Var) -> Var:
        """A call of a function that a variable holds."""
        assert isinstance(callee.type, FuncType)
        arguments = tuple(self.of_type(scope, kind) for kind in callee.type.params)
        return self.emit(scope, Call(callee, arguments))

    def call_global(self, scope: Scope, name: str) -> Var:
        """A call of a function of the module: if the first argument counts, not for long."""
        kind = self.functions[name].type
        arguments = tuple(self.counter(scope) if item == COUNT and position == 0
                          else self.of_type(scope, item)
                          for position, item in enumerate(kind.params))
        return self.emit(scope, Call(GlobalVar(name, kind), arguments))


def integer(value: int) -> Constant:
    return Constant(np.asarray(value, "int32"))


def known_type(atom: Atom) -> Type:
    """The type of an atom that has one."""
    assert not isinstance(atom, GlobalVar)
    return atom.type


Step = Callable[[BlockGrower, Scope, int], None]
_FLAT_STEPS: tuple[Step, ...] = (
    BlockGrower.arithmetic, BlockGrower.arithmetic, BlockGrower.unary, BlockGrower.counting,
    BlockGrower.view, BlockGrower.transpose, BlockGrower.split, BlockGrower.group,
    BlockGrower.take, BlockGrower.alias,
)
_STEPS: tuple[Step, ...] = (
    *_FLAT_STEPS, BlockGrower.branch, BlockGrower.branch, BlockGrower.closure,
    BlockGrower.closure, BlockGrower.choice, BlockGrower.choice, BlockGrower.open_tuple,
    BlockGrower.call, BlockGrower.call, BlockGrower.call,
)
