"""A function -> the hash of its structure: what it computes, whatever its names and origins.

A function is written as a stream of tokens in which variables are numbered in the order of their
binding and constants stand by their digest. Two functions are structurally equal when the streams
are; the hash is that of the stream. Both take time linear in the size of the function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields
from itertools import zip_longest
from typing import assert_never

from minitvm.relay.ir import (
    Atom,
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Tuple,
    TupleGetItem,
    Value,
    Var,
)
from minitvm.relay.op import Op


def structural_hash(function: Function) -> str:
    """The sha256 of the structure, in hexadecimal. Functions called by name count by their name."""
    return hashlib.sha256("\x1f".join(_Tokens().function(function)).encode()).hexdigest()


def structural_equal(left: Function, right: Function) -> bool:
    """Whether two functions are the same up to names and origins."""
    pairs = zip_longest(_Tokens().function(left), _Tokens().function(right))
    return all(a == b for a, b in pairs)


class _Tokens:
    """Writes one function; numbers its variables."""

    def __init__(self) -> None:
        self.numbers: dict[Var, int] = {}

    def function(self, function: Function) -> Iterator[str]:
        yield "function"
        for key in sorted(function.attrs):
            yield f"{key!r}={function.attrs[key]!r}"
        for param in function.params:
            yield self.define(param)
        yield from self.block(function.body)
        yield str(function.result_type)

    def block(self, block: Block) -> Iterator[str]:
        yield "{"
        for binding in block.bindings:
            yield from self.value(binding.value)
            yield self.define(binding.var)
        yield self.atom(block.result)
        yield "}"

    def define(self, var: Var) -> str:
        self.numbers[var] = len(self.numbers)
        return f":{var.type}"

    def value(self, value: Value) -> Iterator[str]:
        match value:
            case Call(callee, arguments):
                yield _operator(callee) if isinstance(callee, Op) else f"call {self.atom(callee)}"
                yield from map(self.atom, arguments)
            case Tuple(items):
                yield "tuple"
                yield from map(self.atom, items)
            case TupleGetItem(source, index):
                yield f"item {index}"
                yield self.atom(source)
            case If(condition, then_block, else_block):
                yield "if"
                yield self.atom(condition)
                yield from self.block(then_block)
                yield from self.block(else_block)
            case Function():
                yield from self.function(value)
            case Var() | Constant() | GlobalVar():
                yield self.atom(value)
            case _:
                assert_never(value)

    def atom(self, atom: Atom) -> str:
        match atom:
            case Var():
                if atom not in self.numbers:
                    return f"free {self.define(atom)} %{self.numbers[atom]}"
                return f"%{self.numbers[atom]}"
            case Constant():
                return atom.digest()
            case GlobalVar(name):
                return f"@{name!r}"


def _operator(op: Op) -> str:
    attributes = [f"{item.name}={getattr(op, item.name)!r}" for item in fields(op)]
    return f"{op.name}({', '.join(attributes)})"
