"""Relay -> relay in which operators that differ between training and inference are simple ones."""

from __future__ import annotations

import numpy as np

from minitvm.origin import merge
from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Atom, Binding, Call, Constant, Module, Value, tensor_type
from minitvm.relay.ops.broadcast import Add, Multiply
from minitvm.relay.ops.nn.normalization import BatchNorm, Dropout, along
from minitvm.remarks import remark
from minitvm.transform import make_pass

NAME = "SimplifyInference"


@make_pass(NAME)
def simplify_inference(module: Module) -> Module:
    """Makes of a batch normalisation with constant statistics a multiplication and an addition for
    each channel, and of a dropout nothing.

    The factors are computed in double precision and rounded once; results differ from the
    definition by rounding, for data whose product with its factor the dtype can hold. Where a
    factor is infinite, NaN or too small for the dtype, although the definition may still give a
    number, the batch normalisation stays as it is, and so it does where statistics are no
    constants and this can't be known; a remark says so.

    Before:

        def main(x: Tensor((1, 2), "float32")) -> Tensor((1, 2), "float32"):
            v0 = nn.dropout(x, rate=0.1)  #: "drop"
            v1 = nn.batch_norm(v0, const([6.0, 4.0], (2,), "float32"), const([1.0, 0.0], (2,), "float32"), const([1.0, 0.0], (2,), "float32"), const([9.0, 4.0], (2,), "float32"), epsilon=0.0)  #: "norm"
            return v1

    After:

        def main(x: Tensor((1, 2), "float32")) -> Tensor((1, 2), "float32"):
            v0 = multiply(x, const([2.0, 2.0], (2,), "float32"))  #: "norm"
            v1 = add(v0, const([-1.0, 0.0], (2,), "float32"))  #: "norm"
            return v1
    """  # noqa: E501
    return rebuild_module(module, _simplify)


def _simplify(builder: BlockBuilder, binding: Binding) -> Value | None:
    match binding.value:
        case Call(Dropout(), (data,)):
            return data
        case Call(BatchNorm() as norm, (data, *statistics)):
            return _simpler_norm(builder, norm, data, statistics)
        case _:
            return None


def _simpler_norm(
    builder: BlockBuilder, norm: BatchNorm, data: Atom, statistics: list[Atom]
) -> Value | None:
    """`data * scale + shift`; None, with a remark, where that may not give the same."""
    constants = [item for item in statistics if isinstance(item, Constant)]
    if len(constants) < len(statistics):
        remark(NAME, "the statistics of nn.batch_norm are no constants", builder.origin)
        return None
    factors = scale_and_shift(norm, *(constant.data for constant in constants))
    if isinstance(factors, str):
        remark(NAME, factors, builder.origin)
        return None
    rank = tensor_type(data).rank
    axis = norm.axis % rank
    source = merge(builder.origin, *(constant.origin for constant in constants))
    scale, shift = (
        Constant(along(factor, 0, rank - axis), source) for factor in factors
    )
    return Call(Add(), (builder.emit(Multiply(), data, scale), shift))


def scale_and_shift(
    norm: BatchNorm, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | str:
    """scale = gamma / deviation and shift = beta - mean * scale, in the dtype of the statistics;
    else the reason why data * scale + shift would not do for a batch normalisation."""
    dtype = gamma.dtype
    with np.errstate(all="ignore"):
        epsilon = np.float64(dtype.type(norm.epsilon))
        exact = gamma.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
        scale = exact.astype(dtype)
        shift = (beta.astype(np.float64) - mean.astype(np.float64) * exact).astype(dtype)
    if not np.all(np.isfinite(scale) & np.isfinite(shift)):
        return "a factor of nn.batch_norm is not finite as one multiplication and one addition"
    if np.any((np.abs(scale) < np.finfo(dtype).tiny) & (gamma != 0)):
        return f"a factor of nn.batch_norm is too small for a {dtype.name}"
    return scale, shift
