"""Convolutions: against the ONNX reference, packed against plain, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.errors import TypeInferenceError
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType
from minitvm.relay.layout import pack, parse_layout, unpack
from minitvm.relay.ops.nn import Conv1d, Conv2d
from minitvm.relay.ops.nn.conv2d import has_few_channels


def onnx_reference(op_type: str, inputs: list[np.ndarray], opset: int = 17, **attrs: Any) -> Any:
    """The first output of one ONNX node on these inputs, by ONNX's own reference."""
    names = [f"i{position}" for position in range(len(inputs))]
    node = helper.make_node(op_type, names, ["o"], **attrs)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    output = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", infos, [output])
    model = helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    result = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    return result[0]


def integers(draw: st.DrawFn, *shape: int) -> np.ndarray:
    """Small integers held as floats, so that sums are exact."""
    seed = draw(st.integers(0, 2**32 - 1))
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Conv2d, np.ndarray, np.ndarray]:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inputs, filters = draw(st.integers(1, 4)), draw(st.integers(1, 4)) * groups
    if draw(st.booleans()) and groups > 1:
        inputs, filters = 1, groups
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    op = Conv2d(
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 2))),
        padding=draw(st.tuples(*[st.integers(0, 2)] * 4)),
        dilation=draw(st.tuples(st.integers(1, 2), st.integers(1, 3))),
        groups=groups,
    )
    height, width = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    assume(min(op.window(*kernel).positions(height, width)) > 0)
    data = integers(draw, draw(st.integers(1, 2)), inputs * groups, height, width)
    return op, data, integers(draw, filters, inputs, *kernel)


@given(convolutions())
def test_evaluate_is_the_onnx_reference(case: tuple[Conv2d, np.ndarray, np.ndarray]) -> None:
    op, data, weight = case
    wanted = onnx_reference(
        "Conv", [data, weight], strides=op.strides, pads=op.padding, dilations=op.dilation,
        group=op.groups,
    )
    got = op.evaluate(data, weight)
    np.testing.assert_array_equal(got, wanted)
    types = (TensorType(data.shape, "float32"), TensorType(weight.shape, "float32"))
    assert operator_type(op, types) == TensorType(got.shape, "float32")


class Lanes:
    """A target of some vector width."""

    def __init__(self, lanes: int) -> None:
        self.count = lanes

    def lanes(self, dtype: str) -> int:
        return self.count if dtype == "float32" else 1


def packed_result(op: Conv2d, data: np.ndarray, weight: np.ndarray, lanes: int) -> Any:
    """`op` in the form it prefers, on packed arguments, unpacked again; None if it has none."""
    types = tuple(TensorType(array.shape, "float32") for array in (data, weight))
    choice = op.alter_layout(types, Lanes(lanes))  # type: ignore[arg-type]
    if choice is None:
        return None
    arguments = [
        array if text is None else pack(array, parse_layout(text))
        for array, text in zip((data, weight), choice.arguments, strict=True)
    ]
    packed = tuple(TensorType(array.shape, "float32") for array in arguments)
    result = choice.op.evaluate(*arguments)
    assert operator_type(choice.op, packed) == TensorType(result.shape, "float32")
    assert choice.result is not None and isinstance(result, np.ndarray)
    layout = parse_layout(choice.result)
    channels = weight.shape[0]
    assert not unpack(result, layout)[:, channels:].any(), "padding lanes are not zero"
    return unpack(result, layout, (result.shape[0], channels, None, None))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("channels", [3, 24, 58])
