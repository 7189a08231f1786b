"""Common subexpressions: their lets stand where what they name is used."""

from __future__ import annotations

from minitvm.tir.passes.common_subexpr_elim import common_subexpr_elim
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import verify


def test_what_a_let_and_its_value_share_is_defined_in_front_of_it():
    """A statement that is no store alone: here a let whose value computes an index twice."""
    func = parse_func('''
def f(A: Buffer((64,), "float32"), B: Buffer((64,), "float32")):
    for i in range(8):
        for j in range(8):
            x: float32 = A[(i * 8 + j) % 64] * A[(i * 8 + j) % 64]
            B[i] = x
''')
    after = common_subexpr_elim(func)
    verify(after, "flat")
    assert print_func(after).count("% 64") == 1
