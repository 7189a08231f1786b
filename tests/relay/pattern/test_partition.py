"""Matches as functions of their own: by `partition`, and as kernels through `FuseOps`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import assert_same, emitter, main, modules, op

import minitvm
from minitvm import relay, remarks
from minitvm.errors import OptionError
from minitvm.origin import origin
from minitvm.relay import passes
from minitvm.relay.ir import Call, Constant, Function, Module, TensorType, Tuple, TupleGetItem, Var
from minitvm.relay.pattern import (
    FusionRule,
    is_constant,
    is_op,
    is_tuple,
    is_tuple_get_item,
    partition,
    partition_by_rules,
    wildcard,
)
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.transform import PassContext

MATRIX = TensorType((3, 4), "float32")
_ = wildcard


def dense(units=4, seed=0):
    data = np.random.default_rng(seed).integers(-2, 3, (units, 4)).astype("float32")
    return Constant(data)


LAYER = is_op("nn.dense")(_(), is_constant()).optional(lambda y: is_op("nn.relu")(y))


def layers(b, x):
    """Two layers with an activation, one whose product is used twice."""
    e = emitter(b)
    first = e(op("nn.relu"), e(op("nn.dense"), x, dense(seed=1)))
    second = e(op("nn.relu"), e(op("nn.dense"), first, dense(seed=1)))
    product = e(op("nn.dense"), second, dense(seed=2))
    return e(op("add"), product, e(op("nn.relu"), product))


MODULE = main([Var("x", MATRIX)], layers)


def calls(module):
    return [b.value.callee.name for b in module.main.body.bindings if isinstance(b.value, Call)]


def test_functions_of_a_module_are_primitive_and_shared():
    after = partition(LAYER, MODULE, "layer")
    verify(after)
    check_origins_kept(MODULE, after)
    assert_same(MODULE, after)
    assert calls(after) == ["fused_nn_dense_nn_relu", "fused_nn_dense_nn_relu", "fused_nn_dense",
                            "nn.relu", "add"]
    kernel = after.functions["fused_nn_dense_nn_relu"]
    assert kernel.attrs == {"primitive": True, "Composite": "layer",
                            "PartitionedFromPattern": "nn.dense_nn.relu_"}
    assert [b.origin for b in kernel.body.bindings] == [origin("n0", "n2"), origin("n1", "n3")]
    assert relay.print_module(relay.parse_module(relay.print_module(after))) == (
        relay.print_module(after))


def test_functions_of_a_function_are_values():
    after = partition(LAYER, MODULE.main, "layer")
    module = Module({"main": after})
    verify(module)
    assert_same(MODULE, module)
    made = [b.value for b in after.body.bindings if isinstance(b.value, Function)]
    assert [f.attrs["Composite"] for f in made] == ["layer"] * 3
    assert not any(f.is_primitive for f in made)


def test_a_value_used_outside_is_not_taken_in():
    pattern = is_op("nn.relu")(is_op("nn.dense")(_(), _()))
    after = partition(pattern, MODULE)
    assert calls(after).count("nn.dense") == 1  # the product that is used twice


def test_a_check_may_decline():
    def narrow(match):
        return match.root.type.shape[1] < 4

    assert partition(LAYER, MODULE, check=narrow) is MODULE
    assert partition(LAYER, MODULE.main, check=narrow) is MODULE.main


def test_of_several_rules_the_first_wins():
    relu = FusionRule(is_op("nn.relu")(_()), "relu")
    whole = FusionRule(LAYER, "layer")
    names = {f.attrs["Composite"] for name, f in partition_by_rules([whole, relu], MODULE)
             .functions.items() if name != "main"}
    assert names == {"layer", "relu"}
    after = partition_by_rules([relu, whole], MODULE)
    assert calls(after).count("fused_nn_relu") == 3


def test_fields_of_tuples_are_members_with_their_tuple():
    def build(b, x):
        e = emitter(b)
        parts = e(op("split", 2, axis=1), x)
        return e(op("abs"), e(TupleGetItem(parts, 1)))

    module = main([Var("x", MATRIX)], build)
    pattern = is_op("abs")(is_tuple_get_item(is_op("split")(_()), 1))
    after = partition(pattern, module)
    assert calls(after) == ["fused_split_abs"]
    assert_same(module, after)
    outside = is_op("abs")(is_tuple_get_item(_(), 1))  # the tuple would be an argument
    assert partition(outside, module) is module


PATTERNS = [
    is_op("add")(_(), _()),
    is_op("nn.relu")(is_op("add")(_(), _())),
    (is_op("abs") | is_op("negative"))(_()).optional(is_op("nn.relu")),
    is_op("multiply")(is_op("add")(_(), _()), _()),
    is_op("nn.conv2d")(_(), _()).optional(is_op("floor")).optional(is_op("abs")),
    is_op("add")(_(), _()).dominates(is_op("nn.conv2d")(_(), _())),
]


@given(module=modules(), chosen=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3))
def test_partitions_keep_the_result(module, chosen):
    rules = [FusionRule(pattern, f"rule{i}") for i, pattern in enumerate(chosen)]
    for after in (
        partition_by_rules(rules, module),
        Module({"main": partition_by_rules(rules, module.main)}),
    ):
        verify(after)
        check_origins_kept(module, after)
        assert_same(module, after)


# --- kernels ------------------------------------------------------------------------------------


def fused(module, rules, level=3, **config):
    with PassContext(opt_level=level, config={"relay.fusion_rules": rules, **config}):
        return passes.fuse_ops(module)


TWO_LAYERS = is_op("nn.dense")(is_op("nn.relu")(is_op("nn.dense")(_(), _())), _())


def test_a_rule_makes_one_kernel_that_no_phase_would():
    plain = passes.fuse_ops(MODULE)
    assert "fused_nn_dense_nn_relu_nn_dense" not in plain.functions
    after = fused(MODULE, [("two_layers", TWO_LAYERS)])
    verify(after)
    check_origins_kept(MODULE, after)
    assert_same(MODULE, after)
    kernel = after.functions["fused_nn_dense_nn_relu_nn_dense"]
    assert kernel.is_primitive and kernel.attrs["Composite"] == "two_layers"


@given(module=modules(), chosen=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3),
       level=st.integers(0, 4))
def test_rules_keep_the_result(module, chosen, level):
    after = fused(module, chosen, level)
    verify(after)
    check_origins_kept(module, after)
    assert_same(module, after)


def test_rules_are_held_to_the_limit():
    with remarks.collect() as declined:
        after = fused(MODULE, TWO_LAYERS, **{"relay.fuse_max_depth": 2})
    assert ["two_layers" in f.attrs.get("Composite", "") for f in after.functions.values()].count(
        True) == 0
    assert "the rule custom matches 3 operators" in str(declined[0])


@pytest.mark.parametrize("rules", ["nn.relu", [3], [("name",)], 7])
def test_what_is_no_rule_is_refused(rules):
    with pytest.raises(OptionError, match="is no fusion rule"):
        fused(MODULE, rules)


def test_rules_reach_machine_code():
    x = np.random.default_rng(0).integers(-3, 4, (3, 4)).astype("float32")
    with PassContext(config={"relay.fusion_rules": [FusionRule(TWO_LAYERS, "two_layers")]}):
        compiled = minitvm.compile(MODULE)
    assert any("dense_nn_relu_nn_dense" in kernel.name for kernel in compiled.kernels)
    (got,) = compiled.run({"x": x}).values()
    np.testing.assert_array_equal(got, relay.run(MODULE, {"x": x})[0])


def test_partitions_reach_machine_code():
    x = np.random.default_rng(0).integers(-3, 4, (3, 4)).astype("float32")
    compiled = minitvm.compile(partition(TWO_LAYERS, MODULE))
    (got,) = compiled.run({"x": x}).values()
    np.testing.assert_array_equal(got, relay.run(MODULE, {"x": x})[0])


def test_tuples_may_be_members():
    def build(b, x):
        e = emitter(b)
        pair = e(Tuple((e(op("abs"), x), e(op("negative"), x))))
        return e(op("add"), e(TupleGetItem(pair, 0)), e(TupleGetItem(pair, 1)))

    module = main([Var("x", MATRIX)], build)
    pair = is_tuple([is_op("abs")(_()), is_op("negative")(_())])
    pattern = is_op("add")(is_tuple_get_item(pair, 0), is_tuple_get_item(pair, 1))
    after = partition(pattern, module)
    verify(after)
    assert calls(after) == ["fused_abs_negative_add"]
    assert_same(module, after)
