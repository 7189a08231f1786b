"""The ways in which a drawn relay function grows: each adds some operators to it.

A move takes values at hand, draws operators and attributes, and binds the result. Operators that
the moves do not know by name are found in `REGISTRY`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import MinitvmError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import value_type
from minitvm.relay.ir import (
    Atom,
    Call,
    Constant,
    If,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
)
from minitvm.relay.op import REGISTRY, Op, Pattern
from minitvm.testing.relay_growth import EXTENTS, MAX_ELEMENTS, Grower, Move, SkipMoveError

MOVES: list[Move] = []


def move(weight: int, *needs: str) -> Callable[[Callable[[Grower], object]], None]:
    """Adds a function to `MOVES`; a decorator."""

    def add(function: Callable[[Grower], object]) -> None:
        MOVES.append(Move(function, weight, frozenset(needs)))

    return add


@move(4)
def elementwise(grower: Grower) -> None:
    """Any elementwise operator of one argument."""
    x = grower.tensor(dtype=None)
    grower.call(grower.pick(grower.plain_operators(Pattern.ELEMWISE, 1)), x)


@move(3)
def clip(grower: Grower) -> None:
    """`clip` with one bound or two."""
    low = grower.pick((None, -2.0, 0.0))
    high = grower.pick((None, 3.0, 6.0))
    grower.call(make("clip", a_min=low, a_max=high), grower.tensor())


@move(5)
def broadcast(grower: Grower) -> None:
    """Any operator of two arguments, the second often of fewer dimensions or extents of 1."""
    candidates = [op for pattern in (Pattern.BROADCAST, Pattern.ELEMWISE)
                  for op in grower.plain_operators(pattern, 2)]
    x = grower.tensor(dtype=None)
    y = second_operand(grower, x)
    arguments = (x, y) if grower.flag() else (y, x)
    grower.call(grower.pick(candidates), *arguments)


@move(3)
def arithmetic(grower: Grower) -> None:
    """The common ones again, because there are so many others."""
    x = grower.tensor()
    op = make(grower.pick(("add", "subtract", "multiply", "maximum", "minimum")))
    grower.call(op, x, second_operand(grower, x))


@move(1, "where")
def where(grower: Grower) -> None:
    """`where`, on a comparison."""
    x = grower.tensor()
    condition = grower.call(make("greater"), x, second_operand(grower, x))
    grower.call(make("where"), condition, x, second_operand(grower, x))


@move(5)
def reduction(grower: Grower) -> None:
    """Any reduction, over some axes."""
    names = sorted(name for name in grower.allowed & REGISTRY.keys()
                   if REGISTRY[name].arity == 1
                   and {"axis", "keepdims"} <= {item.name for item in fields(REGISTRY[name])})
    name = grower.pick(names)
    x = grower.tensor(dtype=None, at_least=1)
    rank = len(tensor_shape(x))
    chosen = grower.permutation(rank)[: grower.integer(1, rank)]
    axes = tuple(axis - rank if grower.flag() else axis for axis in chosen)
    single = name in ("argmax", "argmin") or grower.integer(0, 4) == 0
    grower.call(make(name, axis=axes[0] if single else axes, keepdims=grower.flag()), x)


@move(3, "reshape")
def reshape(grower: Grower) -> None:
    """`reshape`, to a shape with dimensions joined and split."""
    x = grower.tensor(dtype=None)
    grower.call(make("reshape", newshape=regrouped(grower, tensor_shape(x))), x)


@move(3, "transpose")
def transpose(grower: Grower) -> None:
    """`transpose`, by any permutation."""
    x = grower.tensor(dtype=None, at_least=1)
    axes = grower.permutation(len(tensor_shape(x)))
    grower.call(make("transpose", axes=axes), x)


@move(2, "expand_dims", "squeeze")
def change_rank(grower: Grower) -> None:
    """`squeeze` of an extent of 1 where there is one, else `expand_dims`."""
    x = grower.tensor(dtype=None)
    ones = [axis for axis, extent in enumerate(tensor_shape(x)) if extent == 1]
    if ones and grower.flag():
        grower.call(make("squeeze", axis=(grower.pick(ones),)), x)
    elif len(tensor_shape(x)) < 5:
        axis = grower.integer(0, len(tensor_shape(x)))
        grower.call(make("expand_dims", axis=axis), x)


@move(3, "concatenate")
def concatenate(grower: Grower) -> None:
    """`concatenate` of two or three values which differ along the axis alone."""
    x = grower.tensor(dtype=None, at_least=1)
    shape = tensor_shape(x)
    axis = grower.integer(0, len(shape) - 1)
    fitting = [value for value in grower.tensors(dtype=None, rank=len(shape))
               if value.type.dtype == x.type.dtype  # type: ignore[union-attr]
               and without(tensor_shape(value), axis) == without(shape, axis)]
    others = grower.several(fitting, 1, 2)
    grower.call(make("concatenate", axis=axis), x, *others)


@move(4, "split")
def split(grower: Grower) -> None:
    """`split`, and the fields of the tuple it gives."""
    x = grower.tensor(dtype=None, at_least=1)
    shape = tensor_shape(x)
    axis = grower.pick([axis for axis, extent in enumerate(shape) if extent > 1])
    places = sorted({grower.integer(1, shape[axis] - 1) for _ in range(grower.integer(1, 2))})
    parts = grower.call(make("split", indices_or_sections=tuple(places), axis=axis), x)
    fields_of(grower, parts)


@move(2)
def tuples(grower: Grower) -> None:
    """A tuple of values at hand, and fields of it."""
    items = grower.several(grower.tensors(dtype=None), 1, 3)
    fields_of(grower, grower.bind(Tuple(tuple(items)), "tuple"))


@move(2, "strided_slice")
def strided_slice(grower: Grower) -> None:
    """`strided_slice` of one axis."""
    x = grower.tensor(dtype=None, at_least=1)
    shape = tensor_shape(x)
    axis = grower.integer(0, len(shape) - 1)
    begin = grower.integer(0, shape[axis] - 1)
    end = grower.integer(begin + 1, shape[axis])
    step = grower.integer(1, 3)
    grower.call(make("strided_slice", begin=(begin,), end=(end,), strides=(step,), axes=(axis,)), x)


@move(2)
def rearrange(grower: Grower) -> None:
    """`reverse`, `tile`, `repeat`, `stack` and `broadcast_to`."""
    x = grower.tensor(dtype=None, at_least=1)
    shape = tensor_shape(x)
    axis = grower.integer(0, len(shape) - 1)
    match grower.pick(("reverse", "tile", "repeat", "stack", "broadcast_to")):
        case "reverse":
            grower.call(make("reverse", axis=axis), x)
        case "tile":
            grower.call(make("tile", reps=tuple(grower.integer(1, 2) for _ in shape)), x)
        case "repeat":
            grower.call(make("repeat", repeats=grower.integer(1, 3), axis=axis), x)
        case "stack":
            grower.call(make("stack", axis=axis), x, x)
        case "broadcast_to":
            wider = tuple(grower.integer(1, 3) if extent == 1 else extent for extent in shape)
            grower.call(make("broadcast_to", shape=(grower.integer(1, 2), *wider)), x)


@move(2, "nn.pad")
def pad(grower: Grower) -> None:
    """`nn.pad` with a constant, the edge or the reflection."""
    x = grower.tensor(at_least=1)
    widths = tuple((grower.integer(0, 2), grower.integer(0, 2))
                   for _ in tensor_shape(x))
    mode = grower.pick(("constant", "constant", "edge", "reflect"))
    value = grower.pick((0.0, 1.0)) if mode == "constant" else 0.0
    grower.call(make("nn.pad", pad_width=widths, pad_value=value, pad_mode=mode), x)


@move(10, "nn.conv2d")
def conv2d(grower: Grower) -> None:
    """`nn.conv2d`: kernels of 1 to 3, padding, strides, dilation, groups and depthwise."""
    x = grower.tensor(rank=4)
    channels = tensor_shape(x)[1]
    groups = grower.pick([g for g in range(1, channels + 1) if channels % g == 0])
    outputs = groups * grower.integer(1, max(1, 8 // groups))
    kernel = (grower.integer(1, 3), grower.integer(1, 3))
    attributes = window_attributes(grower)
    weight = grower.weight((outputs, channels // groups, *kernel))
    result = grower.call(make("nn.conv2d", groups=groups, **attributes), x, weight)
    if "nn.bias_add" in grower.allowed and grower.flag():
        result = grower.call(make("nn.bias_add"), result, grower.weight((outputs,)))
    if "nn.relu" in grower.allowed and grower.flag():
        grower.call(make("nn.relu"), result)


@move(6, "nn.max_pool2d", "nn.avg_pool2d")
def pooling(grower: Grower) -> None:
    """`nn.max_pool2d` and `nn.avg_pool2d`."""
    x = grower.tensor(rank=4)
    name = grower.pick(("nn.max_pool2d", "nn.avg_pool2d"))
    attributes = window_attributes(grower)
    size = (grower.integer(1, 3), grower.integer(1, 3))
    if name == "nn.avg_pool2d":
        attributes["count_include_pad"] = grower.flag()
    grower.call(make(name, pool_size=size, ceil_mode=grower.flag(), **attributes), x)


@move(2, "nn.global_avg_pool2d", "nn.global_max_pool2d")
def global_pooling(grower: Grower) -> None:
    """`nn.global_avg_pool2d` and `nn.global_max_pool2d`."""
    name = grower.pick(("nn.global_avg_pool2d", "nn.global_max_pool2d"))
    grower.call(make(name), grower.tensor(rank=4))


@move(4, "nn.dense")
def dense(grower: Grower) -> None:
    """`nn.dense`, after a reshape to a matrix if need be."""
    x = grower.tensor(at_least=2)
    if len(tensor_shape(x)) != 2 and "reshape" in grower.allowed:
        first, *rest = tensor_shape(x)
        x = grower.call(make("reshape", newshape=(first, math.prod(rest))), x)
    units = grower.pick((1, 3, 8, 17))
    grower.call(make("nn.dense"), x, grower.weight((units, tensor_shape(x)[1])))


@move(2, "nn.batch_matmul")
def batch_matmul(grower: Grower) -> None:
    """`nn.batch_matmul` of a value with itself, or with a weight."""
    x = grower.tensor(rank=3)
    batch, _, inner = tensor_shape(x)
    y = x if grower.flag() else grower.weight((batch, grower.pick((1, 4, 5)), inner))
    grower.call(make("nn.batch_matmul"), x, y)


@move(4, "nn.batch_norm")
def batch_norm(grower: Grower) -> None:
    """`nn.batch_norm` over the second axis; the variance is positive in most cases."""
    x = grower.tensor(at_least=2)
    shape = (tensor_shape(x)[1],)
    usual = grower.integer(0, 4) > 0
    statistics = [grower.weight(shape, positive=usual and index == 3) for index in range(4)]
    result = grower.call(make("nn.batch_norm"), x, *statistics)
    if not isinstance(result.type, TensorType):
        grower.bind(TupleGetItem(result, 0), "normalised")


@move(2, "nn.softmax", "nn.log_softmax")
def softmax(grower: Grower) -> None:
    """`nn.softmax` and `nn.log_softmax` along any axis."""
    x = grower.tensor(at_least=1)
    axis = grower.integer(-1, len(tensor_shape(x)) - 1)
    grower.call(make(grower.pick(("nn.softmax", "nn.log_softmax")), axis=axis), x)


@move(2, "cast")
def cast(grower: Grower) -> None:
    """`cast` of bools and integers to float32, from where they take part again."""
    others = [value for value in grower.tensors(dtype=None)
              if not dtypes.is_float(value.type.dtype)]  # type: ignore[union-attr]
    grower.call(make("cast", dtype="float32"), grower.pick(others))


def branch(grower: Grower) -> None:
    """An `if` whose branches compute on values of both blocks; drawn where branches are wanted."""
    x = grower.tensor()
    operators = [op for op in grower.plain_operators(Pattern.ELEMWISE, 1)
                 if value_keeps_type(op, x)]
    inner = [BlockBuilder(origin(f"branch_{len(grower.values)}_{side}")) for side in "te"]
    blocks = []
    for builder in inner:
        result: Var = x
        for op in grower.several(operators, 0, 3):
            result = builder.emit(op, result)
        blocks.append(builder.finish(result))
    conditions = grower.tensors(rank=0, dtype="bool")
    condition: Atom = Constant(np.array(grower.flag()))
    if conditions and grower.flag():
        condition = grower.pick(conditions)
    elif grower.integer(0, 3):
        condition = grower.add_flag()
    grower.bind(If(condition, *blocks), "if")


def value_keeps_type(op: Op, x: Var) -> bool:
    """Whether an operator gives the type it takes."""
    try:
        return value_type(Call(op, (x,))) == x.type
    except MinitvmError:
        return False


# --- helpers of moves ---------------------------------------------------------------------------


def make(name: str, **attributes: Any) -> Op:
    """An operator by name; skips the move where it is not registered or refuses the attributes."""
    if name not in REGISTRY:
        raise SkipMoveError
    try:
        return REGISTRY[name](**attributes)
    except (MinitvmError, ValueError):
        raise SkipMoveError from None


def tensor_shape(value: Atom) -> tuple[int, ...]:
    """The extents of a tensor."""
    found = value.type
    assert isinstance(found, TensorType)
    return found.extents()


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape with one axis left out."""
    return shape[:axis] + shape[axis + 1 :]


