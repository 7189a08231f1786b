"""Hypothesis strategies for tir: functions that are in bounds by construction, and data for them.

    @given(functions(), st.integers(0, 9))
    def test_a_pass_keeps_results(func, seed):
        arrays = make_arrays(func, seed)
        ...

A function writes its outputs in a few loop nests: axes split into tiles that don't divide, with a
`likely` guard, or fused; loops of each kind in any order; reductions; padding by `if_then_else`;
guards on data; lets; scratch memory, which one nest fills for those after it; reads of outputs at
other places, so that iterations may depend on each other. Arithmetic is on floats or integers of
one dtype, by operations that numpy does alike for scalars and lanes; constants and data hold NaN,
infinities, -0 and subnormals, or small integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from minitvm import dtypes
from minitvm.origin import origin
from minitvm.tir import ir, walk
from minitvm.tir.ir import (
    Allocate,
    Binary,
    Buffer,
    Call,
    Compare,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    LoopKind,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
    seq,
)

SPECIAL_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, -1e-40, 1.0, -1.5, 2.0, 3e38)
DTYPES = ("float32", "float64", "int32", "int8", "uint8")


# --- data ---------------------------------------------------------------------------------------


def make_array(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Small integers, or (for floats, half of the time) special values among plain ones."""
    kind = dtypes.to_numpy(dtype)
    if not dtypes.is_float(dtype):
        low, high = dtypes.integer_range(dtype)
        return rng.integers(max(low, -9), min(high, 9) + 1, shape).astype(kind)
    if rng.random() < 0.5:
        return rng.integers(-4, 5, shape).astype(kind)
    plain = rng.standard_normal(shape).astype(kind)
    special = rng.choice(np.array(SPECIAL_FLOATS), shape).astype(kind)
    return np.where(rng.random(shape) < 0.2, special, plain)


