"""What becomes vectors, and what runs serially with a remark."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from minitvm.remarks import collect
from minitvm.tir.interpret import run
from minitvm.tir.passes import lower, vectorize_loop
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import verify

HEAD = (
    'def f(A: Buffer((64,), "float32"), B: Buffer((64,), "float32"), '
    'I: Buffer((8,), "int32"), n: int32):\n'
)


def body_after(body: str) -> tuple[str, list[str]]:
    """The text after vectorizing, and the reasons of remarks; results are compared."""
    func = parse_func(HEAD + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n")
    verify(func, "flat")
    with collect() as remarks:
        result = vectorize_loop(func)
    verify(result, "machine")
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, 64).astype(np.float32) for _ in "AB"]
    index = rng.integers(0, 8, 8).astype(np.int32)
    outcomes = []
    for version in (func, result):
        copies = [array.copy() for array in arrays]
        run(version, [*copies, index, 3])
        outcomes.append(copies)
    np.testing.assert_array_equal(outcomes[0], outcomes[1])
    text = print_func(result)
    return textwrap.dedent(text.split("\n", 1)[1]), [remark.reason for remark in remarks]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A[i * 2 + 3] = B[7 - i]", "A[ramp(3, 2, 4)] = B[ramp(7, -1, 4)]"),
        ("A[i] = B[i // 4]", "A[ramp(0, 1, 4)] = broadcast(B[0], 4)"),
        ("A[i] = B[(n * 4 + i) // 4]", "A[ramp(0, 1, 4)] = broadcast(B[n], 4)"),
        ("A[i] = B[i // 2]", "A[ramp(0, 1, 4)] = B[ramp(0, 1, 4) // broadcast(2, 4)]"),
        ("A[i] = B[I[i]]", "A[ramp(0, 1, 4)] = B[I[ramp(0, 1, 4)]]"),
        ("A[i] = cast(i * n, \"float32\")",
         'A[ramp(0, 1, 4)] = cast(ramp(0, n, 4), "float32x4")'),
        ("A[i] = select(i < n, B[i], 1.0)",
         "A[ramp(0, 1, 4)] = select(ramp(0, 1, 4) < broadcast(n, 4), B[ramp(0, 1, 4)], "
         "broadcast(1.0, 4))"),
        ("A[i] = if_then_else(likely(i < n), B[i + 60], 1.0)",
         "A[ramp(0, 1, 4)] = select(ramp(0, 1, 4) < broadcast(n, 4), B[ramp(60, 1, 4)], "
         "broadcast(1.0, 4))"),
        ("A[i] = if_then_else(n < 70, B[i + n], 1.0)",
         "A[ramp(0, 1, 4)] = if_then_else(n < 70, B[ramp(n, 1, 4)], broadcast(1.0, 4))"),
        ("A[i] = if_then_else(i < n, B[i + 61], 1.0)",
         "A[ramp(0, 1, 4)] = if_then_else(ramp(0, 1, 4) < broadcast(n, 4), B[ramp(61, 1, 4)], "
         "broadcast(1.0, 4))"),
        ("A[i] = if_then_else(i < n, B[i + 61] * B[i], A[i])",
         "A[ramp(0, 1, 4)] = select(ramp(0, 1, 4) < broadcast(n, 4), "
         "if_then_else(ramp(0, 1, 4) < broadcast(n, 4), B[ramp(61, 1, 4)], broadcast(0.0, 4)) * "
         "B[ramp(0, 1, 4)], A[ramp(0, 1, 4)])"),
        ("A[i] = if_then_else(i < n, 1.0, B[i - n])",
         "A[ramp(0, 1, 4)] = select(ramp(0, 1, 4) < broadcast(n, 4), broadcast(1.0, 4), "
         "if_then_else(not ramp(0, 1, 4) < broadcast(n, 4), B[ramp(0 - n, 1, 4)], "
         "broadcast(0.0, 4)))"),
        ("A[i] = if_then_else(i < n, if_then_else(i > 0, B[i - 1], B[i + 61]), 1.0)",
         "A[ramp(0, 1, 4)] = select(ramp(0, 1, 4) < broadcast(n, 4), "
         "select(ramp(0, 1, 4) > broadcast(0, 4), "
         "if_then_else(ramp(0, 1, 4) < broadcast(n, 4) and ramp(0, 1, 4) > broadcast(0, 4), "
         "B[ramp(-1, 1, 4)], broadcast(0.0, 4)), "
         "if_then_else(ramp(0, 1, 4) < broadcast(n, 4) and not ramp(0, 1, 4) > broadcast(0, 4), "
         "B[ramp(61, 1, 4)], broadcast(0.0, 4))), broadcast(1.0, 4))"),
        ("A[i] = sqrt(abs(B[i]))", "A[ramp(0, 1, 4)] = sqrt(abs(B[ramp(0, 1, 4)]))"),
    ],
)
def test_expressions(before: str, after: str) -> None:
    text, remarks = body_after(f"for i in vectorized(4):\n    {before}")
    assert (text, remarks) == (after + "\n", [])


def test_a_register_tile() -> None:
    text, remarks = body_after("""
        for i in vectorized(8):
            for k in range(4):
                for p in unrolled(3):
                    A[p * 8 + i] = A[p * 8 + i] + B[k * 3 + p] * B[k * 8 + i]
            if n > 2:
                t: float32 = A[i] * 2.0
                A[i + 32] = max(t, 0.0) + t
    """)
    assert remarks == []
    assert text == textwrap.dedent("""\
        for k in range(4):
            for p in unrolled(3):
                A[ramp(p * 8, 1, 8)] = A[ramp(p * 8, 1, 8)] + broadcast(B[k * 3 + p], 8) * \
