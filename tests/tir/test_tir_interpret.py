"""The interpreter computes what numpy does, and refuses what has no meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitvm import dtypes
from minitvm.errors import InterpreterError
from minitvm.testing.tir_strategies import expressions, make_array, same_bits
from minitvm.tir import ir, walk
from minitvm.tir.interpret import run
from minitvm.tir.ir import Binary, Const, Load, PrimFunc, Ramp, Store, Var
from minitvm.tir.text import parse_func, parse_functions

LANES = 8


def execute(text: str, *arrays: Any) -> None:
    run(parse_func(text), arrays)


def binary_func(op: str, dtype: str, lanes: int) -> PrimFunc:
    A, B, C = (ir.buffer(name, (LANES,), dtype) for name in "ABC")
    if lanes > 1:
        index: ir.Expr = Ramp(Const(0), Const(1), lanes)
        return PrimFunc("f", (A, B, C), Store(
            C, (index,), Binary(op, Load(A, (index,)), Load(B, (index,)))))
    i = Var("i")
    store = Store(C, (i,), Binary(op, Load(A, (i,)), Load(B, (i,))))
    return PrimFunc("f", (A, B, C), ir.For(i, Const(0), Const(LANES), "serial", store))


NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": np.floor_divide, "floormod": np.mod, "min": np.minimum, "max": np.maximum,
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift,
}
INTEGERS = [dtype for dtype in dtypes.SCALARS if dtypes.is_int(dtype)]
FLOATS = [dtype for dtype in dtypes.SCALARS if dtypes.is_float(dtype)]


@pytest.mark.parametrize("lanes", [1, LANES])
@given(data=st.data(), dtype=st.sampled_from([*INTEGERS, *FLOATS]), op=st.sampled_from([*NUMPY]))
def test_binary_is_numpys(data: st.DataObject, dtype: str, op: str, lanes: int) -> None:
    integer = dtypes.is_int(dtype)
    if (op in ("bitand", "bitor", "bitxor", "shl", "shr") and not integer) or (
        op in ("div", "floordiv", "floormod") and (op == "div") == integer
    ):
        return
    if op in ("floordiv", "floormod") and not integer:
        return
    kind = np.dtype(dtype)
    a, b = (data.draw(hnp.arrays(kind, LANES)) for _ in range(2))
    if op in ("shl", "shr"):
        b = (b % dtypes.bits(dtype)).astype(kind)
    if op in ("floordiv", "floormod"):
        b[b == 0] = 1
    result = np.empty(LANES, kind)
    run(binary_func(op, dtype, lanes), [a, b, result])
    with np.errstate(all="ignore"):
        expected = NUMPY[op](a, b)
    np.testing.assert_array_equal(result, expected)


@given(source=st.sampled_from([*INTEGERS, *FLOATS]), target=st.sampled_from([*INTEGERS, *FLOATS]),
       data=st.data())
def test_casts_are_numpys(source: str, target: str, data: st.DataObject) -> None:
    elements = st.integers(0, 100) if dtypes.is_float(source) and dtypes.is_int(target) else None
    a = data.draw(hnp.arrays(np.dtype(source), LANES, elements=elements))
    scalar, vector = np.empty(LANES, target), np.empty(LANES, target)
    execute(f"""
def f(A: Buffer((8,), "{source}"), S: Buffer((8,), "{target}"), V: Buffer((8,), "{target}")):
    for i in range(8):
        S[i] = cast(A[i], "{target}")
    V[ramp(0, 1, 8)] = cast(A[ramp(0, 1, 8)], "{target}x8")
