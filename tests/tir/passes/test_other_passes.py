"""Storage sharing, deep expressions, hoisting, copies and origins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitvm.origin import origin
from minitvm.tir import ir, walk
from minitvm.tir.interpret import run
from minitvm.tir.ir import (
    Allocate,
    Binary,
    Buffer,
    Call,
    Const,
    For,
    Let,
    Load,
    PrimFunc,
    Stmt,
    Store,
    Var,
    seq,
)
from minitvm.tir.passes import (
    hoist_invariants,
    lower,
    narrow_deep_expressions,
    simplify,
    storage_rewrite,
    unroll_fully,
)
from minitvm.tir.passes.copying import copy_statement
from minitvm.tir.passes.narrow_deep_expressions import DEPTH
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import check_origins_kept, verify
from minitvm.tir.walk import walk_statements

# --- storage ------------------------------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> PrimFunc:
    """Stages that each fill scratch memory from earlier stages, in memory of any kind."""
    source, result = ir.buffer("A", (40,)), ir.buffer("C", (40,))
    stages: list[Buffer] = [source]
    parts: list[Stmt] = []
    for number in range(draw(st.integers(2, 7))):
        dtype = draw(st.sampled_from(["float32", "float32", "int32"]))
        scope = draw(st.sampled_from(["global", "global", "local"]))
        size = draw(st.sampled_from([40, 41, 2000]))
        stage = ir.buffer(f"s{number}", (size,), dtype, scope)
        parts.append(fill(stage, draw(st.lists(st.sampled_from(stages), min_size=1, max_size=2))))
        stages.append(stage)
    parts.append(fill(result, draw(st.lists(st.sampled_from(stages), min_size=1, max_size=3))))
    body = seq(*parts)
    for stage in reversed(stages[1:]):
        body = Allocate(stage, body, origin(stage.name))
    return PrimFunc("f", (source, result), body)


def fill(target: Buffer, sources: list[Buffer]) -> Stmt:
    i = Var("i")
    value: ir.Expr = ir.cast(i, target.dtype)
    for source in sources:
        value = Binary("add", value, ir.cast(Load(source, (i,)), target.dtype))
    store = Store(target, (i,), value, origin(target.name))
    return For(i, Const(0), Const(40), "serial", store, origin(target.name))


@given(func=chains())
def test_sharing_keeps_results(func: PrimFunc) -> None:
    shared = storage_rewrite(func)
    verify(shared, "machine", require_origins=True)
    check_origins_kept(func, shared)
    source = np.arange(40, dtype=np.float32)
    expected, got = np.empty(40, np.float32), np.empty(40, np.float32)
    run(func, [source, expected])
    run(shared, [source, got])
    np.testing.assert_array_equal(got, expected)


def allocated(func: PrimFunc) -> list[tuple[str, int]]:
    return [(item.buffer.name, item.buffer.extents()[0]) for item in walk_statements(func.body)
            if isinstance(item, Allocate)]


def chain(*stages: tuple[int, str, str]) -> PrimFunc:
    """Each stage is made of the one before it: (size, dtype, scope)."""
    previous = ir.buffer("A", (40,))
    parts: list[Stmt] = []
    buffers = []
    for number, (size, dtype, scope) in enumerate(stages):
        stage = ir.buffer(f"s{number}", (size,), dtype, scope)
        parts.append(fill(stage, [previous]))
        buffers.append(stage)
        previous = stage
    body = seq(*parts)
    for stage in reversed(buffers):
        body = Allocate(stage, body)
    return PrimFunc("f", (ir.buffer("A", (40,)),), body)


@pytest.mark.parametrize(
    ("stages", "left"),
    [
        ([(40, "float32", "global")] * 4, [("s0", 40), ("s1", 40)]),
        ([(40, "float32", "global"), (40, "float32", "global"), (50, "float32", "global")],
         [("s0", 50), ("s1", 40)]),
        ([(40, "float32", "global"), (40, "int32", "global"), (40, "int32", "global"),
          (40, "int32", "global")], [("s0", 40), ("s1", 40), ("s2", 40)]),
        ([(40, "float32", "local")] * 3, [("s0", 40), ("s1", 40), ("s2", 40)]),
        ([(2000, "float32", "local")] * 3, [("s0", 2000), ("s1", 2000)]),
        ([(2000, "float32", "local"), (2000, "float32", "local"), (2000, "float32", "global")],
         [("s0", 2000), ("s1", 2000), ("s2", 2000)]),
    ],
)
def test_what_shares(stages: list[tuple[int, str, str]], left: list[tuple[str, int]]) -> None:
    assert allocated(storage_rewrite(chain(*stages))) == left


# --- deep expressions ---------------------------------------------------------------------------


def deep(depth: int, wrap: str = "plain") -> PrimFunc:
    A, C, i = ir.buffer("A", (4,)), ir.buffer("C", (4,)), Var("i")
    value: ir.Expr = Load(A, (i,))
    for number in range(depth):
        value = Binary("add", value, Const(float(number), "float32"))
    if wrap == "lazy":
        value = Call("if_then_else", (i < 2, value, Const(0.0, "float32")), "float32")
    if wrap == "twice":
        value = Binary("mul", value, value)
    store = Store(C, (i,), value, origin("chain"))
    return PrimFunc("f", (A, C), For(i, Const(0), Const(4), "vectorized", store))


def depth_of(func: PrimFunc) -> int:
    def depth(expr: ir.Expr) -> int:
        return 1 + max(map(depth, walk.children(expr)), default=0)

    return max(depth(expr) for item in walk_statements(func.body)
               for expr in walk.expressions(item))


@pytest.mark.parametrize("wrap", ["plain", "twice"])
@pytest.mark.parametrize("depth", [3, DEPTH, 200, 3000])
def test_deep_expressions_become_lets(depth: int, wrap: str) -> None:
    func = deep(depth, wrap)
    narrow = narrow_deep_expressions(func)
    assert (narrow is func) == (depth < DEPTH - 3)
    assert depth_of(narrow) <= DEPTH
    lets = [item for item in walk_statements(narrow.body) if isinstance(item, Let)]
    assert len(lets) <= depth // (DEPTH - 2) + 1
    a = np.arange(4, dtype=np.float32)
    expected = a.copy()
    for number in range(depth):
        expected = expected + np.float32(number)
    if wrap == "twice":
        expected = expected * expected
    for version in (narrow, lower(func)):
        result = np.empty(4, np.float32)
        run(version, [a, result])
        np.testing.assert_array_equal(result, expected)
    text = print_func(lower(func))
    assert print_func(parse_func(text)) == text


@given(st.integers(30, 1000), st.sampled_from(["then", "else", "and", "or", "nested", "both"]))
@settings(max_examples=25)
def test_deep_lazy_parts_are_evaluated_only_where_they_were(depth: int, kind: str) -> None:
    func = deep_lazy(depth, kind)
    narrow = narrow_deep_expressions(func)
    verify(narrow)
    assert depth_of(narrow) <= DEPTH + 3
    a = np.arange(4, dtype=np.float32)
    expected, got = np.empty(8, np.float32), np.empty(8, np.float32)
    run(lower(func), [a, got])
    with recursion_limit(20 * depth + 2000):
        run(func, [a, expected])
    np.testing.assert_array_equal(got, expected)


def deep_lazy(depth: int, kind: str) -> PrimFunc:
    """A chain on A[i], which is out of bounds where the branch it is in is not taken."""
    A, C, i = ir.buffer("A", (4,)), ir.buffer("C", (8,)), Var("i")
    value: ir.Expr = Load(A, (i,))
    zero = Const(0.0, "float32")
    inside, outside = i < 4, ir.Not(i < 4)
    for number in range(depth):
        value = Binary("add", value, Const(float(number % 7), "float32"))
        if kind == "nested" and number % 3 == 0:
            value = Call("if_then_else", (inside, value, zero), "float32")
    if kind == "then":
        value = Call("if_then_else", (inside, value, zero), "float32")
    if kind == "else":
        value = Call("if_then_else", (outside, zero, value), "float32")
    if kind == "and":
        value = ir.cast(ir.And(inside, value > 3.0), "float32")
    if kind == "or":
        value = ir.cast(ir.Or(outside, value > 3.0), "float32")
    if kind == "both":  # one chain in two places, each of which may not be reached
        first = Call("if_then_else", (i < 2, value, zero), "float32")
        value = first + Call("if_then_else", (ir.And(i > 1, inside), value, zero), "float32")
    store = Store(C, (i,), value, origin("chain"))
    return PrimFunc("f", (A, C), For(i, Const(0), Const(8), "serial", store))


@contextmanager
def recursion_limit(limit: int) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, before))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


# --- hoisting, copies, origins ------------------------------------------------------------------


def test_guards_stay_where_they_change() -> None:
    func = parse_func("""