B[ramp(k * 8, 1, 8)]
        if n > 2:
            t: float32x8 = A[ramp(0, 1, 8)] * broadcast(2.0, 8)
            A[ramp(32, 1, 8)] = max(t, broadcast(0.0, 8)) + t
    """)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("A[i + 1] = A[i] + 1.0", "depend on each other through A"),
        ("A[0] = A[0] + B[i]", "depend on each other through A"),
        ("A[I[i]] = B[i]", "depend on each other through A"),
        ("A[n] = B[i]", "depend on each other through A"),
        ("for k in range(4):\n        A[k + i] = A[k + i] + B[k]", "depend on each other through"),
        ("A[i] = B[i]\n    B[i + 1] = A[i]", "depend on each other through B"),
        ("if i < n:\n        A[i] = 1.0", "a guard differs by lane"),
        ("for k in range(i):\n        A[i + 8 * k] = 1.0", "a loop's bounds differ by lane"),
        ("A[i] = if_then_else(i > 0, B[i * 2 - 1], 1.0)", "B may be read out of bounds"),
        ("A[i] = if_then_else(i < n - 3, B[n + 61], 1.0)", "B may be read out of bounds"),
        ("A[i] = if_then_else(i > 0, B[I[i * 2]], 1.0)", "B may be read out of bounds"),
        ("A[i] = if_then_else(i < n, cast(7 // (n - i), \"float32\"), 1.0)",
         "a divisor may be zero"),
        ("s = allocate((1,), \"float32\")\n    s[0] = B[i]\n    A[i] = s[0]", "through s"),
        ("evaluate(i)", "Evaluate can't run for several lanes at once"),
    ],
)
def test_what_runs_serially(body: str, reason: str) -> None:
    text, remarks = body_after(f"for i in vectorized(4):\n    {body}")
    assert "ramp" not in text and "for i in range(4)" in text
    assert len(remarks) == 1 and reason in remarks[0]


def test_only_the_statement_at_fault_runs_serially() -> None:
    text, remarks = body_after("""
        for i in vectorized(4):
            A[i] = 1.0
            if i < n:
                A[i + 8] = 1.0
            A[i + 16] = 2.0
    """)
    assert text.count("ramp") == 2 and text.count("for i in range(4)") == 1 and len(remarks) == 1


def test_a_let_that_differs_by_lane_stays_with_its_uses() -> None:
    text, _ = body_after("""
        for i in vectorized(4):
            t: float32 = B[i] * 2.0
            if t > 0.0:
                A[i] = t
    """)
    assert text == textwrap.dedent("""\
        for i in range(4):
            t: float32 = B[i] * 2.0
            if t > 0.0:
                A[i] = t
    """)


def test_other_dimensions_are_independent() -> None:
    result = lower(parse_func("""
def f(A: Buffer((4, 6), "float32")):
    for i in vectorized(4):
        for j in range(6):
            A[i, j] = A[i, j // 2] + 1.0
"""))
    assert print_func(result) == """\
def f(A: Buffer((24,), "float32")):
    for j in range(6):
        A[ramp(j, 6, 4)] = A[ramp(j // 2, 6, 4)] + broadcast(1.0, 4)
"""


def test_parameters_that_may_alias() -> None:
    for attrs, index, vector in (("", "i + 1", True), ("@attrs(may_alias=True)", "i + 1", False),
                                 ("@attrs(may_alias=True)", "i", True)):
        result = vectorize_loop(parse_func(f"""
{attrs}
def f(A: Buffer((8,), "float32"), B: Buffer((8,), "float32")):
    for i in vectorized(4):
        A[{index}] = B[i]
"""))
        assert ("ramp" in print_func(result)) == vector