""", a, scalar, vector)
    with np.errstate(all="ignore"):
        expected = a.astype(target)
    np.testing.assert_array_equal(scalar, expected)
    np.testing.assert_array_equal(vector, expected)


@given(case=expressions(depth=3), seed=st.integers(0, 5))
def test_expressions_are_those_of_python(case: Any, seed: int) -> None:
    """Against a direct evaluation of the tree by numpy, at every (i, j)."""
    expr, buffers = case
    variables = {node.name: node for node in walk.walk(expr) if isinstance(node, Var)}
    i, j = variables.get("i", Var("i")), variables.get("j", Var("j"))
    target = ir.buffer("T", (4, 3), expr.dtype)
    body: ir.Stmt = Store(target, (i, j), expr)
    for var, extent in ((j, 3), (i, 4)):
        body = ir.For(var, Const(0), Const(extent), "serial", body)
    rng = np.random.default_rng(seed)
    arrays = [make_array(buffer.extents(), buffer.dtype, rng) for buffer in buffers]
    result = np.empty((4, 3), expr.dtype)
    run(PrimFunc("f", (*buffers, target), body), [*arrays, result])
    memory = dict(zip(buffers, arrays, strict=True))
    with np.errstate(all="ignore"):
        expected = np.array(
            [[evaluate(expr, {i: x, j: y}, memory) for y in range(3)] for x in range(4)], expr.dtype
        )
    assert same_bits(result, expected)


def evaluate(expr: ir.Expr, values: dict[Var, int], memory: dict[ir.Buffer, np.ndarray]) -> Any:
    """The value of a tree, node by node; booleans as Python's, numbers as numpy scalars."""
    def of(node: ir.Expr) -> Any:
        return evaluate(node, values, memory)

    kind = None if expr.dtype == "bool" else dtypes.to_numpy(expr.dtype).type
    match expr:
        case Var():
            return np.int32(values[expr])
        case Const(value):
            return bool(value) if kind is None else kind(value)
        case Load(buffer, indices):
            return memory[buffer][tuple(int(of(index)) for index in indices)]
        case Binary("min" | "max" as op, a, b):
            x, y = of(a), of(b)
            return x if (x < y if op == "min" else x > y) or x != x else y
        case Binary(op, a, b):
            return NUMPY[op](of(a), of(b))
        case ir.Compare(op, a, b):
            symbol = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
                      "gt": "greater", "ge": "greater_equal"}[op]
            return bool(getattr(np, symbol)(of(a), of(b)))
        case ir.And(a, b):
            return of(a) and of(b)
        case ir.Or(a, b):
            return of(a) or of(b)
        case ir.Not(a):
            return not of(a)
        case ir.Select(c, a, b) | ir.Call("if_then_else", (c, a, b)):
            return of(a) if of(c) else of(b)
        case ir.Cast(dtype, value):
            return np.asarray(of(value)).astype(dtype)[()]
        case ir.Call(name, (value,)):
            return getattr(np, name)(of(value))
    raise AssertionError(expr)


def test_lazy_branches_are_not_evaluated() -> None:
    out = np.empty(4, np.float32)
    execute("""
def f(A: Buffer((2,), "float32"), B: Buffer((4,), "float32")):
    for i in range(4):
        B[i] = if_then_else(i < 2 and A[i] > 0.0, A[i], 9.0)
""", np.array([1, -1], np.float32), out)
    assert out.tolist() == [1, 9, 9, 9]


def test_loads_under_a_mask_read_only_the_lanes_that_are_chosen() -> None:
    out = np.empty(4, np.float32)
    text = """
def f(n: int32, A: Buffer((4, 5), "float32"), B: Buffer((4,), "float32")):
    B[ramp(0, 1, 4)] = if_then_else(ramp(0, 1, 4) < broadcast(2, 4), A[n, ramp(3, 1, 4)], \
broadcast(9.0, 4))
"""
    execute(text, 1, np.arange(20, dtype=np.float32).reshape(4, 5), out)
    assert out.tolist() == [8, 9, 9, 9]
    with pytest.raises(InterpreterError, match=r"A\[4, .* is outside of its extents \[4, 5\]"):
        execute(text, 4, np.zeros((4, 5), np.float32), out)
    with pytest.raises(InterpreterError, match="is outside of its extents"):
        execute(text.replace("broadcast(2, 4)", "broadcast(3, 4)"), 1,
                np.zeros((4, 5), np.float32), out)
    with pytest.raises(InterpreterError, match=r"S\[1\] is read before it is written"):
        execute("""
def f(B: Buffer((4,), "float32")):
    S = allocate((4,), "float32")
    S[0] = 1.0
    B[ramp(0, 1, 4)] = if_then_else(ramp(0, 1, 4) < broadcast(2, 4), S[ramp(0, 1, 4)], \
broadcast(9.0, 4))
""", out)


