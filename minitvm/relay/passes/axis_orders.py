"""How operators work on arguments whose axes come in another order.

An order is a permutation: axis k of a value *in the order* is axis `order[k]` of the value. What
`follow` gives is an operator that takes arguments in certain orders and gives the result in one:

    elementwise, broadcasting   all arguments in one order; those of fewer dimensions get leading
                                dimensions of 1 first, those of one element stay
    axis, axes, pad_width       translated: reductions, concatenate, split, slices, pad, batch norm,
                                bias, softmax, reverse, repeat, squeeze
    layout                      pooling, where the order makes one image layout of another
    transpose                   takes the order in: its result is in the usual order again

Every other operator follows no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from minitvm.errors import MinitvmError
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType, TupleType, Type
from minitvm.relay.op import Op, Pattern
from minitvm.relay.ops.join import Concatenate, Split, StridedSlice
from minitvm.relay.ops.layout_transform import LayoutTransform
from minitvm.relay.ops.nn.bias_add import BiasAdd
from minitvm.relay.ops.nn.normalization import BatchNorm
from minitvm.relay.ops.nn.pad import Pad
from minitvm.relay.ops.nn.pooling import GlobalPool2d, Pool2d
from minitvm.relay.ops.nn.softmax import SoftmaxBase
from minitvm.relay.ops.transform import Repeat, Reverse, Squeeze, Transpose

Order = tuple[int, ...]

IMAGE_LAYOUTS = ("NCHW", "NHWC")


@dataclass(frozen=True, slots=True)
class Following:
    """A call in other orders: the operator, the order of each argument, and that of the result (of
    each field of it). None: the usual order."""

    op: Op
    arguments: tuple[Order | None, ...]
    result: Order | None


def usual(rank: int) -> Order:
    """The order that changes nothing."""
    return tuple(range(rank))


def inverse(order: Order) -> Order:
    """The order that takes back."""
    return tuple(order.index(axis) for axis in range(len(order)))


def in_order(shape: Sequence[Any], order: Order | None) -> tuple[Any, ...]:
    """A shape in an order."""
    return tuple(shape) if order is None else tuple(shape[axis] for axis in order)


def order_between(source: str, target: str) -> Order | None:
    """The order that makes `target` of `source`, two layouts of whole axes; None if they differ in
    more."""
    if sorted(source) != sorted(target) or not source.isupper():
        return None
    return tuple(source.index(letter) for letter in target)


def follow(
    op: Op, types: Sequence[TensorType], orders: Sequence[Order | None], result: Type
) -> Following | None:
    """How an operator follows arguments of these types (in the usual order), that exist in these
    orders; None if it doesn't."""
    first = orders[0]
    found: Following | None = None
    if isinstance(op, Concatenate):
        found = _concatenate(op, types, orders)
    elif first is not None and (translated := _translated(op, types[0], first)) is not None:
        changed, kept = translated
        found = Following(changed, (first, *[None] * (len(types) - 1)), kept)
    elif _is_pointwise(op):
        found = _pointwise(op, types, orders, result)
    return found if found is not None and _fits(found, types, result) else None


def _is_pointwise(op: Op) -> bool:
    names = {item.name for item in fields(op)}
    return op.pattern in (Pattern.ELEMWISE, Pattern.BROADCAST) and not (
        names & {"axis", "axes", "shape", "newshape"}
    )


def _pointwise(
    op: Op, types: Sequence[TensorType], orders: Sequence[Order | None], result: Type
) -> Following | None:
    if not isinstance(result, TensorType):
        return None
    leading = next((order for order, given in zip(orders, types, strict=True)
                    if order is not None and given.rank == result.rank), None)
    if leading is None:
        return None
    arguments = tuple(
        None if all(extent == 1 for extent in given.shape) else leading for given in types
    )
    return Following(op, arguments, leading)


