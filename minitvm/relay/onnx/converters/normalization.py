"""ONNX normalisations: BatchNormalization, Softmax, LayerNormalization, LRN and others; Dropout."""

from __future__ import annotations

import math

import numpy as np

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import Conversion, Unsupported
from minitvm.relay.onnx.converters.joining import axis_of
from minitvm.relay.onnx.converters.shapes import reshape_to
from minitvm.relay.onnx.table import converter
from minitvm.relay.op import Op
from minitvm.relay.ops.broadcast import Add, Divide, Multiply, Subtract
from minitvm.relay.ops.elementwise import Cast, Sqrt
from minitvm.relay.ops.nn.layer_norm import Standardize
from minitvm.relay.ops.nn.lrn import Lrn
from minitvm.relay.ops.nn.normalization import BatchNorm
from minitvm.relay.ops.nn.softmax import LogSoftmax, Softmax
from minitvm.relay.ops.reduce_composite import Mean

FOR_TRAINING = "export the model for inference"


@converter("Dropout", 7)
def dropout(c: Conversion) -> Atom | tuple[Atom, ...]:
    """Nothing is dropped in inference. The mask, if asked for, is all true."""
    c.ignore("ratio", "seed")
    x = c.input(0)
    if c.opset >= 12 and c.optional(2) is not None and c.constant(2, "training_mode").any():
        raise Unsupported("training_mode is true", FOR_TRAINING)
    if not c.wants(1):
        return x
    dtype = "bool" if c.opset >= 10 else c.type(x).dtype
    return x, c.make(np.ones(c.shape(x)), dtype)


@converter("BatchNormalization", 7)
def batch_normalization(c: Conversion) -> Atom:
    """Statistics are given; each channel is scaled and shifted."""
    c.ignore("momentum")
    c.require_one_output(FOR_TRAINING)
    if c.opset < 9 and not c.flag("spatial", True):
        raise Unsupported("spatial is 0", "statistics for each channel are supported, spatial 1")
    if c.opset >= 14 and c.flag("training_mode"):
        raise Unsupported("training_mode is 1", FOR_TRAINING)
    x = c.input(0)
    parameters = [_as_dtype(c, c.input(k), c.type(x).dtype) for k in range(1, 5)]
    return c.emit(BatchNorm(axis=1, epsilon=c.number("epsilon", 1e-5)), x, *parameters)


def _as_dtype(c: Conversion, x: Atom, dtype: str) -> Atom:
    return x if c.type(x).dtype == dtype else c.emit(Cast(dtype), x)


# --- softmax ------------------------------------------------------------------------------------


def _along(c: Conversion, axis: int) -> Op:
    return Softmax(axis) if c.node.operator == "Softmax" else LogSoftmax(axis)


@converter("LogSoftmax", 1)
@converter("Softmax", 1)
def softmax_of_matrix(c: Conversion) -> Atom:
    """Over all axes from `axis` on together."""
    x = c.input(0)
    extents = c.shape(x)
    axis = axis_of(c, c.integer("axis", 1), len(extents))
    if axis == len(extents) - 1:
        return c.emit(_along(c, axis), x)
    matrix = reshape_to(c, x, (math.prod(extents[:axis]), math.prod(extents[axis:])))
    return reshape_to(c, c.emit(_along(c, 1), matrix), extents)


@converter("LogSoftmax", 13)
@converter("Softmax", 13)
def softmax(c: Conversion) -> Atom:
    """Along one axis."""
    x = c.input(0)
    return c.emit(_along(c, axis_of(c, c.integer("axis", -1), c.type(x).rank)), x)


# --- by statistics of the data ------------------------------------------------------------------


def _standardized(c: Conversion, x: Atom, axes: tuple[int, ...], epsilon: float) -> Atom:
    """(x - mean) / sqrt(variance + epsilon), statistics taken over these axes."""
    rank = c.type(x).rank
    if sorted(axis % rank for axis in axes) == [*range(rank - len(axes), rank)]:
        return c.emit(Standardize(len(axes), epsilon), x)
    distance = c.emit(Subtract(), x, c.emit(Mean(axes, keepdims=True), x))
    square = c.emit(Mean(axes, keepdims=True), c.emit(Multiply(), distance, distance))
    variance = c.emit(Add(), square, c.make(epsilon, c.type(x).dtype))
    return c.emit(Divide(), distance, c.emit(Sqrt(), variance))


