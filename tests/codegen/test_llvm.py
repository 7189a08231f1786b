"""Statements, memory and conditions: machine code does what the interpreter does."""

import re

import numpy as np
import pytest
from differential import HERE, HOST, TARGETS, check
from hypothesis import given
from hypothesis import strategies as st

from minitvm.codegen.jit import build_kernel
from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.machine import emit_assembly, emit_object
from minitvm.codegen.scratch import lift_scratch
from minitvm.errors import CodegenError
from minitvm.target import Target
from minitvm.testing.assembly import innermost_loops
from minitvm.testing.guarded import guarded_bytes
from minitvm.tir import ir
from minitvm.tir.text import parse_func, print_func

RANDOM = np.random.default_rng(0)


def floats(count):
    return RANDOM.normal(0, 1, count).astype(np.float32)


def run(text, *arrays, targets=TARGETS):
    """Parses a kernel and compares; gives the interpreter's arrays."""
    return check(parse_func(text), list(arrays), targets)


def test_bounds_that_vary_and_loops_that_do_not_run():
    result = run("""
def varying(A: Buffer((40,), "float32"), n: int32, m: int64, B: Buffer((40,), "float32")):
    for i in range(n):
        for j in range(i, extent=n - i - 2):
            B[j] = B[j] + A[i]
    for k in range(cast(m, "int32"), extent=4):
        B[k] = A[k] * 2.0
    for k in range(3, 3):
        B[k] = 99.0
""", floats(40), 9, 20, floats(40))
    assert result[3][20] == result[0][20] * 2


def test_branches_and_lets():
    run("""
def branches(A: Buffer((40,), "int32"), B: Buffer((40,), "int32")):
    for i in range(40):
        k: int32 = i // 3 * 3 - i % 7
        v: int32 = A[i] * 3 + k
        if v > 4:
            B[i] = v
        else:
            if v == 2 or v % 5 == 1 and not k > 0:
                B[i] = -k
            else:
                B[i] = i + min(k, 3)
""", RANDOM.integers(-20, 20, 40).astype(np.int32), np.zeros(40, np.int32))


def test_a_variable_may_be_bound_twice():
    """As passes that duplicate statements leave it: by data here, by an index there."""
    A, B = ir.buffer("A", (8,), "int32"), ir.buffer("B", (8,), "int32")
    x, i = ir.Var("x"), ir.Var("i")

    def half(bound, start):
        store = ir.Store(B, (i,), x * 2 + 1, HERE)
        return ir.For(i, ir.Const(start), ir.Const(4), "serial", ir.Let(x, bound, store, HERE))

    for first, second in ((ir.Load(A, (i,)), i * 3), (i * 3, ir.Load(A, (i,)))):
        func = ir.PrimFunc("twice", (A, B), ir.seq(half(first, 0), half(second, 4)))
        a, b = np.arange(8, dtype=np.int32) + 50, np.zeros(8, np.int32)
        build_kernel(func)(a, b)
        values = [a if isinstance(bound, ir.Load) else np.arange(8) * 3
                  for bound in (first, second)]
        np.testing.assert_array_equal(b, np.where(np.arange(8) < 4, *values) * 2 + 1)


def test_values_read_under_a_condition_are_not_touched_outside():
    """The taps of a padded convolution: the interpreter refuses any access out of bounds."""
    run("""
def padded(A: Buffer((30,), "float32"), B: Buffer((40,), "float32")):
    for i in range(40):
        B[i] = if_then_else(5 <= i and i < 35, A[i - 5], 0.0) + if_then_else(
            i < 5 or A[i - 5 - i // 35 * 9] > 0.0, 1.0, 2.0)
""", floats(30), floats(40))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "bool"])
@pytest.mark.parametrize("lanes", [3, 8, 16])
@pytest.mark.parametrize("bound", ["n", "2"])
def test_loads_under_a_mask_touch_nothing_outside(dtype, lanes, bound):
    """The memory ends with the last lane that is chosen, in front of a page without access."""
    func = parse_func(f"""
def masked(A: Buffer((4,), "{dtype}"), C: Buffer(({lanes},), "{dtype}"), \
B: Buffer(({lanes},), "{dtype}"), n: int32):
    B[ramp(0, 1, {lanes})] = if_then_else(ramp(0, 1, {lanes}) < broadcast({bound}, {lanes}), \
A[ramp(2, 1, {lanes})], C[ramp(0, 1, {lanes})])
""")
    source, other = (RANDOM.integers(0, 2, count).astype(dtype) for count in (4, lanes))
    memory = guarded_bytes(source.nbytes, at_end=True).view(source.dtype)
    memory[:] = source
    for target in TARGETS:
        got = np.zeros(lanes, dtype)
        build_kernel(func, target)(memory, other, got, 2)
        np.testing.assert_array_equal(got, [*source[2:], *other[2:]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "bool"])
