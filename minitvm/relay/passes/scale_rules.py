"""How the scale of channels passes, or ends in, each operator: the rules of `fold_scale_axis`.

A scale is a vector along axis 1: the channels of an image, the columns of a matrix. `pull` moves it
from an operator's result to its argument, `push` from its argument to its result; both give the
operator's new call, and where the scale is then, or the reason why it can't move.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitvm import dtypes
from minitvm.origin import merge
from minitvm.relay.ir import Atom, Call, Constant, TensorType, Var, tensor_type
from minitvm.relay.op import Op
from minitvm.relay.ops.broadcast import Add, Subtract
from minitvm.relay.ops.nn.activations import LeakyRelu, PRelu, Relu
from minitvm.relay.ops.nn.bias_add import BiasAdd
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.nn.dense import Dense
from minitvm.relay.ops.nn.pad import Pad
from minitvm.relay.ops.nn.pooling import AvgPool2d, GlobalAvgPool2d, GlobalMaxPool2d, MaxPool2d


@dataclass(frozen=True, slots=True)
class Scale:
    """A finite factor for each channel; `source` is the constant it was given as."""

    factors: np.ndarray
    source: Constant

    def along(self, axis: int, rank: int) -> np.ndarray:
        """The factors as an array that broadcasts along one axis of `rank`."""
        return self.factors.reshape([-1 if i == axis else 1 for i in range(rank)])

    @property
    def is_positive(self) -> bool:
        """Whether a comparison with zero, or among elements, comes out the same when scaled."""
        return bool(np.all(self.factors > 0))


@dataclass(frozen=True, slots=True)
class Step:
    """An operator's call once the scale has moved: on to the argument `position` (`pull`) or to the
    result (`push`); absorbed by its constants where `position` is None."""

    call: Call
    position: int | None
    scaled: bool
    """Whether a constant of the call was multiplied."""


def channel_vector(constant: Constant, whole: TensorType) -> np.ndarray | None:
    """A constant that broadcasts to `whole` as one value for each index along axis 1; else None."""
    shape, data = whole.shape, constant.data
    if whole.rank < 2 or data.ndim > whole.rank or not isinstance(shape[1], int):
        return None
    aligned = (1,) * (whole.rank - data.ndim) + data.shape
    if aligned[1] not in (1, shape[1]) or any(
        extent != 1 for axis, extent in enumerate(aligned) if axis != 1
    ):
        return None
    return np.broadcast_to(data.reshape(-1), (shape[1],))


def scale_of(constant: Constant, whole: TensorType) -> Scale | str:
    """A constant factor of a tensor as a scale of its channels; else the reason why it is none."""
    factors = channel_vector(constant, whole)
    if factors is None or not dtypes.is_float(whole.dtype):
        return "the constant is not one float for each channel"
    if not np.all(np.isfinite(factors)):
        return "the scale is not finite"
    return Scale(factors, constant)


def scaled(constant: Constant, factors: np.ndarray, scale: Scale) -> Constant | None:
    """A constant multiplied by a scale; None where that overflows."""
    with np.errstate(all="ignore"):
        data = (constant.data * factors).astype(constant.data.dtype, copy=False)
    if np.any(np.isfinite(constant.data) & ~np.isfinite(data)):
        return None
    return Constant(data, merge(constant.origin, scale.source.origin))


def pull(op: Op, arguments: tuple[Atom, ...], scale: Scale) -> Step | str:
    """Moves a scale from the result to an argument, or into constants."""
    match op, arguments:
        case Conv2d(data_layout="NCHW", kernel_layout="OIHW"), (data, Constant() as weight):
            return _absorbed(op, data, scaled(weight, scale.along(0, 4), scale))
        case Dense(kernel_layout="NK"), (data, Constant() as weight) if is_matrix(data):
            return _absorbed(op, data, scaled(weight, scale.along(0, 2), scale))
        case (Add() | Subtract() | BiasAdd(), _):
            return _pull_through_bias(op, arguments, scale)
        case _:
            return through(op, arguments, scale)


def push(op: Op, arguments: tuple[Atom, ...], scale: Scale) -> Step | str:
    """Moves a scale from the first argument to the result, or into constants."""
    match op, arguments:
        case Conv2d(data_layout="NCHW", kernel_layout="OIHW"), (data, Constant() as weight):
            filters, inputs = weight.data.shape[:2]
            groups = scale.factors.reshape(op.groups, 1, inputs)
            factors = np.repeat(groups, filters // op.groups, axis=1).reshape(filters, inputs)
            return _absorbed(op, data, scaled(weight, factors[:, :, None, None], scale))
        case Dense(kernel_layout="NK"), (data, Constant() as weight) if is_matrix(data):
            return _absorbed(op, data, scaled(weight, scale.along(1, 2), scale))
        case _:
            return through(op, arguments, scale)


def is_matrix(data: Atom) -> bool:
    """Whether the columns of a dense layer's data are its channels, axis 1."""
    return tensor_type(data).rank == 2


def _absorbed(op: Op, data: Atom, weight: Constant | None) -> Step | str:
    if weight is None:
        return f"the weights of {op.name} would overflow"
    return Step(Call(op, (data, weight)), None, True)


def through(op: Op, arguments: tuple[Atom, ...], scale: Scale) -> Step | str:
    """Operators that commute with a scale of their first argument's channels as they are."""
    match op:
        case Relu() | LeakyRelu() | PRelu():
            needs_positive = True
        case MaxPool2d(layout="NCHW") | GlobalMaxPool2d(layout="NCHW"):
            needs_positive = True
        case AvgPool2d(layout="NCHW") | GlobalAvgPool2d(layout="NCHW"):
            needs_positive = False
        case Pad(pad_width=widths) if widths[1] == (0, 0) and _keeps_zeros(op):
            needs_positive = False
        case _:
            return f"a scale does not pass {op.name}"
    if needs_positive and not scale.is_positive:
        return f"a scale that is not positive does not pass {op.name}"
    return Step(Call(op, arguments), 0, False)


def _keeps_zeros(op: Pad) -> bool:
    return op.pad_mode != "constant" or op.pad_value == 0


def _pull_through_bias(op: Op, arguments: tuple[Atom, ...], scale: Scale) -> Step | str:
    """(y + b) * s = y * s + b * s, whichever of the two arguments is the constant."""
    match arguments:
        case (Var() as data, Constant() as bias):
            position = 0
        case (Constant() as bias, Var() as data):
            position = 1
        case _:
            return f"neither argument of {op.name} is a constant"
    whole = tensor_type(data)
    if isinstance(op, BiasAdd):
        vector = bias.data if op.axis % whole.rank == 1 else None
        factors = scale.factors
    else:
        vector = channel_vector(bias, whole)
        factors = scale.along(0, whole.rank - 1)
    if vector is None:
        return f"the constant of {op.name} is not one for each channel"
    if vector is not bias.data:
        shape = (-1,) + (1,) * (whole.rank - 2)
        bias = Constant(vector.reshape(shape), bias.origin)
    new_bias = scaled(bias, factors, scale)
    if new_bias is None:
        return f"the constant of {op.name} would overflow"
    pair = (data, new_bias) if position == 0 else (new_bias, data)
    return Step(Call(op, pair), position, True)