@pytest.mark.parametrize("kind", ["plain", "pointwise", "depthwise"])
def test_packed_is_plain(kind: str, channels: int, lanes: int) -> None:
    random = np.random.default_rng(channels * lanes)
    data = random.integers(-4, 5, (2, channels, 6, 5)).astype("float32")
    size = 1 if kind == "pointwise" else 3
    shape = (channels, 1, 3, 3) if kind == "depthwise" else (29, channels, size, size)
    weight = random.integers(-4, 5, shape).astype("float32")
    groups = channels if kind == "depthwise" else 1
    op = Conv2d(padding=size // 2, strides=1 if size == 1 else 2, groups=groups)
    got = packed_result(op, data, weight, lanes)
    np.testing.assert_array_equal(got, op.evaluate(data, weight))


@pytest.mark.parametrize("groups", [1, 6])
def test_padding_lanes_are_zeros_whatever_the_data(groups: int) -> None:
    data = np.full((1, 6, 4, 4), np.inf, "float32")
    data[0, 0, 0] = np.nan
    weight = np.ones((6, 6 // groups, 3, 3), "float32")
    op = Conv2d(groups=groups, padding=1)
    np.testing.assert_array_equal(packed_result(op, data, weight, 4), op.evaluate(data, weight))


def test_groups_are_packed_where_blocks_do_not_cross_them() -> None:
    random = np.random.default_rng(0)
    data = random.integers(-4, 5, (1, 16, 4, 4)).astype("float32")
    weight = random.integers(-4, 5, (24, 8, 3, 3)).astype("float32")
    op = Conv2d(groups=2)
    np.testing.assert_array_equal(packed_result(op, data, weight, 4), op.evaluate(data, weight))
    for other, size, lanes in ((op, 8, 16), (Conv2d(groups=8), 2, 4)):
        got = packed_result(other, data, weight[:, :size], lanes)
        np.testing.assert_array_equal(got, other.evaluate(data, weight[:, :size]))


def test_few_channels_are_read_unpacked() -> None:
    assert [c for c in range(1, 20) if has_few_channels(c, 16)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [c for c in range(1, 20) if has_few_channels(c, 8)] == [1, 2, 3, 4]
    assert [c for c in range(1, 20) if has_few_channels(c, 4)] == [1, 2, 3]
    types = (TensorType((1, 3, 8, 8), "float32"), TensorType((16, 3, 3, 3), "float32"))
    choice = Conv2d().alter_layout(types, Lanes(8))  # type: ignore[arg-type]
    assert choice is not None and choice.arguments == (None, "OIHW3i8o")


def test_a_single_channel_is_no_depthwise_convolution() -> None:
    random = np.random.default_rng(0)
    data = random.integers(-4, 5, (1, 1, 5, 5)).astype("float32")
    weight = random.integers(-4, 5, (12, 1, 3, 3)).astype("float32")
    got = packed_result(Conv2d(), data, weight, 8)
    np.testing.assert_array_equal(got, Conv2d().evaluate(data, weight))


@pytest.mark.parametrize("groups", [1, 2])
def test_padding_contributes_zero_times_the_weight(groups: int) -> None:
    data = np.ones((1, 2, 3, 3), "float32")
    weight = np.ones((2, 2 // groups, 3, 3), "float32")
    weight[1, 0, 0, 0] = np.inf
    got = Conv2d(padding=1, groups=groups).evaluate(data, weight)
    assert np.isfinite(got[0, 0]).all()
    assert np.isnan(got[0, 1, 0, :]).all() and np.isnan(got[0, 1, :, 0]).all()
    assert np.isinf(got[0, 1, 1:, 1:]).all()


@pytest.mark.parametrize(
    ("op", "data", "weight", "message"),
    [
        (Conv2d(), (1, 3, 4, 4), (8, 4, 3, 3), "the data has 3"),
        (Conv2d(groups=2), (1, 4, 4, 4), (3, 2, 3, 3), "with 2 groups"),
        (Conv2d(), (1, 3, 2, 4), (8, 3, 3, 3), "exceeds the padded image"),
        (Conv2d(channels=9), (1, 3, 4, 4), (8, 3, 3, 3), "gives 8 channels, not 9"),
        (Conv2d(), (1, 3, 4), (8, 3, 3), "data must be NCHW and weight OIHW"),
        (Conv2d(strides=0), (1, 3, 4, 4), (8, 3, 3, 3), "at least 1"),
        (Conv2d(padding=-1), (1, 3, 9, 9), (8, 3, 3, 3), "not be negative"),
        (Conv2d(data_layout="CHWN"), (1, 4, 4, 3), (8, 3, 3, 3), "is not supported"),
        (Conv2d(data_layout="NCHW4"), (1, 4, 4, 3), (8, 3, 3, 3), "is no layout"),
        (Conv2d(kernel_layout="OIHW4i4o"), (1, 8, 4, 4), (2, 2, 3, 3, 4, 4), "as one block"),
        (
            Conv2d(data_layout="NCHW4c", kernel_layout="OIHW1i4o"),
            (1, 2, 4, 4, 4), (2, 8, 3, 3, 1, 4), "needs a group for each channel",
        ),
    ],
)
def test_what_is_refused(
    op: Conv2d, data: tuple[int, ...], weight: tuple[int, ...], message: str
) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        operator_type(op, (TensorType(data, "float32"), TensorType(weight, "float32")))


def test_dtypes_must_be_one() -> None:
    types = (TensorType((1, 3, 4, 4), "float32"), TensorType((8, 3, 3, 3), "float64"))
    with pytest.raises(TypeInferenceError, match="one numeric dtype"):
        operator_type(Conv2d(), types)


def test_short_forms_of_attributes() -> None:
    assert Conv2d(strides=2, padding=(1, 2), dilation=[1, 1]) == Conv2d(  # type: ignore[arg-type]
        strides=(2, 2), padding=(1, 2, 1, 2)
    )


@given(st.data())
def test_conv1d_is_the_onnx_reference(data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 2))
    op = Conv1d(
        strides=data.draw(st.integers(1, 2)),
        padding=data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))),
        dilation=data.draw(st.integers(1, 2)),
        groups=groups,
    )
    x = integers(data.draw, 1, 2 * groups, 7)
    weight = integers(data.draw, 3 * groups, 2, 3)
    wanted = onnx_reference(
        "Conv", [x, weight], strides=[op.strides], pads=op.padding, dilations=[op.dilation],
        group=groups,
    )
    np.testing.assert_array_equal(op.evaluate(x, weight), wanted)
