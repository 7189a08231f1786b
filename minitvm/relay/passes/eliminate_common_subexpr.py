"""Relay -> relay that computes nothing twice: hash-consing of calls, tuples and their fields."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, MutableMapping

import numpy as np

from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import (
    Atom,
    Binding,
    Call,
    Constant,
    GlobalVar,
    Module,
    Tuple,
    TupleGetItem,
    Value,
    Var,
)
from minitvm.relay.op import Op
from minitvm.transform import make_pass

SMALL_CONSTANT_BYTES = 64
"""Constants up to this size are compared as they are, greater ones by the hash of their content."""


@make_pass("EliminateCommonSubexpr", opt_level=3)
def eliminate_common_subexpr(module: Module) -> Module:
    """Uses the first of several equal values in place of the others. The one kept takes over the
    origins of the others. A value in a branch may be replaced by an equal one from outside the
    branch, never the reverse.

    Before:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = negative(x)  #: "a"
            v1 = negative(x)  #: "b"
            v2 = add(v0, v1)  #: "c"
            return v2

    After:

        def main(x: Tensor((4,), "float32")) -> Tensor((4,), "float32"):
            v0 = negative(x)  #: "a", "b"
            v1 = add(v0, v0)  #: "c"
            return v1
    """
    return rebuild_module(module, _ValueNumbering().replace)


class _ValueNumbering:
    """The values seen so far, by block: a nested block sees those of the enclosing ones."""

    def __init__(self) -> None:
        self.tables: dict[BlockBuilder, MutableMapping[Hashable, Var]] = {}

    def replace(self, builder: BlockBuilder, binding: Binding) -> Value | None:
        """The variable that already holds the value; None for a new value."""
        key = value_key(binding.value)
        if key is None:
            return None
        first = self._table(builder).setdefault(key, binding.var)
        return None if first is binding.var else first

    def _table(self, builder: BlockBuilder) -> MutableMapping[Hashable, Var]:
        table = self.tables.get(builder)
        if table is None:
            own: dict[Hashable, Var] = {}
            outer = None if builder.parent is None else self._table(builder.parent)
            table = own if outer is None else ChainMap(own, outer)
            self.tables[builder] = table
        return table


def value_key(value: Value) -> Hashable | None:
    """Equal keys, equal values; None for what is never merged: branches and functions. Operators
    are compared by their text, because 0.0 == -0.0 and 1 == True as attributes."""
    match value:
        case Call(Op() as op, arguments):
            return (op.name, repr(op), *map(atom_key, arguments))
        case Call(Var() | Constant() | GlobalVar() as function, arguments):
            return (function, *map(atom_key, arguments))
        case Tuple(fields):
            return ("tuple", *map(atom_key, fields))
        case TupleGetItem(source, index):
            return ("field", index, atom_key(source))
        case _:
            return None


def atom_key(atom: Atom) -> Hashable:
    """Equal keys, equal atoms. Floats are compared by their bits, so 0.0 is not -0.0."""
    if not isinstance(atom, Constant):
        return atom
    if atom.data.nbytes > SMALL_CONSTANT_BYTES:
        return atom.digest()
    data = np.ascontiguousarray(atom.data)
    return (data.dtype.str, data.shape, data.tobytes())
