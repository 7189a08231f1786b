"""The interpreter: control flow, closures, checks of inputs and of what operators give."""

from dataclasses import dataclass

import numpy as np
import pytest
from functional_programs import EVEN, LOOP, NEST, program
from hypothesis import given

from minitvm import relay
from minitvm.errors import InputError, InterpreterError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.interpret import Interpreter, eval_value, run, run_function
from minitvm.relay.ir import (
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
)
from minitvm.relay.op import Op
from minitvm.relay.ops.elementwise import Negative
from minitvm.testing.relay_strategies import relay_cases

VECTOR = TensorType((2,), "float32")
ONES = np.ones(2, np.float32)


def test_a_small_network_by_hand():
    x = relay.var("x", shape=(1, 2, 4, 4))
    weight = np.arange(3 * 2 * 3 * 3, dtype=np.float32).reshape(3, 2, 3, 3)
    y = relay.nn.relu(relay.nn.conv2d(x, relay.const(weight), padding=(1, 1, 1, 1)) - 100.0)
    module = Module.from_expr(relay.Function([x], relay.sum(y, axis=(2, 3))))
    data = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4) - 10
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros((1, 3, 4, 4))
    for i in range(4):
        for j in range(4):
            window = padded[:, None, :, i : i + 3, j : j + 3]
            want[:, :, i, j] = (window * weight).sum((2, 3, 4))
    got, = run(module, {"x": data})
    np.testing.assert_array_equal(got, np.maximum(want - 100, 0).sum((2, 3)))


@given(relay_cases(branches=True))
def test_outputs_have_the_types_inferred(case):
    outputs = run(case.module, case.inputs)
    found = case.module.main.result_type
    types = found.fields if isinstance(found, relay.TupleType) else (found,)
    assert [(t.shape, t.dtype) for t in types] == [(o.shape, o.dtype.name) for o in outputs]


def test_outputs_of_tuples_are_flat():
    x = relay.var("x", VECTOR)
    nested = relay.Tuple([relay.Tuple([x, -x]), x])
    outputs = run(Module.from_expr(relay.Function([x], nested)), {"x": ONES})
    np.testing.assert_array_equal(outputs, [ONES, -ONES, ONES])


def test_recursion_of_the_module_does_not_nest_python_calls():
    n, p = Var("n", TensorType((), "int64")), Var("p", TensorType((), "int64"))
    count = GlobalVar("count", relay.FuncType((p.type, p.type), p.type))
    a, b = relay.var("n", p.type), relay.var("p", p.type)
    body = relay.If(a <= 0, b, relay.call(count, a - 1, b + 2))
    step = relay.Function([a, b], body)
    zero = Constant(np.array(0, np.int64))
    builder = BlockBuilder(origin("n"))
    result = builder.emit(Call(count, (n, zero)))
    main = Function((n,), builder.finish(result), p.type)
    module = Module({"main": main, "count": step})
    got, = run(module, {"n": np.array(5000)})
    assert got == 10_000


def test_only_the_taken_branch_is_evaluated():
    @dataclass(frozen=True, slots=True)
    class Explode(Op):
        name = "test.explode"

        def infer(self, x):
            return x

        def evaluate(self, x):
            raise ValueError("boom")

    x, flag = Var("x", VECTOR), Var("flag", TensorType((), "bool"))
    outer = BlockBuilder(origin("If_1"))
    inner = BlockBuilder(origin("Boom_2"), outer)
    branch = inner.finish(inner.emit(Explode(), x))
    result = outer.emit(If(flag, branch, Block((), x)))
    function = Function((x, flag), outer.finish(result), VECTOR)
    np.testing.assert_array_equal(run_function(function, ONES, np.array(False))[0], ONES)
    with pytest.raises(InterpreterError, match=r'test\.explode.*"Boom_2".*boom'):
        run_function(function, ONES, np.array(True))


def test_closures_keep_what_they_captured():
    x, y = Var("x", VECTOR), Var("y", VECTOR)
    outer = BlockBuilder(origin("n"))
    negated = outer.emit(Negative(), x)
    inner = BlockBuilder(origin("n"), outer)
    pair = inner.emit(Tuple((y, negated)))
    function = outer.emit(Function((y,), inner.finish(pair), pair.type))
    result = outer.emit(function, x)
    second = outer.emit(TupleGetItem(result, 1))
    got, = run_function(Function((x,), outer.finish(second), VECTOR), ONES)
    np.testing.assert_array_equal(got, -ONES)


