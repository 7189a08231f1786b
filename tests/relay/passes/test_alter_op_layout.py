"""AlterOpLayout: what flows packed, what is unpacked, and that results stay the same."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_nets import (
    FLOAT,
    Lanes,
    Net,
    alter,
    calls,
    constant,
    op,
    same_result,
    transforms,
    whole,
)

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.errors import LoweringError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.interpret import run
from minitvm.relay.ir import (
    Constant,
    Function,
    If,
    Module,
    TensorType,
    Var,
)
from minitvm.relay.onnx import from_onnx
from minitvm.relay.op import LayoutChoice
from minitvm.relay.ops.nn import Conv2d
from minitvm.relay.passes import (
    fold_constant,
    fold_scale_axis,
    legalize,
    simplify_expr,
    simplify_inference,
)
from minitvm.relay.passes.alter_op_layout import alter_op_layout
from minitvm.relay.text import parse_module, print_module
from minitvm.remarks import Remark, collect
from minitvm.testing.relay_strategies import Case, relay_cases
from minitvm.testing.zoo import mobilenet_v2

# --- results ------------------------------------------------------------------------------------


@given(
    relay_cases(exact=True, branches=True, max_moves=12), st.sampled_from([2, 4, 8, 16])
)
def test_random_modules_compute_the_same(case: Case, lanes: int) -> None:
    altered = alter(case.module, lanes)
    for got, wanted in zip(
        run(altered, case.inputs), run(case.module, case.inputs), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


IMAGE_OPERATORS = (
    "nn.conv2d", "nn.max_pool2d", "nn.relu", "add", "subtract", "multiply", "maximum", "sum", "max",
    "abs", "clip", "concatenate", "greater", "where", "nn.pad", "reshape",
)


@given(
    relay_cases(exact=True, max_moves=10, operators=IMAGE_OPERATORS), st.sampled_from([2, 4, 16])
)
def test_random_images_compute_the_same(case: Case, lanes: int) -> None:
    altered = alter(case.module, lanes)
    for got, wanted in zip(
        run(altered, case.inputs), run(case.module, case.inputs), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("channels", [3, 24, 58])
def test_a_residual_block_stays_packed(channels: int, lanes: int) -> None:
    net = Net(channels=3)
    y = net.conv(net.x, channels, 3)
    z = net.emit("nn.relu", net.emit("add", y, constant(channels, 1, 1)))
    weight = constant(channels, 1, 3, 3)
    z = net.emit("nn.conv2d", z, weight, padding=1, groups=channels)
    z = net.emit("clip", z, a_min=0.0, a_max=6.0)
    z = net.emit("add", y, net.conv(z, channels))
    z = net.emit("nn.max_pool2d", z, pool_size=2, strides=2)
    altered = same_result(net.module(net.emit("nn.global_max_pool2d", z)), lanes)
    # The input is read as it is; the output, single pixels, is unpacked.
    assert transforms(altered) <= 1
    layouts = [call.callee.attributes().get("data_layout")  # type: ignore[union-attr]
               for call in calls(altered, "nn.conv2d")]
    assert layouts == [None, f"NCHW{lanes}c", f"NCHW{lanes}c"]


def test_mobilenet_is_packed_from_the_first_to_the_last_convolution() -> None:
    module = from_onnx(mobilenet_v2(0, image=32, width=0.5, classes=10))
    for item in (legalize, simplify_inference, fold_constant, fold_scale_axis):
        module = item(module)
    assert not calls(module, "multiply")  # the batch norms are in the weights
    altered = alter(module, 8)
    assert transforms(altered) == 0  # single pixels at the end: a reshape
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(FLOAT)
    got, wanted = run(altered, {"input": x})[0], run(module, {"input": x})[0]
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


# --- what follows, and what does not ------------------------------------------------------------


def test_constants_broadcast_in_every_way() -> None:
    shapes = [(), (1,), (1, 1, 1, 1), (6, 1, 1), (1, 6, 1, 1), (5,), (5, 5), (1, 5, 5), (5, 1),
              (6, 5, 5), (2, 6, 5, 5), (2, 1, 1, 1), (2, 1, 5, 5)]
    for lanes in (2, 4):
        for shape in shapes:
            net = Net()
            y = net.emit("multiply", constant(*shape), net.conv(net.x, 6))
            altered = same_result(net.module(net.conv(y, 6)), lanes)
            assert transforms(altered) == 2, shape  # in and out, none in between


def test_variables_broadcast_in_every_way() -> None:
    for shape in [(), (6, 1, 1), (5,), (5, 5), (1, 5, 5), (2, 1, 5, 5), (2, 6, 1, 1), (2, 6, 5, 5)]:
        for lanes in (2, 4):
            net = Net()
            y = net.emit("multiply", net.conv(net.x, 6), net.param(*shape))
            same_result(net.module(net.conv(y, 6)), lanes)


@pytest.mark.filterwarnings("error")
def test_padding_lanes_hold_one_finite_number() -> None:
    """6 channels in blocks of 4 have 2 padding lanes: what would fill them with infinities, or with
    unknown or different numbers, is done unpacked."""
    infinite, one = Constant(np.float32(np.inf)), Constant(np.float32(1))
    for chain, follows in [
        ([("exp",)], True), ([("sigmoid",)], True), ([("add", one)], True),
        ([("add", constant(6, 1, 1))], True), ([("nn.relu",)], True), ([("sqrt",)], True),
        ([("negative",)], True), ([("log",)], False), ([("multiply", infinite)], False),
        ([("add", one), ("log",)], True), ([("exp",), ("negative",), ("sqrt",)], False),
        ([("add", constant(1, 5, 5)), ("abs",)], False),
    ]:
        for lanes, padded in ((4, True), (2, False)):
            net = Net()
            y = net.conv(net.x, 6)
            for name, *arguments in chain:
                y = net.emit(name, y, *arguments)
            altered = alter(net.module(net.conv(y, 6)), lanes)
            assert transforms(altered) == (2 if follows or not padded else 4), (chain, lanes)


@pytest.mark.parametrize("size", [1, 5])
def test_gates_of_odd_channels_stay_packed(size: int) -> None:
    """Squeeze and excite: the padding lanes of the gate hold one half, and reach nothing."""
    for lanes in (2, 4, 8):
        net = Net(size=size)
        y = net.conv(net.x, 6)
        gate = net.emit("sigmoid", net.conv(net.emit("nn.global_avg_pool2d", y), 6))
        both = net.emit("add", net.emit("multiply", y, gate), gate)
        module = net.module(net.conv(both, 6))
        altered = alter(module, lanes)
        inputs = {"x": whole(*net.x.type.shape)}
        np.testing.assert_allclose(run(altered, inputs)[0], run(module, inputs)[0], 1e-5, 1e-5)
        assert transforms(altered) <= 2, lanes
        assert calls(altered, "sigmoid")[0].arguments[0].type.rank == 5  # type: ignore[union-attr]


@pytest.mark.parametrize("lanes", [4, 8])
def test_infinities_do_not_leak_from_padding_lanes(lanes: int) -> None:
    net = Net()
    # No weight is zero, so that infinities stay what they are, and are clipped.
    weight = Constant(np.abs(whole(6, 6, 1, 1)) + 1)
    y = net.emit("clip", net.emit("nn.conv2d", net.x, weight), a_min=-6.0, a_max=6.0)
    y = net.emit("nn.conv2d", y, constant(6, 1, 3, 3), padding=1, groups=6)
    y = net.emit("multiply", y, net.param(6, 1, 1))
    module = net.module(net.emit("nn.conv2d", y, weight))
    altered = alter(module, lanes)
    inputs = {"x": whole(2, 6, 5, 5), "p1": whole(6, 1, 1)}
    inputs["x"][0, 1, 2, 3], inputs["x"][1, 0, 0, 0] = np.inf, -np.inf
    (wanted,) = run(module, inputs)
    assert np.isfinite(wanted).all()
    np.testing.assert_array_equal(run(altered, inputs)[0], wanted)


def test_a_pad_that_writes_other_than_zeros_is_done_unpacked() -> None:
    for value, lanes, count in ((0.0, 4, 2), (2.0, 4, 4), (2.0, 2, 2)):
        net = Net()
        widths = ((0, 0), (0, 0), (1, 2), (0, 1))
        y = net.emit("nn.pad", net.conv(net.x, 6), pad_width=widths, pad_value=value)
        altered = same_result(net.module(net.conv(y, 4)), lanes)
        assert transforms(altered) == count


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axis", [(2, 3), (-1,), 2, (0, 2), (0, 1, 2, 3), (1,), None])
@pytest.mark.parametrize("name", ["sum", "max"])
def test_reductions(name: str, axis: Any, keepdims: bool) -> None:
    for lanes in (2, 4):
        net = Net(size=4)
        y = net.emit(name, net.conv(net.x, 6), axis=axis, keepdims=keepdims)
        altered = same_result(net.module(net.emit("abs", y)), lanes)
        reduced = calls(altered, name)[0].arguments[0].type
        assert isinstance(reduced, TensorType)
        axes = (axis,) if isinstance(axis, int) else axis or (1,)
        assert reduced.rank == (4 if 1 in axes else 5)


def test_a_mean_follows_once_it_is_a_sum_and_a_division() -> None:
    net = Net(size=4)
    y = net.emit("mean", net.conv(net.x, 6), axis=(2, 3), keepdims=True)
    module = legalize(net.module(net.conv(y, 4)))
    altered = same_result(module, 4)
    assert transforms(altered) == 1  # of x; the result is single pixels


@pytest.mark.parametrize(
    ("channels", "axis", "follows"),
    [((8, 4), 1, True), ((8, 6), 1, True), ((6, 8), 1, True), ((6, 8), -3, True),
     ((3, 3, 5), 1, True), ((1, 8), 1, False), ((6, 6), 0, True), ((6, 6), -1, True)],
)
def test_concatenation(channels: tuple[int, ...], axis: int, follows: bool) -> None:
    net = Net()
    parts = [net.conv(net.x, filters) for filters in channels]
    y = net.emit("concatenate", *parts, axis=axis)
    altered = same_result(net.module(net.conv(net.emit("nn.relu", y), 4)), 4)
    assert transforms(altered) == (2 if follows else 5)


@pytest.mark.parametrize(("begin", "end"), [(0, 3), (1, 4), (3, 10), (2, 6), (5, 13)])
def test_pieces_that_are_no_whole_blocks(begin: int, end: int) -> None:
    net = Net()
    y = net.emit("strided_slice", net.conv(net.x, 13), begin=(0, begin), end=(2, end))
    assert transforms(same_result(net.module(net.conv(y, 4)), 4)) == 2


@given(st.integers(1, 5), st.integers(2, 5), st.integers(0, 20), st.sampled_from([4, 8, 16]),
       st.booleans())
def test_halves_that_are_shuffled(
    size: int, groups: int, cut: int, lanes: int, is_flat: bool
) -> None:
    """What a reshape, a transposition and a reshape do to channels, with a slice before and a
    concatenation, is done on packed ones; with one operator where it began as three."""
    net, channels = Net(), size * groups
    y = net.conv(net.x, channels + cut)
    left = net.emit("strided_slice", y, begin=(0, 0), end=(2, channels))
    right = net.emit("strided_slice", y, begin=(0, cut), end=(2, channels + cut))
    y = net.emit("concatenate", left, right, axis=1)
    image = (25,) if is_flat else (5, 5)
    y = net.emit("reshape", y, newshape=(2, groups, 2 * size, *image))
    y = net.emit("transpose", y, axes=(0, 2, 1, *range(3, 3 + len(image))))
    y = net.emit("reshape", y, newshape=(2, 2 * channels, 5, 5))
    altered = same_result(simplify_expr(net.module(net.conv(y, 4))), lanes)
    assert calls(altered, "nn.channel_shuffle") and not calls(altered, "transpose")
    if 2 * channels >= lanes:
        assert transforms(altered) <= 2


def test_what_reorders_is_unpacked_and_packed_again() -> None:
    for name, attributes in [
        ("reshape", {"newshape": (2, 3, 10, 5)}), ("transpose", {"axes": (0, 1, 3, 2)}),
        ("nn.softmax", {"axis": 1}),
        ("strided_slice", {"begin": (0, 1), "end": (2, 6), "strides": (1, 2)}),
        ("expand_dims", {"axis": 0}), ("broadcast_to", {"shape": (2, 6, 5, 5)}),
    ]:
        net = Net()
        y = net.emit(name, net.conv(net.x, 6), **attributes)
        if name == "expand_dims":
            y = net.emit("squeeze", y, axis=(0,))
        altered = same_result(net.module(net.conv(y, 4)), 2)
        assert transforms(altered) == 4, name


def test_a_value_used_both_ways_is_unpacked_once() -> None:
    net = Net()
    y = net.conv(net.x, 8)
    shapes = [net.emit("reshape", y, newshape=(-1,)) for _ in range(3)]
    total = net.emit("add", shapes[0], net.emit("add", shapes[1], shapes[2]))
    z = net.emit("reshape", net.conv(y, 8), newshape=(-1,))
    altered = same_result(net.module(net.emit("add", total, z)), 8)
    assert transforms(altered) == 3  # x once, y once, and the second convolution's result


def test_branches_see_packed_values_and_keep_their_transforms_to_themselves() -> None:
    for value in (True, False):
        net = Net()
        y = net.conv(net.x, 8)
        blocks = []
        for name in ("abs", "negative"):
            inner = BlockBuilder(origin(name), parent=net.builder)
            z = inner.emit(Conv2d(), inner.emit(op(name), y), constant(8, 8, 1, 1))
            flat = inner.emit(op("reshape", newshape=(-1,)), y)
            back = inner.emit(op("reshape", newshape=(2, 8, 5, 5)), flat)
            blocks.append(inner.finish(inner.emit(op("add"), z, back)))
        choice = net.builder.emit(If(Constant(np.array(value)), *blocks), origin=origin("if"))
        altered = same_result(net.module(net.emit("add", choice, y)), 8)
        assert f'data_layout="NCHW{8}c"' in print_module(altered)


def test_a_few_channels_in_the_middle_stay_packed() -> None:
    net = Net(channels=8)
    gate = net.emit("nn.relu", net.conv(net.conv(net.x, 16), 2))
    altered = same_result(net.module(net.conv(gate, 16)), 8)
    assert transforms(altered) == 2


def test_other_dtypes_and_scalar_targets_are_left_alone() -> None:
    net = Net()
    module = net.module(net.conv(net.x, 8))
    assert alter(module, 1) is module
    x = Var("x", TensorType((1, 8, 3, 3), "int32"))
    builder = BlockBuilder(origin("n"))
    y = builder.emit(Conv2d(), x, Constant(whole(8, 8, 1, 1).astype("int32")))
    integers = Module({"main": Function((x,), builder.finish(y), y.type)})
    assert alter_op_layout(Lanes(8))(integers) is integers  # type: ignore[arg-type]


def test_dense_packs_its_weight_alone() -> None:
    net = Net(size=1)
    flat = net.emit("reshape", net.x, newshape=(2, 6))
    altered = same_result(net.module(net.emit("nn.dense", flat, constant(10, 6))), 8)
    (dense,) = calls(altered, "nn.dense")
    assert dense.callee.attributes() == {"kernel_layout": "NK8n", "units": 10}  # type: ignore[union-attr]
    assert transforms(altered) == 0


def declined(remarks: list[Remark]) -> list[str]:
    """Those about what is unpacked, not those that say what convolutions cost."""
    return [str(item) for item in remarks if "by the model" not in item.reason]


def test_what_does_not_follow_is_a_remark() -> None:
    net = Net()
    y = net.emit("log", net.conv(net.x, 6))
    module = net.module(net.emit("nn.softmax", y))
    with collect() as remarks:
        alter(module, 4)
    assert [item.split(",")[0] for item in declined(remarks)] == [
        "AlterOpLayout: log may fill padded channels with infinite or different numbers",
    ]
    with collect() as remarks:
        alter(module, 2)
    assert "nn.softmax does not take packed arguments" in declined(remarks)[0]
    net = Net(size=1)
    pixels = net.module(net.emit("nn.softmax", net.conv(net.x, 6)))
    with collect() as remarks:
        alter(pixels, 2)
    assert not declined(remarks)  # unpacking single pixels costs nothing


def test_an_operator_whose_choice_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Conv2d, types: Any, target: Any) -> tuple[LayoutChoice, ...]:
        return (LayoutChoice(self, (None, None), "NCHW8c"),)

    monkeypatch.setattr(Conv2d, "layout_alternatives", wrong)
    net = Net()
    with pytest.raises(LoweringError, match=r"nn.conv2d, of \"node0\", does not give NCHW8c"):
        alter(net.module(net.conv(net.x, 6)), 8)


def test_long_chains_take_linear_time() -> None:
    net = Net(channels=4, size=1)
    y = net.conv(net.x, 8)
    for _ in range(10_000):
        y = net.emit("nn.relu", y)
    module = net.module(y)
    start = time.process_time()
    altered = alter_op_layout(Lanes(8))(module)  # type: ignore[arg-type]
    assert time.process_time() - start < 3
    assert transforms(altered) == 0 and len(altered.main.body.bindings) < 10_010


@pytest.mark.parametrize("number", [1, 2])
def test_the_examples_of_the_docstring(number: int) -> None:
    text = alter_op_layout.__doc__
    assert text is not None
    before, after = (
        "\n".join(line[8:] for line in part.splitlines() if line.startswith(" " * 8)).strip() + "\n"
        for part in text.split("Before:")[number].split("After:")
    )
    assert print_module(alter(parse_module(before), 8)).strip() == after.strip()
    assert print_module(parse_module(after)).strip() == after.strip()
