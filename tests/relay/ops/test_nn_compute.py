"""What the operators compute in te, lowered without a schedule and interpreted, is `evaluate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from test_nn_conv2d import convolutions
from test_nn_pooling import pools

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm import te
from minitvm.relay.layout import pack, parse_layout
from minitvm.relay.op import Op
from minitvm.relay.ops.layout_transform import LayoutTransform
from minitvm.relay.ops.nn import (
    AvgPool2d,
    BatchMatmul,
    BatchNorm,
    BiasAdd,
    Conv2d,
    Dense,
    Dropout,
    GlobalAvgPool2d,
    GlobalMaxPool2d,
    LeakyRelu,
    LogSoftmax,
    Matmul,
    MaxPool2d,
    Pad,
    PRelu,
    Relu,
    Softmax,
)
from minitvm.te.lower import lower
from minitvm.te.schedule import create_schedule
from minitvm.tir.interpret import run


def computed(op: Op, *arrays: np.ndarray) -> np.ndarray:
    """The operator's te computation, run by the tir interpreter."""
    inputs = [
        te.placeholder(array.shape, array.dtype.name, name=f"p{position}")
        for position, array in enumerate(arrays)
    ]
    output = op.compute(*inputs)
    assert isinstance(output, te.Tensor)
    func = lower(create_schedule(output), [*inputs, output])
    result = np.full(output.extents(), 77, output.dtype)
    run(func, [*arrays, result])
    return result


def check(op: Op, *arrays: np.ndarray, rtol: float = 0, atol: float = 0) -> None:
    wanted = op.evaluate(*arrays)
    got = computed(op, *arrays)
    assert isinstance(wanted, np.ndarray) and got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)