@pytest.mark.parametrize("lanes", [2, 3, 8, 16])
@pytest.mark.parametrize("at_end", [False, True])
def test_every_second_element_is_loaded_and_nothing_outside(dtype, lanes, at_end):
    func = parse_func(f"""
def strided(A: Buffer(({4 * lanes - 1},), "{dtype}"), B: Buffer(({2 * lanes},), "{dtype}")):
    for i in range(2):
        B[ramp(i * {lanes}, 1, {lanes})] = A[ramp(i * {2 * lanes}, 2, {lanes})]
""")
    source = RANDOM.integers(0, 2, 4 * lanes - 1).astype(dtype)
    memory = guarded_bytes(source.nbytes, at_end).view(source.dtype)
    memory[:] = source
    for target in TARGETS:
        got = np.zeros(2 * lanes, dtype)
        build_kernel(func, target)(memory, got)
        np.testing.assert_array_equal(got, source[::2])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_strided_gathered_and_scattered_accesses(dtype):
    source = RANDOM.integers(0, 2, 64).astype(dtype)
    index = RANDOM.permutation(64).astype(np.int32)
    run(f"""
def gather(A: Buffer((64,), "{dtype}"), I: Buffer((64,), "int32"), B: Buffer((64,), "{dtype}"),
           C: Buffer((64,), "{dtype}"), D: Buffer((64,), "{dtype}"), n: int32):
    for i in range(8):
        B[ramp(i * 8, 1, 8)] = A[ramp(i, 8, 8)]
        C[ramp(63 - i, -8, 8)] = A[ramp(i * 8, 1, 8)]
        D[I[ramp(i * 8, 1, 8)]] = A[I[ramp(i, n, 8)]]
        C[ramp(i, n, 4)] = A[ramp(i, 0, 4)]
        B[ramp(i * 4, 1, 4) + broadcast(8, 4)] = A[ramp(0, 1, 4) * broadcast(n, 4)]
""", source, index, *(np.zeros(64, dtype) for _ in range(3)), 8)


def test_connectives_of_vectors_read_both_sides():
    run("""
def both(A: Buffer((32,), "float32"), B: Buffer((32,), "bool")):
    for i in range(4):
        B[ramp(i * 8, 1, 8)] = A[ramp(i * 8, 1, 8)] > broadcast(0.0, 8) and (
            A[ramp(24 - i * 8, 1, 8)] < broadcast(0.5, 8) or ramp(i, 1, 8) == broadcast(7, 8))
""", floats(32), np.zeros(32, bool))


def test_ramps_as_data():
    run("""
def ramps(A: Buffer((16,), "int32"), B: Buffer((16,), "float32"), n: int32):
    for i in range(2):
        A[ramp(i * 8, 1, 8)] = ramp(i * 3, n, 8) * broadcast(n, 8)
        B[ramp(i * 8, 1, 8)] = cast(ramp(i, 1, 8), "float32x8")
""", np.zeros(16, np.int32), np.zeros(16, np.float32), 5)


def test_integers_wrap_as_data_though_indices_may_not():
    run("""
def wrap(A: Buffer((8,), "int32"), B: Buffer((8,), "uint8"), n: int32):
    k: int32 = n * 65536
    for i in range(8):
        A[i] = k * (i + n) + 2147483647
        B[i] = cast(i * 77 + n, "uint8") * uint8(3)
""", np.zeros(8, np.int32), np.zeros(8, np.uint8), 40000)


