"""A group of bindings with one result -> a primitive function, and the arguments of its call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minitvm.relay.infer import atom_type
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    Tuple,
    TupleGetItem,
    Value,
    Var,
)
from minitvm.relay.op import Op
from minitvm.relay.ops.transform import ShapeChange

NAMED_OPERATORS = 6
"""How many operators the name of a kernel spells out."""


def kernel_name(group: Sequence[Binding]) -> str:
    """`fused_` and the operators: `fused_nn_conv2d_add_clip`; the first ones of a long group."""
    names = [
        binding.value.callee.name.replace(".", "_")
        for binding in group
        if isinstance(binding.value, Call) and isinstance(binding.value.callee, Op)
    ]
    shown = names[:NAMED_OPERATORS]
    more = len(names) - len(shown)
    return "_".join(["fused", *shown, *([f"and_{more}_more"] if more else [])])


def extract(
    group: Sequence[Binding], attrs: Mapping[str, Any] | None = None
) -> tuple[Function, tuple[Atom, ...]]:
    """A group as a primitive function, and the arguments that make a call of it equal the group.
    The last binding is the result. `attrs`: further attributes of the function."""
    params: dict[Atom, Var] = {}
    inner: dict[Var, Var] = {}
    bindings: list[Binding] = []

    def inside(atom: Atom) -> Atom:
        if isinstance(atom, Var) and atom in inner:
            return inner[atom]
        if isinstance(atom, Constant) and atom.data.size == 1:
            return atom
        return params.setdefault(atom, Var(f"p{len(params)}", atom_type(atom)))

    for binding in group:
        var = Var(f"v{len(bindings)}", binding.var.type)
        bindings.append(Binding(var, _with_inner_atoms(binding.value, inside), binding.origin))
        inner[binding.var] = var
    result = bindings[-1].var
    view = {"reshape_only": True} if _is_view(group) else {}
    every = {"primitive": True, **view, **(attrs or {})}
    function = Function(tuple(params.values()), Block(tuple(bindings), result), result.type, every)
    return function, tuple(params)


def _with_inner_atoms(value: Value, inside: Callable[[Atom], Atom]) -> Value:
    match value:
        case Call(callee, arguments):
            return Call(callee, tuple(map(inside, arguments)))
        case Tuple(fields):
            return Tuple(tuple(map(inside, fields)))
        case TupleGetItem(source, index):
            return TupleGetItem(inside(source), index)
        case _:
            raise TypeError(f"not an operation: {value!r}")


def _is_view(group: Sequence[Binding]) -> bool:
    """Whether a group gives one variable other shapes and does nothing else."""
    calls = [binding.value for binding in group if isinstance(binding.value, Call)]
    return (
        len(calls) == len(group)
        and all(isinstance(call.callee, ShapeChange) for call in calls)
        and isinstance(calls[0].arguments[0], Var)
    )
