"""Relay -> relay where what a widening cast gives is not stored: each reader casts for itself.

A cast fuses with what comes before it or with what reads it. Read more than once, its result would
be stored, wide; with a cast for each reader that can take it into its own kernel, what is stored,
and read again, is narrow.
"""

from __future__ import annotations

from collections.abc import Iterator

from minitvm import dtypes
from minitvm.relay.build import BlockBuilder, rebuild_function
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Function,
    Module,
    Value,
    Var,
    atoms,
    blocks,
    map_atoms,
    tensor_type,
    walk_bindings,
)
from minitvm.relay.op import Op, Pattern
from minitvm.relay.ops.elementwise import Cast
from minitvm.transform import make_pass


@make_pass("CanonicalizeCast", opt_level=3)
def canonicalize_cast(module: Module) -> Module:
    """Gives each element-wise reader of a cast to a wider dtype a cast of its own, if there are
    several.

    Before:

        def main(x: Tensor((4,), "int8")) -> Tensor((4,), "float32"):
            v0 = cast(x, dtype="float32")  #: "cast"
            v1 = exp(v0)  #: "a"
            v2 = nn.softmax(v1)  #: "b"
            v3 = multiply(v0, v2)  #: "c"
            return v3

    After:

        def main(x: Tensor((4,), "int8")) -> Tensor((4,), "float32"):
            v0 = cast(x, dtype="float32")  #: "cast"
            v1 = exp(v0)  #: "a"
            v2 = nn.softmax(v1)  #: "b"
            v3 = cast(x, dtype="float32")  #: "cast"
            v4 = multiply(v3, v2)  #: "c"
            return v4
    """
    for name, function in module.functions.items():
        module = module.with_function(name, _canonicalized(function))
    return module


def _canonicalized(function: Function) -> Function:
    casts = {binding.var for binding in walk_bindings(function.body)
             if _is_widening(binding.value)}
    if not casts:
        return function
    taken = _read_otherwise(function.body, casts)

    def rule(builder: BlockBuilder, binding: Binding) -> Value | None:
        if not takes_casts(binding.value):
            return None
        copies = {}
        for cast in dict.fromkeys(_variables(binding.value)):
            if cast not in casts:
                continue
            first = builder.binding_of(cast)
            if cast in taken and first is not None:
                copies[cast] = builder.emit(first.value, origin=first.origin, name=cast.name)
            taken.add(cast)
        return map_atoms(binding.value, copies) if copies else None

    return rebuild_function(function, rule)


def _is_widening(value: Value) -> bool:
    match value:
        case Call(Cast(dtype), (source,)):
            return dtypes.bits(dtype) > dtypes.bits(tensor_type(source).dtype)
    return False


def takes_casts(value: Value) -> bool:
    """Whether a value is an operator's that fuses with what gives its operands."""
    match value:
        case Call(Op() as op, _):
            return op.pattern <= Pattern.INJECTIVE
    return False


def _read_otherwise(block: Block, casts: set[Var]) -> set[Var]:
    """The casts that something reads which can't take them into its kernel."""
    read: set[Atom] = {block.result} if isinstance(block.result, Var) else set()
    for binding in walk_bindings(block):
        if not takes_casts(binding.value):
            read.update(_variables(binding.value))
        read.update(inner.result for inner in blocks(binding.value)
                    if isinstance(inner.result, Var))
    return {cast for cast in casts if cast in read}


def _variables(value: Value) -> Iterator[Var]:
    """What a value reads, its nested blocks apart."""
    return (atom for atom in atoms(value) if isinstance(atom, Var))
