"""PartialEvaluate: calls with known arguments, known branches, and recursion that ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from random_graphs import assert_same, modules

from minitvm import relay, remarks
from minitvm.relay import passes
from minitvm.relay.ir import Call
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.testing.relay_program_strategies import program_cases

POWER = """
def main(x: Tensor((2,), "int32"){more}) -> Tensor((2,), "int32"):
    v0 = power(x, {count})  #: "call"
    return v0

def power(x: Tensor((2,), "int32"), n: Tensor((), "int32")) -> Tensor((2,), "int32"):
    v0 = greater(n, const({least}, (), "int32"))  #: "test"
    if v0:  #: "if"
        v1 = subtract(n, const(1, (), "int32"))  #: "less"
        v2 = power(x, v1)  #: "again"
        v3 = multiply(x, v2)  #: "times"
        v4 = v3
    else:
        v4 = x
    return v4
"""
X = {"x": np.array([2, 3], "int32")}


def power(count, least=1):
    more = ', n: Tensor((), "int32")' if count == "n" else ""
    known = count if count == "n" else f'const({count}, (), "int32")'
    return relay.parse_module(POWER.format(count=known, least=least, more=more).lstrip())


def evaluated(module):
    after = passes.partial_evaluate(module)
    verify(after)
    check_origins_kept(module, after)
    assert passes.partial_evaluate(after) is after
    return after


def names(module):
    return [b.value.callee.name for b in module.main.body.bindings if isinstance(b.value, Call)]


def test_recursion_on_a_known_number_is_unrolled():
    after = evaluated(power(5))
    assert names(after) == ["multiply"] * 4
    assert list(after.functions) == ["main"]
    np.testing.assert_array_equal(relay.run(after, X)[0], X["x"] ** 5)


def test_unknown_arguments_leave_the_call():
    module = power("n")
    assert evaluated(module) is module


def test_recursion_without_end_stays():
    module = power(3, least=-(2**31))
    with remarks.collect() as declined:
        after = passes.partial_evaluate(module)
    assert names(after) == ["power"]
    assert any("unrolling power does not come to an end" in item.reason for item in declined)


def test_closures_and_function_arguments():
    x = relay.var("x", shape=(4,))
    y = relay.var("y", shape=(4,))
    double = relay.Function([y], y + y)
    module = relay.Module.from_expr(relay.Function([x], relay.call(double, relay.const(
        np.ones(4, "float32"))) * x))
    after = evaluated(module)
    assert names(after) == ["multiply"]
    assert_same(module, after)


def test_branches_inside_of_what_is_called():
    x, flag = relay.var("x", shape=(4,)), relay.var("flag", shape=(), dtype="bool")
    choose = relay.Function([x, flag], relay.If(flag, relay.exp(x), relay.abs(x)))
    z = relay.var("z", shape=(4,))
    module = relay.Module.from_expr(relay.Function([z], relay.call(
        choose, z, relay.const(np.array(False)))))
    assert names(evaluated(module)) == ["abs"]


@given(program_cases(max_size=4))
def test_random_programs_keep_their_results(case):
    after = passes.partial_evaluate(case.module)
    verify(after)
    expected = relay.run(case.module, case.inputs)
    for new, old in zip(relay.run(after, case.inputs), expected, strict=True):
        np.testing.assert_array_equal(new, old)


@given(modules())
def test_random_modules_keep_their_results(module):
    after = passes.partial_evaluate(module)
    verify(after)
    assert_same(module, after)
