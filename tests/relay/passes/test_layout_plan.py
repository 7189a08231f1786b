"""Plans of layouts: the least cost of all assignments, never more than the greedy one's."""

from __future__ import annotations

import itertools
import re
import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from layout_nets import Lanes, Net, calls, constant, same_result, transforms

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.errors import OptionError
from minitvm.relay.interpret import run
from minitvm.relay.ir import Call, Module, Var, tensor_type, walk_bindings
from minitvm.relay.layout import parse_layout
from minitvm.relay.onnx import from_onnx
from minitvm.relay.ops.layout_transform import LayoutTransform
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.passes import fold_constant, fold_scale_axis, legalize, simplify_inference
from minitvm.relay.passes.alter_op_layout import alter_op_layout
from minitvm.relay.passes.layout_costs import Costs
from minitvm.relay.passes.layout_plan import plan_layouts, read_graph
from minitvm.relay.text import parse_module
from minitvm.relay.verify import verify
from minitvm.remarks import collect
from minitvm.target import Target
from minitvm.testing.relay_strategies import Case, relay_cases
from minitvm.testing.zoo import mobilenet_v1, mobilenet_v2
from minitvm.testing.zoo_classic import densenet, resnet, squeezenet
from minitvm.testing.zoo_mobile import efficientnet_b0, mobilenet_v3
from minitvm.transform import PassContext

AVX2 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
AVX512 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4")
NEON = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")


def brute_force(module: Module, target: Target) -> float:
    """The least cost of all assignments: each has the transforms that it needs, once each."""
    graph = read_graph(module.main.body, Costs(target))
    problem = graph.problem()
    considered = graph.considered
    best = np.inf
    for items in itertools.product(*(found.items for found in considered.values())):
        states = graph.states_of(dict(zip(considered, items, strict=True)))
        best = min(best, problem.total(states))
    return best


def assignments(module: Module, target: Target) -> int:
    graph = read_graph(module.main.body, Costs(target))
    count = 1
    for found in graph.considered.values():
        count *= len(found.items)
    return count


def convolutions(module: Module) -> list[str]:
    return [f"{b.value.callee.data_layout} {b.value.callee.kernel_layout}"
            for b in walk_bindings(module.main.body)
            if isinstance(b.value, Call) and isinstance(b.value.callee, Conv2d)]


