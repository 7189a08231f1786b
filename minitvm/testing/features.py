"""A module -> the features that occur in it: what a test over generated modules has covered.

    padding, stride, dilation, groups   of windows, where they are more than the default
    reduction                           an operator that reduces axes
    broadcast                           arguments of an operator differ in shape
    multi_use                           a variable is used more than once
    tuple                               a tuple is made or taken apart
    odd_extent                          the last extent of a result is no multiple of 4, nor 1
"""

from __future__ import annotations

from minitvm.relay.ir import (
    Call,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    use_counts,
    walk_bindings,
)
from minitvm.relay.op import Op, Pattern

FEATURES = ("padding", "stride", "dilation", "groups", "reduction", "broadcast", "multi_use",
            "tuple", "odd_extent")


def features(module: Module) -> frozenset[str]:
    """The features of all functions together."""
    found: set[str] = set()
    for function in module.functions.values():
        if any(count > 1 for count in use_counts(function.body).values()):
            found.add("multi_use")
        for binding in walk_bindings(function.body):
            shape = binding.var.type.shape if isinstance(binding.var.type, TensorType) else ()
            if shape and isinstance(shape[-1], int) and shape[-1] > 1 and shape[-1] % 4:
                found.add("odd_extent")
            match binding.value:
                case Call(Op() as op, arguments):
                    found |= _operator_features(op, [argument.type for argument in arguments])
                case Tuple() | TupleGetItem():
                    found.add("tuple")
    return frozenset(found)


def _operator_features(op: Op, types: list[object]) -> set[str]:
    found = set()
    if any(getattr(op, "padding", ())):
        found.add("padding")
    if any(stride > 1 for stride in _pair(op, "strides")):
        found.add("stride")
    if any(step > 1 for step in _pair(op, "dilation")):
        found.add("dilation")
    if getattr(op, "groups", 1) > 1:
        found.add("groups")
    if op.pattern == Pattern.COMM_REDUCE or hasattr(op, "keepdims"):
        found.add("reduction")
    if op.pattern <= Pattern.BROADCAST:
        shapes = {item.shape for item in types if isinstance(item, TensorType)}
        if len(shapes) > 1:
            found.add("broadcast")
    return found


def _pair(op: Op, name: str) -> tuple[int, ...]:
    value = getattr(op, name, ())
    return value if isinstance(value, tuple) else (value,)
