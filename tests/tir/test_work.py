"""The work of a kernel: counted by hand, and by running it with a counter in it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import dtypes, te
from minitvm.errors import LoweringError
from minitvm.testing.te_oracle import random_inputs
from minitvm.testing.te_strategies import programs, schedules
from minitvm.tir import ir, passes, walk, work
from minitvm.tir.interpret import run
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.work import count_work


def count(body, params='A: Buffer((64,), "float32"), B: Buffer((64,), "float32")'):
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return count_work(parse_func(f"def k({params}):\n{lines}\n"))


def test_loops_multiply():
    found = count("""
for i in range(8):
    for j in range(4):
        B[i] = A[i] * 2.0 + B[i]""")
    assert found == work.Work(flops=64, bytes_read=32 * 4, bytes_written=32 * 4)
    assert found.bytes_moved == 256


def test_bytes_are_at_most_those_of_the_buffer():
    found = count("""
for i in range(1000):
    B[i % 64] = A[0]""")
    assert (found.bytes_read, found.bytes_written, found.flops) == (64 * 4, 64 * 4, 0)
    found = count("""
for i in range(8):
    B[i] = A[i + 3]""")
    assert (found.bytes_read, found.bytes_written) == (32, 32)


def test_index_arithmetic_is_no_work():
    assert count("""
for i in range(8):
    B[(i * 3 + 1) % 64] = A[(i + 7) % 64]""").flops == 0


def test_vectors_count_by_lane_and_fma_twice():
    assert count("""
B[ramp(0, 1, 8)] = fma(A[ramp(0, 1, 8)], A[ramp(8, 1, 8)], B[ramp(0, 1, 8)])""").flops == 16
    assert count("""
B[ramp(0, 1, 8)] = exp(max(A[ramp(0, 1, 8)], broadcast(0.0, 8)))""").flops == 16


def test_a_triangle_is_counted_exactly():
    found = count("""
for i in range(7):
    for j in range(i + 1):
        B[i] = B[i] + A[j]""")
    assert found.flops == 28 and found.exact


def test_padding_is_counted_exactly_and_lazily():
    """A window of three at stride two over 10 elements, padded by one on both sides."""
    found = count("""
for i in range(5):
    for k in range(3):
        B[i] = B[i] + if_then_else(i * 2 + k >= 1 and i * 2 + k < 11, A[i * 2 + k - 1] * 3.0, 0.0)
""")
    inside = sum(1 <= i * 2 + k < 11 for i in range(5) for k in range(3))
    assert found.flops == 15 + inside and found.exact and inside == 14
    assert found.bytes_read == inside * 4


def test_both_branches_and_lets():
    found = count("""
for i in range(10):
    t: int32 = i * 2
    if t < 6 or i == 9:
        B[i] = A[i] + 1.0
    else:
        B[i] = (A[i] + 1.0) * 2.0""")
    assert found.flops == 4 + 2 * 6 and found.exact


def test_a_condition_on_data_gives_an_upper_bound():
    found = count("""
for i in range(10):
    if A[i] > 0.0:
        B[i] = A[i] + 1.0""")
    assert found.flops == 10 and not found.exact


def test_too_many_turns_to_look_at_give_an_upper_bound(monkeypatch):
    body = """
for i in range(100):
    for j in range(100):
        if i + j < 50:
            B[0] = B[0] + 1.0"""
    assert count(body).flops == 1275
    monkeypatch.setattr(work, "MAXIMUM_GRID", 99)
    assert count(body).flops == 10_000 and not count(body).exact


def test_conditions_without_a_common_variable_are_counted_apart(monkeypatch):
    monkeypatch.setattr(work, "MAXIMUM_GRID", 1000)
    found = count("""
for i in range(1000):
    for j in range(1000):
        if i < 10 and j >= 990 and i >= 2:
            B[0] = B[0] + 1.0""")
    assert found.flops == 80 and found.exact


def test_sizes_must_be_constant():
    with pytest.raises(LoweringError, match=r"loop over i can't be counted.* as a constant"):
        count("for i in range(n):\n    B[i] = A[i] + 1.0",
              'n: int32, A: Buffer((64,), "float32"), B: Buffer((64,), "float32")')


# --- against a kernel that counts itself --------------------------------------------------------


def flops_of(expr):
    """The operations of an expression, as an integer expression."""
    operands = walk.children(expr)
    if isinstance(expr, ir.Call) and expr.name == "if_then_else" and (
            dtypes.lanes(operands[0].dtype) == 1):
        condition, a, b = operands
        return flops_of(condition) + ir.if_then_else(condition, flops_of(a), flops_of(b))
    total = ir.Const(0, "int64")
    for operand in operands:
        total = total + flops_of(operand)
    if dtypes.is_float(expr.dtype):
        match expr:
            case ir.Binary():
                total = total + dtypes.lanes(expr.dtype)
            case ir.Call(name, _, dtype) if name not in ("likely", "if_then_else"):
                total = total + dtypes.lanes(dtype) * (2 if name == "fma" else 1)
    return total


def with_counter(func):
    counter = ir.buffer("counter", (1,), "int64")
    at = (ir.Const(0),)

    def add(statement):
        if isinstance(statement, ir.Allocate | ir.Seq):
            return statement
        amount = ir.Const(0, "int64")
        for expr in walk.expressions(statement):
            amount = amount + flops_of(expr)
        step = ir.Store(counter, at, ir.Load(counter, at) + amount, statement.origin)
        return ir.seq(step, statement)

    return ir.PrimFunc("counting", (*func.params, counter),
                       walk.rewrite_statement(func.body, add), func.attrs)


@given(programs(4), st.integers(0, 2**16), st.data())
def test_what_is_counted_is_what_runs(program, seed, data):
    schedule = data.draw(schedules(program))
    nested = te.lower(schedule, program.args)
    for func in (nested, passes.lower(nested)):
        found = count_work(func)
        arrays = [*random_inputs(program, seed),
                  *(np.zeros(tensor.extents(), tensor.dtype) for tensor in program.outputs)]
        if func is not nested:
            arrays = [array.reshape(-1) for array in arrays]
        counter = np.zeros(1, np.int64)
        run(with_counter(func), [*arrays, counter])
        if found.exact:
            assert found.flops == counter[0], print_func(func)
        else:
            assert found.flops >= counter[0], print_func(func)