TILE = """
def tile(X: Buffer((384,), "float32"), W: Buffer((2048,), "float32"),
         Y: Buffer((192,), "float32")):
    acc = allocate((192,), "float32", scope="local")
    for p in unrolled(6):
        for o in unrolled(2):
            acc[ramp((p * 2 + o) * 16, 1, 16)] = broadcast(0.0, 16)
    for k in range(64):
        for p in unrolled(6):
            for o in unrolled(2):
                acc[ramp((p * 2 + o) * 16, 1, 16)] = acc[ramp((p * 2 + o) * 16, 1, 16)] + (
                    broadcast(X[p * 64 + k], 16) * W[ramp((o * 64 + k) * 16, 1, 16)])
    for p in unrolled(6):
        for o in unrolled(2):
            Y[ramp((p * 2 + o) * 16, 1, 16)] = max(acc[ramp((p * 2 + o) * 16, 1, 16)],
                                                   broadcast(0.0, 16))
"""


def check_hot_loop(assembly: str) -> None:
    """The loop that multiplies and adds touches no stack."""
    hot = [loop for loop in innermost_loops(assembly) if loop.multiplies_and_adds]
    assert hot and not any(loop.stack_accesses for loop in hot)


def test_a_register_tile_stays_in_registers():
    """12 accumulators: nothing in the loop touches the stack, and everything is fused."""
    small = TILE.replace("16, 1, 16", "8, 1, 8").replace(", 16)", ", 8)").replace("* 16", "* 8")
    for text, cpu in ((TILE, "x86-64-v4"), (small, "x86-64-v3")):
        target = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
        assembly = emit_assembly(function_to_llvm(parse_func(text), target, debug=False), target)
        assert assembly.count("vfmadd") == 12
        check_hot_loop(assembly)
    x, w = np.round(floats(384) * 4), np.round(floats(2048) * 4)
    run(TILE, x, w, np.zeros(192, np.float32))


def test_cross_compilation_for_aarch64():
    target = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=+dotprod")
    text = TILE.replace("16, 1, 16", "4, 1, 4").replace(", 16)", ", 4)").replace("* 16", "* 4")
    module = function_to_llvm(parse_func(text), target)
    assembly = emit_assembly(module, target)
    assert re.search(r"fmla\s+v\d+\.4s", assembly)
    check_hot_loop(assembly)
    data = emit_object(module, target)
    assert data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == 183


def test_relu_is_one_instruction_and_keeps_nan():
    func = parse_func("""
def relu(A: Buffer((16,), "float32"), B: Buffer((16,), "float32")):
    B[ramp(0, 1, 8)] = max(A[ramp(0, 1, 8)], broadcast(0.0, 8))
    B[ramp(8, 1, 8)] = min(A[ramp(8, 1, 8)], broadcast(6.0, 8))
""")
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
    assembly = emit_assembly(function_to_llvm(func, target, debug=False), target)
    assert assembly.count("vmaxps") == 1 and assembly.count("vminps") == 1
    assert "vcmp" not in assembly and "vblend" not in assembly
    values = floats(16) * 9
    values[[1, 9]] = np.nan
    check(func, [values, np.zeros(16, np.float32)], TARGETS)


def test_objects_depend_on_nothing_but_the_text():
    func = parse_func(TILE)
    first = emit_object(function_to_llvm(func, HOST), HOST)
    again = emit_object(function_to_llvm(parse_func(print_func(func)), HOST), HOST)
    assert first == again


def test_debug_lines_are_those_of_the_printed_tir():
    func = parse_func(TILE)
    lines = print_func(func).splitlines()
    assembly = emit_assembly(function_to_llvm(func, HOST), HOST)
    assert '"tile.tir"' in assembly
    fused = re.search(r"\.loc\s+\d+ (\d+) [^\n]*\n(?:(?!\s+\.loc)[^\n]*\n)*?[^\n]*vfmadd", assembly)
    if HOST.fma and HOST.isa == "x86_64":
        assert fused and "broadcast(X[" in lines[int(fused[1]) - 1]