def f(A: Buffer((8,), "float32"), n: int32):
    for i in range(8):
        if A[0] > 0.0:
            A[i] = A[i] - 1.0
    for j in range(8):
        if 8 // n > 2:
            A[j] = 1.0
    for k in parallel(8):
        if n > 2:
            A[k] = 1.0
    for l in range(8):
        A[0] = A[n // (l + 1)]
""")
    assert hoist_invariants(func) is func


@pytest.mark.parametrize(("body", "after"), [
    (["for i in range(8):", "    if n > 2:", "        A[i] = 1.0",
      "    else:", "        A[i] = 2.0"],
     ["if n > 2:", "    for i in range(8):", "        A[i] = 1.0", "else:",
      "    for i_1 in range(8):", "        A[i_1] = 2.0"]),
    (["for i in range(8):", "    if n > 2:", "        A[i] = 1.0", "    if n > 2:",
      "        A[i + 1] = 2.0"],
     ["if n > 2:", "    for i in range(8):", "        A[i] = 1.0", "        A[i + 1] = 2.0"]),
    (["for i in range(8):", "    x: float32 = A[i] * 2.0", "    if n > 2:", "        A[i] = x"],
     ["if n > 2:", "    for i in range(8):", "        x: float32 = A[i] * 2.0",
      "        A[i] = x"]),
    (["for i in range(8):", '    s = allocate((1,), "float32")', "    if n > 2:",
      "        s[0] = A[i]", "        A[i + 1] = s[0]"],
     ["if n > 2:", "    for i in range(8):", '        s = allocate((1,), "float32")',
      "        s[0] = A[i]", "        A[i + 1] = s[0]"]),
])
def test_whole_choices_move(body: list[str], after: list[str]) -> None:
    head = 'def f(A: Buffer((16,), "float32"), n: int32):\n'
    func = hoist_invariants(parse_func(head + "\n".join("    " + line for line in body) + "\n"))
    verify(func)
    assert print_func(func) == head + "".join(f"    {line}\n" for line in after)


@pytest.mark.parametrize("body", [
    ["if A[0] > 2.0:", "    A[0] = 1.0", "if A[0] > 2.0:", "    A[1] = 2.0"],
    ["x: int32 = n * 2", "if x > 3:", "    A[x % 4] = 1.0"],
])
def test_choices_that_depend_on_what_is_done_stay(body: list[str]) -> None:
    head = 'def f(A: Buffer((16,), "float32"), n: int32):\n'
    func = parse_func(head + "\n".join("    " + line for line in body) + "\n")
    assert hoist_invariants(func) is func


def test_a_guard_moves_through_several_loops() -> None:
    func = hoist_invariants(parse_func("""
def f(A: Buffer((8, 8), "float32"), n: int32):
    for i in range(8):
        for j in range(8):
            if n > 2:
                A[i, j] = A[i % 3, j] + A[n % 4, (n % 4) // 2]
"""))
    assert print_func(func) == """\
def f(A: Buffer((8, 8), "float32"), n: int32):
    if n > 2:
        remainder: int32 = n % 4
        quotient: int32 = n % 4 // 2
        for i in range(8):
            remainder_1: int32 = i % 3
            for j in range(8):
                A[i, j] = A[remainder_1, j] + A[remainder, quotient]
"""


def test_copies_declare_their_own() -> None:
    func = parse_func("""
def f(A: Buffer((8,), "float32")):
    for i in unrolled(2):
        s = allocate((2,), "float32")
        for j in range(2):
            k: int32 = i + j
            s[j] = A[k]
        A[i] = s[0] + s[1]
""")
    unrolled = unroll_fully(func)
    verify(unrolled)
    buffers = [item.buffer for item in walk_statements(unrolled.body)
               if isinstance(item, Allocate)]
    assert len(buffers) == len(set(buffers)) == 2
    loop = func.body
    assert isinstance(loop, For)
    again = copy_statement(loop.body, {loop.var: Const(5)})
    assert not {id(item) for item in walk_statements(again)} & {
        id(item) for item in walk_statements(loop.body)
        if not isinstance(item, ir.Evaluate)
    }


def test_removed_code_leaves_its_origins() -> None:
    func = parse_func("""
def f(A: Buffer((8,), "float32"), n: int32):
    for i in range(8):
        if i > 7:
            A[i] = 1.0  #: "dead"
        for j in range(n - n):
            A[j] = 1.0  #: "empty"
        A[i] = 2.0  #: "live"
""")
    result = simplify(func)
    assert print_func(result).splitlines()[1:] == [
        "    for i in range(8):", '        A[i] = 2.0  #: "dead", "empty", "live"'
    ]


def test_nothing_to_do_gives_the_same_function() -> None:
    func = parse_func("""
def f(A: Buffer((8,), "float32"), B: Buffer((8,), "float32"), n: int32):
    s = allocate((8,), "float32")
    for i in range(n):
        t: float32 = A[i] * 2.0
        if i < 3:
            s[i] = t
            B[i] = s[7 - i] + t
        else:
            B[i] = if_then_else(n < 5, A[n], 0.0)
""")
    assert lower(func) is func


def test_while_loops_are_kept() -> None:
    text = """\
def f(A: Buffer((8,), "float32"), n: Buffer((1,), "int32")):
    while n[0] > 0:
        n[0] = n[0] - 1
        for i in vectorized(4):
            A[i] = A[i] + 1.0
"""
    func = parse_func(text)
    array, count = np.zeros(8, np.float32), np.array([3], np.int32)
    run(lower(func), [array, count])
    assert array.tolist() == [3] * 4 + [0] * 4 and count[0] == 0
    assert "while n[0]" in print_func(lower(func))
    copied = copy_statement(func.body, {})
    assert copied == func.body or print_func(PrimFunc("f", func.params, copied)) == text


def test_what_a_branch_changes_is_tested_again() -> None:
    func = parse_func("""
def f(n: Buffer((2,), "int32"), x: Buffer((1,), "float32")):
    if n[0] > 0:
        n[0] = n[0] - 5
        if n[0] > 0:
            n[1] = 1
    if x[0] > 0.0:
        x[0] = -1.0
        if x[0] > 0.0:
            n[1] = 2
""")
    count, x = np.array([3, 7], np.int32), np.array([1], np.float32)
    run(lower(func), [count, x])
    assert count.tolist() == [-2, 7] and x[0] == -1
