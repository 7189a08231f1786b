"""An operator's four answers compared: its type, numpy, and te through the tir interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from minitvm import te
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType, TupleType
from minitvm.relay.op import Op
from minitvm.tir import interpret

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-40, -1e-40, 3e38, 88.0]


def type_of(array: np.ndarray) -> TensorType:
    return TensorType(array.shape, array.dtype.name)


def fields(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def evaluate(op: Op, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """What `evaluate` gives, checked against what `infer` says."""
    found = operator_type(op, tuple(map(type_of, arrays)))
    results = fields(op.evaluate(*arrays))
    wanted = found.fields if isinstance(found, TupleType) else (found,)
    assert tuple(map(type_of, results)) == wanted
    return results


def run_compute(op: Op, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """What `compute` gives, scheduled as it stands and interpreted."""
    inputs = [
        te.placeholder(array.shape, array.dtype.name, name=f"x{k}")
        for k, array in enumerate(arrays)
    ]
    outputs = fields(op.compute(*inputs))
    schedule = te.create_schedule([tensor.op for tensor in outputs])
    used = [t for t in inputs if any(stage.op is t.op for stage in schedule.graph.stages)]
    function = te.lower(schedule, [*used, *outputs], name="kernel")
    results = [np.zeros(tensor.extents(), tensor.dtype) for tensor in outputs]
    given = [array for tensor, array in zip(inputs, arrays, strict=True) if tensor in used]
    interpret.run(function, [*(array.copy() for array in given), *results])
    return tuple(results)


def check(op: Op, *arrays: np.ndarray, ulp: int = 0) -> Any:
    """Asserts that type, numpy and te agree within `ulp` units in the last place; gives numpy's."""
    expected = evaluate(op, *arrays)
    for got, wanted in zip(run_compute(op, *arrays), expected, strict=True):
        assert type_of(got) == type_of(wanted), op
        assert_close(got, wanted, ulp, str(op))
    return expected if len(expected) > 1 else expected[0]


def assert_close(got: np.ndarray, wanted: np.ndarray, ulp: int, what: str) -> None:
    if not np.issubdtype(wanted.dtype, np.floating):
        np.testing.assert_array_equal(got, wanted, err_msg=what)
        return
    with np.errstate(all="ignore"):
        info = np.finfo(wanted.dtype)
        allowed = ulp * np.maximum(np.abs(wanted) * info.eps, info.tiny)
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        close = same | (np.abs(got - wanted) <= allowed)
    assert close.all(), f"{what}: {got[~close]} is not {wanted[~close]}"


# --- inputs -------------------------------------------------------------------------------------


def random_array(seed: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Values of a dtype, special ones among floats."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if not dtype.startswith("float"):
        info = np.iinfo(dtype)
        small = random.integers(max(-5, info.min), 6, shape)
        large = random.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)
        return np.where(random.random(shape) < 0.7, small, large).astype(dtype)
    values = random.standard_normal(shape) * 3
    special = random.choice(SPECIAL, shape)
    with np.errstate(all="ignore"):
        return np.where(random.random(shape) < 0.25, special, values).astype(dtype)


def plain_array(seed: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Small integers, whose sums are exact in any dtype."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)


@st.composite
def broadcasting(draw: st.DrawFn, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast together."""
    full = draw(shapes)
    result = []
    for _ in range(count):
        kept = full[draw(st.integers(0, len(full))):]
        result.append(tuple(1 if draw(st.booleans()) else extent for extent in kept))
    return result
