"""Generated modules through the whole compiler: machine code computes what the interpreter does.

`--hypothesis-profile=fuzz` searches for long. A failing case is a relay module that prints; shrink
the seeds, then `testing.bisect` names the pass if it is one over relay.
"""

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from networks import HOST, no_cache

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
