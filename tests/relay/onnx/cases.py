"""A few cases of every operator that is imported; each runs at every opset where it changed.

`Case(operator, inputs, constant, first, last, attributes)`: `constant` inputs are initializers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from single_node import NEWEST


@dataclass(frozen=True)
class Case:
    operator: str
    inputs: Sequence[Any]
    constant: Sequence[int] = ()
    first: int = 7
    last: int = NEWEST
    outputs: Sequence[str] = ("y",)
    attributes: dict[str, Any] = field(default_factory=dict)
    expected: Sequence[Any] | None = None

    def __str__(self) -> str:
        shown = ", ".join(f"{k}={v}" for k, v in self.attributes.items() if np.size(v) < 9)
        return f"{self.operator}({shown})"


def real(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def positive(*shape: int, seed: int = 2) -> np.ndarray:
    return np.abs(real(*shape, seed=seed)) + np.float32(0.1)


def whole(*shape: int, dtype: str = "int64", seed: int = 3) -> np.ndarray:
    low = 1 if dtype.startswith("u") else -5
    return np.random.default_rng(seed).integers(low, 6, shape).astype(dtype)


def bools(*shape: int, seed: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


SPECIAL = np.float32([np.nan, np.inf, -np.inf, -0.0, 0, 1.5, 2.5, -2.5, -0.5])
X = real(2, 3, 4)

UNARY = [
    Case(operator, [x])
    for operator, x in {
        "Abs": X, "Acos": X, "Asin": X, "Atan": X, "Ceil": SPECIAL, "Cos": X, "Cosh": X, "Erf": X,
        "Exp": X, "Floor": SPECIAL, "HardSwish": X * 4, "IsNaN": SPECIAL, "Log": X, "Mish": X,
        "Neg": SPECIAL, "Not": bools(3, 2), "Reciprocal": X, "Relu": X, "Round": SPECIAL,
        "Sigmoid": X, "Sign": SPECIAL, "Sin": X, "Sinh": X, "Softplus": X * 10, "Softsign": X,
        "Sqrt": X, "Tan": X, "Tanh": X, "Identity": X, "BitwiseNot": whole(4),
    }.items()
]

PARAMETRIC = [
    Case("Celu", [X]), Case("Celu", [X], attributes={"alpha": 2.0}),
    Case("Elu", [X]), Case("Elu", [X], attributes={"alpha": 0.5}),
    Case("Gelu", [X]), Case("Gelu", [X], attributes={"approximate": "tanh"}),
    Case("HardSigmoid", [X * 4]), Case("HardSigmoid", [X], attributes={"alpha": 0.3, "beta": 0.4}),
    Case("LeakyRelu", [X]), Case("LeakyRelu", [X], attributes={"alpha": 0.2}),
    Case("Selu", [X]), Case("Selu", [X], attributes={"alpha": 2.0, "gamma": 3.0}),
    Case("Swish", [X]), Case("Swish", [X], attributes={"alpha": 1.5}),
    Case("ThresholdedRelu", [X]), Case("ThresholdedRelu", [X], attributes={"alpha": 0.1}),
    Case("PRelu", [X, real(3, 1, seed=9)], [1]), Case("PRelu", [X, real(4)]),
    Case("IsInf", [SPECIAL]), Case("IsInf", [SPECIAL], attributes={"detect_negative": 0}),
    Case("IsInf", [SPECIAL], attributes={"detect_positive": 0}),
    Case("IsInf", [SPECIAL], attributes={"detect_negative": 0, "detect_positive": 0}),
    Case("Cast", [X * 3], attributes={"to": 7}), Case("Cast", [X], attributes={"to": 9}),
    Case("Cast", [whole(5)], attributes={"to": 1}), Case("Cast", [bools(5)], attributes={"to": 11}),
    Case("CastLike", [X * 3, whole(1)]), Case("CastLike", [X, X]),
    Case("Clip", [X], last=10, attributes={"min": -0.5, "max": 0.5}),
    Case("Clip", [X], last=10, attributes={"max": 0.5}), Case("Clip", [X], last=10),
    Case("Clip", [X, np.float32(-0.5), np.float32(0.5)], [1, 2], first=11),
    Case("Clip", [X, None, np.float32(0.5)], first=11), Case("Clip", [X], first=11),
    Case("Clip", [X, np.float32(-0.5)], first=11),
    Case("Clip", [whole(9), np.int64(-2), np.int64(3)], [1, 2], first=12),
]

BROADCAST = [
    *(Case(name, [X, real(3, 1, seed=7)]) for name in ("Add", "Sub", "Mul", "Div")),
    *(Case(name, [whole(3, 4), whole(4, seed=8) * 2 + 1]) for name in ("Add", "Sub", "Mul")),
    Case("Div", [whole(3, 4, dtype="int32"), np.int32([2, -2, 3, 5])],
         expected=[np.trunc(whole(3, 4) / [2, -2, 3, 5]).astype(np.int32)]),
    *(Case(name, [whole(3, 4), whole(4, seed=8)]) for name in ("Equal",)),
    *(Case(name, [X, real(3, 1, seed=7)], first=9)
      for name in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual")),
    *(Case(name, [X, real(3, 1, seed=7)], last=8) for name in ("Less", "Greater")),
    *(Case(name, [bools(3, 4), bools(4, seed=8)]) for name in ("And", "Or", "Xor")),
    *(Case(name, [whole(3, 4), whole(4, seed=8)])
      for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(Case(name, [X, real(3, 1, seed=7), real(1, 4, seed=8)], first=8)
      for name in ("Sum", "Max", "Min", "Mean")),
    *(Case(name, [X, X + 1], last=7) for name in ("Sum", "Max", "Min", "Mean")),
    *(Case(name, [X]) for name in ("Sum", "Max", "Min", "Mean")),
    Case("Max", [whole(4), whole(4, seed=5)], first=12),
    Case("Where", [bools(3, 1), X, real(4)]),
    Case("Mod", [whole(12), np.int64([3, -3, 2, -2] * 3)]),
    Case("Mod", [whole(12), np.int64([3, -3, 2, -2] * 3)], attributes={"fmod": 1}),
    Case("Mod", [X, real(3, 1, seed=7)], attributes={"fmod": 1}),
    Case("BitShift", [whole(6, dtype="uint8"), np.uint8([0, 1, 2, 3, 7, 1])],
         attributes={"direction": "LEFT"}),
    Case("BitShift", [whole(6, dtype="uint32") * 100, np.uint32([0, 1, 2, 3, 7, 1])],
         attributes={"direction": "RIGHT"}),
    Case("Pow", [positive(3, 4), real(4)]), Case("Pow", [X, np.float32(2)], [1]),
    Case("Pow", [X, np.int64(3)], [1], first=12),
    Case("Pow", [whole(6), np.int64(5)], [1], first=12),
    Case("Pow", [whole(6), np.float32(2)], [1], first=12),
    Case("Pow", [np.abs(whole(6)), np.abs(whole(6, seed=6))], first=12),
]

CONSTANTS = [
    Case("Constant", [], first=9, attributes={"value": real(2, 3)}),
    Case("Constant", [], last=8, attributes={"value": real(2, 3)}),
    Case("Constant", [], first=12, attributes={"value_float": 1.5}),
    Case("Constant", [], first=12, attributes={"value_floats": [1.5, 2.5]}),
    Case("Constant", [], first=12, attributes={"value_int": 3}),
    Case("Constant", [], first=12, attributes={"value_ints": [3, 4]}),
    Case("ConstantOfShape", [ints(2, 3)], [0]), Case("ConstantOfShape", [ints()], [0]),
    Case("ConstantOfShape", [ints(2)], [0], attributes={"value": ints(7)}),
    Case("Shape", [X]), Case("Shape", [X], first=15, attributes={"start": 1}),
    Case("Shape", [X], first=15, attributes={"start": -2, "end": -1}),
    Case("Size", [X]),
    Case("Range", [np.float32(1), np.float32(4), np.float32(0.5)], [0, 1, 2]),
    Case("Range", [np.int64(5), np.int64(-4), np.int64(-2)], [0, 1, 2]),
    Case("Range", [np.int64(5), np.int64(5), np.int64(1)], [0, 1, 2]),
    Case("EyeLike", [real(3, 4)]), Case("EyeLike", [real(3, 4)], attributes={"k": 1, "dtype": 7}),
]

SHAPES = [
    Case("Reshape", [X, ints(0, -1)], [1]), Case("Reshape", [X, ints(4, 1, 6)], [1]),
    Case("Reshape", [np.zeros((0, 3), np.float32), ints(3, 0)], [0, 1], first=14,
         attributes={"allowzero": 1}),
    *(Case("Flatten", [X], attributes={"axis": axis}) for axis in (0, 1, 2, 3)),
    Case("Flatten", [X]), Case("Flatten", [X], first=11, attributes={"axis": -1}),
    Case("Squeeze", [real(1, 3, 1)], last=12), Case("Squeeze", [real(1, 3, 1)], first=13),
    Case("Squeeze", [real(1, 3, 1)], last=12, attributes={"axes": [2]}),
    Case("Squeeze", [real(1, 3, 1), ints(-1)], [1], first=13),
    Case("Unsqueeze", [X], last=12, attributes={"axes": [0, 3]}),
    Case("Unsqueeze", [X, ints(-1, 0)], [1], first=13),
    Case("Transpose", [X]), Case("Transpose", [X], attributes={"perm": [1, 0, 2]}),
    Case("Expand", [real(3, 1), ints(2, 1, 4)], [1]), Case("Expand", [X, ints(1)], [1]),
    Case("Tile", [X, ints(1, 2, 3)], [1]),
    Case("Trilu", [X]), Case("Trilu", [X, np.int64(1)], [1], attributes={"upper": 0}),
    Case("DepthToSpace", [real(1, 8, 2, 3)], attributes={"blocksize": 2}),
    Case("DepthToSpace", [real(1, 8, 2, 3)], first=11, attributes={"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", [real(1, 2, 4, 6)], attributes={"blocksize": 2}),
    Case("SpaceToDepth", [real(1, 2, 4, 6)], first=28,
         attributes={"blocksize": 2, "mode": "CRD"}),
]

JOINING = [
    Case("Concat", [X, real(2, 1, 4, seed=5)], attributes={"axis": 1}),
    Case("Concat", [X, X], first=11, attributes={"axis": -1}),
    Case("Concat", [X], attributes={"axis": 0}),
    Case("Split", [X], last=12, outputs=("a", "b"), attributes={"axis": 2}),
    Case("Split", [X], last=12, outputs=("a", "b"), attributes={"axis": 1, "split": [1, 2]}),
    Case("Split", [X, ints(1, 2)], [1], first=13, outputs=("a", "b"), attributes={"axis": 1}),
    Case("Split", [X], first=13, last=17, outputs=("a", "b")),
    Case("Split", [X], first=18, outputs=("a", "b"), attributes={"axis": -2, "num_outputs": 2}),
    Case("Slice", [X], last=9, attributes={"starts": [1, -3], "ends": [3, 1000], "axes": [1, 2]}),
    Case("Slice", [X], last=9, attributes={"starts": [0, 1], "ends": [1, -1]}),
    Case("Slice", [X, ints(1), ints(3)], [1, 2], first=10),
    Case("Slice", [X, ints(-1), ints(-(2**63)), ints(2), ints(-2)], [1, 2, 3, 4], first=10),
    Case("Pad", [X], last=10, attributes={"pads": [0, 1, 2, 0, 1, 0], "value": 1.5}),
    Case("Pad", [X], last=10, attributes={"pads": [0, 1, 2, 0, 1, 0], "mode": "edge"}),
    Case("Pad", [X, ints(0, 1, 2, 0, 1, 0)], [1], first=11, attributes={"mode": "reflect"}),
    Case("Pad", [X, ints(0, 1, 2, 0, 1, 0), np.float32(2)], [1, 2], first=11),
    Case("Pad", [X, ints(1, 2), None, ints(-1)], [1, 3], first=18),
    Case("Gather", [X, ints(1, -1)], first=11, attributes={"axis": 2}),
    Case("Gather", [X, np.int64(1)], [1]), Case("Gather", [X, np.int32([[0], [1]])]),
    Case("GatherElements", [X, whole(2, 3, 2) % 4], attributes={"axis": 2}),
    Case("GatherElements", [real(3, 4), ints(-1, 0, 2, 1)[None]], attributes={"axis": 0}),
    Case("GatherND", [X, np.int64([[0, 1], [1, -1]])]),
    Case("GatherND", [X, np.int64([[[2, 1]], [[0, -1]]])], first=12, attributes={"batch_dims": 1}),
    Case("OneHot", [ints(0, 2, -1), np.int64(3), np.float32([0, 5])], [1, 2]),
    Case("OneHot", [whole(2, 2), np.int64(4), np.float32([1, 2])], [1], attributes={"axis": 0}),
]

_AXES = ((1,), (0, -1), None)
REDUCTIONS = [
    case
    for operator in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                     "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")
    for change in (13 if operator == "ReduceSum" else 18,)
    for axes in _AXES
    for case in (
        Case(operator, [positive(2, 3, 4)], last=change - 1, first=11 if axes == (0, -1) else 7,
             attributes={"keepdims": 0} | ({} if axes is None else {"axes": list(axes)})),
        Case(operator, [positive(2, 3, 4)] if axes is None else [positive(2, 3, 4), ints(*axes)],
             [1], first=change),
    )
] + [
    Case("ReduceMax", [bools(2, 3), ints(1)], [1], first=20),
    Case("ReduceMin", [bools(2, 3), ints(1)], [1], first=20),
    Case("ReduceSum", [X, ints()], [1], first=13, attributes={"noop_with_empty_axes": 1}),
    Case("ReduceSum", [whole(2, 3), ints(0)], [1], first=13),
    *(Case(name, [X], attributes=attributes)
      for name in ("ArgMax", "ArgMin") for attributes in ({}, {"axis": 2, "keepdims": 0})),
    *(Case(name, [whole(3, 8)], first=12, attributes={"axis": -1, "select_last_index": 1})
      for name in ("ArgMax", "ArgMin")),
]

PRODUCTS = [
    Case("Gemm", [real(3, 4), real(4, 5), real(5)], [1, 2]),
    Case("Gemm", [real(4, 3), real(5, 4), real(3, 1)], [1],
         attributes={"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", [real(3, 4), real(4, 5)], first=11, attributes={"alpha": 0.5}),
    Case("MatMul", [real(3, 4), real(4, 5)]), Case("MatMul", [real(2, 3, 4), real(4, 5)], [1]),
    Case("MatMul", [real(2, 1, 3, 4), real(5, 4, 2)]), Case("MatMul", [real(4), real(4, 5)], [1]),
    Case("MatMul", [real(3, 4), real(4)]),
]

IMAGE = real(1, 4, 5, 6)
WINDOWS = [
    Case("Conv", [IMAGE, real(6, 4, 3, 3), real(6)], [1, 2], attributes={"pads": [1, 0, 1, 2]}),
    Case("Conv", [IMAGE, real(4, 1, 3, 2)], [1], attributes={"group": 4, "strides": [2, 1]}),
    Case("Conv", [real(2, 3, 9), real(5, 3, 3), real(5)], [1, 2], attributes={"dilations": [2]}),
    Case("MaxPool", [IMAGE], attributes={"kernel_shape": [2, 3]}),
    Case("MaxPool", [real(1, 2, 7)], attributes={"kernel_shape": [3], "strides": [2]}),
    Case("MaxPool", [IMAGE], first=10,
         attributes={"kernel_shape": [2, 2], "dilations": [2, 1], "strides": [2, 2]}),
    Case("AveragePool", [IMAGE], attributes={"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}),
    Case("AveragePool", [IMAGE], attributes={
        "kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "count_include_pad": 1}),
    Case("AveragePool", [real(1, 2, 7)], attributes={"kernel_shape": [3], "strides": [2]}),
    Case("GlobalAveragePool", [IMAGE]), Case("GlobalAveragePool", [real(2, 3, 4)]),
    Case("GlobalMaxPool", [IMAGE]),
    Case("GlobalMaxPool", [real(2, 3, 2, 2, 2)],  # the reference reduces two axes only
         expected=[real(2, 3, 2, 2, 2).max((2, 3, 4), keepdims=True)]),
]

SCALES = np.float32([1, 1, 1.2, 2])
RESIZING = [
    Case("Upsample", [IMAGE], last=8, attributes={"scales": [1.0, 1.0, 2.0, 3.0]}, expected=[
        IMAGE.repeat(2, 2).repeat(3, 3)]),
    Case("Upsample", [IMAGE, np.float32([1, 1, 2, 3])], [1], first=9, last=9,
         expected=[IMAGE.repeat(2, 2).repeat(3, 3)]),
    Case("Resize", [IMAGE, np.float32([1, 1, 2, 3])], [1], first=10, last=10,
         expected=[IMAGE.repeat(2, 2).repeat(3, 3)]),
    *(Case("Resize", [IMAGE, real(0), SCALES], [1, 2], first=11, attributes={
        "mode": mode, "coordinate_transformation_mode": coordinates})
      for mode in ("linear", "cubic")
      for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")),
    *(Case("Resize", [IMAGE, None, None, ints(1, 4, 8, 3)], [3], first=13,
           attributes={"mode": "nearest", "nearest_mode": mode})
      for mode in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    Case("Resize", [whole(1, 1, 2, 3), None, np.float32([1, 1, 2, 2])], [2], first=13),
    Case("Resize", [IMAGE, None, None, ints(9, 4)], [3], first=18,
         attributes={"mode": "linear", "axes": [3, 2]}),
    *(Case("Resize", [IMAGE, None, None, ints(8, 9)], [3], first=18,
           attributes={"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": policy})
      for policy in ("not_larger", "not_smaller")),
    Case("Resize", [IMAGE, None, SCALES], [2], first=19, attributes={
        "mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}),
    Case("Resize", [IMAGE, None, SCALES], [2], first=13,
         attributes={"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}),
]

def transposed(x: np.ndarray, w: np.ndarray, strides: Sequence[int], pads: Sequence[int],
               sizes: Sequence[int], group: int = 1) -> np.ndarray:
    """By the definition: each pixel adds its multiple of the weights. The reference fails where
    there are groups or an output_shape."""
    (batch, channels, *image), (_, maps, *kernel) = x.shape, w.shape
    full = [s * (n - 1) + k + p for s, n, k, p in zip(strides, image, kernel, pads)]
    y = np.zeros((batch, maps * group, *full), np.float32)
    for c in range(channels):
        first = c // (channels // group) * maps
        for i, j in np.ndindex(*image):
            rows, columns = (slice(s * n, s * n + k) for s, n, k in zip(strides, (i, j), kernel))
            y[:, first : first + maps, rows, columns] += x[:, c, None, i, j, None, None] * w[c]
    return y[:, :, pads[0] : pads[0] + sizes[0], pads[1] : pads[1] + sizes[1]]


GROUPED, WIDE = real(4, 2, 2, 3), real(4, 2, 3, 3)
TRANSPOSED = [
    Case("ConvTranspose", [IMAGE, real(4, 3, 3, 3), real(3)], [1, 2]),
    Case("ConvTranspose", [IMAGE, real(4, 3, 3, 2)], [1], attributes={
        "strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}),
    Case("ConvTranspose", [IMAGE, GROUPED], attributes={"group": 2, "strides": [2, 2]},
         expected=[transposed(IMAGE, GROUPED, (2, 2), (0, 0), (10, 13), 2)]),
    Case("ConvTranspose", [IMAGE, real(4, 1, 3, 3)], [1],
         attributes={"dilations": [2, 1], "pads": [3, 3, 0, 2]}),
    Case("ConvTranspose", [real(2, 3, 5), real(3, 2, 3)], [1], attributes={"strides": [2]}),
    Case("ConvTranspose", [IMAGE, real(4, 2, 3, 3)], [1], attributes={
        "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    Case("ConvTranspose", [IMAGE, WIDE], [1],
         attributes={"strides": [3, 2], "output_shape": [14, 12]},
         expected=[transposed(IMAGE, WIDE, (3, 2), (1, 1), (14, 12))]),
]

SEQUENCE = real(3, 2, 5, seed=11)
"""Three steps of two in a batch of five numbers. The reference knows one direction alone;
`test_recurrent` has the others."""
RECURRENT = [
    Case("RNN", [SEQUENCE, real(1, 4, 5), real(1, 4, 4)], [1, 2], outputs=("y", "h"),
         attributes={"hidden_size": 4}),
    Case("GRU", [SEQUENCE, real(1, 12, 5), real(1, 12, 4), real(1, 24)], [1, 2, 3],
         outputs=("y", "h"), attributes={"hidden_size": 4, "linear_before_reset": 1}),
    Case("LSTM", [SEQUENCE, real(1, 16, 5), real(1, 16, 4), real(1, 32), None, real(1, 2, 4),
                  real(1, 2, 4), real(1, 12)], [1, 2, 3, 7], outputs=("y", "h"),
         attributes={"hidden_size": 4}),
]

PARAMETERS = [real(4, seed=5), real(4, seed=6), real(4, seed=7), positive(4)]


def batch_normalized(x: np.ndarray, epsilon: float) -> np.ndarray:
    """The reference takes statistics of the data before opset 14, as if in training."""
    scale, bias, mean, variance = (p.reshape(4, *(1,) * (x.ndim - 2)) for p in PARAMETERS)
    return (x - mean) / np.sqrt(variance + np.float32(epsilon)) * scale + bias


def response_normalized(
    x: np.ndarray, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> np.ndarray:
    """By the definition; the reference takes the batch for the channels."""
    result = np.empty_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]
        result[:, c] = x[:, c] / (bias + alpha / size * (near**2).sum(1)) ** beta
    return result


NORMALIZATION = [
    Case("BatchNormalization", [IMAGE, *PARAMETERS], [1, 2, 3, 4],
         expected=[batch_normalized(IMAGE, 1e-5)]),
    Case("BatchNormalization", [IMAGE, *PARAMETERS], first=14),
    Case("BatchNormalization", [real(3, 4), *PARAMETERS], attributes={"epsilon": 0.1},
         expected=[batch_normalized(real(3, 4), 0.1)]),
    Case("Dropout", [X]), Case("Dropout", [X], last=11, attributes={"ratio": 0.3}),
    Case("Dropout", [X, np.float32(0.3), np.bool_(False)], [1, 2], first=12, outputs=("y", "mask"),
         expected=[X, np.ones(X.shape, bool)]),
    *(Case(name, [X], first=13, attributes=attributes)
      for name in ("Softmax", "LogSoftmax") for attributes in ({}, {"axis": 1})),
    *(Case(name, [real(3, 4)], last=12) for name in ("Softmax", "LogSoftmax")),
    Case("LayerNormalization", [X, real(4), real(4, seed=5)], [1, 2]),
    Case("LayerNormalization", [X, real(3, 4)], attributes={"axis": 1, "epsilon": 0.1}),
    Case("RMSNormalization", [X, real(4)]),
    Case("RMSNormalization", [X, real(3, 4)], attributes={"axis": -2}),
    Case("InstanceNormalization", [IMAGE, real(4), real(4, seed=5)], [1, 2]),
    Case("GroupNormalization", [IMAGE, real(4), real(4, seed=5)], [1, 2], first=21,
         attributes={"num_groups": 2}),
    Case("MeanVarianceNormalization", [IMAGE]),
    Case("MeanVarianceNormalization", [X], attributes={"axes": [0, 1]}),
    Case("LRN", [IMAGE], attributes={"size": 3, "alpha": 0.2, "beta": 0.6, "bias": 1.5},
         expected=[response_normalized(IMAGE, 3, 0.2, 0.6, 1.5)]),
    Case("LRN", [IMAGE], attributes={"size": 2}, expected=[response_normalized(IMAGE, 2)]),
]


HEADS = [real(2, 4, 5, 8), real(2, 2, 7, 8, seed=4), real(2, 2, 7, 6, seed=5)]
FLAT = [real(2, 5, 24), real(2, 7, 24, seed=4), real(2, 7, 18, seed=5)]
ATTENTION = [
    Case("Attention", HEADS, first=23),
    Case("Attention", [*HEADS, real(2, 1, 5, 7, seed=6)], first=23, attributes={"scale": 0.2}),
    Case("Attention", [*HEADS, real(5, 7, seed=6) > 0.5], first=23),
    Case("Attention", FLAT, first=23, attributes={"q_num_heads": 3, "kv_num_heads": 3}),
    Case("Attention", FLAT, first=23,
         attributes={"q_num_heads": 3, "kv_num_heads": 3, "is_causal": 1}),
    Case("Attention", [*HEADS, None, real(2, 2, 3, 8), real(2, 2, 3, 6)], first=23,
         outputs=("y", "keys", "values"), attributes={"is_causal": 1}),
    Case("Attention", [*HEADS, np.zeros((5, 7), bool)], first=24),
]
ANGLES = [real(2, 5, 4), real(2, 5, 4, seed=4)]
TABLES = [real(9, 3), real(9, 3, seed=4)]
ROTARY = [
    Case("RotaryEmbedding", [real(2, 3, 5, 8), *ANGLES]),
    Case("RotaryEmbedding", [real(2, 3, 5, 8), *ANGLES], attributes={"interleaved": 1}),
    Case("RotaryEmbedding", [real(2, 5, 24), *ANGLES], attributes={"num_heads": 3}),
    Case("RotaryEmbedding", [real(2, 3, 5, 8), *TABLES, whole(2, 5) % 9],
         attributes={"rotary_embedding_dim": 6}),
]
CUMULATIVE = [
    Case("CumSum", [X, np.array(1)], [1]),
    Case("CumSum", [X, np.array(-1, np.int32)], [1], attributes={"exclusive": 1}),
    Case("CumSum", [whole(3, 4), np.array(0)], [1], attributes={"reverse": 1}),
    Case("CumSum", [X, np.array(2)], [1], attributes={"exclusive": 1, "reverse": 1}),
]
EINSUM = [
    Case("Einsum", inputs, first=12, attributes={"equation": equation})
    for equation, inputs in (
        ("bhid,bhjd->bhij", [real(2, 3, 4, 5), real(2, 3, 6, 5)]),
        ("bhij,bhjd->bihd", [real(2, 3, 4, 6), real(2, 3, 6, 5)]),
        ("bsd,dhe->bshe", [real(2, 4, 6), real(6, 3, 5)]),
        ("bshe,hed->bsd", [real(2, 4, 3, 5), real(3, 5, 6)]),
        ("ij->ji", [real(3, 4)]), ("ij->", [real(3, 4)]), ("ij->i", [real(3, 4)]),
        ("i,j->ij", [real(3), real(4)]), ("i,i->", [real(3), real(3)]),
        ("ij,jk", [real(3, 4), real(4, 5)]), ("ij,ij->ij", [real(3, 4), real(3, 4)]),
        ("ij,jk,kl->il", [real(3, 4), real(4, 5), real(5, 2)]),
        ("ijk,j->k", [real(3, 4, 5), real(4)]), ("ab,cd->ac", [real(2, 3), real(4, 5)]),
    )
]

CASES = [*UNARY, *PARAMETRIC, *BROADCAST, *CONSTANTS, *SHAPES, *JOINING, *REDUCTIONS, *CUMULATIVE,
         *PRODUCTS, *WINDOWS, *RESIZING, *TRANSPOSED, *RECURRENT, *NORMALIZATION, *ATTENTION,
         *ROTARY, *EINSUM]
