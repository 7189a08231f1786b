"""Relay -> relay in which operators that differ between training and inference are simple ones."""

from __future__ import annotations

import numpy as np

from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Atom, Binding, Call, Constant, Module, Value, tensor_type
from minitvm.relay.ops.broadcast import Add, Divide, Multiply, Subtract
from minitvm.relay.ops.elementwise import Sqrt
from minitvm.relay.ops.nn.normalization import BatchNorm, Dropout
from minitvm.relay.ops.transform import ExpandDims
from minitvm.transform import make_pass


@make_pass("SimplifyInference")
def simplify_inference(module: Module) -> Module:
    """Makes of a batch normalisation a multiplication and an addition for each channel, and of a
    dropout nothing. The factors are computed from the statistics, so they fold to constants; the
    results differ from the definition by rounding.

    Before:

        def main(x: Tensor((1, 2), "float32")) -> Tensor((1, 2), "float32"):
            v0 = nn.dropout(x, rate=0.1)  #: "drop"
            v1 = negative(v0)  #: "a"
            return v1

    After:

        def main(x: Tensor((1, 2), "float32")) -> Tensor((1, 2), "float32"):
            v0 = negative(x)  #: "a"
            return v0
    """
    return rebuild_module(module, _simplify)


def _simplify(builder: BlockBuilder, binding: Binding) -> Value | None:
    match binding.value:
        case Call(Dropout(), (data,)):
            return data
        case Call(BatchNorm() as norm, arguments):
            return _scale_and_shift(builder, norm, arguments)
        case _:
            return None


def _scale_and_shift(builder: BlockBuilder, norm: BatchNorm, arguments: tuple[Atom, ...]) -> Value:
    """`data * scale + shift`, where scale = gamma / deviation, shift = beta - mean * scale."""
    data, gamma, beta, mean, variance = arguments
    found = tensor_type(data)
    trailing = found.rank - 1 - norm.axis % found.rank
    epsilon = Constant(np.asarray(norm.epsilon, found.dtype), builder.origin)
    deviation = builder.emit(Sqrt(), builder.emit(Add(), variance, epsilon))
    scale = builder.emit(Divide(), gamma, deviation)
    shift = builder.emit(Subtract(), beta, builder.emit(Multiply(), mean, scale))
    if trailing:
        axes = tuple(range(1, trailing + 1))
        scale = builder.emit(ExpandDims(axes), scale)
        shift = builder.emit(ExpandDims(axes), shift)
    return Call(Add(), (builder.emit(Multiply(), data, scale), shift))
