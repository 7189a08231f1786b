"""Hypothesis strategies: relay programs of several functions, with all that is functional in them.

    @given(program_cases())
    def test_the_compiler(case):
        assert_same(compile(case.module).run(case.inputs), run(case.module, case.inputs))

There are branches, tuples of tuples, functions that call each other, closures, functions that take
and give functions, functions that a condition chooses, recursion with a bounded counter (tail
calls, nested calls, two calls at once, two functions that call each other), recursion that takes
and gives functions, and views. Data are small integers held as floats and every operator keeps them
so: results must be equal, in machine code too.

What is drawn is a size and a seed; everything else comes from a generator with that seed, so that a
failing case shrinks by leaving steps and functions out.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from hypothesis import strategies as st

from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Atom,
    Block,
    Call,
    Function,
    FuncType,
    GlobalVar,
    If,
    Module,
    TensorType,
    Tuple,
    TupleType,
    Type,
    Var,
    holds_function,
)
from minitvm.testing.relay_program_blocks import (
    COUNT,
    DATA,
    FLAG,
    MATRIX,
    MOST_TURNS,
    OTHER_MATRIX,
    VECTOR,
    BlockGrower,
    Scope,
    integer,
    known_type,
)


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


class _Grower(BlockGrower):
    """Adds functions."""

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
        scope = Scope(BlockBuilder(), list(params))
        self.steps(scope, 1)
        result = self.random.choice(DATA)
        body = scope.builder.finish(self.of_type(scope, result))
        self.add(params, body, result, inline=self.random.random() < 0.3)

    def taking_functions(self) -> None:
        kind = self.function_type()
        params = self.params((kind,))
        scope = Scope(BlockBuilder(), list(params))
        self.steps(scope, 1)
        self.call_value(scope, params[0])
        result = self.random.choice(DATA)
        self.add(params, scope.builder.finish(self.of_type(scope, result)), result)

    def giving_functions(self) -> None:
        params = self.params()
        scope = Scope(BlockBuilder(), list(params))
        self.steps(scope, 1)
        kind = self.function_type(scope)
        if self.random.random() < 0.5:
            result = self.function_value(scope, kind)
        else:
            result = self.emit(scope, If(self.of_type(scope, FLAG), self.block(scope, 2, kind),
                                         self.block(scope, 2, kind)))
        self.add(params, scope.builder.finish(result), kind)

    def wrapping(self) -> None:
        """One that gives a closure around the function that it is given."""
        kind = self.function_type()
        params = self.params((kind,))
        scope = Scope(BlockBuilder(), list(params))
        inner, arguments = scope.inner(), tuple(Var("a", item) for item in kind.params)
        answer = self.emit(inner, Call(params[0], arguments))
        inner.seen += arguments
        self.steps(inner, 3)
        body = inner.builder.finish(self.random.choice(
            (answer, self.of_type(inner, kind.result))))
        closure = self.emit(scope, Function(arguments, body, kind.result))
        self.add(params, scope.builder.finish(closure), kind)

    def recursive(self) -> None:
        """One that calls itself, once or twice, in tail position or not, with a smaller count."""
        name, params, result = self.new_name(), self.params((COUNT,)), self.random.choice(DATA)
        calls = self.random.choice(("tail", "tail", "nested", "twice"))
        self.add(params, self.recursive_body(name, params, result, calls), result, name)

    def higher_order(self) -> None:
        """A recursive one that takes functions, gives one, or both."""
        name, kind = self.new_name(), self.function_type()
        takes = self.random.random() < 0.7
        result: Type = self.random.choice((kind, kind, TupleType((kind, VECTOR))))
        if takes and self.random.random() < 0.5:
            result = self.random.choice(DATA)
        params = self.params((COUNT, *[kind] * (self.random.randint(1, 2) if takes else 0)))
        calls = self.random.choice(("tail", "tail", "nested", "twice"))
        self.add(params, self.recursive_body(name, params, result, calls), result, name)

    def mutual(self) -> None:
        """Two that call each other."""
        first = self.new_name()
        names, result = (first, f"{first}_other"), self.random.choice((*DATA, self.function_type()))
        params = self.params((COUNT,))
        others = tuple(Var(param.name, param.type) for param in params)
        made = {}
        for name, callee, own in ((names[0], names[1], params), (names[1], names[0], others)):
            calls = self.random.choice(("tail", "nested"))
            body = self.recursive_body(callee, own, result, calls)
            made[name] = Function(own, body, result)
        self.functions |= made

    def recursive_body(self, callee: str, params: tuple[Var, ...], result: Type,
                       calls: str) -> Block:
        """`if count > 0: ... callee(count - 1, ...) ... else: ...`"""
        kind = FuncType(tuple(param.type for param in params), result)
        scope = Scope(BlockBuilder(), list(params))
        if self.random.random() < 0.5:
            self.unary(scope, 1)
        more = self.operator(scope, "greater", params[0], integer(0))
        scope.seen.remove(more)
        inner = scope.inner()
        less = self.operator(inner, "subtract", params[0], integer(1))
        inner.seen.remove(less)
        if self.random.random() < 0.8:
            self.steps(inner, 2)
        callees, stable = GlobalVar(callee, kind), list(params)
        for _ in range(2 if calls == "twice" else 1):
            arguments = tuple(self.settled(inner, param.type, stable) for param in params[1:])
            answer = self.emit(inner, Call(callees, (less, *arguments)))
            stable.append(answer)
        if calls != "tail":
            self.steps(inner, 2)
        value: Atom = answer if calls == "tail" else self.settled(inner, result, stable)
        taken = inner.builder.finish(value)
        ending = scope.inner()
        other = ending.builder.finish(self.settled(ending, result, list(params)))
        chosen = self.emit(scope, If(more, taken, other))
        return scope.builder.finish(chosen)

    def settled(self, scope: Scope, kind: Type, stable: list[Var]) -> Atom:
        """A value that a recursion passes or gives itself: functions that capture no function, or
        stable ones, so that they don't hold each other without end."""
        if not holds_function(kind):
            return self.of_type(scope, kind)
        if isinstance(kind, TupleType):
            items = tuple(self.settled(scope, item, stable) for item in kind.fields)
            return self.emit(scope, Tuple(items), keep=False)
        options = [self.settled_option(scope, kind, stable) for _ in range(2)]
        if self.random.random() < 0.6:
            return options[0]
        blocks = [BlockBuilder(parent=scope.builder).finish(option) for option in options]
        return self.emit(scope, If(self.of_type(scope, FLAG), *blocks), keep=False)

    def settled_option(self, scope: Scope, kind: Type, stable: list[Var]) -> Atom:
        assert isinstance(kind, FuncType)
        found = [var for var in stable if var.type == kind]
        if found and self.random.random() < 0.7:
            return self.random.choice(found)
        plain = Scope(scope.builder, [var for var in scope.seen if not holds_function(var.type)])
        return self.function_value(plain, kind)

    def main(self) -> Module:
        kinds = self.random.sample((MATRIX, VECTOR, OTHER_MATRIX, COUNT, FLAG), 3)
        params = tuple(Var(f"x{index}", kind) for index, kind in enumerate(kinds))
        scope = Scope(BlockBuilder(), list(params))
        self.steps(scope, 0)
        answers = [self.call_global(scope, name) for name in self.functions
                   if self.random.random() < 0.7]
        self.steps(scope, 1)
        items: list[Atom] = [a for a in answers if not holds_function(a.type)]
        items += [self.call_value(scope, a) for a in answers if isinstance(a.type, FuncType)]
        items += [self.of_type(scope, self.random.choice(DATA))
                  for _ in range(self.random.randint(not items, 2))]
        result = items[0] if len(items) == 1 else self.emit(scope, Tuple(tuple(items)))
        function = Function(params, scope.builder.finish(result), known_type(result))
        return Module({"main": function, **self.functions})



_FUNCTIONS = (
    _Grower.plain, _Grower.taking_functions, _Grower.giving_functions, _Grower.wrapping,
    _Grower.wrapping, _Grower.recursive, _Grower.recursive, _Grower.recursive,
    _Grower.higher_order, _Grower.higher_order, _Grower.mutual,
)
