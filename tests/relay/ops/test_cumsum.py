"""`cumsum`: against numpy, through te and as machine code."""

from __future__ import annotations

import numpy as np
import pytest
from semantics import check

import minitvm
from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import Function, Module, TensorType, Var
from minitvm.relay.ops.scan import CumSum


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(shape).standard_normal(shape) * 9).astype(dtype)


def machine_code(op: CumSum, x: np.ndarray) -> np.ndarray:
    param = Var("x", TensorType(x.shape, x.dtype.name))
    builder = BlockBuilder(origin("node"))
    result = builder.emit(op, param)
    compiled = minitvm.compile(
        Module({"main": Function((param,), builder.finish(result), result.type)}))
    (got,) = compiled.run({"x": x}).values()
    return got


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [
    ((7,), 0), ((3, 40), 0), ((40, 3), -1), ((2, 5, 33), 1), ((1,), 0), ((20, 4, 1), 1)], ids=str)
def test_sums_up_to_each_element(
    shape: tuple[int, ...], axis: int, exclusive: bool, reverse: bool
) -> None:
    """In order, so that they are the same to the last bit."""
    op = CumSum(axis, exclusive, reverse)
    for dtype in ("float32", "int32", "uint8", "int64"):
        x = values(*shape, dtype=dtype)
        wanted = np.zeros_like(x)
        for k in range(x.shape[axis]):
            steps = range(k + (not exclusive)) if not reverse else range(
                x.shape[axis] - 1, k - (not exclusive), -1)
            at = [slice(None)] * x.ndim
            at[axis] = k
            for step in steps:
                with np.errstate(over="ignore"):
                    wanted[tuple(at)] += np.take(x, step, axis)
        np.testing.assert_array_equal(check(op, x), wanted)
        np.testing.assert_array_equal(machine_code(op, x), wanted)


def test_what_overflows_and_nan() -> None:
    x = np.float32([1, np.inf, 2, np.nan, 3])
    np.testing.assert_array_equal(machine_code(CumSum(), x), [1, np.inf, np.inf, np.nan, np.nan])
    assert machine_code(CumSum(), np.full(3, 100, np.uint8)).tolist() == [100, 200, 44]


def test_nothing_to_sum_up() -> None:
    for shape in ((0,), (3, 0), (0, 4)):
        assert machine_code(CumSum(), np.zeros(shape, "float32")).shape == shape


def test_bools_and_axes_that_do_not_exist_are_refused() -> None:
    with pytest.raises(TypeInferenceError, match="must be float or int"):
        operator_type(CumSum(), (TensorType((3,), "bool"),))
    with pytest.raises(TypeInferenceError, match="axis 1"):
        operator_type(CumSum(1), (TensorType((3,), "float32"),))
