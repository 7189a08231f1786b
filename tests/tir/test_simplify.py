"""What `Analyzer` makes of expressions that split, fused and guarded loops give."""

from __future__ import annotations

import pytest

from minitvm.tir import ir
from minitvm.tir.bounds import INFINITY, Interval
from minitvm.tir.ir import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    buffer,
    conjunction,
    disjunction,
    equal,
    if_then_else,
    maximum,
    minimum,
    not_equal,
    select,
)
from minitvm.tir.simplify import Analyzer

a, f, i, j, k, n, x, y = (Var(name) for name in "afijknxy")
DATA = buffer("data", (64,), "float32")
COUNTS = buffer("counts", (64,), "int32")


@pytest.fixture
def analyzer() -> Analyzer:
    """0 <= i < 8, 0 <= j < 7, 0 <= k < 4, 0 <= f < 49; the others are unbound."""
    result = Analyzer()
    for var, extent in ((i, 8), (j, 7), (k, 4), (f, 49)):
        result.bind(var, 0, extent)
    return result


def lane(*values: int) -> Expr:
    return Broadcast(Const(values[0]), 8)


SIMPLER = [
    ((i // 4) * 4 + i % 4, i),
    ((x // 4) * 4 + x % 4, x),
    (x % 4 + (x // 4) * 4, x),
    ((x // 12) * 12 + (x // 4 % 3) * 4 + x % 4, x),
    ((f // 7) * 7 + f % 7, f),
    ((x * 9 + y) // 7 * 7 + (x * 9 + y) % 7, x * 9 + y),
    ((y + x * 9) // 7 - (x * 9 + y) // 7, Const(0)),
    ((x * 7 + j) // 7, x),
    ((x * 7 + j) % 7, j),
    (x - (x // 4) * 4, x % 4),
    (x - x % 4, x // 4 * 4),
    (((a * 16 + i) // 16) % 4, a % 4),
    ((x * 32 + i * 4 + k) // 4, x * 8 + i),
    ((x * 32 + i * 4 + k) % 32, i * 4 + k),
    ((x * 8 + i) // 16, x // 2),
    ((x * 64 + i * 8 + k) // 16 % 4, i // 2),
    (x % 20 // 2 * 2 % 4, x // 2 % 2 * 2),
    (x % 8 % 4, x % 4),
    (x // 3 // 4, x // 12),
    (f // 49, Const(0)),
    (i % 8, i),
    (x * 3 + y - x * 2, x + y),
    (x * n - n * x, Const(0)),
    ((x + 1) * n - x * n, n),
    ((x * n + y) - (n * x + y), Const(0)),
    (minimum(x + 3, x + 5), x + 3),
    (maximum(i, 7), Const(7)),
    (minimum(i, 7), i),
    (minimum(x + n, y + n), minimum(x, y) + n),
    (maximum(minimum(maximum(x, 0), 255), 0), minimum(maximum(x, 0), 255)),
    (x * 8 < 20, x < 3),
    (x * 8 <= 24, x < 4),
    (x * -8 < 20, x >= -2),
    (x * 4 + k < 12, x < 3),
    (x * 4 + k >= 12, x >= 3),
    (x * 4 + k + 2 < 12, x * 4 + k < 10),
    (x - 1 >= 0, x >= 1),
    (x + n < y + n, x < y),
    (equal(x * 4, 8), equal(x, 2)),
    (equal(x * 4, 7), Const(False, "bool")),
    (not_equal(x * 4 + 2, y * 2 + 1), Const(True, "bool")),
    (i * 7 + j < 56, Const(True, "bool")),
    (i * 7 + j >= 56, Const(False, "bool")),
    (Call("likely", (i < 8,), "bool"), Const(True, "bool")),
    (Call("likely", (x - 1 >= 0,), "bool"), Call("likely", (x >= 1,), "bool")),
    (conjunction(i >= 0, x < 10, x < 5), x < 5),
    (conjunction(x < 5, x < 10), x < 5),
    (disjunction(x < 5, x < 10), x < 10),
    (And(x < 5, x >= 5), Const(False, "bool")),
    (disjunction(x < 5, x >= 5), Const(True, "bool")),
    (Not(x < 5), x >= 5),
    (if_then_else(i < 8, x, y), x),
    (if_then_else(x < 4, minimum(x, 4), y), if_then_else(x < 4, x, y)),
    (select(x < y, x, y), minimum(x, y)),
    (Select(i >= 8, x, y), y),
    (Binary("shl", x, Const(3)), x * 8),
    ((n * x + y) % n, y % n),
    (x * n // n, x),
]
"""(before, after) over the variables of `analyzer`."""

VECTORS = [
    (Broadcast(x, 8) + Broadcast(y, 8), Broadcast(x + y, 8)),
    (Ramp(x, Const(2), 8) + lane(3), Ramp(x + 3, Const(2), 8)),
    (Ramp(x, Const(2), 8) * lane(3), Ramp(x * 3, Const(6), 8)),
    (Ramp(x * 8, Const(1), 8) // lane(8), Broadcast(x, 8)),
    (Ramp(x * 8, Const(1), 8) % lane(8), Ramp(Const(0), Const(1), 8)),
    (Ramp(x * 16, Const(2), 8) // lane(2), Ramp(x * 8, Const(1), 8)),
    (Ramp(x * 32, Const(4), 8) // lane(32), Broadcast(x, 8)),
    (Ramp(x * 64 + k, Const(4), 8) % lane(32), Ramp(k, Const(4), 8)),
    (Ramp(x, Const(1), 8) - Ramp(y, Const(1), 8), Broadcast(x - y, 8)),
    (Compare("lt", Ramp(i, Const(1), 8), lane(15)), Broadcast(Const(True, "bool"), 8)),
    (minimum(Ramp(i, Const(1), 8), lane(14)), Ramp(i, Const(1), 8)),
]


@pytest.mark.parametrize(("before", "after"), SIMPLER + VECTORS)
def test_simplifies(analyzer: Analyzer, before: Expr, after: Expr) -> None:
    assert analyzer.simplify(before) == after


UNCHANGED = [
    x,
    Const(3),
    x * 4 + y,
    (x + y) * 4,
    (x + y) * 4 + i,
    x // 3 * 4,
    (x * 2 + y) // 4,
    (x - 1) // 4,
    0 - x,
    3 - x,
    minimum(x, y),
    Cast("int64", x),
    x < y,
    x <= y,
    x * 3 < y * 2,
    conjunction(x >= 0, x < 8),
    Load(COUNTS, (x,)) + 1,
    Load(COUNTS, (x,)) * 2 // 2,  # wraps
    Load(COUNTS, (x,)) + 1 > Load(COUNTS, (x,)),  # wraps
    Ramp(x * 8 + 4, Const(1), 8) // lane(8),  # lanes 4 to 7 are in the next block
    Ramp(x * 8, Const(1), 9) // Broadcast(Const(8), 9),
    Ramp(x, Const(1), 8) % lane(8),
    Ramp(x, Const(3), 8) // lane(3 + 1),
]


@pytest.mark.parametrize("expr", UNCHANGED)
def test_what_is_simple_stays_the_same_object(analyzer: Analyzer, expr: Expr) -> None:
    assert analyzer.simplify(expr) is expr


v = Load(DATA, (i,))
FLOATS_UNCHANGED = [
    v + 0.0, v * 0.0, v - v, v / v, v * 2.0 * 0.5, (v + 1.0) + 2.0, minimum(v, maximum(v, 0.0)),
    Compare("eq", v, v), Not(Compare("lt", v, Const(0.0, "float32"))), v * -1.0 * -1.0,
    select(Compare("lt", v, Const(1.0, "float32")), v, Const(1.0, "float32")),
]


@pytest.mark.parametrize("expr", FLOATS_UNCHANGED)
def test_floats_are_not_rewritten(analyzer: Analyzer, expr: Expr) -> None:
    assert analyzer.simplify(expr) is expr


def test_exact_float_identities(analyzer: Analyzer) -> None:
    assert analyzer.simplify(v * 1.0) is v
    assert analyzer.simplify(1.0 * v) is v
    assert analyzer.simplify(v / 1.0) is v
    assert analyzer.simplify(Load(DATA, (i // 4 * 4 + i % 4,)) + 0.0) == v + 0.0


def test_intervals(analyzer: Analyzer) -> None:
    assert analyzer.interval(i * 7 + j) == Interval(0, 55)
    assert analyzer.interval(i - j) == Interval(-6, 7)
    assert analyzer.interval(x % 8) == Interval(0, 7)
    assert analyzer.interval(x) == Interval(-INFINITY, INFINITY)
    assert not analyzer.interval(x + 1).has_high
    assert analyzer.interval(maximum(x, 0)) == Interval(0, INFINITY)
    assert analyzer.interval(Load(COUNTS, (x,))) == Interval(-(2**31), 2**31 - 1)
    assert analyzer.interval(Cast("int32", Var("b", "uint8"))) == Interval(0, 255)
    assert analyzer.interval(Ramp(i, Const(2), 8)) == Interval(0, 21)
    assert analyzer.interval(equal(x, 1)) == Interval(0, 1)


def test_residues(analyzer: Analyzer) -> None:
    assert analyzer.modular(x * 8 + 3) == (8, 3)
    assert analyzer.modular(x * 8 + y * 12 + 3) == (4, 3)
    assert analyzer.modular(x * 4 * y) == (4, 0)
    assert analyzer.modular(select(x < y, x * 4 + 1, y * 6 - 1)) == (2, 1)
    assert analyzer.modular(Const(5)) == (0, 5)
    with analyzer.constraint(equal(x % 8, 3)):
        assert analyzer.modular(x + 1) == (8, 4)
        assert analyzer.simplify((x + 1) % 4) == Const(0)


def test_constraints_hold_inside_only(analyzer: Analyzer) -> None:
    with analyzer.constraint(And(x >= 2, x * 4 + k < 30)):
        assert analyzer.prove(x < 8)
        assert analyzer.prove(x * 4 + k <= 29)
        assert analyzer.simplify(maximum(x, 2)) is x
        assert not analyzer.prove(x < 7)
        with analyzer.constraint(not_equal(x, 7)):
            assert analyzer.prove(x < 7)
    assert not analyzer.prove(x < 8)
    with analyzer.constraint(Not(disjunction(x < 0, x >= 4))):
        assert analyzer.interval(x) == Interval(0, 3)
    with analyzer.constraint(equal(x, 3)):
        assert analyzer.simplify(x * 2 + y) == y + 6
    with analyzer.constraint(x // 4 < 3):
        assert analyzer.prove(x < 12)


def test_an_opaque_condition_is_known_inside(analyzer: Analyzer) -> None:
    condition = Compare("lt", v, Const(0.0, "float32"))
    with analyzer.constraint(condition):
        assert analyzer.prove(condition)
        assert analyzer.simplify(Not(condition)) == Const(False, "bool")
    assert not analyzer.prove(condition)


def test_symbolic_bounds() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 0, n)
    assert analyzer.prove(i < n)
    assert analyzer.prove(i + 1 <= n)
    assert analyzer.prove(i * 4 + 3 < n * 4)
    assert not analyzer.prove(i * 4 + 4 < n * 4)
    assert analyzer.simplify((x * n + i) // n) == x
    assert analyzer.simplify((x * n + i) % n) == i
    analyzer.bind(j, i * 4, 4)
    assert analyzer.prove(j < n * 4)
    assert analyzer.prove(j - i * 4 < 4)


def test_a_loop_of_one_turn() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 5, 1)
    analyzer.bind(j, x * 2, 1)
    assert analyzer.simplify(i + j) == x * 2 + 5
    assert analyzer.simplify(j) == x * 2


def test_binding_anew_forgets() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 0, 4)
    analyzer.bind(j, i * 4, 4)
    assert analyzer.prove(i < 4)
    assert analyzer.prove(j < 16)
    analyzer.bind(i, 0, 8)
    assert not analyzer.prove(i < 4)
    assert not analyzer.prove(j < 16)
    assert analyzer.prove(j < 32)
    with analyzer.constraint(x < 3):
        analyzer.bind(i, 0, 2)
        assert analyzer.prove(i < 2)
    assert not analyzer.prove(i < 2)
    assert analyzer.prove(i < 8)


def test_limits_of_the_dtype() -> None:
    analyzer = Analyzer()
    greatest = Const(2**31 - 1)
    assert analyzer.simplify(Compare("le", x, greatest)) == Compare("le", x, greatest)
    assert analyzer.simplify(Compare("gt", x, greatest)) == Compare("gt", x, greatest)
    wide = Var("wide", "int64")
    assert analyzer.simplify(Compare("le", wide, Const(2**31 - 1, "int64"))) == (wide < 2**31)


def test_division_by_zero_is_left_alone(analyzer: Analyzer) -> None:
    assert analyzer.simplify(Binary("floordiv", x, Const(0))) == Binary("floordiv", x, Const(0))
    assert analyzer.simplify(Binary("floormod", i * 4, Const(0))) == i * 4 % 0
    assert not analyzer.interval(Binary("floordiv", i, x - x)).is_finite


def test_proof_needs_certainty(analyzer: Analyzer) -> None:
    assert analyzer.prove(True)
    assert not analyzer.prove(False)
    assert not analyzer.prove(x < y)
    assert not analyzer.prove(Not(x < y))
    assert analyzer.prove(disjunction(x < y, i < 8))
    assert analyzer.prove(disjunction(x < 4, x >= 4))


def test_deep_sums_take_linear_time(analyzer: Analyzer) -> None:
    total: Expr = Const(0)
    for position in range(200):
        total = total + Var(f"v{position}") * (position + 1)
    assert analyzer.simplify(total) is total
    assert analyzer.simplify(total - total) == Const(0)


def test_dtypes_are_kept() -> None:
    wide = Var("wide", "int64")
    analyzer = Analyzer()
    assert analyzer.simplify(wide - wide).dtype == "int64"
    assert analyzer.simplify(ir.binary("min", wide, wide + 1)) is wide
    byte = Var("byte", "uint8")
    assert analyzer.simplify(byte + 255 + 1) == byte + 255 + 1  # 256 is no uint8
    assert analyzer.simplify(byte >= 0) == Const(True, "bool")
    wrapping = byte + 200 >= 50
    assert analyzer.simplify(wrapping) is wrapping
    assert analyzer.interval(byte + 200) == Interval(0, 255)
