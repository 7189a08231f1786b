"""`nn.softmax` and `nn.log_softmax` as one kernel, in each form of their data: against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitvm
from minitvm import te
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import Atom, Constant, Function, Module, TensorType, Var
from minitvm.relay.ops.activations import Sigmoid
from minitvm.relay.ops.broadcast import Add, Multiply
from minitvm.relay.ops.elementwise import Cast
from minitvm.relay.ops.nn import LogSoftmax, Softmax, Standardize
from minitvm.relay.ops.transform import Transpose
from minitvm.target import Target
from minitvm.testing.guarded import stray_access
from minitvm.tir.interpret import run


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """In float64."""
    wide = x.astype(float)
    with np.errstate(all="ignore"):
        powers = np.exp(wide - wide.max(axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis, keepdims=True))


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(float)
    with np.errstate(all="ignore"):
        shifted = wide - wide.max(axis, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


class Net:
    """A module of one input being written."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x
        self.param = Var("x", TensorType(x.shape, x.dtype.name))
        self.builder: BlockBuilder = BlockBuilder(origin("node"))

    def __call__(self, op: Any, *arguments: Atom) -> Var:
        return self.builder.emit(op, *arguments)

    def compiled(self, result: Any) -> minitvm.CompiledModule:
        function = Function((self.param,), self.builder.finish(result), result.type)
        return minitvm.compile(Module({"main": function}))

    def value(self, result: Any, kernels: int = 1) -> np.ndarray:
        compiled = self.compiled(result)
        assert compiled.kernel_calls == kernels
        (value,) = compiled.run({"x": self.x}).values()
        return value


def machine_code(op: Any, x: np.ndarray) -> np.ndarray:
    net = Net(x)
    return net.value(net(op, net.param))


LANES = Target.host().lanes("float32")
FORMS = [  # shape, axis: rows with and without padding, columns, packed rows, and what has no form
    ((3, 4 * LANES), -1), ((5, 4 * LANES + 3), -1), ((2, 3, 6 * LANES), 2), ((1, 10), 1),
    ((3, 5, 2 * LANES), 1), ((2, 7, 3, LANES + 5), 1), ((9, 3 * LANES + 1), 0),
    ((4 * LANES, 10), -1), ((2 * LANES + 3, 3), -1), ((3, LANES, 2), -1), ((5 * LANES, 7, 3), 1),
    ((2, 3, 3), 1), ((7,), 0), ((1, 1), 0),
]


