"""Every pass, and their sequence, keep what a function computes, its origins and its invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.testing.tir_strategies import functions, make_arrays, same_bits
from minitvm.tir import passes
from minitvm.tir.interpret import run
from minitvm.tir.ir import PrimFunc
from minitvm.tir.text import print_func
from minitvm.tir.verify import Spec, check_origins_kept, verify
from minitvm.tir.walk import walk_statements
from minitvm.transform import Pass, PassContext

SEEDS = st.integers(0, 3)


def results(func: PrimFunc, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What a function makes of copies of arrays, given in the shapes of its parameters."""
    copies = [
        array.copy().reshape(param.extents())  # type: ignore[union-attr]
        for array, param in zip(arrays, func.params, strict=True)
    ]
    run(func, copies)
    return copies


def check_same(before: PrimFunc, after: PrimFunc, seed: int, spec: Spec) -> None:
    verify(after, spec, require_origins=True)
    check_origins_kept(before, after)
    arrays = make_arrays(before, seed)
    pairs = zip(results(before, arrays), results(after, arrays), strict=True)
    if not all(same_bits(a, b) for a, b in pairs):
        raise AssertionError(f"the result changed\n{print_func(before)}\n{print_func(after)}")


@pytest.mark.parametrize("item", [item for item in passes.ALL if item.name != "VectorizeLoop"],
                         ids=lambda item: item.name)
@given(func=functions(), seed=SEEDS)
def test_each_pass_keeps_results(item: Pass[PrimFunc], func: PrimFunc, seed: int) -> None:
    after = item(func)
    check_same(func, after, seed, "flat" if item.name == "FlattenBuffers" else "nested")


@given(func=functions(), seed=SEEDS)
def test_vectorize_keeps_results(func: PrimFunc, seed: int) -> None:
    flat = passes.flatten_buffers(func)
    check_same(flat, passes.vectorize_loop(flat), seed, "machine")
    verify(passes.vectorize_loop(func), "nested")


@given(func=functions(), seed=SEEDS)
def test_lowering_keeps_results(func: PrimFunc, seed: int) -> None:
    lowered = passes.lower(func)
    check_same(func, lowered, seed, "machine")
    again = passes.lower(lowered)
    check_same(func, again, seed, "machine")


@given(func=functions(), seed=SEEDS)
def test_lowering_without_optimisation(func: PrimFunc, seed: int) -> None:
    with PassContext(opt_level=0, config={"tir.disable_vectorize": True}):
        check_same(func, passes.lower(func), seed, "machine")


@given(func=functions(), seed=SEEDS)
def test_unroll_fully_keeps_results(func: PrimFunc, seed: int) -> None:
    unrolled = passes.unroll_fully(func, most=100)  # two dimensions of 9, fused, give 81
    check_same(func, unrolled, seed, "nested")
    kinds = {getattr(item, "kind", "") for item in walk_statements(unrolled.body)}
    assert "unrolled" not in kinds
