"""The expression API: types and origins at construction, A-normal form that computes the same."""

from dataclasses import dataclass

import numpy as np
import pytest

from minitvm import relay
from minitvm.errors import TypeInferenceError
from minitvm.relay.ir import Call, If, walk_bindings
from minitvm.relay.op import REGISTRY, Op, Pattern, register
from minitvm.relay.verify import verify


def module_of(params, body, **functions):
    module = relay.Module.from_expr(relay.Function(params, body))
    for name, function in functions.items():
        module = module.with_function(name, function)
    verify(module)
    return module


def operators(module):
    return [b.value.callee.name for b in walk_bindings(module.main.body)
            if isinstance(b.value, Call) and isinstance(b.value.callee, Op)]


def test_arithmetic_is_numpys():
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(3,))
    expr = (2.0 - x * y) / (1.0 + y * y) + (-x) ** 2.0
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.array([1, 2, 3], np.float32)
    got, = relay.run(module_of([x, y], expr), {"x": a, "y": b})
    np.testing.assert_allclose(got, (2 - a * b) / (1 + b * b) + (-a) ** 2, rtol=1e-6)


def test_comparisons_give_bools():
    x = relay.var("x", shape=(3,))
    body = relay.Tuple([x < 1.0, x <= 1.0, x > 1.0, x >= 1.0])
    got = relay.run(module_of([x], body), {"x": np.array([0, 1, 2], np.float32)})
    want = [[True, False, False], [True, True, False], [False, False, True], [False, True, True]]
    np.testing.assert_array_equal(got, want)


def test_attributes_by_name_and_by_position():
    x = relay.var("x", shape=(2, 3))
    assert relay.clip(x, 0.0, 6.0).value.callee == relay.clip(x, a_min=0.0, a_max=6.0).value.callee
    assert relay.transpose(x, [1, 0]).type == relay.TensorType((3, 2), "float32")
    assert relay.concatenate([x, x], axis=1).type == relay.TensorType((2, 6), "float32")
    assert relay.concatenate(x, x, axis=0).type == relay.TensorType((4, 3), "float32")
    for wrong in (lambda: relay.clip(x, 0.0, 6.0, 1), lambda: relay.clip(x, minimum=1)):
        with pytest.raises(TypeInferenceError, match=r"test_expr.py:\d+.*attributes are: a_min"):
            wrong()


def test_errors_name_the_line_that_is_wrong():
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    with pytest.raises(TypeInferenceError, match=r'^"test_expr.py:\d+": add\('):
        x + flag
    with pytest.raises(TypeInferenceError, match=r"1\.5 is no int32"):
        relay.var("i", shape=(), dtype="int32") + 1.5
    with pytest.raises(AttributeError, match=r"no operator or function 'nn\.nothing'"):
        relay.nn.nothing(x)
    with pytest.raises(TypeError, match=r"relay\.If"):
        bool(x < 1.0)


def test_origins_are_lines():
    x = relay.var("x", shape=(2,))
    y = relay.negative(x)
    z = y + 1.0
    first, second = module_of([x], z).main.body.bindings
    (one,), (two,) = first.origin.names, second.origin.names
    assert one.startswith("test_expr.py:")
    assert int(two.split(":")[1]) == int(one.split(":")[1]) + 1


def test_a_node_used_twice_is_bound_once():
    x = relay.var("x", shape=(2,))
    y = relay.exp(x)
    assert operators(module_of([x], y * y + y)) == ["exp", "multiply", "add"]


def test_branches_hold_what_they_alone_use():
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    shared, only_then, only_else = relay.exp(x), relay.sin(x), relay.cos(x)
    inner = relay.If(flag, only_then * shared, relay.tan(only_then))
    body = relay.If(flag, inner, only_else) + shared
    module = module_of([x, flag], body)
    top = [b.value.callee.name for b in module.main.body.bindings if isinstance(b.value, Call)]
    assert top == ["exp", "add"]
    outer, = (b.value for b in module.main.body.bindings if isinstance(b.value, If))
    assert [type(b.value).__name__ for b in outer.then_block.bindings] == ["Call", "If"]
    assert outer.then_block.bindings[0].value.callee.name == "sin"
    assert [b.value.callee.name for b in outer.else_block.bindings] == ["cos"]
    a = np.array([0.5, 1], np.float32)
    for value, want in ((True, np.sin(a) * np.exp(a) + np.exp(a)), (False, np.cos(a) + np.exp(a))):
        got, = relay.run(module, {"x": a, "flag": np.array(value)})
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_branch_may_be_shared_by_both_sides():
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    y = relay.exp(x)
    module = module_of([x, flag], relay.If(flag, y, y))
    assert module.main.body.bindings[0].value.callee.name == "exp"