def _concatenate(
    op: Concatenate, types: Sequence[TensorType], orders: Sequence[Order | None]
) -> Following | None:
    leading = next((order for order in orders if order is not None), None)
    if leading is None:
        return None
    axis = leading.index(op.axis % types[0].rank)
    return Following(replace(op, axis=axis), (leading,) * len(types), leading)


def _translated(op: Any, given: TensorType, order: Order) -> tuple[Op, Order | None] | None:
    """An operator on its first argument in an order, and the order of its result."""
    rank = given.rank

    def place(axis: int) -> int:
        return order.index(axis % rank)

    match op:
        case BatchNorm() | BiasAdd() | SoftmaxBase() | Split() | Reverse() | Repeat():
            return replace(op, axis=place(op.axis)), order
        case StridedSlice(axes=axes):
            cut = usual(len(op.begin)) if axes is None else axes
            return replace(op, axes=tuple(map(place, cut))), order
        case Pad(pad_width=widths):
            return replace(op, pad_width=tuple(widths[axis] for axis in order)), order
        case Pool2d() | GlobalPool2d():
            layout = "".join(in_order(op.layout, order)) if op.layout in IMAGE_LAYOUTS else ""
            return (replace(op, layout=layout), order) if layout in IMAGE_LAYOUTS else None
        case Transpose():
            axes = tuple(map(place, op.order(rank)))
            return Transpose(axes), None
        case LayoutTransform(source, target, shape):
            axes_between = order_between(source, target)
            if shape or axes_between is None:
                return None
            return Transpose(tuple(map(place, axes_between))), None
        case Squeeze(axis):
            return _squeeze(op, axis, given, order)
        case _:
            return _reduction(op, given, order)


def _squeeze(op: Squeeze, axis: Any, given: TensorType, order: Order) -> tuple[Op, Order | None]:
    if axis is None:
        axis = tuple(place for place, extent in enumerate(given.shape) if extent == 1)
    gone = _normal(axis, given.rank)
    return Squeeze(tuple(order.index(one) for one in gone)), _without(order, gone)


def _reduction(op: Any, given: TensorType, order: Order) -> tuple[Op, Order | None] | None:
    names = {item.name for item in fields(op)}
    is_reduction = {"axis", "keepdims"} <= names and "exclude" not in names
    if not is_reduction or op.axis is None or len(_normal(op.axis, given.rank)) == 0:
        return None
    gone = _normal(op.axis, given.rank)
    places = tuple(order.index(axis) for axis in gone)
    moved = replace(op, axis=places[0] if isinstance(op.axis, int) else places)
    return moved, order if op.keepdims else _without(order, gone)


def _normal(axis: Any, rank: int) -> tuple[int, ...]:
    return tuple(one % rank for one in ((axis,) if isinstance(axis, int) else axis))


def _without(order: Order, gone: Sequence[int]) -> Order | None:
    """An order of what is left when some axes are gone; None if it is the usual one."""
    left = [axis for axis in order if axis not in gone]
    ranks = tuple(sorted(left).index(axis) for axis in left)
    return None if ranks == usual(len(ranks)) else ranks


def _fits(found: Following, types: Sequence[TensorType], result: Type) -> bool:
    """Whether the type rule gives, for arguments in their orders, the result in its order."""
    given = tuple(
        TensorType(_argument_shape(item, order), item.dtype)
        for item, order in zip(types, found.arguments, strict=True)
    )
    wanted = _type_in_order(result, found.result)
    try:
        return operator_type(found.op, given) == wanted
    except MinitvmError:
        return False


def _argument_shape(given: TensorType, order: Order | None) -> tuple[Any, ...]:
    if order is None:
        return given.shape
    return in_order((1,) * (len(order) - given.rank) + given.shape, order)


def _type_in_order(found: Type, order: Order | None) -> Type | None:
    match found:
        case TensorType(shape, dtype):
            if order is not None and len(order) != len(shape):
                return None
            return TensorType(in_order(shape, order), dtype)
        case TupleType(items):
            parts = [_type_in_order(item, order) for item in items]
            return TupleType(tuple(part for part in parts if part is not None))
        case _:
            return None
