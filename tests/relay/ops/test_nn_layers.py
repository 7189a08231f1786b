"""Products, normalisation, activations, padding, softmax: against numpy and ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_nn_conv2d import Lanes, integers, onnx_reference

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import operator_type
from minitvm.relay.interpret import run
from minitvm.relay.ir import Constant, Function, Module, TensorType, Var
from minitvm.relay.layout import pack, parse_layout
from minitvm.relay.op import Op
from minitvm.relay.ops.nn import (
    BatchMatmul,
    BatchNorm,
    BiasAdd,
    Conv1d,
    Dense,
    Dropout,
    LeakyRelu,
    LogSoftmax,
    Matmul,
    Pad,
    PRelu,
    Relu,
    Softmax,
)
from minitvm.relay.passes.legalize import legalize


def evaluate(op: Op, *arrays: np.ndarray) -> Any:
    """`op.evaluate`, with the type rule checked on the way."""
    result = op.evaluate(*arrays)
    assert isinstance(result, np.ndarray)
    types = tuple(TensorType(array.shape, array.dtype.name) for array in arrays)
    assert operator_type(op, types) == TensorType(result.shape, result.dtype.name)
    return result


# --- products -----------------------------------------------------------------------------------


@given(st.data(), st.sampled_from([4, 8, 16]))
def test_dense_plain_and_packed(data: st.DataObject, lanes: int) -> None:
    rows, units, depth = (data.draw(st.integers(1, limit)) for limit in (3, 40, 9))
    x, weight = integers(data.draw, rows, depth), integers(data.draw, units, depth)
    wanted = x.astype("float64") @ weight.astype("float64").T
    np.testing.assert_array_equal(evaluate(Dense(), x, weight), wanted)
    types = (TensorType(x.shape, "float32"), TensorType(weight.shape, "float32"))
    choice = Dense().alter_layout(types, Lanes(lanes))  # type: ignore[arg-type]
    assert choice is not None and choice.arguments == (None, f"NK{lanes}n")
    packed = pack(weight, parse_layout(f"NK{lanes}n"))
    assert packed.shape == (-(-units // lanes), depth, lanes)
    np.testing.assert_array_equal(evaluate(choice.op, x, packed), wanted)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batches", [(3, 3), (1, 3), (3, 1)])
def test_batch_matmul(transpose_a: bool, transpose_b: bool, batches: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-4, 5, (batches[0], 2, 4)).astype("float32")
    y = random.integers(-4, 5, (batches[1], 5, 4)).astype("float32")
    pairs = zip(*np.broadcast_arrays(x[:, :, None], y[:, None]), strict=True)
    wanted = np.stack([(left * right).sum(-1) for left, right in pairs])
    left = x.swapaxes(1, 2) if transpose_a else x
    right = y if transpose_b else y.swapaxes(1, 2)
    got = evaluate(BatchMatmul(transpose_a, transpose_b), left, right)
    np.testing.assert_array_equal(got, wanted)


MATMUL_SHAPES = [
    ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((6, 1, 3, 4), (2, 4, 5)), ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
]


@pytest.mark.parametrize(("left", "right"), MATMUL_SHAPES)
def test_matmul_is_numpys_and_so_is_what_it_becomes(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    random = np.random.default_rng(0)
    x, y = (random.integers(-4, 5, shape).astype("float32") for shape in (left, right))
    np.testing.assert_array_equal(evaluate(Matmul(), x, y), np.matmul(x, y))
    if len(left) > 1:
        check_legalized(Matmul(), x, Constant(y), keeps=len(right) != 2)


def check_legalized(op: Op, x: np.ndarray, *others: Constant, keeps: bool = False) -> None:
    """The operator on a variable and constants, before and after legalisation."""
    var = Var("x", TensorType(x.shape, x.dtype.name))
    builder = BlockBuilder(origin("node"))
    result = builder.emit(op, var, *others)
    module = Module({"main": Function((var,), builder.finish(result), result.type)})
    legal = legalize(module)
    assert (legal is module) == keeps
    np.testing.assert_array_equal(run(legal, {"x": x})[0], run(module, {"x": x})[0])
    assert legal.main.result_type == module.main.result_type


def test_conv1d_and_bias_add_decompose() -> None:
    x = np.arange(12, dtype="float32").reshape(1, 2, 6)
    weight = Constant(np.arange(12, dtype="float32").reshape(3, 2, 2))
    check_legalized(Conv1d(padding=(1, 0), strides=2), x, weight)
    for axis, extent in ((0, 1), (1, 2), (2, 6), (-1, 6), (-2, 2)):
        bias = Constant(np.arange(1, extent + 1, dtype="float32"))
        check_legalized(BiasAdd(axis=axis), x, bias)


# --- channels -----------------------------------------------------------------------------------


@given(st.data())
def test_batch_norm(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x = random.standard_normal((2, 5, 3)).astype("float32")
    gamma, beta, mean = (random.standard_normal(5).astype("float32") for _ in range(3))
    variance = random.uniform(0.1, 2, 5).astype("float32")
    inputs = [x, gamma, beta, mean, variance]
    wanted = onnx_reference("BatchNormalization", inputs, epsilon=1e-3)
    np.testing.assert_allclose(
        evaluate(BatchNorm(epsilon=1e-3), *inputs), wanted, rtol=1e-5, atol=1e-6
    )
    last = evaluate(BatchNorm(axis=-1, epsilon=1e-3), x.swapaxes(1, 2), *inputs[1:])
    np.testing.assert_allclose(last.swapaxes(1, 2), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_bias_add(axis: int) -> None:
    x = np.zeros((2, 3, 4), "float32")
    bias = np.arange(x.shape[axis], dtype="float32")
    got = evaluate(BiasAdd(axis=axis), x, bias)
    assert all(got[index] == bias[index[axis]] for index in np.ndindex(got.shape))


SPECIAL = np.array([-np.inf, -2.5, -1.0, -0.0, 0.0, 1e-42, 3.0, np.inf, np.nan], "float32")


def test_activations_and_special_values() -> None:
    relu = evaluate(Relu(), SPECIAL)
    np.testing.assert_array_equal(
        relu, np.array([0, 0, 0, 0, 0, 1e-42, 3, np.inf, np.nan], "float32")
    )
    assert np.signbit(relu[3]) and not np.signbit(relu[:3]).any()
    slope = np.float32(0.25)
    wanted = np.array([-np.inf, -0.625, -0.25, 0, 0, 1e-42, 3, np.inf, np.nan], "float32")
    np.testing.assert_array_equal(evaluate(LeakyRelu(alpha=0.25), SPECIAL), wanted)
    np.testing.assert_array_equal(evaluate(PRelu(), SPECIAL, slope.reshape(1)), wanted)
    np.testing.assert_array_equal(evaluate(Relu(), np.array([-3, 4], "int32")), [0, 4])
    assert evaluate(Dropout(rate=0.9), SPECIAL) is SPECIAL


# --- padding ------------------------------------------------------------------------------------


@st.composite
def paddings(draw: st.DrawFn) -> tuple[Pad, np.ndarray]:
    shape = draw(st.tuples(st.integers(1, 4), st.integers(2, 5)))
    mode = draw(st.sampled_from(["constant", "edge", "reflect"]))
    widths = tuple(
        (draw(st.integers(0, extent - 1)), draw(st.integers(0, extent - 1))) for extent in shape
    )
    value = draw(st.sampled_from([0.0, 1.5])) if mode == "constant" else 0.0
    return Pad(widths, value, mode), integers(draw, *shape)


@given(paddings())
def test_pad_is_numpys_and_onnxs(case: tuple[Pad, np.ndarray]) -> None:
    op, x = case
    options = {"constant_values": op.pad_value} if op.pad_mode == "constant" else {}
    got = evaluate(op, x)
    np.testing.assert_array_equal(got, np.pad(x, op.pad_width, op.pad_mode, **options))
    pads = np.array([w[0] for w in op.pad_width] + [w[1] for w in op.pad_width], "int64")
    inputs = [x, pads]
    if op.pad_mode == "constant":
        inputs.append(np.array(op.pad_value, "float32"))
    np.testing.assert_array_equal(got, onnx_reference("Pad", inputs, opset=18, mode=op.pad_mode))


def test_negative_and_wide_padding() -> None:
    x = np.arange(1, 6, dtype="int32")
    assert evaluate(Pad(((-1, 2),), 9.0), x).tolist() == [2, 3, 4, 5, 9, 9]
    assert evaluate(Pad(((-2, -2),)), x).tolist() == [3]
    assert evaluate(Pad(((-5, 1),)), x).tolist() == [0]
    wide = evaluate(Pad(((5, 4),), pad_mode="reflect"), x[:3])
    np.testing.assert_array_equal(wide, np.pad(x[:3], (5, 4), "reflect"))
    assert evaluate(Pad(((2, 0),), pad_mode="reflect"), x[:1]).tolist() == [1, 1, 1]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad_follows_a_packed_image(mode: str) -> None:
    x = np.arange(1, 1 + 6 * 12, dtype="float32").reshape(1, 6, 3, 4)
    layout = parse_layout("NCHW4c")
    types = (TensorType(x.shape, "float32"),)
    op = Pad(((0, 0), (0, 0), (1, 2), (2, -1)), pad_mode=mode)
    choice = op.follow_layout(types, (str(layout),))
    assert choice is not None
    np.testing.assert_array_equal(
        evaluate(choice.op, pack(x, layout)), pack(evaluate(op, x), layout)
    )
    assert Pad(((0, 0), (0, 2), (0, 0), (0, 0))).follow_layout(types, (str(layout),)) is None


# --- softmax ------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("op", "name"), [(Softmax, "Softmax"), (LogSoftmax, "LogSoftmax")])
def test_softmax_is_the_onnx_reference(op: Any, name: str, axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype("float32") * 5
    wanted = onnx_reference(name, [x], axis=axis)
    np.testing.assert_allclose(evaluate(op(axis=axis), x), wanted, rtol=1e-5, atol=1e-6)


def test_softmax_does_not_overflow_and_keeps_nan() -> None:
    assert evaluate(Softmax(), np.array([1e38, 1e38], "float32")).tolist() == [0.5, 0.5]
    assert np.isnan(evaluate(Softmax(), np.array([1, np.nan], "float32"))).all()
    assert evaluate(LogSoftmax(), np.array([0, 1000], "float32")).tolist() == [-1000, 0]
    assert evaluate(Softmax(), np.zeros((2, 0), "float32")).shape == (2, 0)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (Dense(), [(2, 3), (4, 5)], "the weight has 5 columns"),
        (Dense(), [(3,), (4, 3)], "x must be of rank 2 or more"),
        (Dense(kernel_layout="KN"), [(2, 3), (3, 4)], "is not supported"),
        (Dense(kernel_layout="NK4n", units=9), [(2, 3), (2, 3, 4)], "a weight of 9 units"),
        (BatchMatmul(), [(2, 3, 4), (3, 5, 4)], "the batches differ"),
        (BatchMatmul(), [(2, 3, 4), (2, 5, 6)], "x sums over 4"),
        (Matmul(), [(2, 3), (4, 5)], "x has 3 columns, y has 4 rows"),
        (Matmul(), [(), (4, 5)], "a scalar has no rows"),
        (Matmul(), [(2, 3, 4), (3, 4, 5)], "do not broadcast"),
        (BatchNorm(), [(2, 3), (3,), (3,), (3,), (4,)], "must be float32 of"),
        (BiasAdd(axis=2), [(2, 3), (3,)], "axis 2 is out of range"),
        (Pad(((0, 0),)), [(2, 3)], "1 pairs for rank 2"),
        (Pad(((-2, -1),)), [(2,)], "negative extent"),
        (Pad(((0, 0),), pad_mode="wrap"), [(2,)], "must be one of"),
        (Softmax(axis=2), [(2, 3)], "axis 2 is out of range"),
        (PRelu(), [(2, 3), (4, 2, 3)], "must broadcast to the shape of x"),
    ],
)
def test_what_is_refused(op: Op, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        operator_type(op, tuple(TensorType(shape, "float32") for shape in shapes))