def test_functions_are_values():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    double = relay.Function([y], y + x)  # x is free: a closure
    module = module_of([x], relay.call(double, relay.call(double, x)))
    got, = relay.run(module, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(got, [3, 3])


def test_functions_of_the_module_are_called_by_name():
    x, p = relay.var("x", shape=(2,)), relay.var("p", shape=(2,))
    callee = relay.Function([p], relay.negative(p))
    body = relay.call(relay.GlobalVar("f", callee.type), x)
    module = module_of([x], body, f=callee)
    got, = relay.run(module, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(got, [-1, -1])


def test_tuples_unpack():
    x = relay.var("x", shape=(2, 6))
    first, second, third = relay.split(x, 3, axis=1)
    module = module_of([x], relay.Tuple([third, first]))
    a = np.arange(12, dtype=np.float32).reshape(2, 6)
    got = relay.run(module, {"x": a})
    np.testing.assert_array_equal(got[0], a[:, 4:])
    np.testing.assert_array_equal(got[1], a[:, :2])
    assert second.type == relay.TensorType((2, 2), "float32")
    with pytest.raises(TypeInferenceError, match="which has 3 fields"):
        relay.TupleGetItem(relay.split(x, 3, axis=1), 3)


def test_constants_have_the_dtype_of_their_value():
    assert relay.const(1).type == relay.TensorType((), "int32")
    assert relay.const([1.5, 2]).type == relay.TensorType((2,), "float32")
    assert relay.const(True).type == relay.TensorType((), "bool")
    assert relay.const(np.zeros(3)).type == relay.TensorType((3,), "float64")
    assert relay.const(1, "int8").type == relay.TensorType((), "int8")
    data = np.zeros(2, np.float32)
    constant = relay.const(data)
    data[0] = 1
    assert constant.atom.data[0] == 0, "a constant keeps a copy"


def test_free_variables_are_refused_at_the_top():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    with pytest.raises(TypeInferenceError, match="uses y"):
        relay.Module.from_expr(relay.Function([x], x + y))
    with pytest.raises(TypeInferenceError, match=r"made by relay\.var"):
        relay.Function([x + y], x)
    with pytest.raises(TypeInferenceError, match="twice"):
        relay.Function([x, x], x)


def test_ten_thousand_nodes():
    x = relay.var("x", shape=(2,))
    y = x
    for _ in range(10_000):
        y = y + 1.0
    assert len(relay.Function([x], y).body.bindings) == 10_000


def test_users_operators_are_functions_too():
    @register
    @dataclass(frozen=True, slots=True)
    class Thrice(Op):
        """Three times the argument."""

        offset: float = 0.0
        name = "mine.thrice"
        pattern = Pattern.ELEMWISE

        def infer(self, x):
            return x

        def evaluate(self, x):
            return x * 3 + np.float32(self.offset)

    try:
        x = relay.var("x", shape=(2,))
        module = module_of([x], relay.mine.thrice(x, offset=1.0))
        again = relay.parse_module(relay.print_module(module))
        got, = relay.run(again, {"x": np.ones(2, np.float32)})
        np.testing.assert_array_equal(got, [4, 4])
        assert "mine" in dir(relay) and "thrice" in dir(relay.mine)
    finally:
        del REGISTRY["mine.thrice"]


def test_dir_lists_operators():
    assert {"add", "nn", "var", "If"} <= set(dir(relay))
    assert "conv2d" in dir(relay.nn)


def test_functions_call_themselves_and_each_other_by_name():
    count = relay.TensorType((), "int32")
    name = relay.GlobalVar("power", relay.FuncType((count, count), count))
    n, x = relay.var("n", count), relay.var("x", count)
    power = relay.Function([n, x], relay.If(n > 0, relay.call(name, n - 1, x * 2), x))
    m = relay.var("m", count)
    apply = relay.Function([m], relay.call(name, m, 3))
    module = relay.Module({"main": apply, "power": power})
    relay.verify(module)
    got, = relay.run(module, {"m": np.array(5, "int32")})
    assert got == 3 * 2**5


def test_a_function_of_the_module_is_an_argument():
    vector = relay.TensorType((2,), "float32")
    kind = relay.FuncType((vector,), vector)
    f, x, y = relay.var("f", kind), relay.var("x", vector), relay.var("y", vector)
    twice = relay.Function([f, x], f(f(x)))
    double = relay.Function([y], y + y)
    twice_name = relay.GlobalVar("twice", twice.type)
    main_function = relay.Function([x], relay.call(twice_name, relay.GlobalVar("double", kind), x))
    module = relay.Module({"main": main_function, "twice": twice, "double": double})
    relay.verify(module)
    got, = relay.run(module, {"x": np.ones(2, "float32")})
    np.testing.assert_array_equal(got, [4, 4])
