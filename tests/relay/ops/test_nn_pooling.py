"""Pooling: against the ONNX reference, against plain loops, and packed against plain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from test_nn_conv2d import integers, onnx_reference

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.errors import TypeInferenceError
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType
from minitvm.relay.layout import pack, parse_layout, unpack
from minitvm.relay.ops.nn import AvgPool2d, GlobalAvgPool2d, GlobalMaxPool2d, MaxPool2d

Pool = MaxPool2d | AvgPool2d


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, np.ndarray]:
    pool_size = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    attributes: dict[str, Any] = {
        "pool_size": pool_size,
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "padding": tuple(draw(st.integers(0, size - 1)) for size in pool_size * 2),
        "dilation": draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)])),
        "ceil_mode": draw(st.booleans()),
    }
    op: Pool = MaxPool2d(**attributes)
    if draw(st.booleans()):
        op = AvgPool2d(**attributes, count_include_pad=draw(st.booleans()))
    height, width = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    assume(height + op.padding[0] + op.padding[2] >= op.window.span[0])
    assume(width + op.padding[1] + op.padding[3] >= op.window.span[1])
    return op, integers(draw, draw(st.integers(1, 2)), draw(st.integers(1, 5)), height, width)


def window_values(
    op: Pool, image: np.ndarray, row: int, column: int
) -> tuple[list[float], int]:
    """The elements of the image that a window sees, and how many taps are in the padded image."""
    height, width = image.shape
    top, left, bottom, right = op.padding
    seen, in_padded = [], 0
    for i in range(op.pool_size[0]):
        for j in range(op.pool_size[1]):
            y = row * op.strides[0] + i * op.dilation[0] - top
            x = column * op.strides[1] + j * op.dilation[1] - left
            in_padded += y < height + bottom and x < width + right
            if 0 <= y < height and 0 <= x < width:
                seen.append(float(image[y, x]))
    return seen, in_padded


def by_loops(op: Pool, data: np.ndarray) -> np.ndarray:
    """Pooling, one window at a time, in float64."""
    rows, columns = op.window.positions(*data.shape[2:])
    result = np.empty((*data.shape[:2], rows, columns))
    for n, c, row, column in np.ndindex(result.shape):
        seen, in_padded = window_values(op, data[n, c], row, column)
        if isinstance(op, MaxPool2d):
            result[n, c, row, column] = max(seen, default=-np.inf)
        else:
            count = in_padded if op.count_include_pad else len(seen)
            result[n, c, row, column] = sum(seen) / count if count else np.nan
    return result


@given(pools())
def test_evaluate_is_a_loop_over_windows(case: tuple[Pool, np.ndarray]) -> None:
    op, data = case
    got = op.evaluate(data)
    np.testing.assert_array_equal(got, by_loops(op, data).astype("float32"))
    found = operator_type(op, (TensorType(data.shape, "float32"),))
    assert found == TensorType(got.shape, "float32")


@given(pools())
def test_evaluate_is_the_onnx_reference(case: tuple[Pool, np.ndarray]) -> None:
    op, data = case
    assume(not op.ceil_mode)  # there the reference counts what lies beyond the padding
    assume(op.padding[:2] == op.padding[2:])  # others it gives a wrong shape
    attributes: dict[str, Any] = {
        "kernel_shape": op.pool_size, "strides": op.strides, "pads": op.padding,
        "dilations": op.dilation,
    }
    if isinstance(op, AvgPool2d):
        assume(op.dilation == (1, 1) or not any(op.padding))
        attributes["count_include_pad"] = int(op.count_include_pad)
        wanted = onnx_reference("AveragePool", [data], opset=19, **attributes)
    else:
        assume(not any(op.padding))  # there the reference reads out of bounds
        wanted = onnx_reference("MaxPool", [data], opset=19, **attributes)
    np.testing.assert_allclose(op.evaluate(data), wanted, rtol=1e-6)


@given(pools(), st.sampled_from([4, 8, 16]))
def test_packed_is_plain(case: tuple[Pool, np.ndarray], lanes: int) -> None:
    op, data = case
    check_packed(op, data, lanes)


@pytest.mark.parametrize("op", [GlobalAvgPool2d(), GlobalMaxPool2d()])
@pytest.mark.parametrize("channels", [3, 24, 58])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_global_pooling(op: Any, channels: int, lanes: int) -> None:
    data = np.random.default_rng(lanes).integers(-9, 9, (2, channels, 3, 5)).astype("float32")
    name = "GlobalAveragePool" if isinstance(op, GlobalAvgPool2d) else "GlobalMaxPool"
    np.testing.assert_allclose(op.evaluate(data), onnx_reference(name, [data]), rtol=1e-6)
    check_packed(op, data, lanes)


def check_packed(op: Any, data: np.ndarray, lanes: int) -> None:
    layout = parse_layout(f"NCHW{lanes}c")
    given_type = TensorType(data.shape, "float32")
    choice = op.follow_layout((given_type,), (str(layout),))
    assert choice is not None and choice.result == choice.arguments[0] == str(layout)
    packed = pack(data, layout)
    result = choice.op.evaluate(packed)
    found = operator_type(choice.op, (TensorType(packed.shape, "float32"),))
    assert found == TensorType(result.shape, "float32")
    shape = (*data.shape[:2], None, None)
    np.testing.assert_array_equal(unpack(result, layout, shape), op.evaluate(data))


def test_a_plain_or_foreign_argument_is_not_followed() -> None:
    types = (TensorType((1, 8, 4, 4), "float32"),)
    assert GlobalMaxPool2d().follow_layout(types, (None,)) is None
    assert MaxPool2d(pool_size=2).follow_layout(types, ("NHWC8c",)) is None  # type: ignore[arg-type]


def test_maximum_keeps_nan_and_integers() -> None:
    data = np.array([[[[1, np.nan], [2, 3]]]], "float32")
    assert np.isnan(MaxPool2d(pool_size=(2, 2)).evaluate(data)).all()
    whole = np.array([[[[-7, -3], [-2, -9]]]], "int32")
    got = MaxPool2d(pool_size=(2, 2), padding=(1, 1, 0, 0)).evaluate(whole)
    assert got.dtype == np.int32 and got.ravel().tolist() == [-7, -3, -2, -2]


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "message"),
    [
        (MaxPool2d(pool_size=(3, 3)), (1, 1, 2, 2), "float32", "exceeds the padded image"),
        (MaxPool2d(pool_size=(3, 3)), (1, 2, 2), "float32", "must be NCHW"),
        (MaxPool2d(pool_size=(0, 3)), (1, 2, 2, 2), "float32", "at least 1"),
        (AvgPool2d(pool_size=(1, 1)), (1, 2, 2, 2), "int32", "cast the data"),
        (GlobalAvgPool2d(layout="CHWN"), (1, 2, 2, 2), "float32", "is not supported"),
        (GlobalMaxPool2d(layout="NCHW8c"), (1, 2, 2, 2, 4), "float32", "must be NCHW8c"),
    ],
)
def test_what_is_refused(op: Any, shape: tuple[int, ...], dtype: str, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        operator_type(op, (TensorType(shape, dtype),))
