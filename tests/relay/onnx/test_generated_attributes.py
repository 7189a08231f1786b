"""Converters with many attributes, over generated ones, against independent implementations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from single_node import NEWEST, assert_agrees, compare, feeds, run_model, single_node

import minitvm

seeds = st.integers(0, 2**32 - 1)
distinct_axes = st.lists(st.integers(-3, 2), max_size=3, unique_by=lambda axis: axis % 3)
AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
RUNTIME_OPSET = 17


def whole(seed: int, *shape: int) -> np.ndarray:
    """Small integers held as floats, so that sums are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def assert_agrees_with_runtime(
    operator: str, inputs: list[np.ndarray], constant: tuple[int, ...] = (), **attributes: Any
) -> None:
    """Against ONNX Runtime, without optimisations."""
    model = single_node(operator, inputs, RUNTIME_OPSET, constant, **attributes)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    values = feeds(inputs, constant)
    compare(operator, RUNTIME_OPSET, run_model(model, values), session.run(None, values))


@st.composite
def windows(draw: st.DrawFn, dims: int, kernel: tuple[int, ...]) -> dict[str, Any]:
    """strides, dilations and padding, each left out at times."""
    attributes: dict[str, Any] = {}
    if draw(st.booleans()):
        attributes["strides"] = draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    if draw(st.booleans()):
        attributes["dilations"] = draw(st.lists(st.integers(1, 2), min_size=dims, max_size=dims))
    automatic = draw(st.sampled_from(AUTO_PADS))
    if automatic != "NOTSET":
        attributes["auto_pad"] = automatic
    elif draw(st.booleans()):
        highest = min(kernel) - 1
        attributes["pads"] = draw(
            st.lists(st.integers(0, highest), min_size=2 * dims, max_size=2 * dims)
        )
    return attributes


def fits(extents: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, Any]) -> bool:
    """Whether each window fits into the image without padding, and, where the padding is
    automatic, leaves no gap (for which ONNX Runtime computes negative padding)."""
    strides = attributes.get("strides", [1] * len(kernel))
    gaps = any(stride > taps for stride, taps in zip(strides, kernel, strict=True))
    if gaps and "SAME" in attributes.get("auto_pad", ""):
        return False
    dilations = attributes.get("dilations", [1] * len(kernel))
    spans = ((taps - 1) * d + 1 for taps, d in zip(kernel, dilations, strict=True))
    return all(span <= extent for span, extent in zip(spans, extents, strict=True))


@given(seed=seeds, dims=st.integers(1, 2), data=st.data())
def test_convolution(seed, dims, data):
    kernel = tuple(data.draw(st.integers(1, 3)) for _ in range(dims))
    extents = tuple(data.draw(st.integers(1, 8)) for _ in range(dims))
    attributes = data.draw(windows(dims, kernel))
    assume(fits(extents, kernel, attributes))
    assume("dilations" not in attributes or "SAME" not in attributes.get("auto_pad", ""))
    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    inputs, filters = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)) * groups
    if groups > 1 or data.draw(st.booleans()):
        attributes["group"] = groups
    if data.draw(st.booleans()):
        attributes["kernel_shape"] = kernel
    x = whole(seed, data.draw(st.integers(1, 2)), inputs * groups, *extents)
    arrays = [x, whole(seed + 1, filters, inputs, *kernel)]
    if data.draw(st.booleans()):
        arrays.append(whole(seed + 2, filters))
    assert_agrees_with_runtime("Conv", arrays, tuple(range(1, len(arrays))), **attributes)


@given(seed=seeds, dims=st.integers(1, 2), data=st.data())
def test_max_pool(seed, dims, data):
    kernel = tuple(data.draw(st.integers(1, 3)) for _ in range(dims))
    extents = tuple(data.draw(st.integers(1, 8)) for _ in range(dims))
    attributes = data.draw(windows(dims, kernel)) | {"kernel_shape": kernel}
    assume(fits(extents, kernel, attributes))
    assume("dilations" not in attributes or "SAME" not in attributes.get("auto_pad", ""))
    if data.draw(st.booleans()) and "auto_pad" not in attributes:
        attributes["ceil_mode"] = 1
    assert_agrees_with_runtime("MaxPool", [whole(seed, 2, 3, *extents)], **attributes)


