"""The oracle lets right passes through and names the first wrong one; bisect shrinks its module."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

from minitvm import relay
from minitvm.relay.build import rebuild_module
from minitvm.relay.ir import Call, Constant, Module
from minitvm.relay.ops.broadcast import Add, Maximum, Minimum, Subtract
from minitvm.relay.text import print_module
from minitvm.relay.verify import verify
from minitvm.testing.agree import max_relative
from minitvm.testing.bisect import bisect, needed_only
from minitvm.testing.oracle import Oracle, OracleError, difference, random_inputs, run_wide
from minitvm.testing.relay_strategies import relay_cases
from minitvm.testing.widen import widen
from minitvm.transform import Pass, PassContext, Sequential


def swap(old, new):
    def rule(builder, binding):
        value = binding.value
        if isinstance(value, Call) and isinstance(value.callee, old):
            return Call(new(), value.arguments)
        return None

    return lambda module: rebuild_module(module, rule)


def nudge(module):
    """Constants changed in the last bits, as folding in float32 may."""
    def rule(builder, binding):
        if not isinstance(binding.value, Call):
            return None
        return Call(binding.value.callee, tuple(
            Constant(a.data * np.float32(1 + 2**-22), a.origin) if isinstance(a, Constant) else a
            for a in binding.value.arguments
        ))

    return rebuild_module(module, rule)


FINE = Pass("TestFine", lambda module: module)
FRESH = Pass("TestFresh", lambda module: rebuild_module(
    module, lambda builder, binding: builder.emit(binding.value)
))
NUDGE = Pass("TestNudge", nudge)
WRONG = Pass("TestWrong", swap(Maximum, Minimum))


def network():
    x = relay.var("x", shape=(2, 3))
    y = x
    for _ in range(10):
        y = relay.tanh(y * 0.5) + 1.0
    z = relay.maximum(y, x)
    for _ in range(10):
        z = z * 0.9 - y
    return Module.from_expr(relay.Function([x], z))


def test_right_passes_go_through():
    oracle = Oracle(seed=3)
    with PassContext(instruments=[oracle]):
        Sequential([FINE, FRESH, NUDGE])(network())
    assert oracle.checked == ["TestFine", "TestFresh", "TestNudge"]


def test_the_first_wrong_pass_is_named(tmp_path):
    module = network()
    with (pytest.raises(OracleError, match=r"TestWrong changed the result.*seed 3.*test_oracle")
          as caught, PassContext(instruments=[Oracle(seed=3)])):
        Sequential([FINE, FRESH, WRONG, FINE])(module)
    case = caught.value.case
    assert case.pass_name == "TestWrong" and case.seed == 3
    assert len(case.origins.names) == 1, "one binding was rewritten"
    case.save(tmp_path)
    environment = {"PYTHONPATH": ":".join(sys.path)}
    found = subprocess.run([sys.executable, tmp_path / "case.py"], capture_output=True, text=True,
                           env=environment, check=True)
    assert found.stdout.strip() == case.difference


def test_another_signature_is_a_difference():
    x = relay.var("x", shape=(2,))
    before = Module.from_expr(relay.Function([x], x + 1.0))
    y = relay.var("y", shape=(2,))
    renamed = Module.from_expr(relay.Function([y], y + 1.0))
    assert "parameters" in difference(before, renamed, random_inputs(before, 0))
    wider = Module.from_expr(relay.Function([x], relay.cast(x, "float64")))
    assert "result of main is" in difference(before, wider, random_inputs(before, 0))


def test_bisect_finds_the_pass_and_shrinks():
    module = network()
    inputs = random_inputs(module, 0)
    assert bisect(module, [FINE, FRESH], inputs) is None
    found = bisect(module, [FINE, FRESH, WRONG], inputs)
    assert found is not None and found.pass_name == "TestWrong"
    assert len(found.module.main.body.bindings) == 1
    verify(found.module)
    assert difference(found.module, WRONG(found.module), found.inputs)
    assert "maximum" in str(found)


@given(relay_cases(exact=True))
def test_bisect_on_generated_modules(case):
    wrong = Pass("TestWrong", swap(Add, Subtract))
    module = case.module
    found = bisect(module, [wrong], case.inputs)
    changed = difference(module, wrong(module), case.inputs)
    assert (found is None) == (not changed)
    if found is not None:
        verify(found.module)
        assert found.difference
        adds = [b for b in found.module.main.body.bindings
                if isinstance(b.value, Call) and isinstance(b.value.callee, Add)]
        assert len(adds) == 1
        assert len(found.module.main.body.bindings) <= len(module.main.body.bindings)


@given(relay_cases(special=False))
def test_widened_modules_compute_the_same(case):
    wide = widen(case.module)
    verify(wide)
    assert "float32" not in print_module(wide)
    for narrow, exact in zip(relay.run(case.module, case.inputs),
                             run_wide(case.module, case.inputs), strict=True):
        assert narrow.shape == exact.shape
        if narrow.dtype == np.float32:
            assert exact.dtype == np.float64


@given(relay_cases(exact=True))
def test_exact_cases_are_exact(case):
    for narrow, exact in zip(relay.run(case.module, case.inputs),
                             run_wide(case.module, case.inputs), strict=True):
        np.testing.assert_array_equal(narrow, exact)


def test_random_inputs_are_seeded():
    x, k = relay.var("x", shape=(relay.size("N"), 4)), relay.var("k", shape=(3,), dtype="int8")
    module = Module.from_expr(relay.Function([x, k], relay.Tuple([x, k])))
    first, second = random_inputs(module, 1), random_inputs(module, 1)
    np.testing.assert_array_equal(first["x"], second["x"])
    assert (first["x"] != random_inputs(module, 2)["x"]).any()
    assert random_inputs(module, 1, {"N": 7})["x"].shape == (7, 4)
    assert first["k"].dtype == np.int8


def test_needed_only_keeps_what_branches_use():
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    outside = relay.exp(x)
    body = relay.If(flag, outside, x) + outside
    block = relay.Function([x, flag], body).body
    assert needed_only(block) == block
    assert not needed_only(type(block)(block.bindings, x.atom)).bindings


def test_floats_are_compared_by_their_largest_element():
    assert max_relative([1.0, 1e-9], [1.0, 0.0]) < 1e-8
    assert max_relative([2.0, 0.1], [2.0, 0.0]) == 0.05


def test_what_rounding_is_magnified_to_is_no_mistake():
    x = relay.var("x", shape=(2,))
    pole = np.float32([np.pi / 2, 0.1])
    near = Module.from_expr(relay.Function([x], relay.tan(x * pole)))
    assert not difference(near, nudge(near), {"x": np.ones(2, np.float32)})
    far = Module.from_expr(relay.Function([x], relay.tan(x * np.float32([0.3, 0.1]))))
    assert not difference(far, nudge(far), {"x": np.ones(2, np.float32)})
    wrong = Module.from_expr(relay.Function([x], relay.tan(x * np.float32([0.3001, 0.1]))))
    assert difference(far, wrong, {"x": np.ones(2, np.float32)})
    step = Module.from_expr(relay.Function([x], relay.cast(relay.floor(x * pole), "int32")))
    moved = Module.from_expr(relay.Function([x], relay.cast(relay.ceil(x * pole), "int32")))
    assert difference(step, moved, {"x": np.ones(2, np.float32)})
