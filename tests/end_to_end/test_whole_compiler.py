"""Generated modules through the whole compiler: machine code computes what the interpreter does.

`--hypothesis-profile=fuzz` searches for long. A failing case is a relay module that prints; shrink
the seeds, then `testing.bisect` names the pass if it is one over relay.
"""

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from networks import HOST, no_cache

import minitvm
from minitvm import relay
from minitvm.relay.text import print_module
from minitvm.target import Target
from minitvm.testing.compiled import compiled_difference, outputs_difference, shaken_outputs
from minitvm.testing.relay_strategies import grow_case

OTHERS = ("llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3") if HOST.isa == "x86_64" else ()
TARGETS = [HOST, *(target for target in map(Target, OTHERS) if target.is_host())]
SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=7)


def check(case, target, level, exact=False):
    for feature in case.features:
        event(feature)
    with no_cache(opt_level=level):
        found = compiled_difference(case.module, case.inputs, exact=exact, target=target)
    assert not found, f"{found}\n{print_module(case.module)}"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@given(seeds=SEEDS, level=st.integers(0, 4))
def test_exact_cases_are_equal(target, seeds, level):
    check(grow_case(seeds, exact=True), target, level, exact=True)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@given(seeds=SEEDS, special=st.booleans())
def test_other_cases_agree(target, seeds, special):
    check(grow_case(seeds, special=special), target, level=3)


FAMILIES = {
    "windows": ("nn.conv2d", "nn.max_pool2d", "nn.avg_pool2d", "nn.pad"),
    "products": ("nn.dense", "nn.batch_matmul", "nn.softmax", "nn.log_softmax", "multiply"),
    "scales": ("nn.conv2d", "nn.bias_add", "nn.relu", "multiply", "add", "nn.batch_norm"),
}
"""Operators that meet more often where few others take part."""


@pytest.mark.parametrize("family", FAMILIES)
@given(seeds=st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=6))
def test_operators_of_a_family(family, seeds):
    check(grow_case(seeds, operators=FAMILIES[family]), HOST, level=3)


def costly_values_used_twice(y):
    """Too long to be repeated: each is computed once, inside the loops of what is in front."""
    first = relay.tanh(relay.sigmoid(y))
    second = relay.multiply(first, first)
    third = relay.sigmoid(relay.add(second, first))
    return relay.multiply(third, relay.add(third, second))


def weighted(operator, *shape, **attributes):
    weights = np.random.default_rng(0).uniform(-0.3, 0.3, shape).astype(np.float32)
    return lambda x: operator(x, relay.const(weights), **attributes)


IMAGE, MATRIX = (1, 32, 14, 14), (40, 64)
ANCHORS = {
    "pointwise": (IMAGE, weighted(relay.nn.conv2d, 32, 32, 1, 1)),
    "direct": (IMAGE, weighted(relay.nn.conv2d, 32, 32, 3, 3, padding=(1, 1))),
    "strided": (IMAGE, weighted(relay.nn.conv2d, 48, 32, 3, 3, strides=(2, 2), padding=(1, 1))),
    "winograd": ((1, 64, 28, 28), weighted(relay.nn.conv2d, 64, 64, 3, 3, padding=(1, 1))),
    "depthwise": (IMAGE, weighted(relay.nn.conv2d, 32, 1, 3, 3, padding=(1, 1), groups=32)),
    "groups": (IMAGE, weighted(relay.nn.conv2d, 32, 16, 3, 3, padding=(1, 1), groups=2)),
    "small groups": (IMAGE, weighted(relay.nn.conv2d, 32, 4, 3, 3, padding=(1, 1), groups=8)),
    "dense": (MATRIX, weighted(relay.nn.dense, 48, 64)),
    "dense vector": ((1, 64), weighted(relay.nn.dense, 48, 64)),
    "batch_matmul": ((2, 40, 64), weighted(relay.nn.batch_matmul, 2, 48, 64)),
    "softmax": (MATRIX, relay.nn.softmax),
    "softmax of columns": (MATRIX, lambda x: relay.nn.softmax(x, axis=0)),
    "softmax of short rows": ((40, 3), relay.nn.softmax),
    "softmax of ones": ((3, 1, 4, 1), lambda x: relay.nn.softmax(x, axis=1)),
    "softmax between ones": ((2, 1, 3, 1), lambda x: relay.nn.softmax(x, axis=3)),
    "log_softmax of squares": (MATRIX, lambda x: relay.nn.log_softmax(relay.multiply(x, x))),
    "layer_norm": (MATRIX, lambda x: relay.nn.layer_norm(
        x, relay.const(np.ones(64, "f4")), relay.const(np.zeros(64, "f4")))),
    "lrn": (IMAGE, relay.nn.lrn),
    "pool": (IMAGE, relay.nn.global_avg_pool2d),
    "sum": (MATRIX, lambda x: relay.sum(x, axis=1)),
}


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_values_used_several_times_behind_an_anchor(target, anchor):
    shape, operator = ANCHORS[anchor]
    x = relay.var("x", shape=shape)
    module = relay.Module.from_expr(relay.Function([x], costly_values_used_twice(operator(x))))
    array = np.random.default_rng(1).uniform(-2, 2, shape).astype(np.float32)
    with no_cache():
        compiled = minitvm.compile(module, target=target)
    assert len([kernel for kernel in compiled.kernels if "multiply" in kernel.name]) == 1
    with no_cache():
        assert not compiled_difference(module, {"x": array}, exact=False, target=target)


def test_what_is_read_twice_is_rounded_once():
    """A product that is recomputed would be subtracted from its own maximum unrounded."""
    x = relay.var("x", shape=(1, 4, 1, 8))
    module = relay.Module.from_expr(relay.Function([x], relay.nn.log_softmax(
        relay.multiply(x, x), axis=2)))
    array = np.random.default_rng(1).uniform(-2, 2, (1, 4, 1, 8)).astype(np.float32)
    with no_cache():
        (result,) = minitvm.compile(module).run({"x": array}).values()
    np.testing.assert_array_equal(result, 0)


# --- the comparison itself ----------------------------------------------------------------------


def module_and_inputs():
    x = relay.var("x", shape=(2, 3))
    module = relay.Module.from_expr(relay.Function([x], relay.Tuple([
        relay.exp(x), relay.floor(x) > 0.0])))
    return module, {"x": np.array([[1.0, -2.5, np.nan], [2.0, np.inf, 0.5]], np.float32)}


@pytest.mark.parametrize("output, index, value", [
    (0, (0, 0), 2.7184), (0, (0, 1), np.nan), (0, (0, 2), 0.0), (0, (1, 1), 3e38),
    (1, (1, 2), True), (1, (0, 1), True),
])
def test_a_wrong_element_is_found(output, index, value):
    module, inputs = module_and_inputs()
    expected = relay.run(module, inputs)
    shaken = shaken_outputs(module, inputs)
    assert not outputs_difference(expected, expected, shaken)
    got = [array.copy() for array in expected]
    got[output][index] = value
    for noise in (shaken, []):
        assert f"output {output} is wrong in 1 of 6 elements: at {index}" in outputs_difference(
            got, expected, noise)


def test_rounding_is_let_through_unless_the_case_is_exact():
    module, inputs = module_and_inputs()
    expected = relay.run(module, inputs)
    got = [expected[0] * np.float32(1 - 2**-23), expected[1]]
    assert not outputs_difference(got, expected, shaken_outputs(module, inputs))
    assert outputs_difference(got, expected, [])
