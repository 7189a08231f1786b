"""Each numbered invariant of the verifier has a function that breaks it, and only it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given

from minitvm.errors import VerifyError
from minitvm.origin import origin
from minitvm.testing.tir_strategies import functions
from minitvm.tir import ir
from minitvm.tir.ir import (
    Address,
    Allocate,
    And,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Compare,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Invoke,
    Let,
    Load,
    PrimFunc,
    Ramp,
    Read,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from minitvm.tir.text import parse_func
from minitvm.tir.verify import check_origins_kept, verify

A = ir.buffer("A", (8,))
B2 = ir.buffer("B", (2, 4))
I8 = ir.buffer("I", (8,), "int8")
S = ir.buffer("s", (8,))
N = Var("n")
ZERO, ONE, FOUR = Const(0), Const(1), Const(4)
F = Const(1.0, "float32")


def func(body: Stmt, *, name: str = "f", params: tuple[Any, ...] = (A, B2, I8, N)) -> PrimFunc:
    return PrimFunc(name, params, body)


def store(value: Expr, index: Expr = ZERO) -> Stmt:
    return Store(A, (index,), value)


def loop(body: Stmt, kind: Any = "serial", extent: Expr = FOUR, var: Var | None = None) -> For:
    chosen = Var("i") if var is None else var
    start = ZERO if extent.dtype == "float32" else Const(0, extent.dtype)
    return For(chosen, start, extent, kind, body)


@dataclass(frozen=True)
class FakeTensor:
    name: str = "T"
    dtype: str = "float32"


V, X = Var("v"), Var("x", "float32")
TRUE = Const(True, "bool")
VECTOR = Load(A, (Ramp(ZERO, ONE, 4),))

BROKEN: list[tuple[int, PrimFunc]] = [
    (1, func(store(F), name="a b")),
    (1, func(store(F), params=(A, A))),
    (1, func(Seq((loop(store(F), var=V), loop(store(F), var=V))))),
    (1, func(Let(N, ONE, store(F)))),
    (2, func(store(F, Var("j")))),
    (2, func(Seq((loop(store(F), var=V), store(F, V))))),
    (3, func(store(F), params=(B2,))),
    (3, func(store(ir.Cast("float32", Load(I8, (ZERO,)))), params=(A,))),
    (3, func(Seq((Allocate(S, Store(S, (ZERO,), F)), store(Load(S, (ZERO,))))))),
    (4, func(store(Binary("add", F, ZERO)))),
    (4, func(store(Binary("pow", F, F)))),
    (4, func(store(Binary("bitand", F, F)))),
    (4, func(store(F, Binary("div", ONE, ONE)))),
    (5, func(store(Select(Compare("lt", F, ONE), F, F)))),
    (6, func(store(Select(And(ZERO, ZERO), F, F)))),
    (6, func(store(Select(ir.Not(ONE), F, F)))),
    (7, func(store(Select(TRUE, F, ONE)))),
    (7, func(store(Select(Broadcast(TRUE, 4), F, F)))),
    (8, func(store(Call("foo", (F,), "float32")))),
    (8, func(store(Call("exp", (F, F), "float32")))),
    (8, func(store(F, Call("exp", (ONE,), "int32")))),
    (8, func(Store(A, (Ramp(ZERO, ONE, 4),),
                   Call("if_then_else", (Broadcast(TRUE, 4), VECTOR + VECTOR, VECTOR),
                        "float32x4")))),
    (8, func(Store(A, (Ramp(ZERO, ONE, 2),), Call("if_then_else", (
        Broadcast(TRUE, 4), Load(A, (Ramp(ZERO, ONE, 2),)), Broadcast(F, 2)), "float32x2")))),
    (8, func(Store(A, (Ramp(ZERO, ONE, 2),), Call("if_then_else", (
        Broadcast(TRUE, 2), Load(A, (Ramp(ZERO, Const(2), 2),)), Broadcast(F, 2)), "float32x2")))),
    (8, func(store(Call("exp", (F,), "float64")))),
    (9, func(Store(B2, (ZERO,), F))),
    (9, func(store(Load(A, (F,))))),
    (9, func(Store(B2, (Ramp(ZERO, ONE, 2), ZERO), F))),
    (10, func(store(ONE))),
    (10, func(store(VECTOR))),
    (11, func(Store(A, (Ramp(ZERO, Const(1, "int64"), 4),), VECTOR))),
    (11, func(Store(A, (Ramp(ZERO, ONE, 4),), Broadcast(VECTOR, 4)))),
    (12, func(store(Const(1, "float32")))),
    (12, func(Store(I8, (ZERO,), Const(128, "int8")))),
    (12, func(Store(A, (Ramp(ZERO, ONE, 4),), Const(1.0, "float32x4")))),
    (13, func(loop(store(F), kind="sideways"))),
    (13, func(For(Var("i"), ZERO, Const(4, "int64"), "serial", store(F)))),
    (13, func(loop(store(F), extent=F))),
    (14, func(Let(X, ONE, store(F)))),
    (14, func(If(ONE, store(F)))),
    (15, func(loop(store(F), extent=Const(4, "int64"), var=Var("l", "int64")))),
    (16, func(Seq((store(F),)))),
    (16, func(Seq((store(F), Seq((store(F), store(F))))))),
    (17, func(Invoke("g", (VECTOR,)))),
    (17, func(Evaluate(Address(A, ZERO)))),
    (17, func(Invoke("g", (Address(B2, ZERO),)))),
    (17, func(Evaluate(Call("prefetch", (F,), "int32")))),
    (8, func(Evaluate(Call("prefetch", (Address(A, ZERO),), "float32")))),
    (18, func(store(Read(FakeTensor(), (ZERO,))))),
    (19, func(Allocate(ir.buffer("s", (4,), scope="heap"), store(F)))),
    (19, func(Allocate(Buffer("s", (N,)), store(F)))),
    (19, func(Allocate(ir.buffer("s", (0,)), store(F)))),
    (20, func(loop(store(F), "vectorized", N))),
    (20, func(loop(loop(store(F), "vectorized"), "vectorized"))),
    (20, func(loop(Store(A, (Ramp(ZERO, ONE, 4),), VECTOR), "vectorized"))),
]


@pytest.mark.parametrize(("number", "broken"), BROKEN)
def test_broken_invariants_are_refused(number: int, broken: PrimFunc) -> None:
    with pytest.raises(VerifyError, match=rf"^invariant {number}: "):
        verify(broken)


def test_every_invariant_is_tested() -> None:
    documented = sys.modules[verify.__module__].__doc__ or ""
    numbers = {int(n) for n in re.findall(r"^ *(\d+)\. ", documented, re.M)}
    assert numbers == {number for number, _ in BROKEN} | {21, 22, 23, 24, 25}


def test_specs() -> None:
    nested = func(loop(Store(B2, (ZERO, V), F), "vectorized", var=V))
    verify(nested)
    with pytest.raises(VerifyError, match=r"^invariant 21: B is not flat"):
        verify(nested, "flat")
    flat = func(loop(store(F, V), "vectorized", var=V), params=(A,))
    verify(flat, "flat")
    with pytest.raises(VerifyError, match=r"^invariant 22: .*`for v in vectorized\(4\):`"):
        verify(flat, "machine")
    with pytest.raises(ValueError, match="nested, flat, machine"):
        verify(flat, "round")  # type: ignore[arg-type]


def test_indices_reach_all_of_a_buffer() -> None:
    def access(elements: int, dtype: str) -> PrimFunc:
        big = Buffer("big", (Const(elements, "int64"),))
        return func(Store(big, (Const(0, dtype),), F), params=(big,))

    verify(access(2**31 - 1, "int32"), "flat")
    verify(access(2**31, "int64"), "flat")
    verify(access(2**31, "int32"), "nested")
    with pytest.raises(VerifyError, match=r"^invariant 24: int32 indices don't reach all of big"):
        verify(access(2**31, "int32"), "flat")


def test_bound_checks_have_a_report() -> None:
    row = '("A", 0, 4, ("node",))'
    report = 'report: Buffer((4,), "int64"), call: int64'
    good = f"@attrs(bound_checks=({row},))\ndef f({report}):\n    report[0] = call\n"
    verify(parse_func(good))
    scratch = good.replace("attrs(", "attrs(scratch_params=1, ").replace("):\n", ", n: int32):\n")
    verify(parse_func(scratch))
    for broken in (good.replace("Buffer((4,)", "Buffer((3,)"), good.replace(row, '("A", 0, 4)'),
                   scratch.replace("params=1", "params=0")):
        with pytest.raises(VerifyError, match=r"^invariant 25: "):
            verify(parse_func(broken))


def test_leaves_need_origins_on_request() -> None:
    bare = func(Seq((Store(A, (ZERO,), F, origin("a")), Evaluate(ZERO))))
    verify(bare, require_origins=True)
    leaves: list[Callable[[], Stmt]] = [
        lambda: store(F), lambda: Invoke("g", ()), lambda: Evaluate(N),
    ]
    for leaf in leaves:
        verify(func(leaf()))
        with pytest.raises(VerifyError, match=r"^invariant 23: "):
            verify(func(leaf()), require_origins=True)


def test_lost_origins_are_refused() -> None:
    both = parse_func('def f(A: Buffer((4,), "float32")):\n'
                      '    A[0] = 1.0  #: "a", "b"\n    A[1] = 1.0  #: "c"\n')
    one = parse_func('def f(A: Buffer((4,), "float32")):\n    A[0] = 1.0  #: "a", "c"\n')
    check_origins_kept(one, both)
    with pytest.raises(VerifyError, match=r"^f lost the origins b$"):
        check_origins_kept(both, one)


@given(functions())
def test_generated_functions_verify(generated: PrimFunc) -> None:
    verify(generated, require_origins=True)
