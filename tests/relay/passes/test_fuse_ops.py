"""FuseOps: which operators share a kernel, what kernels look like, and the properties of groups."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import assert_same, emitter, main, modules, op

from minitvm import remarks
from minitvm.errors import OptionError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Binding,
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    atoms,
)
from minitvm.relay.op import Pattern
from minitvm.relay.passes.fuse_ops import dataflow, fuse, fuse_ops
from minitvm.relay.passes.partition import Node, Partition, PostDominators
from minitvm.relay.verify import verify
from minitvm.transform import PassContext

IMAGE = TensorType((1, 8, 6, 6), "float32")


def image(name="x"):
    return Var(name, IMAGE)


def weight(size=1):
    return Constant(np.ones((8, 8, size, size), "float32"))


def conv(e, x, size=1):
    pad = size // 2
    return e(op("nn.conv2d", padding=(pad,) * 4), x, weight(size))


def kernels(module, level=3, limit=64):
    """The names of the kernels that `main` calls, in order."""
    after = fuse(module, level, limit)
    verify(after)
    return [b.value.callee.name for b in after.main.body.bindings
            if isinstance(b.value, Call) and isinstance(b.value.callee, GlobalVar)]


# --- rules --------------------------------------------------------------------------------------


def conv_bias_clip(b, x):
    e = emitter(b)
    bias = Constant(np.ones((8, 1, 1), "float32"))
    return e(op("clip", a_min=0.0, a_max=6.0), e(op("add"), conv(e, x), bias))


def test_convolution_takes_bias_and_clip():
    module = main([image()], conv_bias_clip)
    assert kernels(module) == ["fused_nn_conv2d_add_clip"]


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_every_level_but_zero_fuses_behind_a_convolution(level):
    assert kernels(main([image()], conv_bias_clip), level) == ["fused_nn_conv2d_add_clip"]


def test_level_zero_makes_one_kernel_an_operator():
    names = kernels(main([image()], conv_bias_clip), 0)
    assert names == ["fused_nn_conv2d", "fused_add", "fused_clip"]


def test_an_operator_without_arguments_may_be_a_kernel_of_its_own():
    builder = BlockBuilder()
    zeros = builder.emit(op("zeros", shape=(4,), dtype="float32"), origin=origin("zeros"))
    x = Var("x", zeros.type)
    body = builder.finish(builder.emit(op("add"), x, zeros, origin=origin("add")))
    before = Module({"main": Function((x,), body, zeros.type)})
    with PassContext(opt_level=0):
        after = fuse_ops(before)
    assert sorted(f.body.bindings[0].value.callee.name for f in after.functions.values()
                  if f.is_primitive) == ["add", "zeros"]


def test_pass_takes_its_level_and_limit_from_the_context():
    module = main([image()], conv_bias_clip)
    with PassContext(opt_level=0):
        assert len(fuse_ops(module).functions) == 4
    with PassContext(opt_level=3, config={"relay.fuse_max_depth": 2}):
        assert len(fuse_ops(module).functions) == 3
    with PassContext(opt_level=3):
        assert len(fuse_ops(module).functions) == 2


def test_residual_addition_fuses_into_the_later_convolution():
    def build(b, x):
        e = emitter(b)
        first = e(op("nn.relu"), conv(e, x))
        second = conv(e, first)
        return e(op("add"), first, second)

    after = fuse(main([image()], build), 3)
    assert [b.value.callee.name for b in after.main.body.bindings] == [
        "fused_nn_conv2d_nn_relu", "fused_nn_conv2d_add"]


def test_two_convolutions_never_share_a_kernel():
    def build(b, x):
        e = emitter(b)
        return e(op("add"), conv(e, x), conv(e, x, 3))

    assert kernels(main([image()], build)) == ["fused_nn_conv2d", "fused_nn_conv2d_add"]


def test_convolution_that_is_spread_by_broadcast_stays_apart():
    def build(b, x, y):
        e = emitter(b)
        return e(op("multiply"), conv(e, x), y)

    small = Var("x", TensorType((1, 8, 1, 1), "float32"))
    assert kernels(main([small, image("y")], build)) == ["fused_nn_conv2d", "fused_multiply"]
    assert kernels(main([image(), small], build)) == ["fused_nn_conv2d_multiply"]


def test_value_used_twice_fuses_where_its_paths_meet():
    def build(b, x):
        e = emitter(b)
        y = e(op("abs"), x)
        return e(op("add"), e(op("negative"), y), e(op("nn.relu"), y))

    assert kernels(main([image()], build)) == ["fused_abs_negative_nn_relu_add"]


def test_output_is_never_hidden_in_a_kernel():
    def build(b, x):
        e = emitter(b)
        y = e(op("abs"), x)
        return e(Tuple((y, e(op("negative"), y))))

    assert kernels(main([image()], build)) == ["fused_abs", "fused_negative"]


def test_elementwise_fuses_into_a_reduction_but_a_reduction_starts_nothing():
    def build(b, x):
        e = emitter(b)
        return e(op("abs"), e(op("sum", axis=(2, 3)), e(op("negative"), x)))

    assert kernels(main([image()], build)) == ["fused_negative_sum", "fused_abs"]


def test_a_reduction_in_between_keeps_its_ends_apart():
    def build(b, x):
        e = emitter(b)
        y = e(op("abs"), x)
        return e(op("subtract"), y, e(op("max", axis=(1,), keepdims=True), y))

    assert kernels(main([image()], build)) == ["fused_abs", "fused_max", "fused_subtract"]


def test_nothing_fuses_into_the_input_of_a_convolution():
    def build(b, x):
        e = emitter(b)
        return conv(e, e(op("abs"), x))

    assert kernels(main([image()], build)) == ["fused_abs", "fused_nn_conv2d"]


def transpose_then_abs(b, x):
    e = emitter(b)
    return e(op("abs"), e(op("transpose", axes=(0, 2, 3, 1)), x))


def test_injective_operators_wait_for_phase_one():
    module = main([image()], transpose_then_abs)
    assert kernels(module, 1) == ["fused_transpose", "fused_abs"]
    assert kernels(module, 2) == ["fused_transpose_abs"]


def concatenate_two(b, x):
    e = emitter(b)
    return e(op("concatenate", axis=1), e(op("abs"), x), e(op("negative"), x))


def test_fusing_into_a_concatenation_waits_for_phase_two():
    module = main([image()], concatenate_two)
    assert kernels(module, 2) == ["fused_abs", "fused_negative", "fused_concatenate"]
    assert kernels(module, 3) == ["fused_abs_negative_concatenate"]


def abs_then_layout(b, x):
    e = emitter(b)
    return e(op("layout_transform", "NCHW", "NCHW8c"), e(op("abs"), x))


def test_only_level_four_fuses_across_layout_changes():
    module = main([image()], abs_then_layout)
    assert kernels(module, 3) == ["fused_abs", "fused_layout_transform"]
    assert kernels(module, 4) == ["fused_abs_layout_transform"]


# --- kernels ------------------------------------------------------------------------------------


def test_constants_of_one_element_stay_inside_and_others_are_passed():
    def build(b, x):
        e = emitter(b)
        y = e(op("multiply"), x, Constant(np.float32(2)))
        return e(op("add"), y, Constant(np.ones((8, 1, 1), "float32")))

    after = fuse(main([image()], build), 3)
    (call,) = after.main.body.bindings
    kernel = after.functions[call.value.callee.name]
    assert [p.type.shape for p in kernel.params] == [(1, 8, 6, 6), (8, 1, 1)]
    assert isinstance(call.value.arguments[1], Constant)
    assert isinstance(kernel.body.bindings[0].value.arguments[1], Constant)


def test_a_constant_read_twice_is_passed_once():
    shared = Constant(np.ones((8, 1, 1), "float32"))

    def build(b, x):
        e = emitter(b)
        return e(op("multiply"), e(op("add"), x, shared), shared)

    after = fuse(main([image()], build), 3)
    assert len(after.main.body.bindings[0].value.arguments) == 2


def test_equal_groups_share_a_kernel_with_the_origins_of_all():
    def build(b, x):
        e = emitter(b)
        return conv(e, conv(e, x))

    after = fuse(main([image()], build), 3)
    first, second = after.main.body.bindings
    assert first.value.callee == second.value.callee
    assert (first.origin, second.origin) == (origin("n0"), origin("n1"))
    (inner,) = after.functions[first.value.callee.name].body.bindings
    assert inner.origin == origin("n0", "n1")


def test_equal_names_are_told_apart():
    def build(b, x):
        e = emitter(b)
        return conv(e, conv(e, x, 3), 1)

    assert kernels(main([image()], build)) == ["fused_nn_conv2d", "fused_nn_conv2d_1"]


def test_long_kernels_have_short_names():
    def build(b, x):
        e = emitter(b)
        for _ in range(20):
            x = e(op("abs"), x)
        return x

    (name,) = kernels(main([image()], build))
    assert name == "fused_abs_abs_abs_abs_abs_abs_and_14_more"


def reshape_twice(b, x):
    e = emitter(b)
    return e(op("expand_dims", axis=0), e(op("reshape", newshape=(8, 36)), x))


def test_a_kernel_that_only_reshapes_is_marked():
    after = fuse(main([image()], reshape_twice), 3)
    (call,) = after.main.body.bindings
    assert after.functions[call.value.callee.name].attrs == {
        "primitive": True, "reshape_only": True}


def test_a_kernel_that_also_computes_is_not_marked():
    def build(b, x):
        e = emitter(b)
        return e(op("abs"), e(op("reshape", newshape=(8, 36)), x))

    after = fuse(main([image()], build), 3)
    assert after.functions["fused_reshape_abs"].attrs == {"primitive": True}


def test_a_reshaped_constant_is_not_marked_as_a_view():
    def build(b, x):
        e = emitter(b)
        return e(op("reshape", newshape=(8, 8)), weight())

    after = fuse(main([image()], build), 0)
    assert after.functions["fused_reshape"].attrs == {"primitive": True}


def test_split_gives_a_tuple_whose_fields_stay_in_main():
    def build(b, x):
        e = emitter(b)
        parts = e(op("split", 2, axis=1), x)
        left, right = e(TupleGetItem(parts, 0)), e(TupleGetItem(parts, 1))
        return e(Tuple((e(op("abs"), left), right)))

    after = fuse(main([image()], build), 3)
    assert [type(b.value).__name__ for b in after.main.body.bindings] == [
        "Call", "TupleGetItem", "TupleGetItem", "Call", "Tuple"]
    for name, function in after.functions.items():
        if name != "main":
            assert all(isinstance(param.type, TensorType) for param in function.params)


def test_split_whose_pieces_meet_again_is_one_kernel():
    def build(b, x):
        e = emitter(b)
        parts = e(op("split", 2, axis=1), x)
        left, right = e(TupleGetItem(parts, 0)), e(TupleGetItem(parts, 1))
        return e(op("multiply"), left, e(op("sigmoid"), right))

    assert len(kernels(main([image()], build))) == 1


def test_fields_of_tuples_made_here_are_read_directly():
    def build(b, x):
        e = emitter(b)
        both = e(Tuple((e(op("abs"), x), x)))
        return e(op("negative"), e(TupleGetItem(both, 0)))

    assert "fused_abs_negative" in kernels(main([image()], build))


def test_limit_is_kept_and_remarked():
    def build(b, x):
        e = emitter(b)
        for _ in range(10):
            x = e(op("abs"), x)
        return x

    with remarks.collect() as found:
        after = fuse(main([image()], build), 3, max_depth=4)
    sizes = [len(f.body.bindings) for n, f in after.functions.items() if n != "main"]
    assert max(sizes) == 4 and len(after.main.body.bindings) == 3
    assert found and all(r.pass_name == "FuseOps" and "more than 4" in r.reason for r in found)


@pytest.mark.parametrize("limit", [0, -1, "64", None, 2.0])
def test_a_limit_that_is_no_positive_integer_is_refused(limit):
    module = main([image()], conv_bias_clip)
    with (
        PassContext(config={"relay.fuse_max_depth": limit}),
        pytest.raises(OptionError, match="positive integer"),
    ):
        fuse_ops(module)


def test_bodies_of_closures_are_fused():
    def build(b, x):
        e = emitter(b)
        y = e(op("abs"), x)
        inner, param = BlockBuilder(parent=b), image("p")
        i = emitter(inner)
        body = inner.finish(i(op("negative"), i(op("add"), param, y)))
        closure = e(Function((param,), body, IMAGE))
        return e(Call(closure, (x,)))

    module = main([image()], build)
    after = fuse(module, 3)
    verify(after)
    assert_same(module, after)
    closure = next(b.value for b in after.main.body.bindings if isinstance(b.value, Function))
    assert [b.value.callee.name for b in closure.body.bindings] == ["fused_add_negative"]


def test_other_functions_of_the_module_are_fused_and_kernels_are_not():
    inner = main([image("p")], conv_bias_clip).main
    y = Var("y", IMAGE)
    x = image()
    call = Binding(y, Call(GlobalVar("block", inner.type), (x,)), origin("call"))
    module = Module({"main": Function((x,), Block((call,), y), IMAGE), "block": inner})
    after = fuse(module, 3)
    verify(after)
    assert_same(module, after)
    assert set(after.functions) == {"main", "block", "fused_nn_conv2d_add_clip"}
    assert after.main is module.main


# --- properties ---------------------------------------------------------------------------------


@given(module=modules(), level=st.integers(0, 4), limit=st.sampled_from([1, 2, 3, 64]))
def test_fused_equals_unfused(module, level, limit):
    after = fuse(module, level, limit)
    verify(after)
    assert_same(module, after)
    assert fuse(after, level, limit) is after
    for name, function in after.functions.items():
        for binding in function.body.bindings if name != "main" else ():
            inside = [a for a in atoms(binding.value) if isinstance(a, Constant)]
            assert all(constant.data.size == 1 for constant in inside)


@given(module=modules(branches=False), level=st.integers(0, 4), limit=st.sampled_from([2, 3, 64]))
def test_groups_are_convex_with_one_output_and_one_complex_operator(module, level, limit):
    _, nodes = dataflow(module.main.body, level)
    groups = Partition(nodes, level, limit).groups()
    assert sorted(m for members in groups.values() for m in members) == list(range(len(nodes)))
    for leader, members in groups.items():
        assert len(members) <= limit
        assert leader == max(members)
        complex_ones = [m for m in members if nodes[m].pattern >= Pattern.COMM_REDUCE]
        assert len(complex_ones) <= 1
        assert len(members) == 1 or all(nodes[m].pattern < Pattern.OPAQUE for m in members)
        for member in members:
            if member != leader:
                assert not nodes[member].escapes
                assert all(user in members for user, _ in nodes[member].users)
        assert is_convex(members, nodes)


def is_convex(members, nodes):
    """Whether no path leaves the group and comes back."""
    outside = {user for m in members for user, _ in nodes[m].users if user not in members}
    for node in range(min(members), len(nodes)):
        if node in outside:
            outside.update(user for user, _ in nodes[node].users)
    return not outside & set(members)


@given(module=modules(branches=False), seed=st.integers(0, 99))
def test_fusion_does_not_depend_on_the_order_of_users(module, seed):
    def groups(shuffled):
        _, nodes = dataflow(module.main.body, 3)
        if shuffled:
            random = np.random.default_rng(seed)
            for node in nodes:
                random.shuffle(node.users)
        return Partition(nodes, 3, 64).groups()

    assert groups(False) == groups(True)


@given(edges=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=60),
       escapes=st.sets(st.integers(0, 30), max_size=3),
       breaks=st.sets(st.integers(0, 29), max_size=6))
def test_post_dominators_are_those_of_the_definition(edges, escapes, breaks):
    count = 31
    nodes = [Node(Pattern.ELEMWISE, escapes=i in escapes) for i in range(count)]
    for source, step in [*((i, 1) for i in range(count - 1) if i not in breaks), *edges]:
        if source + step < count:
            pattern = Pattern((source + step) % 3 if step > 1 else 0)
            nodes[source].users.append((source + step, pattern))
    tree = PostDominators(nodes)
    on_every_path: list[set[int]] = [set()] * count
    for node in reversed(range(count)):
        users = {user for user, _ in nodes[node].users}
        common = set.intersection(*(on_every_path[u] | {u} for u in users)) if users else set()
        on_every_path[node] = set() if nodes[node].escapes else common
        nearest = min(on_every_path[node], default=-1)
        assert tree.parent[node] == nearest
        if nearest >= 0:
            assert tree.pattern[node] == greatest_pattern(nodes, node, nearest)


def greatest_pattern(nodes, start, end):
    """The greatest pattern of all edges on all paths between two nodes."""
    worst, waiting, seen = Pattern.ELEMWISE, [start], {start}
    while waiting:
        for user, pattern in nodes[waiting.pop()].users:
            worst = max(worst, pattern)
            if user != end and user not in seen:
                seen.add(user)
                waiting.append(user)
    return worst


@pytest.mark.parametrize("shape", ["chain", "shared", "long skips", "hub"])
def test_ten_thousand_operators_take_seconds(shape):
    x = image()
    bindings, last, first = [], x, x
    for i in range(10_000):
        hub = bindings[5000].var if i > 5000 else last
        other = {"chain": last, "shared": x, "long skips": first, "hub": hub}[shape]
        var = Var(f"v{i}", IMAGE)
        bindings.append(Binding(var, Call(op("add"), (last, other)), origin(f"n{i}")))
        last, first = var, bindings[len(bindings) // 2].var
    module = Module({"main": Function((x,), Block(tuple(bindings), last), IMAGE)})
    start = time.process_time()
    after = fuse(module, 3)
    assert time.process_time() - start < 5
    assert sum(map(len, (atoms(b.value) for b in after.main.body.bindings))) > 0
