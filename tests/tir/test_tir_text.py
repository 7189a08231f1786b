"""Reading what was printed gives the same program; errors say where."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.errors import ParseError
from minitvm.origin import origin
from minitvm.testing.tir_strategies import DTYPES, constants, expressions, functions
from minitvm.tir import ir, passes, walk
from minitvm.tir.ir import Buffer, Const, PrimFunc, Stmt, Store, Var, seq
from minitvm.tir.text import (
    parse_func,
    parse_functions,
    print_expr,
    print_func,
    print_func_with_lines,
    print_module,
    print_stmt,
)
from minitvm.tir.walk import walk_statements

EVERYTHING = '''\
@attrs(may_alias=True, sizes=(1, 2), **{"a.b": "c"})
def everything(A: Buffer((4, 16), "float32"), n: int32, B: Buffer((n, 64), "int64"), \
C: Buffer((), "bool")):
    acc = allocate((6, 16), "float32", scope="local")
    for i in range(4):
        for j in parallel(2, 6):
            for k in unrolled(i, extent=n):
                for l in vectorized(int64(16)):
                    B[0, l] = B[int64(1), l] + 4 << 2  #: "Shift", "a \\"quoted\\" name"
        acc[0, ramp(0, 1, 16)] = acc[0, ramp(0, 1, 16)] * broadcast(2.0, 16)
        with scope():
            x: float64 = nan
            y: int8 = -3
            A[i, 0] = cast(min(x, 2.5) + float64(1.0) * float64(inf), "float32")
            A[i, 1] = cast(y // 2 % 3, "float32")
        A[i, 2] = if_then_else(i > 2 and (n > 3 and i < 4 or not n == 1), A[i, 3], -0.0)
    if C[()] and not (n > 3 or n <= -7):  #: "If_3"
        C[()] = True
        C[()] = select(n != 2, False, True)
    elif n >= 2:
        pass
    else:
        evaluate(exp(1.5) - (2.0 - 3.0) / 1e-45)
    invoke(kernel, address(A, 32), n - (n - 1) - 1)
'''


def without_identity(value: Any, names: dict[Any, str]) -> Any:
    """A program as plain data: variables and buffers numbered in order of appearance."""
    match value:
        case Var() | Buffer():
            if value not in names:
                names[value] = f"{len(names)}:{value.dtype}"
            extra = (without_identity(value.shape, names), value.scope) if isinstance(
                value, Buffer) else ()
            return (names[value], *extra)
        case Const():
            return value
        case tuple():
            return tuple(without_identity(item, names) for item in value)
        case _ if dataclasses.is_dataclass(value):
            fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
            return (type(value).__name__, *[without_identity(item, names) for item in fields])
    return value


def same_program(a: PrimFunc, b: PrimFunc) -> bool:
    return bool(without_identity(a, {}) == without_identity(b, {}))


def test_everything_reads_back() -> None:
    func = parse_func(EVERYTHING)
    assert print_func(func) == EVERYTHING
    assert func.attrs == {"may_alias": True, "sizes": (1, 2), "a.b": "c"}


@given(functions())
def test_generated_functions_round_trip(func: PrimFunc) -> None:
    for version in (func, passes.lower(func)):
        text = print_func(version)
        again = parse_func(text)
        assert print_func(again) == text
        assert same_program(again, version)


@given(expressions())
def test_expressions_round_trip(case: tuple[ir.Expr, tuple[Buffer, ...]]) -> None:
    expr, buffers = case
    target = ir.buffer("T", (1,), expr.dtype)
    variables = dict.fromkeys(node for node in walk.walk(expr) if isinstance(node, Var))
    params: tuple[Var | Buffer, ...] = (*variables, *buffers, target)
    func = PrimFunc("f", params, Store(target, (Const(0),), expr))
    assert same_program(parse_func(print_func(func)), func)


@given(st.data(), st.sampled_from(DTYPES))
def test_constants_keep_value_and_dtype(data: st.DataObject, dtype: str) -> None:
    a, b = data.draw(constants(dtype)), data.draw(constants(dtype))
    target = ir.buffer("T", (2,), dtype)
    pair = ir.Binary("min", a, b)
    func = PrimFunc("f", (target,), seq(Store(target, (Const(0),), a),
                                        Store(target, (Const(1),), pair)))
    assert same_program(parse_func(print_func(func)), func)


def test_equal_names_become_unique() -> None:
    i, other = Var("i"), Var("i")
    A = ir.buffer("i.x", (4, 4))
    body: Stmt = Store(A, (i, other), Const(0.0, "float32"), origin("s"))
    for var in (other, i):
        body = ir.For(var, Const(0), Const(4), "serial", body)
    text = print_func(PrimFunc("f", (A,), body))
    assert text == ('def f(i_x: Buffer((4, 4), "float32")):\n'
                    "    for i in range(4):\n"
                    "        for i_1 in range(4):\n"
                    '            i_x[i, i_1] = 0.0  #: "s"\n')


def test_lines_lead_to_statements() -> None:
    func = parse_func(EVERYTHING)
    text, lines = print_func_with_lines(func)
    assert len(lines) == len(text.splitlines())
    for line, statement in zip(text.splitlines(), lines, strict=True):
        if statement is not None:
            assert print_stmt(statement).splitlines()[0].split("(")[0] in line
    printed = {id(statement) for statement in lines}
    for statement in walk_statements(func.body):
        assert isinstance(statement, ir.Seq) or id(statement) in printed


def test_several_functions() -> None:
    text = ("def f(n: int32):\n    invoke(g, n)\n\n"
            "def g(n: int32):\n    evaluate(n)\n")
    functions = parse_functions(text)
    assert list(functions) == ["f", "g"]
    assert print_module(functions.values()) == text
    with pytest.raises(ParseError, match="expected one function, found 2"):
        parse_func(text)


def test_deep_and_wide_expressions() -> None:
    wide: ir.Expr = Var("n")
    for _ in range(1500):
        wide = ir.Binary("add", wide, Const(1))
    assert print_expr(ir.Binary("sub", Const(1), ir.Binary("sub", Const(2), Const(3)))) == \
        "1 - (2 - 3)"
    deep: ir.Expr = Var("n")
    for _ in range(60):
        deep = ir.Binary("sub", Const(1), deep)
    func = PrimFunc("f", (), ir.Evaluate(deep))
    text = print_func(func).replace("f()", "f(n: int32)")
    assert print_func(parse_func(text)) == text


HEAD = 'def f(A: Buffer((4,), "float32"), n: int32):\n'


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1", r"t:1:1: expected a function"),
        ("def f(A):\n    pass", r"t:1:7: the parameter A has no type"),
        ('def f(A: Buffer((4,), "float33")):\n    pass', r"t:1:23: unknown dtype 'float33'"),
        ("@jit\ndef f():\n    pass", r"t:1:2: the only decorator"),
        ("def f():\n    pass\ndef f():\n    pass", r"t:3:1: the function f is defined twice"),
        (HEAD + "    A[m] = 1.0", r"t:2:7: m is not defined here"),
        (HEAD + "    A[0] = A", r"t:2:12: A is a buffer, not a value"),
        (HEAD + "    n[0] = 1.0", r"t:2:5: n is a value, not a buffer"),
        (HEAD + "    A[0] = A[1] + n", r"t:2:12: the operands are of two dtypes, float32 "),
        (HEAD + "    A[n / 2] = 1.0", r"t:2:7: `/` is for floats"),
        (HEAD + "    A[n + 1.5] = 1.0", r"t:2:11: 1.5 is not a value of dtype int32"),
        (HEAD + "    A[0] = foo(1.0)", r"t:2:12: there is no intrinsic foo"),
        (HEAD + "    A[0] = exp(1.0, 2.0)", r"t:2:12: exp takes 1 arguments, not 2"),
        (HEAD + "    for i in count(4):\n        pass", r"t:2:14: a loop runs over range"),
        (HEAD + "    for i in range(n, 4):\n        pass", r"t:2:14: write range\(extent\)"),
        (HEAD + "    for i in range(1.5):\n        pass", r"t:2:14: a loop from float32"),
        (HEAD + "    return n", r"t:2:5: not a statement of tir: `return n`"),
        (HEAD + "    with open(n):\n        pass", r"t:2:5: the only `with`"),
        (HEAD + "    A[0] = n if n else n", r"t:2:12: not an expression of tir"),
        (HEAD + "    A[0] = 1 < n < 2", r"t:2:12: not an expression of tir"),
        (HEAD + "    A[0] = select(n, 1.0, 2.0)", r"t:2:19: expected a condition, not a int32"),
        (HEAD + "    s = allocate(4)", r"t:2:9: memory is written"),
        (HEAD + "    for i in range(4):\n        pass\n    A[i] = 0.0", r"t:4:7: i is not defined"),
    ],
)
def test_errors_say_where_and_what(code: str, message: str) -> None:
    with pytest.raises(ParseError, match="^" + message):
        parse_functions(code, "t")
