"""The options of UnrollLoop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.testing.tir_strategies import functions, make_arrays, same_bits
from minitvm.tir import walk
from minitvm.tir.interpret import run
from minitvm.tir.ir import For, PrimFunc
from minitvm.tir.passes import unroll_loop
from minitvm.tir.text import parse_func
from minitvm.tir.verify import verify
from minitvm.transform import PassContext

LOOPS = """
def f(A: Buffer((4096,), "float32"), n: int32):
    for i in range(8):
        for j in range(4):
            for k in range(4):
                A[i * 16 + j * 4 + k] = 1.0
                A[i * 16 + j * 4 + k + 1024] = 1.0
    for l in range(n):
        A[l] = 1.0
    for m in parallel(2):
        A[m] = 1.0
    for o in unrolled(3):
        A[o] = 1.0
"""


def unrolled(func: PrimFunc) -> str:
    return "".join(item.var.name for item in walk.walk_statements(func.body)
                   if isinstance(item, For) and item.kind == "unrolled")


@pytest.mark.parametrize(("config", "names"), [
    ({}, "o"),
    ({"unroll_max_step": 7}, "o"),
    ({"unroll_max_step": 8}, "ko"),
    ({"unroll_max_step": 32}, "jko"),
    ({"unroll_max_step": 1000}, "ijko"),
    ({"unroll_max_step": 1000, "unroll_max_extent": 4}, "jko"),
    ({"unroll_explicitly": True}, ""),
    ({"unroll_max_step": 32, "unroll_explicitly": True}, ""),
])
def test_options(config: dict[str, Any], names: str) -> None:
    with PassContext(config={f"tir.{key}": value for key, value in config.items()}):
        result = unroll_loop(parse_func(LOOPS))
    verify(result)
    assert unrolled(result) == names
    loops = sum(isinstance(item, For) for item in walk.walk_statements(result.body))
    if config.get("unroll_explicitly"):
        assert loops == (3 if "unroll_max_step" in config else 5)


@given(func=functions(), seed=st.integers(0, 3), steps=st.integers(1, 64),
       explicitly=st.booleans())
def test_unrolling_keeps_results(
    func: PrimFunc, seed: int, steps: int, explicitly: bool
) -> None:
    with PassContext(config={"tir.unroll_max_step": steps, "tir.unroll_explicitly": explicitly}):
        result = unroll_loop(func)
    verify(result, require_origins=True)
    expected, got = make_arrays(func, seed), make_arrays(func, seed)
    run(func, expected)
    run(result, got)
    assert all(map(same_bits, expected, got))