@given(seed=seeds, dims=st.integers(1, 2), data=st.data())
def test_average_pool(seed, dims, data):
    kernel = tuple(data.draw(st.integers(1, 3)) for _ in range(dims))
    extents = tuple(data.draw(st.integers(1, 8)) for _ in range(dims))
    attributes = data.draw(windows(dims, kernel)) | {"kernel_shape": kernel}
    attributes.pop("dilations", None)
    assume(fits(extents, kernel, attributes))
    if data.draw(st.booleans()):
        attributes["count_include_pad"] = 1
    if data.draw(st.booleans()) and "auto_pad" not in attributes:
        attributes["ceil_mode"] = 1
    assert_agrees_with_runtime("AveragePool", [whole(seed, 1, 2, *extents)], **attributes)


@given(seed=seeds, operator=st.sampled_from(["MaxPool", "AveragePool"]), data=st.data())
def test_no_window_begins_in_the_padding(seed, operator, data):
    """`ceil_mode` with strides and padding: windows that would begin behind the image are none."""
    kernel = data.draw(st.lists(st.integers(2, 3), min_size=2, max_size=2))
    pads = [data.draw(st.integers(0, taps - 1)) for taps in kernel * 2]
    strides = data.draw(st.lists(st.integers(2, 3), min_size=2, max_size=2))
    extents = data.draw(st.lists(st.integers(3, 8), min_size=2, max_size=2))
    assert_agrees_with_runtime(operator, [whole(seed, 1, 2, *extents)], kernel_shape=kernel,
                               pads=pads, strides=strides, ceil_mode=1)


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_reckons_with_dilation(automatic):
    x, weight = whole(1, 1, 1, 7, 8), whole(2, 1, 1, 3, 3)
    model = single_node("Conv", [x, weight], 17, (1,), auto_pad=automatic, dilations=[2, 2])
    explicit = single_node("Conv", [x, weight], 17, (1,), pads=[2, 2, 2, 2], dilations=[2, 2])
    compare("Conv", 17, run_model(model, {"x0": x}), run_model(explicit, {"x0": x}))


# --- cutting and padding ------------------------------------------------------------------------


far = st.one_of(st.integers(-7, 7), st.sampled_from([2**31 - 1, 2**63 - 1, -(2**31), -(2**63)]))


@given(seed=seeds, opset=st.sampled_from([10, 11, 13, NEWEST]), data=st.data())
def test_slice(seed, opset, data):
    axes = data.draw(distinct_axes.filter(bool))
    count = len(axes)
    starts, ends = ([data.draw(far) for _ in range(count)] for _ in range(2))
    steps = [data.draw(st.integers(-3, 3).filter(bool)) for _ in range(count)]
    x = whole(seed, 4, 3, 5)
    arrays = [np.array(a, np.int64) for a in (starts, ends, axes, steps)]
    cuts = [slice(None)] * 3
    for axis, *cut in zip(axes, starts, ends, steps, strict=True):
        cuts[axis] = slice(*cut)
    assert_agrees("Slice", [x, *arrays], opset, (1, 2, 3, 4), expected=[x[tuple(cuts)]])


@given(seed=seeds, mode=st.sampled_from(["constant", "reflect", "edge"]),
       pads=st.lists(st.integers(0, 3), min_size=6, max_size=6),
       opset=st.sampled_from([11, 13, 18, NEWEST]))
def test_pad(seed, mode, pads, opset):
    x = whole(seed, 4, 4, 5)
    assert_agrees("Pad", [x, np.array(pads, np.int64), np.float32(7)], opset, (1, 2), mode=mode)


@given(seed=seeds, pads=st.lists(st.integers(-2, 2), min_size=4, max_size=4))
def test_negative_pads_cut_off(seed, pads):
    x = whole(seed, 4, 5)
    top, left, bottom, right = pads
    wide = np.pad(x, [(max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0))])
    rows = slice(max(-top, 0), wide.shape[0] - max(-bottom, 0))
    columns = slice(max(-left, 0), wide.shape[1] - max(-right, 0))
    expected = [wide[rows, columns]]
    assert_agrees("Pad", [x, np.array(pads, np.int64)], 13, (1,), expected=expected)