@pytest.mark.parametrize("inputs, message", [
    ({}, "the inputs are x, but none were given"),
    ({"y": ONES}, "but y were given"),
    ({"x": ONES, "y": ONES}, "but x, y were given"),
    ({"x": np.ones(3, np.float32)}, r"Tensor\(\(2,\), \"float32\"\), but float32\[3\]"),
    ({"x": np.ones(2)}, "but float64"),
])
def test_wrong_inputs(inputs, message):
    x = relay.var("x", VECTOR)
    with pytest.raises(InputError, match=message):
        run(Module.from_expr(relay.Function([x], -x)), inputs)


def test_an_operator_that_breaks_its_own_type_rule_is_named():
    @dataclass(frozen=True, slots=True)
    class Lies(Op):
        name = "test.lies"

        def infer(self, x):
            return x

        def evaluate(self, x):
            return x.astype(np.float64)

    x = Var("x", VECTOR)
    builder = BlockBuilder(origin("Lie_1"))
    y = builder.emit(Lies(), x)
    with pytest.raises(InterpreterError, match=r'test\.lies, of "Lie_1", evaluates to.*float64'):
        run_function(Function((x,), builder.finish(y), VECTOR), ONES)


def test_use_before_binding():
    y = Var("y", VECTOR)
    with pytest.raises(InterpreterError, match="y is used before it is bound"):
        run_function(Function((), Block((), y), VECTOR))


def test_one_value_at_a_time():
    x = Var("x", VECTOR)
    np.testing.assert_array_equal(eval_value(Call(Negative(), (x,)), {x: ONES}), -ONES)
    np.testing.assert_array_equal(eval_value(Call(Negative(), (Constant(ONES),))), -ONES)
    choice = If(Constant(np.array(False)), Block((), Constant(ONES)), Block((), x))
    np.testing.assert_array_equal(eval_value(choice, {x: 2 * ONES}), 2 * ONES)
    environment = {x: ONES}
    eval_value(Call(Negative(), (x,)), environment)
    assert list(environment) == [x], "the environment given is not written to"


def test_numpy_does_not_warn(recwarn):
    x = relay.var("x", VECTOR)
    got, = run(Module.from_expr(relay.Function([x], relay.log(x) / 0.0)), {"x": -ONES})
    assert np.isnan(got).all() and not recwarn


def test_ten_thousand_bindings():
    builder = BlockBuilder(origin("n"))
    x = Var("x", VECTOR)
    y = x
    for _ in range(10_001):
        y = builder.emit(Negative(), y)
    got, = run_function(Function((x,), builder.finish(y), VECTOR), ONES)
    np.testing.assert_array_equal(got, -ONES)


def test_named_sizes_take_any_extent():
    x = relay.var("x", shape=(relay.size("N"),))
    module = Module.from_expr(relay.Function([x], -x))
    for extent in (1, 5):
        got, = run(module, {"x": np.ones(extent, np.float32)})
        assert got.shape == (extent,)


def test_the_interpreter_needs_no_module_for_operators():
    block = Block((), Constant(ONES))
    assert Interpreter().evaluate(block, {}) is not None
    with pytest.raises(InterpreterError, match="no function @f"):
        Interpreter().evaluate(Block((), GlobalVar("f")), {})


def test_tail_calls_take_no_frames():
    turns, x = run(program(LOOP), {"n": np.array(11_000, "int32"), "x": np.ones(4, "float32")})
    assert turns == 0 and x.tolist() == [100] * 4
    got, = run(program(EVEN), {"n": np.array(11_001, "int32")})
    assert not got


def test_deep_recursion_is_no_recursion_of_python():
    got, = run(program(NEST), {"n": np.array(4000, "int32")})
    assert got == 8001


def test_recursion_without_end_is_an_error():
    with pytest.raises(InterpreterError, match=r"nested more than 10000 deep at x \(.x.\)"):
        run(program(NEST), {"n": np.array(10**6, "int32")})
