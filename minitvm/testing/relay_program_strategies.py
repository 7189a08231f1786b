"""Hypothesis strategies: relay programs of several functions, with all that is functional in them.

    @given(program_cases())
    def test_the_compiler(case):
        assert_same(compile(case.module).run(case.inputs), run(case.module, case.inputs))

There are branches, tuples of tuples, functions that call each other, closures, functions that take
and give functions, recursion with a bounded counter (tail calls, nested calls, two calls at once,
two functions that call each other) and views. Data are small integers held as floats and every
operator keeps them so: results must be equal, in machine code too.

What is drawn is a size and a seed; everything else comes from a generator with that seed, so that a
failing case shrinks by leaving steps and functions out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

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
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
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


@dataclass(frozen=True, slots=True)
class ProgramCase:
    """A module, and inputs by name."""

    module: Module
    inputs: dict[str, np.ndarray]


def program_cases(max_size: int = 8) -> st.SearchStrategy[ProgramCase]:
    """Programs and their inputs."""
    return st.builds(grow_program, st.integers(0, 2**32 - 1), st.integers(1, max_size))


def grow_program(seed: int, size: int) -> ProgramCase:
    """The program of a seed; `size` bounds the steps of a block."""
    grower = _Grower(Random(seed), size)
    for _ in range(grower.random.randint(0, 4)):
        grower.random.choice(_FUNCTIONS)(grower)
    module = grower.main()
    generator = np.random.default_rng(seed)
    return ProgramCase(module, {p.name: _input(generator, p.type) for p in module.main.params})


def _input(generator: np.random.Generator, kind: Type) -> np.ndarray:
    assert isinstance(kind, TensorType)
    if kind == FLAG:
        return np.asarray(generator.integers(0, 2) == 1)
    low, high = (-1, MOST_TURNS + 1) if kind == COUNT else (-8, 9)
    return np.asarray(generator.integers(low, high, kind.extents()), kind.dtype)


@dataclass(slots=True)
class _Scope:
    """A block being written: its builder, and the variables that it sees."""

    builder: BlockBuilder
    seen: list[Var]

    def inner(self) -> _Scope:
        return _Scope(BlockBuilder(parent=self.builder), list(self.seen))


@dataclass(slots=True)
class _Grower:
    random: Random
    size: int
    functions: dict[str, Function] = field(default_factory=dict)
    waiting: dict[str, Function] = field(default_factory=dict)
    count: int = 0

    # --- values ---------------------------------------------------------------------------------

    def place(self) -> Origin:
        self.count += 1
        return origin(f"n{self.count}")

    def emit(self, scope: _Scope, value: Value, keep: bool = True) -> Var:
        var = scope.builder.emit(value, origin=self.place())
        if keep:
            scope.seen.append(var)
        return var

    def operator(self, scope: _Scope, name: str, *arguments: Atom, **attributes: Any) -> Var:
        op = lookup(name)(**attributes)
        return self.emit(scope, Call(op, arguments))

    def of_type(self, scope: _Scope, kind: Type) -> Atom:
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

    def condition(self, scope: _Scope) -> Atom:
        """A bool of rank 0, computed from data."""
        kind = self.random.choice((COUNT, VECTOR, MATRIX))
        value, name = self.of_type(scope, kind), self.random.choice(("less", "greater_equal"))
        if kind != COUNT:
            axes = tuple(range(len(kind.shape)))
            value = self.operator(scope, self.random.choice(("max", "min")), value, axis=axes)
        bound = Constant(np.asarray(self.random.randint(-2, 4), kind.dtype))
        return self.operator(scope, name, value, bound)

    def counter(self, scope: _Scope) -> Atom:
        """A count that no recursion is too long for."""
        if self.random.random() < 0.4:
            return self.constant(COUNT)
        value = self.of_type(scope, COUNT)
        value = self.operator(scope, "minimum", value, _count(MOST_TURNS))
        return self.operator(scope, "maximum", value, _count(-1))

    def clipped(self, scope: _Scope, value: Var) -> Var:
        return self.operator(scope, "clip", value, a_min=-LIMIT, a_max=LIMIT)

    # --- steps ----------------------------------------------------------------------------------

    def steps(self, scope: _Scope, depth: int) -> None:
        """Some steps of a block; the deeper, the fewer."""
        for _ in range(self.random.randint(1, max(1, self.size // (depth + 1)))):
            step = self.random.choice(_STEPS if depth < 3 else _FLAT_STEPS)
            step(self, scope, depth)

    def block(self, scope: _Scope, depth: int, kind: Type) -> Block:
        """A nested block with a value of a type."""
        inner = scope.inner()
        if self.random.random() < 0.8:
            self.steps(inner, depth + 1)
        return inner.builder.finish(self.of_type(inner, kind))

    def arithmetic(self, scope: _Scope, depth: int) -> None:
        kind = self.random.choice((MATRIX, OTHER_MATRIX, VECTOR))
        name = self.random.choice(("add", "subtract", "maximum", "minimum", "multiply"))
        left, right = self.of_type(scope, kind), self.of_type(scope, kind)
        self.clipped(scope, self.operator(scope, name, left, right))

    def unary(self, scope: _Scope, depth: int) -> None:
        kind = self.random.choice((MATRIX, OTHER_MATRIX, VECTOR))
        name = self.random.choice(("negative", "abs", "nn.relu", "sign"))
        self.operator(scope, name, self.of_type(scope, kind))

    def counting(self, scope: _Scope, depth: int) -> None:
        value = self.operator(scope, "add", self.of_type(scope, COUNT), _count(1))
        self.operator(scope, "minimum", value, _count(9))

    def view(self, scope: _Scope, depth: int) -> None:
        old, new = self.random.sample((MATRIX, OTHER_MATRIX, VECTOR), 2)
        self.operator(scope, "reshape", self.of_type(scope, old), newshape=new.extents())

    def transpose(self, scope: _Scope, depth: int) -> None:
        self.operator(scope, "transpose", self.of_type(scope, MATRIX), axes=(1, 0))

    def split(self, scope: _Scope, depth: int) -> None:
        parts = self.operator(scope, "split", self.of_type(scope, VECTOR), indices_or_sections=2)
        items = [self.emit(scope, TupleGetItem(parts, index)) for index in (1, 0)]
        self.operator(scope, "concatenate", *items, axis=0)

    def group(self, scope: _Scope, depth: int) -> None:
        self.of_type(scope, self.random.choice((PAIR, NEST)))
        kind = self.random.choice((PAIR, NEST))
        items = tuple(self.of_type(scope, item) for item in kind.fields)
        self.emit(scope, Tuple(items))

    def take(self, scope: _Scope, depth: int) -> None:
        kind = self.random.choice((PAIR, NEST))
        index = self.random.randrange(len(kind.fields))
        self.emit(scope, TupleGetItem(self.of_type(scope, kind), index))

    def alias(self, scope: _Scope, depth: int) -> None:
        self.emit(scope, self.of_type(scope, self.random.choice(DATA)))

    def branch(self, scope: _Scope, depth: int) -> None:
        condition = self.of_type(scope, FLAG)
        kind = self.random.choice(DATA)
        self.emit(scope, If(condition, self.block(scope, depth, kind),
                            self.block(scope, depth, kind)))

    def closure(self, scope: _Scope, depth: int) -> None:
        params = tuple(self.random.choice(DATA) for _ in range(self.random.randint(1, 2)))
        kind = FuncType(params, self.random.choice(DATA))
        function = self.function_value(scope, kind, depth)
        if self.random.random() < 0.7:
            arguments = tuple(self.of_type(scope, item) for item in kind.params)
            self.emit(scope, Call(function, arguments))

    def function_value(self, scope: _Scope, kind: FuncType, depth: int = 1) -> Atom:
        """A function of a type: one of the module, or a closure."""
        known = [name for name, f in self.functions.items() if f.type == kind]
        if known and self.random.random() < 0.5:
            name = self.random.choice(known)
            return GlobalVar(name, self.functions[name].type)
        params = tuple(Var(f"a{index}", item) for index, item in enumerate(kind.params))
        inner = scope.inner()
        inner.seen += params
        if depth < 3:
            self.steps(inner, depth + 1)
        body = inner.builder.finish(self.of_type(inner, kind.result))
        return self.emit(scope, Function(params, body, kind.result))

    def call(self, scope: _Scope, depth: int) -> None:
        """A call of a function at hand, or of the module."""
        local = [var for var in scope.seen if isinstance(var.type, FuncType)]
        if local and self.random.random() < 0.5:
            callee = self.random.choice(local)
            assert isinstance(callee.type, FuncType)
            arguments = tuple(self.of_type(scope, kind) for kind in callee.type.params)
            self.emit(scope, Call(callee, arguments))
        elif self.functions:
            self.call_global(scope, self.random.choice(list(self.functions)))

    def call_global(self, scope: _Scope, name: str) -> Var:
        """A call of a function of the module: if the first argument counts, not for long."""
        kind = self.functions[name].type
        arguments = tuple(self.counter(scope) if item == COUNT and position == 0
                          else self.of_type(scope, item)
                          for position, item in enumerate(kind.params))
        return self.emit(scope, Call(GlobalVar(name, kind), arguments))

    # --- functions ------------------------------------------------------------------------------

    def add(self, params: tuple[Var, ...], body: Block, result: Type, name: str = "",
            inline: bool = False) -> None:
        attrs = {"inline": True} if inline else {}
        self.functions[name or self.new_name()] = Function(params, body, result, attrs)

    def new_name(self) -> str:
        return f"f{len(self.functions)}"

    def params(self, first: tuple[Type, ...] = ()) -> tuple[Var, ...]:
        kinds = (*first, *(self.random.choice(DATA) for _ in range(self.random.randint(1, 3))))
        return tuple(Var(f"p{index}", kind) for index, kind in enumerate(kinds))

    def plain(self) -> None:
        params = self.params()
        scope = _Scope(BlockBuilder(), list(params))
        self.steps(scope, 1)
        result = self.random.choice(DATA)
        body = scope.builder.finish(self.of_type(scope, result))
        self.add(params, body, result, inline=self.random.random() < 0.3)

    def taking_functions(self) -> None:
        kind = FuncType((self.random.choice(DATA),), self.random.choice(DATA))
        params = self.params((kind,))
        scope = _Scope(BlockBuilder(), list(params))
        self.steps(scope, 1)
        argument = self.of_type(scope, kind.params[0])
        self.emit(scope, Call(params[0], (argument,)))
        result = self.random.choice(DATA)
        self.add(params, scope.builder.finish(self.of_type(scope, result)), result)

    def giving_functions(self) -> None:
        params = self.params()
        scope = _Scope(BlockBuilder(), list(params))
        self.steps(scope, 1)
        kind = FuncType((self.random.choice(DATA),), self.random.choice(DATA))
        self.add(params, scope.builder.finish(self.function_value(scope, kind)), kind)

    def recursive(self) -> None:
        """One that calls itself, once or twice, in tail position or not, with a smaller count."""
        name, params, result = self.new_name(), self.params((COUNT,)), self.random.choice(DATA)
        calls = self.random.choice(("tail", "tail", "nested", "twice"))
        self.add(params, self.recursive_body(name, params, result, calls), result, name)

    def mutual(self) -> None:
        """Two that call each other."""
        first = self.new_name()
        names, result = (first, f"{first}_other"), self.random.choice(DATA)
        params = self.params((COUNT,))
        others = tuple(Var(param.name, param.type) for param in params)
        for name, callee, own in ((names[0], names[1], params), (names[1], names[0], others)):
            calls = self.random.choice(("tail", "nested"))
            body = self.recursive_body(callee, own, result, calls)
            self.waiting[name] = Function(own, body, result)
        self.functions |= self.waiting
        self.waiting.clear()

    def recursive_body(self, callee: str, params: tuple[Var, ...], result: Type,
                       calls: str) -> Block:
        """`if count > 0: ... callee(count - 1, ...) ... else: ...`"""
        kind = FuncType(tuple(param.type for param in params), result)
        scope = _Scope(BlockBuilder(), list(params))
        if self.random.random() < 0.5:
            self.unary(scope, 1)
        more = self.operator(scope, "greater", params[0], _count(0))
        scope.seen.remove(more)
        inner = scope.inner()
        less = self.operator(inner, "subtract", params[0], _count(1))
        inner.seen.remove(less)
        if self.random.random() < 0.8:
            self.steps(inner, 2)
        callees = GlobalVar(callee, kind)
        for _ in range(2 if calls == "twice" else 1):
            arguments = tuple(self.of_type(inner, param.type) for param in params[1:])
            answer = self.emit(inner, Call(callees, (less, *arguments)))
        if calls != "tail":
            self.steps(inner, 2)
        value: Atom = answer if calls == "tail" else self.of_type(inner, result)
        taken, other = inner.builder.finish(value), self.block(scope, 2, result)
        chosen = self.emit(scope, If(more, taken, other))
        return scope.builder.finish(chosen)

    def main(self) -> Module:
        kinds = self.random.sample((MATRIX, VECTOR, OTHER_MATRIX, COUNT, FLAG), 3)
        params = tuple(Var(f"x{index}", kind) for index, kind in enumerate(kinds))
        scope = _Scope(BlockBuilder(), list(params))
        self.steps(scope, 0)
        answers = [self.call_global(scope, name) for name in self.functions
                   if self.random.random() < 0.7]
        self.steps(scope, 1)
        items: list[Atom] = [a for a in answers if not isinstance(a.type, FuncType)]
        items += [self.of_type(scope, self.random.choice(DATA))
                  for _ in range(self.random.randint(not items, 2))]
        result = items[0] if len(items) == 1 else self.emit(scope, Tuple(tuple(items)))
        function = Function(params, scope.builder.finish(result), _type(result))
        return Module({"main": function, **self.functions})


def _type(atom: Atom) -> Type:
    assert not isinstance(atom, GlobalVar)
    return atom.type


def _count(value: int) -> Constant:
    return Constant(np.asarray(value, "int32"))


Step = Callable[[_Grower, _Scope, int], None]
_FLAT_STEPS: tuple[Step, ...] = (
    _Grower.arithmetic, _Grower.arithmetic, _Grower.unary, _Grower.counting, _Grower.view,
    _Grower.transpose, _Grower.split, _Grower.group, _Grower.take, _Grower.alias,
)
_STEPS: tuple[Step, ...] = (
    *_FLAT_STEPS, _Grower.branch, _Grower.branch, _Grower.closure, _Grower.closure, _Grower.call,
    _Grower.call, _Grower.call,
)
_FUNCTIONS = (
    _Grower.plain, _Grower.taking_functions, _Grower.giving_functions, _Grower.recursive,
    _Grower.recursive, _Grower.recursive, _Grower.mutual,
)
