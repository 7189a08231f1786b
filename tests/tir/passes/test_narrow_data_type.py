"""One dtype for indices: narrow where everything fits, wide where a buffer is too large."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.remarks import collect
from minitvm.testing.tir_strategies import functions, make_arrays, same_bits
from minitvm.tir import walk
from minitvm.tir.interpret import run
from minitvm.tir.ir import For, PrimFunc
from minitvm.tir.passes import flatten_buffers, lower, narrow_data_type
from minitvm.tir.passes.narrow_data_type import with_index_dtype
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import check_origins_kept, verify


def loop_dtypes(func: PrimFunc) -> set[str]:
    return {item.var.dtype for item in walk.walk_statements(func.body) if isinstance(item, For)}


def results(func: PrimFunc, seed: int) -> list[np.ndarray]:
    arrays = make_arrays(func, seed)
    run(func, arrays)
    return arrays


@given(func=functions(), seed=st.integers(0, 3))
def test_widening_and_narrowing_keep_results(func: PrimFunc, seed: int) -> None:
    wide = with_index_dtype(func, "int64")
    verify(wide, require_origins=True)
    assert loop_dtypes(wide) <= {"int64"}
    narrow = narrow_data_type(wide)
    verify(narrow, require_origins=True)
    check_origins_kept(func, narrow)
    assert loop_dtypes(narrow) <= {"int32"}
    lowered = lower(wide)
    verify(lowered, "machine")
    expected = results(func, seed)
    for version in (wide, narrow):
        assert all(map(same_bits, expected, results(version, seed)))


def test_a_large_buffer_has_wide_indices() -> None:
    func = parse_func("""
def f(A: Buffer((50000, 50000), "int8"), B: Buffer((4,), "int8"), n: int32):
    for i in range(50000):
        for j in range(n):
            if i + j < 50000:
                A[i, j] = B[j % 4] + cast(i, "int8")
""")
    wide = narrow_data_type(func)
    assert print_func(wide) == """\
def f(A: Buffer((50000, 50000), "int8"), B: Buffer((4,), "int8"), n: int32):
    for i in range(int64(50000)):
        for j in range(cast(n, "int64")):
            if i + j < 50000:
                A[i, j] = B[j % 4] + cast(i, "int8")
"""
    assert narrow_data_type(wide) is wide
    verify(lower(func), "machine")
    flat = flatten_buffers(wide)
    assert "2500000000" in print_func(flat).splitlines()[0]


@pytest.mark.parametrize("access", [
    "A[i * int64(50000) * int64(50000) % int64(7)] = 1.0",
    "A[i] = A[i + int64(2000000000) + int64(2000000000) - int64(4000000000)]",
    "A[i] = A[n % int64(3000000000)]",
    "A[i] = A[index[i]]",
])
def test_what_may_not_fit_stays_wide(access: str) -> None:
    func = parse_func(f"""
def f(A: Buffer((8,), "float32"), index: Buffer((8,), "int64"), n: int64):
    for i in range(int64(8)):
        {access}
""")
    with collect() as remarks:
        assert narrow_data_type(func) is func
    assert "keeps int64 indices" in str(remarks[0])


def test_data_in_indices_is_converted() -> None:
    func = parse_func("""
def f(A: Buffer((8,), "float32"), index: Buffer((8,), "int32"), count: Buffer((8,), "int64")):
    for i in range(int64(8)):
        j: int64 = i % 3
        A[i] = A[cast(index[i], "int64")] + A[j]
        count[i] = i * 5000000000
""")
    narrow = narrow_data_type(func)
    verify(narrow)
    assert print_func(narrow) == """\
def f(A: Buffer((8,), "float32"), index: Buffer((8,), "int32"), count: Buffer((8,), "int64")):
    for i in range(8):
        j: int64 = cast(i, "int64") % 3
        A[i] = A[index[i]] + A[cast(j, "int32")]
        count[i] = cast(i, "int64") * 5000000000
"""