@pytest.mark.parametrize(("shape", "axis"), FORMS, ids=str)
def test_every_form_gives_the_same(shape: tuple[int, ...], axis: int) -> None:
    x = normal(*shape) * 4
    got = machine_code(Softmax(axis), x)
    np.testing.assert_allclose(got, softmax(x, axis), rtol=2e-6, atol=1e-12)
    np.testing.assert_allclose(got.sum(axis), 1, rtol=2e-6)
    logarithm = machine_code(LogSoftmax(axis), x)
    np.testing.assert_allclose(logarithm, log_softmax(x, axis), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("tail", [1, 3, LANES // 2, LANES - 1])
def test_rows_of_an_input_are_read_where_they_lie(tail: int) -> None:
    """Whatever is left behind whole vectors: no copy, and nothing is read behind the last row."""
    x = normal(5, 4 * LANES + tail)
    for op in (Softmax(), LogSoftmax(), Standardize()):
        net = Net(x)
        compiled = net.compiled(net(op, net.param))
        (kernel,) = compiled.kernels
        assert "_data = allocate" not in kernel.text
        assert not any("runs serially" in remark.reason for remark in compiled.remarks)
        assert not stray_access(compiled.kernels)
        wanted = op.evaluate(x.astype(float))
        (got,) = compiled.run({"x": x}).values()
        np.testing.assert_allclose(got, wanted, rtol=4e-6, atol=4e-6)


@given(st.data())
@settings(max_examples=25)
def test_generated_shapes(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    extents = st.sampled_from([1, 2, 3, LANES - 1, LANES, LANES + 1, 3 * LANES])
    shape = tuple(data.draw(extents) for _ in range(rank))
    axis = data.draw(st.integers(-rank, rank - 1))
    x = normal(*shape, seed=data.draw(st.integers(0, 99))) * 10
    got = machine_code(Softmax(axis), x)
    np.testing.assert_allclose(got, softmax(x, axis), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((5, 67), -1), ((3, 5, 35), 1), ((40, 3), 1)])
def test_other_floats(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    x = normal(*shape, dtype=dtype)
    tolerance = 1e-2 if dtype == "float16" else 1e-14
    np.testing.assert_allclose(machine_code(Softmax(axis), x), softmax(x, axis), rtol=tolerance)
    np.testing.assert_allclose(
        machine_code(LogSoftmax(axis), x), log_softmax(x, axis), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(("shape", "axis"), [
    ((3, 11), -1), ((2, 8), 1), ((2, 3, 5), 1), ((2, 5, 2, 3), 1), ((7, 3), -1), ((5, 3, 2), 1)])
def test_the_computation_itself(lanes: int, shape: tuple[int, ...], axis: int) -> None:
    """Without a schedule, by the interpreter."""
    x = normal(*shape)
    for op, wanted in ((Softmax(axis, lanes), softmax), (LogSoftmax(axis, lanes), log_softmax)):
        given = te.placeholder(shape, "float32", name="x")
        output = op.compute(given)
        result = np.full(shape, 77, "float32")
        run(te.lower(te.create_schedule(output), [given, output]), [x, result])
        np.testing.assert_allclose(result, wanted(x, axis), rtol=2e-6, atol=2e-6)


def test_symbolic_extents() -> None:
    """Any number of rows, each of a known extent."""
    n, m = te.var("n"), te.var("m")
    given = te.placeholder((n, m, 5, 3), "float32", name="x")
    output = Softmax(2).compute(given)
    s = te.create_schedule(output)
    Softmax(2).schedule(s, output, output, Target.host())
    func = te.lower(s, [n, m, given, output])
    x = normal(4, 2, 5, 3)
    result = np.full_like(x, 77)
    run(func, [np.int32(4), np.int32(2), x, result])
    np.testing.assert_allclose(result, softmax(x, 2), rtol=2e-6)


@pytest.mark.parametrize(("shape", "axis"), [((6, 4 * LANES), -1), ((3, 5, 2 * LANES), 1),
                                             ((2 * LANES, 6), -1)], ids=str)
def test_neighbours_are_fused(shape: tuple[int, ...], axis: int) -> None:
    """Scale, mask, cast and transpose in front; sigmoid and residual behind."""
    x = normal(*shape[::-1], dtype="float64")
    mask, residual = normal(*shape[1:], seed=1), normal(*shape, seed=2)
    net = Net(x)
    moved = net(Transpose(), net(Cast("float32"), net.param))
    scores = net(Add(), net(Multiply(), moved, Constant(np.float32(3))), Constant(mask))
    result = net(Sigmoid(), net(Add(), net(Softmax(axis), scores), Constant(residual)))
    inner = softmax(x.T.astype("float32") * np.float32(3) + mask, axis) + residual
    np.testing.assert_allclose(net.value(result), 1 / (1 + np.exp(-inner)), rtol=5e-6)


@pytest.mark.parametrize(("shape", "axis"), [((4, 3 * LANES + 5), -1), ((4, 5, 2 * LANES), 1),
                                             ((3 * LANES, 5), -1)], ids=str)
def test_infinities_and_nan_stay_in_their_rows(shape: tuple[int, ...], axis: int) -> None:
    x = np.moveaxis(normal(*shape), axis, -1).copy()
    rows = x.reshape(-1, x.shape[-1])
    rows[0, ::2] = -np.inf  # masked
    rows[1, 1] = np.nan
    rows[2, :] = -np.inf
    rows[3, 0], rows[3, 1:] = 3e38, -3e38
    x = np.ascontiguousarray(np.moveaxis(x, -1, axis))
    for op, wanted in ((Softmax(axis), softmax), (LogSoftmax(axis), log_softmax)):
        expected = wanted(x, axis)
        got = machine_code(op, x)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(got, expected.astype("float32"), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("value", [-1e4, -1e9, -3e38])
def test_masked_elements_have_no_weight(value: float) -> None:
    x = normal(3, 5 * LANES)
    x[:, ::3] = value
    got = machine_code(Softmax(), x)
    assert not got[:, ::3].any()
    np.testing.assert_allclose(got, softmax(x, -1), rtol=2e-6)


def test_nothing_of_a_row() -> None:
    for shape in ((3, 0), (0, 5), (0, 40)):
        assert machine_code(Softmax(), np.zeros(shape, "float32")).shape == shape


@pytest.mark.parametrize(("shape", "axis"), [((4, 8 * LANES), -1), ((4, 9, 2 * LANES), 1),
                                             ((4 * LANES, 9), -1)], ids=str)
def test_powers_are_computed_in_vectors_alone(shape: tuple[int, ...], axis: int) -> None:
    net = Net(normal(*shape))
    (kernel,) = net.compiled(net(Softmax(axis), net.param)).kernels
    powers = [line for line in kernel.text.splitlines() if "decay(" in line]
    assert len(powers) == 1
    assert f", 1, {LANES})] = decay(" in powers[0]  # stored as a vector
