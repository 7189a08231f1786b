"""Reductions of long rows that lie in a line take vectors of a row; others as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitvm
from minitvm import te
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import Constant, Function, Module, TensorType, Var
from minitvm.relay.op import Op
from minitvm.relay.ops.broadcast import Multiply, Subtract
from minitvm.relay.ops.nn import Relu
from minitvm.relay.ops.reduce import Max, Min, Prod, Reduction, Sum
from minitvm.target import Target
from minitvm.te.recipes.injective import schedule_reduce
from minitvm.testing.guarded import stray_access

LANES = Target.host().lanes("float32")
LONG = 4 * LANES


def compiled(x: np.ndarray, *ops: Op) -> minitvm.CompiledModule:
    """The operators one after the other; a product squares its argument."""
    param = Var("x", TensorType(x.shape, x.dtype.name))
    builder: BlockBuilder = BlockBuilder(origin("node"))
    value: Any = param
    for op in ops:
        match op:
            case Multiply():
                value = builder.emit(op, value, value)
            case Subtract():
                value = builder.emit(op, value, Constant(np.ones((), x.dtype)))
            case _:
                value = builder.emit(op, value)
    module = Module({"main": Function((param,), builder.finish(value), value.type)})
    return minitvm.compile(module)


def run(made: minitvm.CompiledModule, x: np.ndarray) -> np.ndarray:
    (result,) = made.run({"x": x}).values()
    return result


def takes_rows(made: minitvm.CompiledModule) -> bool:
    """Whether a kernel has partial results of a row, in a vector."""
    return any("_rf" in kernel.text for kernel in made.kernels)


@given(st.data())
@settings(max_examples=30)
def test_any_reduction_of_any_extents(data: st.DataObject) -> None:
    """Small integers, so that sums are exact in any order."""
    kind = data.draw(st.sampled_from([Sum, Max, Min]))
    dtype = data.draw(st.sampled_from(["float32", "float64", "int32", "int8"]))
    rank = data.draw(st.integers(2, 4))
    row = data.draw(st.sampled_from([1, 7, LONG - 1, LONG, LONG + 5, 9 * LANES + 1, 16 * LANES]))
    shape = (*(data.draw(st.sampled_from([1, 2, 5, 8])) for _ in range(rank - 1)), row)
    axis = data.draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank - 1, unique=True))
    op = kind(axis=tuple(axis), keepdims=data.draw(st.booleans()))
    x = np.random.default_rng(row).integers(-2, 3, shape).astype(dtype)
    made = compiled(x, op)
    np.testing.assert_array_equal(run(made, x), op.evaluate(x))
    assert not stray_access(made.kernels)


@pytest.mark.parametrize(("shape", "axis", "rows"), [
    ((5, LONG), (1,), True), ((3, 2, 8, LANES), (2, 3), True), ((2, 3, LONG), (0, 2), True),
    ((5, LONG - 1), (1,), False), ((LONG, 5), (0,), False), ((3, LONG, 4), (1,), False)], ids=str)
def test_which_reductions_take_vectors_of_a_row(
    shape: tuple[int, ...], axis: tuple[int, ...], rows: bool
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    op = Sum(axis=axis)
    made = compiled(x, op)
    assert takes_rows(made) == rows
    np.testing.assert_allclose(run(made, x), op.evaluate(x.astype(float)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [Sum, Prod, Max, Min])
def test_what_is_computed_in_front_and_behind(kind: type[Reduction]) -> None:
    x = np.random.default_rng(1).uniform(1.9, 2.1, (6, LONG + 3)).astype("float32")
    op = kind(axis=(1,), keepdims=True)
    made = compiled(x, Subtract(), Multiply(), op, Relu())
    wanted = np.maximum(op.evaluate((x.astype(float) - 1) ** 2), 0)
    np.testing.assert_allclose(run(made, x), wanted, rtol=2e-5)
    assert takes_rows(made)


def stages(element: Any) -> list[str]:
    """The stages of a schedule of sums over the last axis of what `element(x)` gives."""
    x = te.placeholder((LONG, LONG), "float32", name="x")
    value = te.compute((LONG, LONG), lambda i, k: element(x, i, k), name="value")
    k = te.reduce_axis((0, LONG), "k")
    total = te.compute((LONG,), lambda i: te.sum(value[i, k], axis=k), name="total")
    s = te.create_schedule(total)
    schedule_reduce(s, total, Target.host())
    return [stage.name for stage in s.stages if "rf" in stage.name]


def test_what_is_computed_on_the_way_decides_how_rows_lie() -> None:
    assert stages(lambda x, i, k: x[i, k] * x[i, k])
    assert stages(lambda x, i, k: x[i, k] + x[i, 0])
    assert not stages(lambda x, i, k: x[k, i])
    assert not stages(lambda x, i, k: x[i, k] * x[k, i])
    assert not stages(lambda x, i, k: x[i, LONG - 1 - k])


def test_nan_in_any_lane_is_the_greatest_and_the_least() -> None:
    for place in range(LONG + 3):
        x = np.zeros((2, LONG + 3), "float32")
        x[1, place] = np.nan
        if place == 0:
            greatest, least = compiled(x, Max(axis=(1,))), compiled(x, Min(axis=(1,)))
        for made in (greatest, least):
            np.testing.assert_array_equal(run(made, x), [0, np.nan])
