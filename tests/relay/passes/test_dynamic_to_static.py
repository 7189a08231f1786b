"""DynamicToStatic, and the operators that it takes away."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import emitter, main, op

import minitvm
from minitvm import relay
from minitvm.errors import InterpreterError, LoweringError, TypeInferenceError
from minitvm.relay import passes
from minitvm.relay.ir import Call, Constant, TensorType, Var
from minitvm.relay.verify import check_origins_kept, verify

M, N = relay.size("M"), relay.size("N")
DATA = np.arange(12, dtype="float32").reshape(3, 4)


def vector(*numbers):
    return Constant(np.array(numbers, "int64"))


CASES = {  # operator, vectors, its static form, and what numpy gives
    "reshape": (op("dyn.reshape", (M, N)), [vector(2, -1)], "reshape", DATA.reshape(2, -1)),
    "broadcast_to": (op("dyn.broadcast_to", (2, M, N)), [vector(2, 3, 4)], "broadcast_to",
                     np.broadcast_to(DATA, (2, 3, 4))),
    "tile": (op("dyn.tile", (M, 8)), [vector(1, 2)], "tile", np.tile(DATA, (1, 2))),
    "strided_slice": (op("dyn.strided_slice", (M, N)), [vector(0, -1), vector(2, 0), vector(1, -2)],
                      "strided_slice", DATA[0:2, -1:0:-2]),
    "full": (op("dyn.full", (M,)), [vector(5)], "full", np.full(5, 2, "float32")),
    "zeros": (op("dyn.zeros", (M, N)), [vector(2, 3)], "zeros", np.zeros((2, 3), "float32")),
    "ones": (op("dyn.ones", (M,), "int32"), [vector(3)], "ones", np.ones(3, "int32")),
}


def inputs_of(operator):
    if operator.name == "dyn.full":
        return [Constant(np.float32(2))]
    return [] if operator.data_arguments == 0 else [Constant(DATA)]


@pytest.mark.parametrize("name", CASES)
def test_known_shapes_become_attributes(name):
    operator, vectors, static, expected = CASES[name]
    given_data = inputs_of(operator)
    params = [Var("x", item.type) for item in given_data] or [Var("x", TensorType((), "float32"))]

    def build(b, x):
        e = emitter(b)
        result = e(operator, *params[: len(given_data)], *vectors)
        return e(op("copy"), result)

    module = main(params, build)
    verify(module)
    after = passes.dynamic_to_static(module)
    verify(after)
    check_origins_kept(module, after)
    assert after.main.result_type == TensorType(expected.shape, expected.dtype.name)
    called = [b.value.callee.name for b in after.main.body.bindings if isinstance(b.value, Call)]
    assert "copy" in called or not given_data
    assert static in called or not given_data  # without data it is a constant
    inputs = {"x": given_data[0].data if given_data else np.float32(0)}
    for item in (module, after):
        np.testing.assert_array_equal(relay.run(item, inputs)[0], expected)
    assert passes.dynamic_to_static(after) is after
    (got,) = minitvm.compile(module).run(inputs).values()
    np.testing.assert_array_equal(got, expected)


def test_unknown_shapes_stay_and_are_not_compiled():
    params = [Var("x", TensorType((6,), "float32")), Var("s", TensorType((2,), "int64"))]
    module = main(params, lambda b, x, s: emitter(b)(op("dyn.reshape", (2, 3)), x, s))
    assert passes.dynamic_to_static(module) is module
    x = np.arange(6, dtype="float32")
    (got,) = relay.run(module, {"x": x, "s": np.array([2, 3])})
    assert got.shape == (2, 3)
    with pytest.raises(InterpreterError, match="declared as"):
        relay.run(module, {"x": x, "s": np.array([3, 2])})
    with pytest.raises(LoweringError, match=r"dyn\.reshape gives is known at run time only"):
        minitvm.compile(module)


def test_shapes_that_depend_on_shapes():
    def build(b, x):
        e = emitter(b)
        numbers = e(op("dyn.full", (M,)), Constant(np.int64(2)), vector(3))
        return e(op("dyn.broadcast_to", (N, M, 2)), x, numbers)

    after = passes.dynamic_to_static(main([Var("x", TensorType((1, 2), "float32"))], build))
    assert after.main.result_type == TensorType((2, 2, 2), "float32")


@pytest.mark.parametrize(("operator", "arguments", "message"), [
    (op("dyn.reshape", (M, N)), [Constant(DATA), vector(12)], "do not give the declared"),
    (op("dyn.reshape", (M,)), [Constant(DATA), Constant(np.float32([12]))], "vectors of integers"),
    (op("dyn.full", (M,)), [Constant(np.float32(1)), Constant(np.array([[1]]))],
     "vectors of integers"),
    (op("dyn.tile", (M,)), [Constant(DATA), vector(1)], "do not give the declared"),
])
def test_what_is_refused(operator, arguments, message):
    with pytest.raises(TypeInferenceError, match=message):
        main([], lambda b: emitter(b)(operator, *arguments))


def test_a_shape_that_is_not_the_declared_one_is_refused():
    module = main([Var("x", TensorType((6,), "float32"))], lambda b, x: emitter(b)(
        op("dyn.reshape", (2, M)), x, vector(3, 2)))
    with pytest.raises(TypeInferenceError, match=r'"n0": dyn\.reshape gives the shape \(3, 2\)'):
        passes.dynamic_to_static(module)


@given(st.permutations([2, 3, 4]), st.integers(0, 3))
def test_reshapes_keep_their_results(shape, unknown):
    target = [-1 if place == unknown else extent for place, extent in enumerate(shape)]
    sizes = tuple(relay.size(f"S{i}") for i in range(3))

    def build(b, x):
        e = emitter(b)
        y = e(op("dyn.reshape", sizes), x, e(op("negative"), vector(*(-n for n in target))))
        return e(op("sum", axis=(1,)), y)

    module = main([Var("x", TensorType((24,), "float32"))], build)
    after = passes.dynamic_to_static(module)
    verify(after)
    x = {"x": np.arange(24, dtype="float32")}
    np.testing.assert_array_equal(relay.run(after, x)[0], relay.run(module, x)[0])