def small(*shape: int) -> np.ndarray:
    """Integers held as floats."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype("float32")


def packed(text: str, *shape: int) -> np.ndarray:
    return pack(small(*shape), parse_layout(text))


@given(convolutions())
@settings(max_examples=15)
def test_plain_convolutions(case: tuple[Conv2d, np.ndarray, np.ndarray]) -> None:
    op, data, weight = case
    check(op, data[:1], weight)


def form(data: str, kernel: str, groups: int = 1, **attributes: Any) -> Conv2d:
    return Conv2d(data_layout=data, kernel_layout=kernel, groups=groups, **attributes)


PACKED_CONVOLUTIONS = {
    "spatial": (
        form("NCHW4c", "OIHW4i4o", strides=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2)),
        ("NCHW4c", (1, 6, 5, 6)), ("OIHW4i4o", (7, 6, 3, 2)),
    ),
    "pointwise": (form("NCHW4c", "OIHW4i4o"), ("NCHW4c", (2, 6, 3, 5)), ("OIHW4i4o", (7, 6, 1, 1))),
    "pointwise, strided": (
        form("NCHW4c", "OIHW4i4o", strides=(2, 2)),
        ("NCHW4c", (1, 6, 3, 5)), ("OIHW4i4o", (7, 6, 1, 1)),
    ),
    "two blocks": (
        form("NCHW4c", "OIHW4i2o", padding=1), ("NCHW4c", (1, 6, 3, 3)), ("OIHW4i2o", (3, 6, 3, 3)),
    ),
    "true channels": (
        form("NCHW4c", "OIHW4i4o", channels=7, padding=1),
        ("NCHW4c", (1, 6, 3, 3)), ("OIHW4i4o", (8, 6, 3, 3)),
    ),
    "pointwise, true channels": (
        form("NCHW4c", "OIHW4i4o", channels=5), ("NCHW4c", (1, 6, 2, 3)),
        ("OIHW4i4o", (8, 6, 1, 1)),
    ),
    "depthwise, true channels": (
        form("NCHW4c", "OIHW1i4o", 8, channels=6), ("NCHW4c", (1, 8, 3, 3)),
        ("OIHW1i4o", (8, 1, 2, 2)),
    ),
    "groups": (
        form("NCHW2c", "OIHW2i2o", 2, padding=1),
        ("NCHW2c", (1, 8, 3, 3)), ("OIHW2i2o", (4, 4, 3, 3)),
    ),
    "pointwise groups": (
        form("NCHW2c", "OIHW2i2o", 2), ("NCHW2c", (1, 8, 3, 3)), ("OIHW2i2o", (4, 4, 1, 1)),
    ),
    "depthwise": (
        form("NCHW4c", "OIHW1i4o", 8, strides=(2, 2), padding=(1, 1, 1, 1)),
        ("NCHW4c", (1, 6, 5, 4)), ("OIHW1i4o", (6, 1, 3, 3)),
    ),
    "first": (
        form("NCHW", "OIHW3i4o", strides=(2, 2), padding=(1, 1, 1, 1)),
        ("NCHW", (1, 3, 6, 5)), ("OIHW3i4o", (6, 3, 3, 3)),
    ),
    "first, one channel": (
        form("NCHW", "OIHW1i4o", padding=1), ("NCHW", (1, 1, 4, 4)), ("OIHW1i4o", (6, 1, 3, 3)),
    ),
}


@pytest.mark.parametrize("case", PACKED_CONVOLUTIONS.values(), ids=PACKED_CONVOLUTIONS)
def test_packed_convolutions(case: Any) -> None:
    op, (data_layout, data), (kernel_layout, weight) = case
    check(op, packed(data_layout, *data), packed(kernel_layout, *weight))


def test_a_convolution_of_one_tap_is_flattened() -> None:
    data = te.placeholder((1, 2, 3, 5, 4))
    weight = te.placeholder((2, 2, 1, 1, 4, 4))
    rows = form("NCHW4c", "OIHW4i4o").compute(data, weight).op
    assert isinstance(rows, te.Compute) and rows.tag == "conv2d_nchwc_unflatten"
    flat = rows.inputs[0].op
    assert isinstance(flat, te.Compute) and flat.tag == "conv2d_nchwc_pointwise"
    assert flat.attrs["kernel"] == (1, 1)
    assert [axis.name for axis in flat.reduce_axis] == ["co", "ky", "kx", "ci"]
    assert rows.inputs[0].extents() == (1, 2, 15, 4)


def test_padding_is_a_stage_of_its_own_and_only_where_needed() -> None:
    data, weight = te.placeholder((1, 2, 5, 5)), te.placeholder((2, 2, 3, 3))

    def tags(op: Conv2d) -> list[str]:
        stages = (tensor.op for tensor in op.compute(data, weight).op.inputs)
        return [stage.tag for stage in stages if isinstance(stage, te.Compute)]

    assert tags(Conv2d(padding=1)) == ["pad"]
    assert tags(Conv2d()) == []
    # The window never reaches the last row and column, which are padding.
    assert tags(Conv2d(padding=(0, 0, 1, 1), strides=2)) == []


@given(pools())
@settings(max_examples=25)
def test_pools(case: tuple[Any, np.ndarray]) -> None:
    op, data = case
    check(op, data[:1, :2], rtol=1e-6)


@pytest.mark.parametrize(
    "op",
    [
        MaxPool2d((3, 2), (2, 1), (1, 0, 1, 1), layout="NCHW4c"),
        AvgPool2d((3, 2), (2, 2), (1, 0, 1, 1), ceil_mode=True, layout="NCHW4c"),
        AvgPool2d((2, 2), (1, 1), (1, 1, 1, 1), count_include_pad=True, layout="NCHW4c"),
        GlobalAvgPool2d("NCHW4c"),
        GlobalMaxPool2d("NCHW4c"),
    ],
    ids=lambda op: op.name,
)
def test_packed_pools(op: Op) -> None:
    check(op, packed("NCHW4c", 1, 6, 5, 4), rtol=1e-6)


LAYERS: list[tuple[Op, list[np.ndarray]]] = [
    (Dense(), [small(2, 5), small(7, 5)]),
    (Dense("NK4n", 7), [small(2, 5), packed("NK4n", 7, 5)]),
    (Dense("NK4n"), [small(2, 5), packed("NK4n", 8, 5)]),
    (BatchMatmul(), [small(2, 3, 4), small(2, 5, 4)]),
    (BatchMatmul(True, False), [small(1, 4, 3), small(2, 4, 5)]),
    (BatchMatmul(False, False), [small(2, 3, 4), small(1, 4, 5)]),
    (Matmul(), [small(3, 4), small(4, 5)]),
    (Matmul(), [small(4), small(4)]),
    (Matmul(), [small(4), small(2, 4, 5)]),
    (Matmul(), [small(2, 3, 4), small(4)]),
    (Matmul(), [small(2, 1, 3, 4), small(3, 4, 2)]),
    (BiasAdd(axis=1), [small(2, 3, 2), small(3)]),
    (BiasAdd(axis=-1), [small(2, 3), small(3)]),
    (Relu(), [small(3, 4)]),
    (Relu(), [small(3, 4).astype("int32")]),
    (LeakyRelu(alpha=0.5), [small(3, 4)]),
    (PRelu(), [small(2, 3, 2), small(3, 1)]),
    (Dropout(), [small(3, 4)]),
    (Pad(((1, 2), (0, 3)), 1.5), [small(3, 4)]),
    (Pad(((-1, 2), (1, -2))), [small(3, 4)]),
    (Pad(((0, 0), (-4, 1))), [small(3, 4)]),
    (Pad(((2, 1), (3, 0)), pad_mode="reflect"), [small(3, 4)]),
    (Pad(((5, 1), (0, 7)), pad_mode="reflect"), [small(3, 4)]),
    (Pad(((2, 1), (-1, 2)), pad_mode="edge"), [small(3, 4)]),
    (Pad(((2, 1),), 3.0), [np.arange(3, dtype="int32")]),
    (Pad(((2, 1),), 1.0), [np.array([True, False])]),
    (LayoutTransform("NCHW", "NCHW4c"), [small(1, 6, 2, 3)]),
    (LayoutTransform("NCHW", "NCHW1c"), [small(1, 6, 2, 3)]),
    (LayoutTransform("NCHW4c", "NCHW"), [packed("NCHW4c", 1, 8, 2, 3)]),
    (LayoutTransform("NCHW4c", "NCHW", (1, 6, 2, 3)), [packed("NCHW4c", 1, 6, 2, 3)]),
    (LayoutTransform("NCHW4c", "NCHW8c", (1, 6, 2, 3)), [packed("NCHW4c", 1, 6, 2, 3)]),
    (LayoutTransform("NHWC", "NCHW4c"), [small(1, 2, 3, 6)]),
    (LayoutTransform("OIHW", "OIHW2i4o"), [small(6, 3, 2, 1)]),
    (LayoutTransform("OIHW", "OIHW1i4o"), [small(6, 1, 2, 2)]),
]


@pytest.mark.parametrize(("op", "arrays"), LAYERS, ids=[op.name for op, _ in LAYERS])
def test_layers(op: Op, arrays: list[np.ndarray]) -> None:
    check(op, *arrays)


def test_batch_norm_and_softmax() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 3, 4)).astype("float32")
    vectors = [random.uniform(0.5, 2, 3).astype("float32") for _ in range(4)]
    check(BatchNorm(epsilon=1e-3), x, *vectors, rtol=1e-6, atol=1e-6)
    for axis in (0, 1, -1):
        check(Softmax(axis=axis), x, rtol=1e-6)
        check(LogSoftmax(axis=axis), x, rtol=1e-6, atol=1e-6)


def test_special_values_pass_as_in_numpy() -> None:
    special = np.array([[-np.inf, -1, -0.0, 0, np.nan, np.inf, 1e-42, 2]], "float32")
    for op in (Relu(), LeakyRelu(), Softmax()):
        check(op, special, rtol=1e-6)
    image = special.reshape(1, 1, 2, 4)
    check(MaxPool2d((2, 2), padding=(1, 1, 1, 1)), image)
    weight = np.array([[[[np.inf, 1], [0, np.nan]]]], "float32")
    check(Conv2d(padding=1), np.ones((1, 1, 3, 3), "float32"), weight)
