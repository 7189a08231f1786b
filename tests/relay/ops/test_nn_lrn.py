"""Local response normalisation: against its definition, packed against plain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_nn_compute import computed

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.interpret import run
from minitvm.relay.ir import Call, Constant, Function, Module, TensorType, Var, walk_bindings
from minitvm.relay.layout import pack, parse_layout, unpack
from minitvm.relay.ops.activations import Sigmoid
from minitvm.relay.ops.layout_transform import LayoutTransform
from minitvm.relay.ops.nn import Conv2d, Lrn
from minitvm.relay.passes.alter_op_layout import alter_op_layout
from minitvm.target import Target
from minitvm.testing.compiled import compiled_difference
from minitvm.transform import PassContext

FLOAT = "float32"


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(FLOAT)


@st.composite
def normalizations(draw: st.DrawFn) -> tuple[Lrn, np.ndarray]:
    op = Lrn(draw(st.integers(1, 6)), draw(st.sampled_from([1.0, 2.0])),
             draw(st.sampled_from([1e-4, 0.5])), draw(st.sampled_from([0.25, 0.5, 0.6, 0.75, 1.0])))
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 19), st.integers(1, 4),
                           st.integers(1, 4)))
    return op, pixels(*shape, seed=draw(st.integers(0, 1000)))


@given(normalizations())
def test_evaluate_is_the_definition(case: tuple[Lrn, np.ndarray]) -> None:
    """ONNX's own reference takes the batch for the channels."""
    op, data = case
    got, wide = op.evaluate(data), data.astype(np.float64)
    for c in range(data.shape[1]):
        near = wide[:, max(0, c - (op.size - 1) // 2) : c + op.size // 2 + 1]
        base = op.bias + op.alpha / op.size * (near**2).sum(1)
        np.testing.assert_allclose(got[:, c], wide[:, c] / base**op.beta, 2e-6)


@given(normalizations(), st.sampled_from([4, 8, 16]), st.sampled_from([0.0, 0.5, -7.0]))
def test_packed_is_plain(case: tuple[Lrn, np.ndarray], lanes: int, padding: float) -> None:
    """Whatever finite number is in padding lanes, it counts for nothing, and zeros come out."""
    op, data = case
    layout, channels = f"NCHW{lanes}c", data.shape[1]
    choice = op.follow_layout((TensorType(data.shape, FLOAT),), (layout,))
    if choice is None:
        assert op.size > lanes
        return
    packed = pack(data, parse_layout(layout))
    packed[:, -1, :, :, lanes - -channels % lanes :] = padding
    for result in (choice.op.evaluate(packed), computed(choice.op, packed)):
        assert isinstance(result, np.ndarray)
        whole = unpack(result, parse_layout(layout))
        assert not whole[:, channels:].any()
        np.testing.assert_allclose(whole[:, :channels], op.evaluate(data), 2e-6)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("alpha", [0.1, -0.01])
def test_what_is_computed_of_plain_data(layout: str, alpha: float) -> None:
    data = pixels(1, 7, 4, 5)
    op = Lrn(4, alpha=alpha, layout=layout)
    np.testing.assert_allclose(computed(op, data), op.evaluate(data), 2e-6)


@pytest.mark.parametrize(("channels", "target"), [
    (24, ""), (29, ""), (7, ""), (29, "llvm -mcpu=x86-64-v3"),
])  # fmt: skip
def test_machine_code(channels: int, target: str) -> None:
    """Between convolutions it stays packed, behind a sigmoid, whose padding lanes hold one half,
    too; rows are cut in pieces, and the last piece is shorter."""
    machine = Target(target) if target else Target.host()
    if not machine.is_host():
        pytest.skip(f"this machine's CPU lacks instructions of {target}")
    x = Var("x", TensorType((1, 16, 3, 150), FLOAT))
    builder = BlockBuilder(origin("net"))
    weights = [Constant(0.3 * pixels(*shape))
               for shape in ((channels, 16, 1, 1), (16, channels, 1, 1))]
    y = builder.emit(Sigmoid(), builder.emit(Conv2d(), x, weights[0]))
    y = builder.emit(Conv2d(), builder.emit(Lrn(5, alpha=0.5), y), weights[1])
    module = Module({"main": Function((x,), builder.finish(y), y.type)})
    with PassContext(config={"relay.layouts": "greedy"}):
        altered = alter_op_layout(machine)(module)
    moved = [b for b in walk_bindings(altered.main.body) if isinstance(b.value, Call)
             and isinstance(b.value.callee, LayoutTransform)
             and not isinstance(b.value.arguments[0], Constant)]
    assert len(moved) == 2  # in and out
    inputs: dict[str, Any] = {"x": pixels(1, 16, 3, 150)}
    np.testing.assert_allclose(run(altered, inputs)[0], run(module, inputs)[0], 1e-5, 1e-5)
    assert not compiled_difference(module, inputs, target=machine)


def test_what_is_refused() -> None:
    data = TensorType((1, 2, 3, 3, 4), FLOAT)
    for op, given_type, fault in [
        (Lrn(0), TensorType((1, 4, 3, 3), FLOAT), "at least 1"),
        (Lrn(3), TensorType((1, 4, 3, 3), "int32"), "must be floats"),
        (Lrn(5, layout="NCHW4c"), data, "holds less than 5"),
        (Lrn(3, layout="NCHW4c", channels=4), data, "no 4 channels"),
        (Lrn(3, layout="NCHW4c", channels=9), data, "no 9 channels"),
    ]:
        with pytest.raises(TypeInferenceError, match=fault):
            op.infer(given_type)