def test_parameters_may_alias_where_attrs_say_so():
    func = parse_func(TILE)
    assert "noalias" in function_to_llvm(func, HOST)
    loose = ir.PrimFunc(func.name, func.params, func.body, {"may_alias": True})
    assert "noalias" not in function_to_llvm(loose, HOST)


def test_what_is_not_machine_tir_is_refused_by_name():
    loop = ir.Var("lane")
    A = ir.buffer("A", (8,))
    body = ir.For(loop, ir.Const(0), ir.Const(8), "vectorized",
                  ir.Store(A, (loop,), ir.Const(1.0, "float32"), HERE))
    with pytest.raises(CodegenError, match="'lane' in k is still vectorized"):
        function_to_llvm(ir.PrimFunc("k", (A,), body), HOST)
    lanes = ir.Ramp(ir.Const(0), ir.Const(1), 8)
    lazy = ir.Call("if_then_else", (ir.Compare("lt", lanes, ir.Broadcast(ir.Const(4), 8)),
                   ir.Load(A, (ir.Ramp(ir.Const(0), ir.Const(2), 8),)),
                   ir.Broadcast(ir.Const(0.0, "float32"), 8)), "float32x8")
    with pytest.raises(CodegenError, match="a condition of dtype boolx8"):
        function_to_llvm(ir.PrimFunc("k", (A,), ir.Store(A, (lanes,), lazy, HERE)), HOST)
    square = ir.buffer("S", (8, 8))
    store = ir.Store(square, (loop, loop), ir.Const(1.0, "float32"), HERE)
    with pytest.raises(CodegenError, match="Store in k is not in the machine form"):
        function_to_llvm(ir.PrimFunc("k", (square, loop), store), HOST)
    big = parse_func("""
def big(A: Buffer((9,), "float32")):
    T = allocate((99999,), "float32")
    T[3] = 1.0
    A[0] = T[3]
""")
    with pytest.raises(CodegenError, match="'T' of 399996 bytes in big is too large for the stack"):
        function_to_llvm(big, HOST)
    assert function_to_llvm(lift_scratch(big), HOST)


PREFETCH = """
def ahead(A: Buffer((64,), "float32"), B: Buffer((64,), "float32")):
    for i in range(8):
        evaluate(prefetch(address(A, i * 8 + 100000000)))
        B[ramp(i * 8, 1, 8)] = A[ramp(i * 8, 1, 8)] + broadcast(1.0, 8)
"""


def test_prefetch_may_be_of_any_memory_and_changes_nothing():
    run(PREFETCH, floats(64), np.zeros(64, np.float32))
    func = parse_func(PREFETCH)
    assert print_func(parse_func(print_func(func))) == print_func(func)
    for target, instruction in (("x86_64-linux-gnu -mcpu=x86-64-v3", "prefetch"),
                                ("aarch64-linux-gnu -mcpu=cortex-a76", "prfm")):
        named = Target(f"llvm -mtriple={target}")
        assert instruction in emit_assembly(function_to_llvm(func, named), named)


@given(extent=st.integers(1, 70), lanes=st.sampled_from((2, 4, 8, 16)), start=st.integers(-5, 5),
       seed=st.integers(0, 99))
def test_any_extent_with_a_tail(extent, lanes, start, seed):
    """A vector loop and a guarded scalar tail over the same elements."""
    blocks = -(-extent // lanes)
    source = np.random.default_rng(seed).integers(-9, 9, extent).astype(np.float32)
    run(f"""
def tails(A: Buffer(({extent},), "float32"), B: Buffer(({blocks * lanes},), "float32")):
    for i in range({start}, {start + blocks}):
        k: int32 = (i - {start}) * {lanes}
        if k + {lanes} <= {extent}:
            B[ramp(k, 1, {lanes})] = A[ramp(k, 1, {lanes})] * broadcast(3.0, {lanes})
        else:
            for j in range({lanes}):
                B[k + j] = if_then_else(k + j < {extent}, A[k + j] + 1.0, -1.0)
""", source, np.zeros(blocks * lanes, np.float32), targets=TARGETS[:1])
