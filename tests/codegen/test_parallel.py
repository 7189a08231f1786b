"""Parallel loops become functions that threads share; results don't depend on their number."""

import numpy as np
import pytest
from differential import same

from minitvm.codegen.jit import build_kernel, pool_threads
from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.parallel import captures, parallel_loops
from minitvm.codegen.scratch import (
    MOST_BYTES_OF_COPIES,
    MOST_COPIES,
    STACK_BYTES,
    lift_scratch,
    scratch_params,
    thread_copies,
)
from minitvm.remarks import collect
from minitvm.target import Target
from minitvm.tir import interpret, ir
from minitvm.tir.passes import lower
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.walk import walk_statements
from minitvm.transform import PassContext

THREADS = (1, 2, 3, 8)

KERNELS = {
    "elements": """
def k(A: Buffer((1000,), "float32"), B: Buffer((1000,), "float32")):
    for i in parallel(1000):
        B[i] = A[i] * 2.0 + 1.0
""",
    "two regions, the second reads what the first wrote": """
def k(A: Buffer((1000,), "float32"), B: Buffer((1000,), "float32")):
    T = allocate((1000,), "float32")
    for i in parallel(1000):
        T[i] = A[i] * 3.0
    for j in parallel(1000):
        B[j] = T[999 - j] + A[j]
""",
    "a range, a captured variable, memory of each thread": """
def k(A: Buffer((1000,), "float32"), B: Buffer((1000,), "float32")):
    for r in range(4):
        scale: float32 = A[r]
        shift: int32 = r * 2
        for i in parallel(3, 90):
            t = allocate((8,), "float32", scope="local")
            for u in unrolled(8):
                t[u] = A[i + u + shift] * scale
            for u in unrolled(8):
                B[i * 8 + u] = t[7 - u]
""",
    "one inside another": """
def k(A: Buffer((1000,), "float32"), B: Buffer((1000,), "float32")):
    for i in parallel(10):
        for j in parallel(100):
            B[i * 100 + j] = A[j * 10 + i]
""",
    "fewer iterations than threads": """
def k(A: Buffer((1000,), "float32"), B: Buffer((1000,), "float32")):
    for i in parallel(2):
        for j in range(500):
            B[i * 500 + j] = A[j] - 1.0
    for i in parallel(5, 5):
        B[i] = 0.0
    for i in parallel(5, 6):
        B[i] = 7.0
""",
}


def arrays():
    return [np.random.default_rng(0).normal(0, 1, 1000).astype(np.float32),
            np.zeros(1000, np.float32)]


@pytest.mark.parametrize("name", KERNELS)
def test_every_number_of_threads_gives_the_same_bits(name):
    func = parse_func(KERNELS[name])
    expected = arrays()
    interpret.run(func, expected)
    kernel = build_kernel(func)
    for threads in THREADS:
        for _ in range(20):
            got = arrays()
            with pool_threads(threads):
                kernel(*got)
            same(got[1], expected[1], f"{name} on {threads} threads")


@pytest.mark.parametrize("size", [0, 1, 2, 1000])
def test_an_extent_known_when_it_runs(size):
    func = parse_func("""
def k(n: int32, A: Buffer((n,), "float32")):
    for i in parallel(n):
        A[i] = A[i] + 1.0
""")
    values = np.zeros(size, np.float32)
    kernel = build_kernel(func)
    for threads in THREADS:
        with pool_threads(threads):
            kernel(size, values)
    np.testing.assert_array_equal(values, len(THREADS))


def test_a_loop_takes_what_it_uses_and_does_not_define():
    func = parse_func(KERNELS["a range, a captured variable, memory of each thread"])
    loop = next(statement for statement in walk_statements(func.body)
                if isinstance(statement, ir.For) and statement.kind == "parallel")
    taken = captures(loop)
    assert sorted(buffer.name for buffer in taken.buffers) == ["A", "B"]
    assert sorted(var.name for var in taken.variables) == ["scale", "shift"]


def test_the_body_knows_of_its_buffers_what_the_kernel_does():
    text = function_to_llvm(parse_func(KERNELS["elements"]), Target.host())
    bodies = [line for line in text.splitlines() if line.startswith("define") and ".body" in line]
    assert len(bodies) == 1
    assert bodies[0].count("noalias nonnull align 4 dereferenceable(4000)") == 2


def large_memory(size, extent=64, outer="range(1)"):
    """A loop whose iterations each need `size` floats of their own; what it computes."""
    func = parse_func(f"""
def k(A: Buffer(({extent},), "float32")):
    for o in {outer}:
        for i in parallel({extent}):
            large = allocate(({size},), "float32")
            for j in range({size}):
                large[j] = cast(i + j, "float32")
            A[i] = large[i] + large[{size - 1}]
""")
    return func, np.arange(extent) * 3 + size - 1


@pytest.mark.parametrize("outer", ["range(1)", "range(2)", "parallel(1)"])
def test_each_thread_has_its_own_large_memory(outer):
    size = STACK_BYTES // 4 + 1
    func, wanted = large_memory(size, outer=outer)
    lifted = lift_scratch(func)
    assert list(thread_copies(lifted).values()) == [MOST_COPIES]
    assert lifted.attrs["scratch_bytes"] == MOST_COPIES * (STACK_BYTES + 64)
    assert parallel_loops(lifted) == 1
    read = parse_func(print_func(lifted))
    assert function_to_llvm(read, Target.host()) == function_to_llvm(lifted, Target.host())
    values, kernel = np.zeros(64, np.float32), build_kernel(func)
    for threads in (1, 2, 4, 40):
        for _ in range(20):
            values[:] = 0
            with pool_threads(threads):
                kernel(values)
            np.testing.assert_array_equal(values, wanted)
    interpret.run(lifted, [values, *(np.zeros(p.shape[0].value, np.float32)
                                     for p in scratch_params(lifted))])
    np.testing.assert_array_equal(values, wanted)


def test_no_more_threads_than_there_is_memory_for():
    size = MOST_BYTES_OF_COPIES // 3 // 4 - 16
    func, wanted = large_memory(size, 8)
    with collect() as remarks:
        lifted = lift_scratch(func)
    assert "parallel loop over i runs on at most 3 threads" in str(remarks[0])
    assert list(thread_copies(lifted).values()) == [3]
    assert ", i64 8, i64 3)" in function_to_llvm(lifted, Target.host())
    values = np.zeros(8, np.float32)
    with pool_threads(8):
        build_kernel(func)(values)
    assert np.allclose(values, wanted)


def test_memory_that_is_too_large_for_two_threads_keeps_the_loop_on_one():
    func, wanted = large_memory(MOST_BYTES_OF_COPIES // 8 + 1, 8)
    with collect() as remarks:
        lifted = lift_scratch(func)
    assert "parallel loop over i runs on one thread:" in str(remarks[0])
    assert parallel_loops(func) == 1 and parallel_loops(lifted) == 0
    values = np.zeros(8, np.float32)
    with pool_threads(4):
        build_kernel(func)(values)
    assert np.allclose(values, wanted)


def test_kernels_that_report_accesses_out_of_bounds_run_on_one_thread():
    func = parse_func("""
def k(A: Buffer((64,), "float32"), I: Buffer((64,), "int32")):
    for i in parallel(64):
        A[I[i]] = 1.0
""")
    with PassContext(config={"tir.bound_checks": True}):
        checked = lower(func)
    assert parallel_loops(lower(func)) == 1 and parallel_loops(checked) == 0
    assert "parallel_for" not in function_to_llvm(lift_scratch(checked), Target.host())