def _stashed(c: Conversion, x: Atom) -> Atom:
    """The data in the dtype that statistics are computed in: at least float32."""
    if c.integer("stash_type", 1) != 1:
        raise Unsupported("stash_type is not 1", "statistics in float32 are supported")
    return _as_dtype(c, x, "float32") if c.type(x).dtype == "float16" else x


def _axes_from(c: Conversion, x: Atom) -> tuple[int, ...]:
    rank = c.type(x).rank
    return tuple(range(axis_of(c, c.integer("axis", -1), rank), rank))


@converter("LayerNormalization", 17)
def layer_normalization(c: Conversion) -> Atom:
    """Over all axes from `axis` on together; then scaled and shifted."""
    c.require_one_output("the mean and deviation are not given out")
    x, scale, bias = c.input(0), c.input(1), c.optional(2)
    data = _stashed(c, x)
    normal = _standardized(c, data, _axes_from(c, x), c.number("epsilon", 1e-5))
    result = c.emit(Multiply(), _as_dtype(c, normal, c.type(x).dtype), scale)
    return result if bias is None else c.emit(Add(), result, bias)


@converter("RMSNormalization", 23)
def rms_normalization(c: Conversion) -> Atom:
    """Divided by the root of the mean square over all axes from `axis` on; then scaled."""
    x, scale = c.input(0), c.input(1)
    data = _stashed(c, x)
    op = Standardize(len(_axes_from(c, x)), c.number("epsilon", 1e-5), centered=False)
    normal = c.emit(op, data)
    return c.emit(Multiply(), _as_dtype(c, normal, c.type(scale).dtype), scale)


@converter("InstanceNormalization", 6)
def instance_normalization(c: Conversion) -> Atom:
    """Over the spatial axes of each channel; then scaled and shifted."""
    x = c.input(0)
    extents = c.shape(x)
    if len(extents) < 3:
        raise ModelError(f"{c.node} takes data with spatial axes, not {c.type(x)}")
    normal = _standardized(c, x, tuple(range(2, len(extents))), c.number("epsilon", 1e-5))
    scale, bias = (
        reshape_to(c, c.input(k), (extents[1],) + (1,) * (len(extents) - 2)) for k in (1, 2)
    )
    return c.emit(Add(), c.emit(Multiply(), normal, scale), bias)


@converter("GroupNormalization", 21)
def group_normalization(c: Conversion) -> Atom:
    """Over all channels and positions of each group; then each channel is scaled and shifted."""
    x = c.input(0)
    batch, channels, *spatial = c.shape(x)
    groups = c.required_integer("num_groups")
    if groups < 1 or channels % groups:
        raise ModelError(f"{c.node}: {channels} channels do not make up {groups} groups")
    rows = reshape_to(c, _stashed(c, x), (batch, groups, channels // groups * math.prod(spatial)))
    normal = _standardized(c, rows, (2,), c.number("epsilon", 1e-5))
    shaped = reshape_to(c, _as_dtype(c, normal, c.type(x).dtype), c.shape(x))
    scale, bias = (reshape_to(c, c.input(k), (channels,) + (1,) * len(spatial)) for k in (1, 2))
    return c.emit(Add(), c.emit(Multiply(), shaped, scale), bias)


@converter("MeanVarianceNormalization", 9)
def mean_variance_normalization(c: Conversion) -> Atom:
    """Over the given axes."""
    axes = c.integers("axes")
    return _standardized(c, c.input(0), (0, 2, 3) if axes is None else axes, epsilon=1e-9)


@converter("LRN", 1)
def local_response_normalization(c: Conversion) -> Atom:
    """x / (bias + alpha * m) ** beta, m the mean square of `size` neighbouring channels, of which
    those that don't exist count as zero."""
    x = c.input(0)
    given = c.type(x)
    size = c.required_integer("size")
    if given.rank < 3 or size < 1:
        raise ModelError(f"{c.node} takes data with channels and a size of at least 1")
    batch, channels, *spatial = c.shape(x)
    op = Lrn(size, c.number("bias", 1.0), c.number("alpha", 1e-4), c.number("beta", 0.75))
    if len(spatial) == 2:
        return c.emit(op, x)
    plane = reshape_to(c, x, (batch, channels, math.prod(spatial), 1))
    return reshape_to(c, c.emit(op, plane), c.shape(x))