@given(relay_cases(exact=True, branches=True, max_moves=12), st.sampled_from([2, 4, 8, 16]))
def test_planned_modules_compute_the_same(case: Case, lanes: int) -> None:
    altered = alter_op_layout(Lanes(lanes))(case.module)
    verify(altered)
    for got, wanted in zip(
        run(altered, case.inputs), run(case.module, case.inputs), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


IMAGES = ("nn.conv2d", "nn.max_pool2d", "nn.relu", "add", "concatenate", "sum", "reshape")


@given(relay_cases(exact=True, max_moves=9, operators=IMAGES), st.sampled_from([AVX2, AVX512]))
def test_small_graphs_have_the_least_cost(case: Case, target: Target) -> None:
    assume(assignments(case.module, target) <= 4000)
    plan = plan_layouts(case.module.main.body, target)
    best = brute_force(case.module, target)
    assert plan.cost >= best - 1e-15
    if plan.exact:
        assert plan.cost <= best + 1e-15


@given(relay_cases(exact=True, branches=True, max_moves=30),
       st.sampled_from([AVX2, AVX512, NEON]))
def test_no_plan_costs_more_than_the_greedy_one(case: Case, target: Target) -> None:
    plan = plan_layouts(case.module.main.body, target)
    greedy = plan_layouts(case.module.main.body, target, greedy=True)
    assert plan.cost <= plan.greedy_cost == greedy.cost


ZOO = {
    "mobilenet_v1": lambda: mobilenet_v1(0, image=64, width=0.25),
    "mobilenet_v2": lambda: mobilenet_v2(0, image=64, width=0.35),
    "mobilenet_v3_small": lambda: mobilenet_v3("small", image=64),
    "efficientnet_b0": lambda: efficientnet_b0(image=64),
    "resnet": lambda: resnet(18, image=64, width=0.25),
    "squeezenet": lambda: squeezenet(image=64),
    "densenet": lambda: densenet(image=64, growth=12),
}


@pytest.mark.parametrize("name", ZOO)
def test_networks_cost_no_more_than_by_greed(name: str) -> None:
    module = from_onnx(ZOO[name]())
    for item in (legalize, simplify_inference, fold_constant, fold_scale_axis):
        module = item(module)
    for target in (AVX2, AVX512, NEON):
        plan = plan_layouts(module.main.body, target)
        assert 0 < plan.cost <= plan.greedy_cost < np.inf


def test_a_plan_prints_what_it_takes_and_what_else_there_is() -> None:
    net = Net(channels=64, size=28)
    module = net.module(net.conv(net.x, 64))
    first, last = str(plan_layouts(module.main.body, AVX512)).splitlines()
    assert ": NCHW16c -> NCHW16c " in first and "* plain -> NCHW16c " in first
    assert last.startswith("in all ") and last.endswith("the least there is")


def test_what_a_plan_costs_is_what_the_module_then_has() -> None:
    """The modelled cost is that of the operators and the transforms of the altered module."""
    net = Net(channels=24, size=12)
    y = net.emit("nn.relu", net.conv(net.x, 40, 3))
    z = net.emit("add", net.conv(y, 40), y)
    flat = net.emit("reshape", z, newshape=(2, -1))
    module = net.module(net.emit("add", net.emit("nn.softmax", flat),
                                 net.emit("reshape", net.conv(z, 40), newshape=(2, -1))))
    costs = Costs(AVX512)
    altered = alter_op_layout(AVX512)(module)
    total = 0.0
    for binding in walk_bindings(altered.main.body):
        call = binding.value
        assert isinstance(call, Call)
        if isinstance(call.callee, LayoutTransform):
            if isinstance(call.arguments[0], Var):
                op = call.callee
                plain = tensor_type(net.x).__class__(
                    op.source.unpack_shape(tensor_type(call.arguments[0]).shape)
                    if not op.shape else op.shape, "float32")
                total += costs.transform(plain, op.source, op.target)
            continue
        types = tuple(map(tensor_type, call.arguments))
        result = tensor_type(binding.var)
        layout = parse_layout(f"NCHW{result.shape[-1]}c") if result.rank == 5 else None
        total += costs.operator(call.callee, types, result, layout)
    plan = plan_layouts(module.main.body, AVX512)
    assert total == pytest.approx(plan.cost)


# --- which layouts ------------------------------------------------------------------------------


def test_long_runs_of_convolutions_are_packed() -> None:
    net = Net(channels=64, size=28)
    y = net.x
    for _ in range(4):
        y = net.emit("nn.relu", net.conv(y, 64, 3))
    for target, block in ((AVX512, 16), (AVX2, 8), (NEON, 4)):
        altered = alter_op_layout(target)(net.module(y))
        layouts = convolutions(altered)
        assert layouts[1:] == [f"NCHW{block}c OIHW{block}i{block}o"] * 3, target
        assert transforms(altered) <= 2


def test_a_few_channels_are_packed_in_half_blocks() -> None:
    net = Net(channels=8, size=32)
    y = net.x
    for _ in range(4):
        y = net.emit("nn.relu", net.conv(y, 8, 3))
    module = net.module(y)
    assert {text.split()[1][-2:] for text in convolutions(alter_op_layout(AVX512)(module))} == {
        "8o"}
    assert "NCHW4c OIHW4i4o" not in convolutions(alter_op_layout(AVX2)(module))


def test_a_lone_convolution_reads_plain_data() -> None:
    net = Net(channels=64, size=28)
    altered = alter_op_layout(AVX512)(net.module(net.conv(net.x, 64)))
    assert convolutions(altered) == ["NCHW OIHW64i16o"]
    assert transforms(altered) == 1


def test_one_filter_over_a_wide_image_stays_plain() -> None:
    net = Net(channels=16, size=112)
    module = net.module(net.conv(net.x, 1))
    assert alter_op_layout(AVX512)(module) is module


def test_single_pixels_are_never_transformed() -> None:
    net = Net(channels=64, size=1)
    y = net.emit("nn.relu", net.conv(net.emit("nn.relu", net.conv(net.x, 32)), 64))
    assert transforms(alter_op_layout(AVX512)(net.module(y))) == 0


def test_a_value_read_in_two_forms_is_transformed_once_for_each() -> None:
    """Where it is read plain by three calls and packed by one, one transform unpacks it."""
    net = Net(channels=64, size=28)
    y = net.emit("nn.relu", net.conv(net.emit("nn.relu", net.conv(net.x, 64, 3)), 64, 3))
    parts = [net.emit("nn.softmax", y, axis=axis) for axis in (1, 2, 3)]
    tail = net.emit("nn.softmax", net.conv(net.conv(y, 64, 3), 64, 3), axis=1)
    total = net.emit("add", net.emit("add", parts[0], parts[1]), net.emit("add", parts[2], tail))
    module = net.module(total)
    altered = alter_op_layout(AVX512)(module)
    plan = plan_layouts(module.main.body, AVX512)
    assert plan.exact and plan.chosen[y].result == parse_layout("NCHW16c")
    unpacked = [call for call in calls(altered, "layout_transform")
                if tensor_type(call.arguments[0]).rank == 5]
    assert len(unpacked) == 2  # y, and the last convolution's result


def test_numbers_in_padding_lanes_are_kept_where_they_matter() -> None:
    """log(x + 1) is finite in padding lanes only where the sum was computed packed itself."""
    net = Net(channels=6, size=20)
    y = net.emit("add", net.conv(net.x, 6, 3), constant(6, 1, 1))
    z = net.emit("log", net.emit("exp", net.emit("abs", y)))
    module = net.module(net.conv(z, 6, 3))
    for target in (AVX2, AVX512):
        inputs = {"x": np.ones(net.x.type.shape, np.float32)}  # type: ignore[union-attr]
        got, wanted = (run(item, inputs)[0] for item in (alter_op_layout(target)(module), module))
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-3)
        assert np.isfinite(got).all()