@given(seed=seeds, axis=st.integers(-2, 1),
       sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_split(seed, sizes, axis):
    assume(sum(sizes) > 0)
    shape = [3, 3]
    shape[axis] = sum(sizes)
    names = [f"y{k}" for k in range(len(sizes))]
    x = whole(seed, *shape)
    assert_agrees("Split", [x, np.array(sizes, np.int64)], 13, (1,), names, axis=axis)


@given(extent=st.integers(1, 9), count=st.integers(1, 4))
def test_split_into_uneven_pieces(extent, count):
    size = -(-extent // count)
    assume(size * (count - 1) < extent)
    names = [f"y{k}" for k in range(count)]
    x = whole(1, extent)
    assert_agrees("Split", [x], 18, (), names, num_outputs=count)


# --- shapes -------------------------------------------------------------------------------------


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_reshape(shape, data):
    x = whole(1, *shape)
    wanted = list(data.draw(st.permutations(shape)))
    for axis, extent in enumerate(shape):
        if wanted[axis] == extent and data.draw(st.booleans()):
            wanted[axis] = 0
    if data.draw(st.booleans()):
        wanted[data.draw(st.integers(0, len(wanted) - 1))] = -1
    assert_agrees("Reshape", [x, np.array(wanted, np.int64)], 14, (1,))


@given(axis=st.integers(-3, 3), opset=st.sampled_from([11, 13, 21]))
def test_flatten(axis, opset):
    assert_agrees("Flatten", [whole(1, 2, 3, 4)], opset, axis=axis)


@given(seed=seeds, name=st.sampled_from(["Softmax", "LogSoftmax"]), axis=st.integers(-3, 2),
       opset=st.sampled_from([7, 11, 12]))
def test_old_softmax_joins_all_axes_behind(seed, name, axis, opset):
    x = whole(seed, 2, 3, 4)
    matrix = x.reshape(math.prod(x.shape[: axis % 3]), -1).astype(np.float64)
    power = np.exp(matrix - matrix.max(1, keepdims=True))
    result = power / power.sum(1, keepdims=True)
    result = result if name == "Softmax" else np.log(result)
    expected = [result.reshape(x.shape).astype(np.float32)]
    assert_agrees(name, [x], opset, axis=axis, expected=expected)


# --- products and reductions --------------------------------------------------------------------


@given(seed=seeds, data=st.data(), opset=st.sampled_from([7, 9, 11, 13]))
def test_gemm(seed, data, opset):
    m, k, n = (data.draw(st.integers(1, 5)) for _ in range(3))
    flags = {name: data.draw(st.integers(0, 1)) for name in ("transA", "transB")}
    scales = {name: data.draw(st.sampled_from([0.5, 1.0, 2.0])) for name in ("alpha", "beta")}
    a = whole(seed, *((k, m) if flags["transA"] else (m, k)))
    b = whole(seed + 1, *((n, k) if flags["transB"] else (k, n)))
    shapes: list[tuple[int, ...] | None] = [(n,), (1, n), (m, 1), (m, n), (1,), ()]
    shape = data.draw(st.sampled_from(shapes + ([None] if opset >= 11 else [])))
    arrays = [a, b] if shape is None else [a, b, np.asarray(whole(seed + 2, *shape), np.float32)]
    constant = (1, 2) if data.draw(st.booleans()) else ()
    assert_agrees("Gemm", arrays, opset, constant, **flags, **scales)


@given(seed=seeds, data=st.data())
def test_matmul(seed, data):
    m, k, n = (data.draw(st.integers(1, 4)) for _ in range(3))
    front = data.draw(st.lists(st.integers(1, 3), max_size=2))
    left = front[data.draw(st.integers(0, len(front))):]
    right = [1 if data.draw(st.booleans()) else extent for extent in front]
    a, b = whole(seed, *left, m, k), whole(seed + 1, *right, k, n)
    a = a[..., 0, :] if a.ndim == 2 and data.draw(st.booleans()) else a
    b = b[..., 0] if b.ndim == 2 and data.draw(st.booleans()) else b
    constant = (1,) if data.draw(st.booleans()) else ()
    assert_agrees("MatMul", [a, b], 13, constant, expected=[np.asarray(np.matmul(a, b))])


NUMPY_REDUCTIONS = {
    "ReduceL1": lambda x, **k: np.abs(x).sum(**k),
    "ReduceL2": lambda x, **k: np.sqrt((x * x).sum(**k)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **k: (x * x).sum(**k),
}


@given(seed=seeds, name=st.sampled_from(sorted(NUMPY_REDUCTIONS)), keepdims=st.integers(0, 1),
       axes=distinct_axes,
       opset=st.sampled_from([11, 18, NEWEST]))
def test_reductions(seed, name, keepdims, axes, opset):
    x = whole(seed, 2, 3, 2)
    axis = tuple(axes) or None
    expected = [np.asarray(NUMPY_REDUCTIONS[name](x, axis=axis, keepdims=bool(keepdims)))]
    if opset >= (13 if name == "ReduceSum" else 18):
        given_axes = np.array(axes, np.int64)
        assert_agrees(name, [x, given_axes], opset, (1,), keepdims=keepdims, expected=expected)
    else:
        attributes = {"axes": axes} if axes else {}
        assert_agrees(name, [x], opset, keepdims=keepdims, expected=expected, **attributes)


# --- transformers -------------------------------------------------------------------------------


def assert_machine_code_agrees(
    operator: str, inputs: list[np.ndarray | None], opset: int, constant: tuple[int, ...] = (),
    kernels: int = 1, **attributes: Any,
) -> None:
    """Against the ONNX reference: the interpreter, and the compiled model, of so many kernels."""
    wanted = assert_agrees(operator, inputs, opset, constant, **attributes)
    model = single_node(operator, inputs, opset, constant, **attributes)
    compiled = minitvm.compile(model)
    assert compiled.kernel_calls == kernels
    compare(operator, opset, list(compiled.run(feeds(inputs, constant)).values()), wanted)


def real(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@given(seed=seeds, data=st.data())
@settings(max_examples=20)
def test_rms_normalization(seed, data):
    shape = tuple(data.draw(st.sampled_from([1, 2, 5, 16, 33])) for _ in range(
        data.draw(st.integers(1, 3))))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    attributes: dict[str, Any] = {} if axis == -1 and data.draw(st.booleans()) else {"axis": axis}
    if data.draw(st.booleans()):
        attributes["epsilon"] = data.draw(st.sampled_from([1e-6, 0.1]))
    scale = real(seed + 1, *shape[axis % len(shape):])
    assert_machine_code_agrees("RMSNormalization", [real(seed, *shape), scale], 23, **attributes)


@given(seed=seeds, data=st.data(), exclusive=st.integers(0, 1), reverse=st.integers(0, 1))
@settings(max_examples=25)
def test_cumulative_sum(seed, data, exclusive, reverse):
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 17, 32])) for _ in range(
        data.draw(st.integers(1, 3))))
    axis = np.array(data.draw(st.integers(-len(shape), len(shape) - 1)),
                    data.draw(st.sampled_from(["int32", "int64"])))
    dtype = data.draw(st.sampled_from(["float32", "float64", "int32", "int64"]))
    x = whole(seed, *shape).astype(dtype)
    assert_machine_code_agrees("CumSum", [x, axis], data.draw(st.sampled_from([11, 14])), (1,),
                               exclusive=exclusive, reverse=reverse)


@given(seed=seeds, data=st.data(), interleaved=st.integers(0, 1))
@settings(max_examples=25)
def test_rotary_embedding(seed, data, interleaved):
    batch, rows, heads = (data.draw(st.sampled_from([1, 2, 5])) for _ in range(3))
    size = 2 * data.draw(st.sampled_from([1, 2, 5, 16, 24]))
    turned = 2 * data.draw(st.integers(1, size // 2))
    attributes: dict[str, Any] = {"interleaved": interleaved}
    if turned < size or data.draw(st.booleans()):
        attributes["rotary_embedding_dim"] = turned
    if data.draw(st.booleans()):
        x = real(seed, batch, heads, rows, size)
    else:
        x = real(seed, batch, rows, heads * size)
        attributes["num_heads"] = heads
    if data.draw(st.booleans()):
        positions = np.random.default_rng(seed).integers(0, 7, (batch, rows))
        tables = [real(seed + k, 7, turned // 2) for k in (1, 2)]
        inputs = [x, *tables, positions]
    else:
        inputs = [x, *(real(seed + k, batch, rows, turned // 2) for k in (1, 2))]
    assert_machine_code_agrees("RotaryEmbedding", inputs, 23, **attributes)
