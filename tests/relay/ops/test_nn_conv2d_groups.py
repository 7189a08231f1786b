"""Convolutions in groups that begin or end within blocks of channels: packed against plain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_nn_compute import computed
from test_nn_conv2d import Lanes, packed_result

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.driver import compile
from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import Constant, Function, Module, TensorType, Var
from minitvm.relay.layout import pack, parse_layout
from minitvm.relay.op import lookup
from minitvm.relay.ops.nn import Conv2d
from minitvm.relay.ops.nn.conv2d import MOST_EXCESS
from minitvm.relay.ops.nn.conv2d_groups import Blocks
from minitvm.target import Target
from minitvm.testing.compiled import compiled_difference
from minitvm.testing.guarded import stray_access
from minitvm.transform import PassContext

FLOAT = "float32"


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).integers(-4, 5, shape).astype(FLOAT)


@given(st.integers(1, 7), st.integers(1, 40), st.sampled_from([2, 4, 8, 16]))
def test_blocks_of_groups(groups: int, size: int, lanes: int) -> None:
    blocks = Blocks(groups, size, lanes)
    touched: dict[int, set[int]] = {}
    for channel in range(groups * size):
        touched.setdefault(channel // lanes, set()).add(channel // size)
    assert blocks.count == len(touched)
    assert blocks.in_block == max(map(len, touched.values()))
    of_group = [[b for b, found in touched.items() if g in found] for g in range(groups)]
    assert blocks.of_group == max(map(len, of_group))
    assert [blocks.first(group) for group in range(groups)] == [found[0] for found in of_group]


@st.composite
def cut_convolutions(draw: st.DrawFn) -> tuple[Conv2d, np.ndarray, np.ndarray]:
    groups = draw(st.integers(2, 5))
    inputs, filters = draw(st.integers(1, 9)), draw(st.integers(1, 19))
    size = draw(st.sampled_from([1, 1, 2, 3]))
    op = Conv2d(padding=draw(st.integers(0, size // 2)), strides=draw(st.integers(1, 2)),
                dilation=draw(st.integers(1, 2)), groups=groups)
    extents = draw(st.integers(3, 5)), draw(st.integers(3, 6))
    seed = draw(st.integers(0, 1000))
    data = whole(draw(st.integers(1, 2)), groups * inputs, *extents, seed=seed)
    if op.window(size, size).span > (3, 3):
        op = Conv2d(padding=size // 2, groups=groups)
    return op, data, whole(groups * filters, inputs, size, size, seed=seed)


@given(cut_convolutions(), st.sampled_from([4, 8, 16]))
def test_packed_is_plain(case: tuple[Conv2d, np.ndarray, np.ndarray], lanes: int) -> None:
    op, data, weight = case
    got = packed_result(op, data, weight, lanes)
    if got is None:
        assert Blocks(op.groups, len(weight) // op.groups, lanes).excess > MOST_EXCESS
    else:
        np.testing.assert_array_equal(got, op.evaluate(data, weight))


@given(cut_convolutions(), st.sampled_from([4, 8]))
def test_what_is_computed(case: tuple[Conv2d, np.ndarray, np.ndarray], lanes: int) -> None:
    op, data, weight = case
    choice = op.alter_layout((_type(data), _type(weight)), Lanes(lanes))  # type: ignore[arg-type]
    if choice is None:
        return
    arguments = [array if text is None else pack(array, parse_layout(text))
                 for array, text in zip((data, weight), choice.arguments, strict=True)]
    np.testing.assert_array_equal(computed(choice.op, *arguments), choice.op.evaluate(*arguments))


def _type(array: np.ndarray) -> TensorType:
    return TensorType(array.shape, FLOAT)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_groups_do_not_see_one_another(bad: float, size: int) -> None:
    """What is not finite in one group reaches no other one, though they share blocks."""
    data, weight = whole(1, 18, 4, 4), whole(15, 6, size, size)
    data[:, 6:12] = bad
    op = Conv2d(groups=3, padding=size // 2)
    got = packed_result(op, data, weight, 4)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, op.evaluate(data, weight))
    assert np.isfinite(got[:, :5]).all() and np.isfinite(got[:, 10:]).all()


TARGETS = [target for target in (Target.host(), *map(Target, (
    "llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3") if Target.host().isa == "x86_64" else ()))
    if target.is_host()]


@st.composite
def large_cut_convolutions(draw: st.DrawFn) -> tuple[Conv2d, np.ndarray, np.ndarray]:
    """Of several tiles and blocks in every direction, with padding that differs by side."""
    groups, inputs = draw(st.integers(2, 9)), draw(st.integers(1, 21))
    filters, size = draw(st.integers(1, 37)), draw(st.sampled_from([1, 1, 2, 3]))
    pads = draw(st.tuples(*[st.integers(0, size // 2 + 1)] * 4))
    op = Conv2d(padding=draw(st.sampled_from([(0, 0, 0, 0), pads])), groups=groups,
                strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 3))),
                dilation=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))))
    rows, columns = (span + draw(st.integers(0, most))
                     for span, most in zip(op.window(size, size).span, (9, 29), strict=True))
    seed = draw(st.integers(0, 1000))
    data = whole(draw(st.integers(1, 3)), groups * inputs, rows, columns, seed=seed)
    return op, data, whole(groups * filters, inputs, size, size, seed=seed)


def followed(op: Conv2d, data: np.ndarray, weight: np.ndarray, behind: str) -> Module:
    """A convolution and what is fused behind it."""
    params = Var("x", _type(data)), Var("w", _type(weight))
    builder = BlockBuilder(origin("conv"))
    y = builder.emit(op, *params)
    if behind == "add":
        y = builder.emit(lookup("add")(), y, Constant(whole(len(weight), 1, 1)))
    elif behind:
        y = builder.emit(lookup(behind)(), y)
    return Module({"main": Function(params, builder.finish(y), y.type)})


BEHIND = st.sampled_from(["", "nn.relu", "add", "sigmoid"])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@settings(max_examples=16)
@given(large_cut_convolutions(), BEHIND)
def test_machine_code(
    target: Target, case: tuple[Conv2d, np.ndarray, np.ndarray], behind: str
) -> None:
    """It computes what is meant, and stays within its memory."""
    op, data, weight = case
    module = followed(op, data, weight, behind)
    inputs: dict[str, Any] = {"x": data, "w": weight}
    assert not compiled_difference(module, inputs, exact=behind != "sigmoid", target=target)
    assert not stray_access(compile(module, target=target).kernels, threads=2)


@pytest.mark.parametrize("target", TARGETS[1:], ids=lambda target: target.cpu)
@settings(max_examples=6)
@given(cut_convolutions())
def test_checked_code(target: Target, case: tuple[Conv2d, np.ndarray, np.ndarray]) -> None:
    """Memory on the stack, too, is accessed within its bounds."""
    op, data, weight = case
    with PassContext(config={"tir.bound_checks": True}):
        compiled = compile(followed(op, data, weight, "nn.relu"), target=target)
        compiled.run({"x": data, "w": weight})


def test_weights_that_do_not_fit_are_refused() -> None:
    op = Conv2d(groups=3, channels=15, data_layout="NCHW4c", kernel_layout="OIHW6i4o")
    data = TensorType((1, 5, 4, 4, 4), FLOAT)
    weight = TensorType((4, 1, 1, 1, 6, 4), FLOAT)
    assert op.infer(data, weight) == TensorType((1, 4, 4, 4, 4), FLOAT)
    for fault, given_data, given_weight in [
        ("as one block", data, TensorType((4, 2, 1, 1, 6, 4), FLOAT)),
        ("don't fill the data's 24", TensorType((1, 6, 4, 4, 4), FLOAT), weight),
        ("don't give 15 channels", data, TensorType((5, 1, 1, 1, 6, 4), FLOAT)),
    ]:
        with pytest.raises(TypeInferenceError, match=fault):
            op.infer(given_data, given_weight)
    with pytest.raises(TypeInferenceError, match="don't fill whole blocks"):
        Conv2d(data_layout="NCHW4c", kernel_layout="OIHW6i4o").infer(
            TensorType((1, 6, 4, 4, 4), FLOAT), TensorType((4, 4, 1, 1, 6, 4), FLOAT))