def second_operand(grower: Grower, x: Var) -> Atom:
    """A value at hand of the same shape, or data that broadcasts against `x`."""
    assert isinstance(x.type, TensorType)
    shape = tensor_shape(x)
    same = [value for value in grower.tensors(dtype=x.type.dtype) if tensor_shape(value) == shape]
    if grower.flag():
        found: Var = grower.pick(same)
        return found
    if x.type.dtype != "float32":
        return grower.pick(same)  # type: ignore[no-any-return]
    kept = tuple(extent if grower.flag() else 1 for extent in shape)
    return grower.weight(kept[grower.integer(0, len(kept)) :])


def fields_of(grower: Grower, var: Var) -> None:
    """Takes every field of a tuple."""
    for index in range(len(var.type.fields)):  # type: ignore[union-attr]
        grower.bind(TupleGetItem(var, index), "field")


def regrouped(grower: Grower, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape of as many elements."""
    factors: list[int] = []
    for extent in shape:
        divisors = [d for d in range(1, extent + 1) if extent % d == 0]
        inner = grower.pick(divisors)
        factors += [extent // inner, inner]
    result: list[int] = []
    for factor in factors:
        if result and grower.flag():
            result[-1] *= factor
        else:
            result.append(factor)
    return tuple(result[:4]) + ((math.prod(result[4:]),) if len(result) > 4 else ())


def window_attributes(grower: Grower) -> dict[str, Any]:
    """Strides, padding and dilation: each plain in half of the cases."""
    attributes: dict[str, Any] = {}
    if grower.flag():
        attributes["padding"] = tuple(grower.integer(0, 2) for _ in range(4))
    if grower.flag():
        attributes["strides"] = (grower.integer(1, 3), grower.integer(1, 3))
    if grower.flag():
        attributes["dilation"] = (grower.integer(1, 2), grower.integer(1, 2))
    return attributes


def draw_shape(grower: Grower) -> tuple[int, ...]:
    """A shape of rank 0 to 4, most often of rank 4: an image."""
    rank = grower.pick((4, 4, 4, 4, 2, 2, 3, 1, 0))
    if rank == 4:
        return (grower.integer(1, 2), grower.pick((1, 2, 3, 4, 6, 8)),
                grower.pick((1, 3, 5, 7, 8)), grower.pick((1, 2, 3, 5, 8, 9)))
    shape: tuple[int, ...] = ()
    for _ in range(rank):
        fitting = [extent for extent in EXTENTS if extent * math.prod(shape) <= MAX_ELEMENTS]
        shape += (grower.pick(fitting),)
    return shape
