"""Broadcast operators: numpy and te agree; integer division, shifts, errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from semantics import broadcasting, check, random_array, seeds

from minitvm.errors import TypeInferenceError
from minitvm.relay.dim import size
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType
from minitvm.relay.op import REGISTRY
from minitvm.relay.ops.bits import LeftShift, RightShift
from minitvm.relay.ops.broadcast import Add, Divide, FloorDivide, FloorMod, Mod, Where
from minitvm.relay.ops.families import Binary

BINARY = sorted(
    name for name, cls in REGISTRY.items() if issubclass(cls, Binary) and name != "nn.prelu"
)
INTEGERS = ["int8", "int32", "int64", "uint8", "uint32"]


@pytest.mark.parametrize("name", BINARY)
@given(seed=seeds, pair=broadcasting(2), data=st.data())
def test_te_computes_what_numpy_does(name, seed, pair, data):
    cls = REGISTRY[name]
    kind = data.draw(st.sampled_from(cls.kinds))
    dtype = {"float": "float32", "int": data.draw(st.sampled_from(INTEGERS)), "bool": "bool"}[kind]
    x, y = (random_array(seed + k, shape, dtype) for k, shape in enumerate(pair))
    check(cls(), x, y, ulp=2 if name == "power" else 0)


@given(seed=seeds, triple=broadcasting(3), dtype=st.sampled_from(["float32", "int64", "bool"]))
def test_where(seed, triple, dtype):
    condition = random_array(seed, triple[0], "bool")
    x, y = random_array(seed + 1, triple[1], dtype), random_array(seed + 2, triple[2], dtype)
    np.testing.assert_array_equal(check(Where(), condition, x, y), np.where(condition, x, y))


def test_integer_division_truncates_and_never_traps():
    x = np.int8([7, -7, 7, -7, 5, -128, 0])
    y = np.int8([2, 2, -2, -2, 0, -1, 0])
    assert check(Divide(), x, y).tolist() == [3, -3, -3, 3, 0, -128, 0]
    assert check(FloorDivide(), x, y).tolist() == [3, -4, -4, 3, 0, -128, 0]
    assert check(Mod(), x, y).tolist() == [1, -1, 1, -1, 0, 0, 0]
    assert check(FloorMod(), x, y).tolist() == [1, 1, -1, -1, 0, 0, 0]


def test_shifts_by_the_width_or_more():
    x = np.int8([-3, 100, 1, 1])
    count = np.int8([9, 8, 7, -1])
    assert check(LeftShift(), x, count).tolist() == [0, 0, -128, 0]
    assert check(RightShift(), x, count).tolist() == [-1, 0, 0, 0]
    assert check(RightShift(), np.uint8([200, 200]), np.uint8([3, 8])).tolist() == [25, 0]


def test_shapes_that_do_not_broadcast_are_refused():
    types = (TensorType((2, 3), "float32"), TensorType((4,), "float32"))
    with pytest.raises(TypeInferenceError, match="3 against 4 in dimension 1"):
        operator_type(Add(), types)


def test_different_dtypes_are_refused():
    types = (TensorType((2,), "float32"), TensorType((2,), "int32"))
    with pytest.raises(TypeInferenceError, match="cast one of them"):
        operator_type(Add(), types)


def test_named_sizes_broadcast():
    n = size("N")
    found = operator_type(Add(), (TensorType((n, 3), "float32"), TensorType((1, 3), "float32")))
    assert found == TensorType((n, 3), "float32")
    with pytest.raises(TypeInferenceError, match="N against"):
        operator_type(Add(), (TensorType((n,), "float32"), TensorType((size("M"),), "float32")))
