"""Sliding windows take no more memory than the window, where that is proven."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.tir import walk
from minitvm.tir.interpret import run
from minitvm.tir.ir import Allocate, PrimFunc
from minitvm.tir.passes import lower, storage_folding
from minitvm.tir.text import parse_func
from minitvm.tir.verify import verify


def sizes(func: PrimFunc) -> dict[str, tuple[int, ...]]:
    return {item.buffer.name: item.buffer.extents() for item in walk.walk_statements(func.body)
            if isinstance(item, Allocate)}


def output(func: PrimFunc, rows: int) -> np.ndarray:
    source = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) % 11
    extents = func.params[1].extents()  # type: ignore[union-attr]
    result = np.full(extents, 0.5, np.float32)
    shape = func.params[0].extents()  # type: ignore[union-attr]
    run(func, [source.reshape(shape), result])
    return result.reshape(-1)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[PrimFunc, int, dict[str, int]]:
    """Two stages that each read a window of the one before, computed row by row, forwards or
    backwards; rows that an earlier iteration computed are kept, or some computed again."""
    step, window = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    extra, count = draw(st.integers(0, 2)), draw(st.integers(3, 7))
    keeps, backwards = draw(st.booleans()), draw(st.booleans())
    kept = max(window + extra - step, 0) if keeps else 0
    y = f"({count - 1} - y)" if backwards else "y"
    rows = (count - 1) * step + window + extra
    fresh = f"y < 1 or r >= {kept}"
    if backwards:
        fresh = f"y < 1 or r < {window + extra - kept}"
    reads = " + ".join(f"first[{y} * {step} + {tap}, x]" for tap in range(window + extra))
    text = f"""
def f(A: Buffer(({rows}, 4), "float32"), C: Buffer(({count}, 4), "float32")):
    first = allocate(({rows}, 4), "float32")
    for y in range({count}):
        for r in range({window + extra}):
            if {fresh}:
                for x in range(4):
                    first[{y} * {step} + r, x] = A[{y} * {step} + r, x] * 2.0
        for x in range(4):
            C[{y}, x] = {reads}
"""
    return parse_func(text), rows, {"first": min(window + extra, rows)}


@given(pipelines())
def test_windows_keep_results(case: tuple[PrimFunc, int, dict[str, int]]) -> None:
    func, rows, expected = case
    folded = storage_folding(func)
    verify(folded)
    assert {name: extents[0] for name, extents in sizes(folded).items()} == expected
    for version in (folded, lower(func)):
        np.testing.assert_array_equal(output(version, rows), output(func, rows))


SLIDING = """
def f(A: Buffer((10, 4), "float32"), C: Buffer((8, 4), "float32"), n: int32):
    s = allocate((10, 4), "float32")
    for y in {kind}(8):
        for r in range(3):
            for x in range(4):
                s[{store}, x] = A[y + r, x]
        for x in range(4):
            C[y, x] = s[y, x] + s[{read}, x]
"""


@pytest.mark.parametrize(("changes", "rows"), [
    ({}, 3),
    ({"read": "y + 1"}, 3),
    ({"kind": "unrolled"}, 3),
    ({"kind": "parallel"}, 10),
    ({"read": "y + n"}, 10),
    ({"read": "2"}, 10),
    ({"read": "y // 2"}, 10),
    ({"read": "9 - y"}, 10),
    ({"store": "y * 2 % 7 + r"}, 10),
])
def test_what_folds(changes: dict[str, str], rows: int) -> None:
    parts = {"kind": "range", "store": "y + r", "read": "y + 2", **changes}
    assert sizes(storage_folding(parse_func(SLIDING.format(**parts))))["s"] == (rows, 4)


def test_memory_that_is_used_around_the_loop_stays() -> None:
    func = parse_func("""
def f(A: Buffer((8,), "float32"), C: Buffer((8,), "float32")):
    s = allocate((8,), "float32")
    for i in range(8):
        s[i] = A[i]
        C[i] = s[i]
    C[0] = s[7]
""")
    assert storage_folding(func) is func


def test_the_state_of_a_recurrence_becomes_two_elements() -> None:
    func = storage_folding(parse_func("""
def f(A: Buffer((9,), "float32"), C: Buffer((9,), "float32")):
    state = allocate((10,), "float32")
    for t in range(9):
        if t < 1:
            state[t] = 0.0
        state[t + 1] = state[t] * 0.5 + A[t]
        C[t] = state[t + 1]
"""))
    assert sizes(func) == {"state": (2,)}
    source, result = np.arange(9, dtype=np.float32), np.empty(9, np.float32)
    run(func, [source, result])
    expected, state = [], 0.0
    for value in source:
        state = state * 0.5 + value
        expected.append(state)
    np.testing.assert_array_equal(result, np.array(expected, np.float32))