def make_arrays(func: PrimFunc, seed: int) -> list[np.ndarray]:
    """One array for each parameter (of constant shape)."""
    rng = np.random.default_rng(seed)
    return [make_array(param.extents(), param.dtype, rng)
            for param in func.params if isinstance(param, Buffer)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays hold the same values, row-major: NaN equals NaN, -0 is not 0."""
    x, y = a.reshape(-1), b.reshape(-1)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if not np.issubdtype(x.dtype, np.floating):
        return bool((x == y).all())
    both_nan = np.isnan(x) & np.isnan(y)
    return bool((both_nan | ((x == y) & (np.signbit(x) == np.signbit(y)))).all())


# --- expressions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """What an expression may use: variables with their extents (from 0), and memory to read."""

    variables: tuple[tuple[Var, int], ...]
    buffers: tuple[Buffer, ...]
    dtype: str


@st.composite
def constants(draw: st.DrawFn, dtype: str) -> Const:
    """A constant of a dtype: special floats, and integers over the whole range."""
    if dtypes.is_float(dtype):
        small = st.integers(-3, 3).map(float)
        kind = dtypes.to_numpy(dtype)
        value = draw(small | st.sampled_from(SPECIAL_FLOATS) | st.floats(width=16))
        return Const(float(kind.type(value)), dtype)
    low, high = dtypes.integer_range(dtype)
    near = st.integers(max(low, -5), min(high, 5))
    return Const(draw(near | st.integers(low, high)), dtype)


@st.composite
def indices(draw: st.DrawFn, place: Place, extent: int) -> tuple[Expr, Expr | None]:
    """An index, and the condition under which it is within [0, extent) (None: always)."""
    options = ["constant", "modulo", "padded"] if place.variables else ["constant"]
    fitting = [var for var, size in place.variables if size <= extent]
    if fitting:
        options += ["variable"] * 3
    kind = draw(st.sampled_from(options))
    if kind == "constant":
        return Const(draw(st.integers(0, extent - 1))), None
    if kind == "variable":
        return draw(st.sampled_from(fitting)), None
    (a, _), (b, _) = draw(st.tuples(*[st.sampled_from(place.variables)] * 2))
    factor, shift = draw(st.integers(1, 4)), draw(st.integers(-3, 3))
    affine = a * factor + shift if draw(st.booleans()) else a + b * factor + shift
    if kind == "modulo":
        return affine % extent, None
    return affine, ir.conjunction(affine >= 0, affine < extent)


@st.composite
def loads(draw: st.DrawFn, place: Place) -> Expr:
    """An element of a buffer, guarded by `if_then_else` where it may be out of bounds."""
    buffer = draw(st.sampled_from(place.buffers))
    found = [draw(indices(place, extent)) for extent in buffer.extents()]
    value: Expr = Load(buffer, tuple(index for index, _ in found))
    guards = [guard for _, guard in found if guard is not None]
    if guards:
        otherwise = draw(constants(buffer.dtype))
        value = Call("if_then_else", (ir.conjunction(*guards), value, otherwise), buffer.dtype)
    return ir.cast(value, place.dtype) if buffer.dtype != place.dtype else value


@st.composite
def conditions(draw: st.DrawFn, place: Place, depth: int = 1) -> Expr:
    """A condition on variables or on data."""
    kind = draw(st.sampled_from(["index", "data", "and", "or", "not"] if depth else ["index"]))
    if kind in ("and", "or"):
        a, b = draw(conditions(place, depth - 1)), draw(conditions(place, depth - 1))
        return ir.And(a, b) if kind == "and" else ir.Or(a, b)
    if kind == "not":
        return ir.Not(draw(conditions(place, depth - 1)))
    op = draw(st.sampled_from(ir.COMPARE_OPS))
    if kind == "data":
        return Compare(op, draw(values(place, 0)), draw(values(place, 0)))
    if not place.variables:
        return Const(draw(st.booleans()), "bool")
    var, extent = draw(st.sampled_from(place.variables))
    return Compare(op, var * draw(st.integers(1, 3)), Const(draw(st.integers(-1, 2 * extent))))


FLOAT_OPS = ("add", "sub", "mul", "div", "min", "max")
INTEGER_OPS = ("add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor")


@st.composite
def values(draw: st.DrawFn, place: Place, depth: int = 2) -> Expr:
    """An expression of `place.dtype`."""
    dtype = place.dtype
    leaf = loads(place) if place.buffers else constants(dtype)
    if depth == 0:
        return draw(leaf | constants(dtype)) if draw(st.booleans()) else draw(leaf)
    kind = draw(st.sampled_from(["leaf", "binary", "binary", "select", "lazy", "call", "index"]))
    inner = values(place, depth - 1)
    if kind == "binary":
        return _binary(draw, draw(inner), draw(inner))
    if kind in ("select", "lazy"):
        condition, a, b = draw(conditions(place)), draw(inner), draw(inner)
        if kind == "lazy":
            return Call("if_then_else", (condition, a, b), dtype)
        return Select(condition, a, b)
    if kind == "call":
        names = ("abs", "sqrt", "floor", "ceil", "trunc") if dtypes.is_float(dtype) else ("abs",)
        return Call(draw(st.sampled_from(names)), (draw(inner),), dtype)
    if kind == "index" and place.variables:
        var, _ = draw(st.sampled_from(place.variables))
        return ir.cast(var, dtype)
    return draw(leaf)


def _binary(draw: st.DrawFn, a: Expr, b: Expr) -> Expr:
    if dtypes.is_float(a.dtype):
        return Binary(draw(st.sampled_from(FLOAT_OPS)), a, b)
    op = draw(st.sampled_from((*INTEGER_OPS, "floordiv", "floormod", "shl", "shr")))
    if op in ("floordiv", "floormod"):
        b = Const(draw(st.integers(1, 7)), a.dtype)
    elif op in ("shl", "shr"):
        b = Const(draw(st.integers(0, dtypes.bits(a.dtype) - 1)), a.dtype)
    return Binary(op, a, b)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[Expr, tuple[Buffer, ...]]:
    """An expression by itself, with the buffers that it reads; its variables are free."""
    dtype = draw(st.sampled_from(DTYPES))
    memory = (ir.buffer("A", (4,), dtype), ir.buffer("B", (2, 3), dtype))
    variables = ((Var("i"), 4), (Var("j"), 3))
    return draw(values(Place(variables, memory, dtype), depth)), memory


# --- loop nests ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """A dimension as loops: its index by their variables, and the guard of a tail."""

    loops: tuple[tuple[Var, int], ...]
    index: Expr
    guard: Expr | None = None


@st.composite
def axes(draw: st.DrawFn, extents: Sequence[int]) -> list[Axis]:
    """The dimensions of a buffer as loops: plain, split with or without a tail, or fused."""
    if len(extents) == 2 and draw(st.integers(0, 3)) == 0:
        var = Var("f")
        first, second = var // extents[1], var % extents[1]
        size = extents[0] * extents[1]
        return [Axis(((var, size),), first), Axis((), second)]
    found = []
    for position, extent in enumerate(extents):
        name = "ijk"[position]
        if draw(st.booleans()):
            var = Var(name)
            found.append(Axis(((var, extent),), var))
            continue
        factor = draw(st.integers(1, extent + 1))
        outer, inner = Var(f"{name}.outer"), Var(f"{name}.inner")
        index = outer * factor + inner
        guard = None if extent % factor == 0 else Call("likely", (index < extent,), "bool")
        found.append(Axis(((outer, -(-extent // factor)), (inner, factor)), index, guard))
    return found


@st.composite
def nests(draw: st.DrawFn, target: Buffer, place: Place, complete: bool) -> Stmt:
    """Loops that store to elements of `target`; to each of them, at least once, if `complete`.

    `place` has no variables yet.
    """
    chosen = draw(axes(target.extents()))
    loops = [loop for axis in chosen for loop in axis.loops]
    inside = replace(place, variables=tuple(loops))
    index = tuple(axis.index for axis in chosen)
    name = origin(f"store_{target.name}")
    style = draw(st.sampled_from(["store", "update", "reduce"]))
    if style == "store" or complete:
        body: Stmt = Store(target, index, draw(values(inside)), name)
    else:
        current = Load(target, index)
        if style == "reduce":
            loops.append((Var("r"), draw(st.integers(1, 4))))
            inside = replace(place, variables=tuple(loops))
        op = "add" if style == "reduce" else draw(st.sampled_from(["add", "max", "min", "sub"]))
        body = Store(target, index, Binary(op, current, draw(values(inside))), name)
    body = draw(decorated(body, inside, complete))
    guards = [axis.guard for axis in chosen if axis.guard is not None]
    return draw(wrapped(body, loops, guards))


@st.composite
def decorated(draw: st.DrawFn, body: Stmt, place: Place, complete: bool) -> Stmt:
    """A statement under a let or a guard; with another store, under else, at times."""
    kind = draw(st.sampled_from(["plain", "plain", "let", "if", "else"]))
    if kind == "let" and isinstance(body, Store):
        var = Var("t", place.dtype)
        value = Binary("add", body.value, var) if place.dtype == body.value.dtype else body.value
        store = Store(body.buffer, body.indices, value, body.origin)
        return Let(var, draw(values(place, 1)), store, body.origin)
    if kind == "if" and not complete:
        return If(draw(conditions(place)), body, None, body.origin)
    if kind == "else" and isinstance(body, Store):
        other = Store(body.buffer, body.indices, draw(values(place, 1)), body.origin)
        return If(draw(conditions(place)), body, other, body.origin)
    return body


@st.composite
def wrapped(
    draw: st.DrawFn, body: Stmt, loops: Sequence[tuple[Var, int]], guards: Sequence[Expr]
) -> Stmt:
    """A body in loops of any order and kind, with guards as far out as they may stand, or inside.

    A loop of a reduction (the last) may come anywhere, as updates are in place.
    """
    order = draw(st.permutations(loops))
    waiting = list(guards)
    far_out = draw(st.booleans())
    if not far_out:
        for guard in waiting:
            body = If(guard, body, None, body.origin)
        waiting = []
    vector = draw(st.integers(-1, len(order) - 1))
    for position, (var, extent) in enumerate(reversed(order)):
        for guard in [guard for guard in waiting if var in walk.walk(guard)]:
            body = If(guard, body, None, body.origin)
            waiting.remove(guard)
        kinds: tuple[LoopKind, ...] = ("serial", "serial", "unrolled", "parallel")
        kind = "vectorized" if position == vector else draw(st.sampled_from(kinds))
        body = For(var, Const(0), Const(extent), kind, body, body.origin)
    return body


# --- functions ----------------------------------------------------------------------------------


@st.composite
def functions(draw: st.DrawFn) -> PrimFunc:
    """A nested function that verifies, never goes out of bounds and reads no unset memory."""
    dtype = draw(st.sampled_from(DTYPES))
    shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)
    small = shapes.filter(lambda shape: math.prod(shape) <= 150)
    inputs = tuple(ir.buffer(f"A{n}", draw(small), dtype) for n in range(draw(st.integers(1, 2))))
    outputs = tuple(ir.buffer(f"C{n}", draw(small), dtype) for n in range(draw(st.integers(1, 2))))
    place = Place((), inputs, dtype)
    scratch = None
    parts: list[Stmt] = []
    if draw(st.booleans()):
        scratch = ir.buffer("scratch", draw(small), dtype, "local")
        parts.append(draw(nests(scratch, place, complete=True)))
        place = replace(place, buffers=(*inputs, scratch))
    for target in outputs:
        readable = (*place.buffers, target) if draw(st.booleans()) else place.buffers
        parts.append(draw(nests(target, replace(place, buffers=readable), complete=False)))
    body = seq(*parts)
    if scratch is not None:
        body = Allocate(scratch, body, origin("scratch"))
    return PrimFunc("f", (*inputs, *outputs), body)