def test_loops_run_over_start_and_extent() -> None:
    out = np.zeros(8, np.int32)
    execute("""
def f(n: int32, A: Buffer((8,), "int32")):
    for i in range(n, extent=3):
        A[i] = i
    for j in range(n - 9):
        A[7] = 5
""", 4, out)
    assert out.tolist() == [0, 0, 0, 0, 4, 5, 6, 0]


def test_symbolic_shapes_and_strided_arrays() -> None:
    text = """
def f(n: int32, A: Buffer((n, 2), "float32")):
    for i in range(n):
        A[i, 1] = A[i, 0] + 1.0
"""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    execute(text, 3, array[:, ::2])
    assert array[:, 2].tolist() == [1, 5, 9]
    with pytest.raises(InterpreterError, match=r"A of f is float32\[4, 2\]; an array of float32"):
        execute(text, 4, np.zeros((3, 2), np.float32))
    with pytest.raises(InterpreterError, match=r"f takes 2 arrays; 1 were given"):
        execute(text, 4)


def test_invoke_passes_parts_of_buffers() -> None:
    functions = parse_functions("""
def main(A: Buffer((4,), "float32"), w: Buffer((32,), "uint8")):
    invoke(double, address(A, 1), address(w, 8), 3.0)
    invoke(double, address(w, 8), address(A, 2), 1.0)

def double(x: Buffer((2,), "float32"), y: Buffer((2,), "float32"), s: float32):
    for i in range(2):
        y[i] = x[i] * s
""")
    a, w = np.array([1, 2, 3, 4], np.float32), np.zeros(32, np.uint8)
    run(functions["main"], [a, w], functions)
    assert w.view(np.float32)[2:4].tolist() == [6, 9] and a.tolist() == [1, 2, 6, 9]
    with pytest.raises(InterpreterError, match="invoke names double, which was not given"):
        run(functions["main"], [a, w])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('A[i + 1] = 0.0  #: "Pad_1"', r'A\[4\] is outside of its extents \[4\] \(from "Pad_1"\)'),
        ("A[i - 1] = 0.0", r"A\[-1\] is outside"),
        ("A[0] = M[i, 2]", r"M\[0, 2\] is outside of its extents \[4, 2\]"),
        ("A[0] = A[ramp(i, 1, 4)]", r"A\[\[1 2 3 4\]\] is outside"),
        ('A[i] = s[i]  #: "Use_2"', r's\[1\] is read before it is written \(from "Use_2"\)'),
        ("A[ramp(0, 1, 4)] = s[ramp(0, 1, 4)]", r"s\[1\] is read before it is written"),
        ("B[0] = B[1] // B[i]", r"floordiv by 0 has no meaning for int32"),
        ("B[0] = 1 << B[2]", r"shl by 32 has no meaning for int32"),
        ("B[ramp(0, 1, 2)] = B[ramp(2, 1, 2)] % B[ramp(0, 1, 2)]", "floormod by .* no meaning"),
    ],
)
def test_what_has_no_meaning_is_refused(body: str, message: str) -> None:
    if "ramp" in body and "A[0] = A" in body:
        body = body.replace("A[0] =", "A[ramp(0, 1, 4)] =")
    with pytest.raises(InterpreterError, match=message):
        execute(f"""
def f(A: Buffer((4,), "float32"), M: Buffer((4, 2), "float32"), B: Buffer((4,), "int32")):
    s = allocate((4,), "float32")
    s[0] = 1.0
    for i in range(4):
        {body}
""", np.zeros(4, np.float32), np.zeros((4, 2), np.float32), np.array([0, 1, 32, 3], np.int32))


def test_out_of_scope_variables_are_refused() -> None:
    A = ir.buffer("A", (4,))
    func = PrimFunc("f", (A,), Store(A, (Var("k"),), Const(0.0, "float32")))
    with pytest.raises(InterpreterError, match="k is used in f outside of where it is defined"):
        run(func, [np.zeros(4, np.float32)])
