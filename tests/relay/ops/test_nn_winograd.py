"""Winograd's operators: together they are a convolution, in numpy and as compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.errors import TypeInferenceError
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import Constant, Function, Module, TensorType, Var, tensor_type
from minitvm.relay.ops.elementwise import Negative
from minitvm.relay.ops.nn import Conv2d, Relu, WinogradInput, WinogradOutput, WinogradWeight
from minitvm.testing.compiled import compiled_difference

FLOAT = "float32"
LAYOUTS = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o"}


def whole(*shape: int, seed: int = 0, step: int = 1) -> np.ndarray:
    """Small integers held as floats, multiples of `step`."""
    return step * np.random.default_rng((seed, *shape)).integers(-3, 4, shape).astype(FLOAT)


def tiled(data: np.ndarray, weight: np.ndarray, tile: int, padding: tuple[int, ...]) -> np.ndarray:
    rows, columns = WinogradInput(tile, padding).results(*data.shape[2:4])  # type: ignore[arg-type]
    product = Conv2d(groups=(tile + 2) ** 2, **LAYOUTS)
    products = product.evaluate(WinogradInput(tile, padding).evaluate(data),  # type: ignore[arg-type]
                                WinogradWeight(tile).evaluate(weight))
    return WinogradOutput(rows, columns, tile).evaluate(products)


@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9),
       st.integers(1, 9), st.tuples(*[st.integers(0, 2)] * 4), st.sampled_from([2, 4]))
def test_together_they_are_a_convolution(batch, inputs, filters, height, width, padding, tile):
    if height + padding[0] + padding[2] < 3 or width + padding[1] + padding[3] < 3:
        return
    data = whole(batch, inputs, height, width, 4)
    weight = whole(filters, inputs, 3, 3, 4, 4, step=4)
    wanted = Conv2d(padding=padding, **LAYOUTS).evaluate(data, weight)
    got = tiled(data, weight, tile, padding)
    assert got.dtype == wanted.dtype
    if tile == 2:  # halves and quarters of multiples of four: every step is exact
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, atol=1e-5 * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("height", "width", "padding"), [
    (6, 8, (0, 0, 0, 0)), (7, 5, (1, 1, 1, 1)), (3, 9, (0, 1, 2, 0))])
def test_compiled_code_does_what_numpy_does(tile, height, width, padding):
    """Each operator is a kernel; what follows the last one is part of it, where its result is read
    twice and where it is read once."""
    x = Var("x", TensorType((2, 2, height, width, 4), FLOAT))
    builder = BlockBuilder()
    weight = builder.emit(WinogradWeight(tile), Constant(whole(2, 2, 3, 3, 4, 4, step=4)))
    op = WinogradInput(tile, padding)
    products = builder.emit(Conv2d(groups=(tile + 2) ** 2, **LAYOUTS), builder.emit(op, x), weight)
    result = builder.emit(WinogradOutput(*op.results(height, width), tile), products)
    for last in (result, builder.emit(Relu(), result), builder.emit(Negative(), result)):
        body = BlockBuilder.finish(builder, last)
        module = Module({"main": Function((x,), body, tensor_type(last))})
        inputs = {"x": whole(2, 2, height, width, 4, seed=1)}
        assert not compiled_difference(module, inputs, exact=tile == 2)


BAD = {
    "tile": (WinogradInput(3), (1, 2, 6, 6, 4), "tile 2 or 4"),
    "plain": (WinogradInput(2), (1, 8, 6, 6), "NCHW"),
    "small": (WinogradInput(2), (1, 2, 2, 6, 4), "exceeds the padded image"),
    "taps": (WinogradWeight(2), (2, 2, 5, 5, 4, 4), "of 3x3"),
    "elements": (WinogradOutput(6, 6, 2), (1, 17, 3, 3, 4), "not those of 6 rows"),
    "tiles": (WinogradOutput(6, 6, 2), (1, 16, 2, 3, 4), "not those of 6 rows"),
    "unpacked": (WinogradOutput(6, 6, 2), (1, 16, 3, 3), "packed"),
}


@pytest.mark.parametrize("name", BAD)
def test_ill_typed_calls_are_refused(name):
    op, shape, message = BAD[name]
    with pytest.raises(TypeInferenceError, match=message):
        operator_type(op, (TensorType(shape, FLOAT),))
