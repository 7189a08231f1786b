"""Random functions, lowered and compiled: machine code does what the interpreter does.

Floats are compared bit for bit on a CPU without fused multiply-add, integers on the host.
"""

import pytest
from differential import HOST
from hypothesis import assume, given
from hypothesis import strategies as st

from minitvm import dtypes
from minitvm.codegen.jit import build_kernel
from minitvm.target import Target
from minitvm.testing.tir_strategies import functions, make_arrays, same_bits
from minitvm.tir import interpret, ir, walk
from minitvm.tir.passes import lower
from minitvm.tir.walk import walk_statements

pytestmark = pytest.mark.skipif(HOST.isa != "x86_64", reason="needs a CPU that may lack FMA")
PLAIN = Target("llvm -mcpu=x86-64") if HOST.isa == "x86_64" else HOST
WIDE = Target("llvm -mcpu=x86-64 -mattr=+avx2,+avx,+f16c") if HOST.has("avx2") else PLAIN


def may_choose_between_zeros(func):
    """Whether a min or max has a constant zero: which of 0 and -0 it gives is left open."""
    return any(isinstance(node, ir.Binary) and node.op in ("min", "max")
               and any(isinstance(side, ir.Const) and side.value == 0 for side in (node.a, node.b))
               for statement in walk_statements(func.body)
               for expr in walk.expressions(statement) for node in walk.walk(expr))


@given(functions(), st.integers(0, 99))
def test_compiled_functions_give_the_interpreters_results(func, seed):
    assume(not may_choose_between_zeros(func))
    integers = not any(dtypes.is_float(buffer.dtype) for buffer in func.params)
    expected = make_arrays(func, seed)
    machine = lower(func)
    interpret.run(func, expected)
    for target in (HOST,) if integers else (PLAIN, WIDE):
        got = make_arrays(func, seed)
        build_kernel(machine, target)(*got)
        for parameter, a, b in zip(func.params, got, expected):
            assert same_bits(a, b), f"{parameter.name} on {target}: {a} is not {b}"