def test_operators_that_prefer_other_attributes_get_them() -> None:
    """Attention has plain arguments and a plain result, but takes the number of lanes."""
    net = Net(channels=4, size=8)
    module = net.module(net.emit("nn.attention", net.x, net.x, net.x, scale=0.5))
    (call,) = calls(alter_op_layout(AVX512)(module), "nn.attention")
    assert call.callee.attributes()["lanes"] == 16  # type: ignore[union-attr]


# --- what is told, and how long it takes ----------------------------------------------------------


def test_a_convolution_that_declines_what_it_prefers_says_why() -> None:
    net = Net(channels=64, size=28)
    module = net.module(net.conv(net.conv(net.x, 8, 3), 8, 3))
    with collect() as remarks:
        alter_op_layout(AVX512)(module)
    told = [item for item in remarks if "by the model" in item.reason]
    assert [str(item.origin) for item in told] == ['"node0"', '"node1"']
    for item in told:
        assert re.fullmatch(r"nn.conv2d works \S+ -> \S+: by the model that takes [\d.]+ us, "
                            r"\S+ -> NCHW16c [\d.]+ us and its transforms", item.reason)


def test_greedy_is_an_option_and_other_words_are_refused() -> None:
    net = Net(channels=64, size=28)
    module = net.module(net.conv(net.x, 64, 3))
    with PassContext(config={"relay.layouts": "greedy"}):
        assert convolutions(alter_op_layout(AVX512)(module)) == ["NCHW16c OIHW16i16o"]
    with (PassContext(config={"relay.layouts": "best"}),
          pytest.raises(OptionError, match="may be 'planned' or 'greedy'")):
        alter_op_layout(AVX512)(module)


def test_long_chains_are_planned_in_linear_time() -> None:
    net = Net(channels=4, size=8)
    y = net.conv(net.x, 8)
    for number in range(10_000):
        y = net.emit("add", y, y) if number % 2 else net.emit("nn.relu", y)
    module = net.module(net.conv(y, 8))
    start = time.process_time()
    plan = plan_layouts(module.main.body, AVX512)
    assert time.process_time() - start < 4
    assert plan.exact and len(plan.chosen) == 10_002
    same_kind = {plan.chosen[b.var].result for b in module.main.body.bindings[1:-1]}
    assert len(same_kind) == 1


def test_batches_of_unknown_size_can_be_planned() -> None:
    module = parse_module(
        'def main(x: Tensor((N, 32, 16, 16), "float32"), w: Tensor((32, 32, 3, 3), "float32"))'
        ' -> Tensor((N, 32, 14, 14), "float32"):\n'
        '    v0 = nn.conv2d(x, w)  #: "conv"\n    return v0\n')
    plan = plan_layouts(module.main.body, AVX512)
    assert 0 < plan.cost <= plan.greedy_cost


def test_results_of_small_networks_stay_the_same() -> None:
    for lanes in (4, 8, 16):
        net = Net(channels=6, size=10)
        y = net.emit("nn.relu", net.conv(net.x, 24, 3))
        z = net.emit("concatenate", net.conv(y, 16), net.conv(y, 10, 3), y, axis=1)
        same_result(net.module(net.conv(net.emit("nn.max_pool2d", z, pool_size=2, strides=2), 8)),
                    lanes)
