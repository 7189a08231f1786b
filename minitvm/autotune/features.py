"""A candidate, as nested tir -> a vector of numbers that a cost model learns from.

`FEATURES` names and documents each. Most speak of the *hot* statement, the store that does the most
work; the rest sum over all. Amounts are given as log2(1 + amount), since times are learnt as an
order and a factor matters, not a difference. What a statement touches is counted from its strides:
how far each access moves when a loop around it goes on by one. The ideas are those of the loop
features of "Learning to Optimize Tensor Programs" (arXiv 1805.08166) and of the buffer features of
Ansor (OSDI 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minitvm import dtypes
from minitvm.target import Target
from minitvm.tir import walk
from minitvm.tir.ir import (
    Allocate,
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    If,
    Load,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Var,
)

LINE_BYTES = 64
FEATURES: dict[str, str] = {
    "trips": "how often the hot statement runs",
    "depth": "how many loops stand around it",
    "lanes": "the extent of its vectorized loop; 1 without one",
    "vectors": "how many registers one such vector takes",
    "ragged_lanes": "the lanes of the last register that are not used",
    "unrolled": "how many copies of it unrolled loops make",
    "innermost_serial": "the extent of the innermost loop that stays one",
    "serial": "how often loops that stay loops turn, together",
    "parallel": "the extent of the loop that threads share; 1 without one",
    "flops": "its floating-point operations, over all runs",
    "accumulators": "the registers of what it stores to and loads again, over unrolled loops",
    "operand_registers": "the registers of its other operands, over unrolled loops",
    "register_pressure": "both, as a share of the registers there are",
    "spilled": "the registers that are missing",
    "products_per_load": "its operations for each vector that is loaded, over unrolled loops",
    "broadcasts": "loads of one element for all lanes",
    "contiguous": "loads of neighbouring elements for the lanes",
    "strided": "loads of elements apart for the lanes",
    "innermost_stride": "the largest stride in bytes over the innermost serial loop",
    "guards": "conditions that it tests",
    "guarded_tail": "the share of its runs that conditions on loops keep from anything",
    "inner_bytes": "what the innermost serial loop touches",
    "l1_depth": "how many of the inner loops touch what fits the first cache",
    "l1_bytes": "what these touch",
    "l1_traffic": "what comes from beyond the first cache, over all runs",
    "l2_depth": "the same for the second cache",
    "l2_bytes": "what these touch",
    "l2_traffic": "what comes from beyond the second cache, over all runs",
    "intensity": "operations for each byte from beyond the first cache",
    "outermost_stride": "the largest stride in bytes over the outermost loop",
    "statements": "how many stores there are",
    "other_trips": "how often all other stores run",
    "other_flops": "their operations",
    "other_scalar_trips": "how often those of them run that have no vectors",
    "allocated": "the bytes of scratch memory",
    "largest_scratch": "the bytes of its largest piece",
    "code": "how many copies of statements unrolling makes, over the whole kernel",
}
"""Every feature, in order. Amounts are logarithms, except depths, counts of loads and shares."""


@dataclass(frozen=True, slots=True)
class _Loop:
    var: Var
    extent: int
    kind: str


@dataclass(frozen=True, slots=True)
class _Statement:
    """A store, with the loops around it, outermost first, and how many conditions it stands in."""

    store: Store
    loops: tuple[_Loop, ...]
    guards: int

    @property
    def trips(self) -> int:
        return math.prod(loop.extent for loop in self.loops)


def extract_features(func: PrimFunc, target: Target) -> np.ndarray:
    """The features of a kernel in nested tir, in the order of `FEATURES`."""
    statements = list(_statements(func.body, (), 0))
    scratch = [_bytes(s.buffer) for s in walk.walk_statements(func.body) if isinstance(s, Allocate)]
    values = dict.fromkeys(FEATURES, 0.0)
    if statements:
        work = [s.trips * (1 + _flops(s.store.value)) for s in statements]
        place = max(range(len(work)), key=work.__getitem__)
        values.update(_hot(statements[place], target))
        others = statements[:place] + statements[place + 1:]
        values.update({
            "other_trips": _log(sum(s.trips for s in others)),
            "other_flops": _log(sum(s.trips * _flops(s.store.value) for s in others)),
            "other_scalar_trips": _log(sum(
                s.trips for s in others if not any(o.kind == "vectorized" for o in s.loops))),
        })
    values.update({
        "statements": _log(len(statements)),
        "allocated": _log(sum(scratch)),
        "largest_scratch": _log(max(scratch, default=0)),
        "code": _log(sum(_product(s.loops, "unrolled") for s in statements)),
    })
    return np.array([values[name] for name in FEATURES], np.float32)


def _statements(stmt: Stmt, loops: tuple[_Loop, ...], guards: int) -> Iterator[_Statement]:
    match stmt:
        case Store():
            yield _Statement(stmt, loops, guards)
        case For(var, _, extent, kind, body):
            count = extent.value if isinstance(extent, Const) else 1
            yield from _statements(body, (*loops, _Loop(var, max(int(count), 1), kind)), guards)
        case If():
            for body in walk.bodies(stmt):
                yield from _statements(body, loops, guards + 1)
        case _:
            for body in walk.bodies(stmt):
                yield from _statements(body, loops, guards)


def _log(amount: float) -> float:
    return math.log2(1 + amount)


def _bytes(buffer: Buffer) -> int:
    return math.prod(buffer.extents()) * dtypes.size_bytes(buffer.dtype)


def _product(loops: Sequence[_Loop], kind: str) -> int:
    return math.prod(loop.extent for loop in loops if loop.kind == kind)


def _flops(expr: Expr) -> int:
    return sum(isinstance(node, Binary | Call) and dtypes.is_float(node.dtype)
               and not (isinstance(node, Call) and node.name in ("if_then_else", "likely"))
               for node in walk.walk(expr))


@dataclass(frozen=True, slots=True)
class _Access:
    """A load, or the store itself: the strides in bytes over the loops around it."""

    buffer: Buffer
    strides: tuple[int, ...]
    is_accumulator: bool

    def touched(self, loops: Sequence[_Loop], first: int) -> int:
        """The bytes that the loops from `first` inwards touch, in whole cache lines where elements
        are apart."""
        size = dtypes.size_bytes(self.buffer.dtype)
        counts = [loop.extent for loop, stride in zip(loops[first:], self.strides[first:])
                  if stride]
        smallest = min((abs(s) for s in self.strides[first:] if s), default=size)
        each = max(size, min(smallest, LINE_BYTES))
        return min(math.prod(counts) * each, _bytes(self.buffer))


def _accesses(statement: _Statement) -> list[_Access]:
    loops, store = statement.loops, statement.store
    loads = [node for node in walk.walk(store.value) if isinstance(node, Load)]
    found = [_Access(store.buffer, _strides(store.buffer, store.indices, loops), True)]
    for load in dict.fromkeys(loads):
        accumulates = load.buffer is store.buffer and load.indices == store.indices
        if not accumulates:
            found.append(_Access(load.buffer, _strides(load.buffer, load.indices, loops), False))
    return found


def _strides(buffer: Buffer, indices: Sequence[Expr], loops: Sequence[_Loop]) -> tuple[int, ...]:
    """In bytes, for each loop: how far the access moves from its first turn to its second."""
    size = dtypes.size_bytes(buffer.dtype)
    weights: list[int] = []
    for extent in reversed(buffer.extents()):
        weights.append(size)
        size *= extent
    weights.reverse()
    used = {node for index in indices for node in walk.walk(index) if isinstance(node, Var)}
    start = {loop.var: 0 for loop in loops}
    strides = []
    for loop in loops:
        moved = 0
        if loop.var in used and loop.extent > 1:
            one = {**start, loop.var: 1}
            moved = sum(weight * (index_value(index, one) - index_value(index, start))
                        for weight, index in zip(weights, indices))
        strides.append(moved)
    return tuple(strides)


_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0, "floormod": lambda a, b: a % b if b else 0,
    "min": min, "max": max,
}


def index_value(expr: Expr, values: Mapping[Var, int]) -> int:
    """The value of an index; what depends on data counts as 0."""
    match expr:
        case Const(value, _):
            return int(value)
        case Var():
            return values.get(expr, 0)
        case Binary(op, a, b) if op in _INTEGERS:
            return int(_INTEGERS[op](index_value(a, values), index_value(b, values)))
        case Cast(_, value):
            return index_value(value, values)
        case Select(_, value, _):
            return index_value(value, values)
    return 0


def _hot(statement: _Statement, target: Target) -> dict[str, float]:
    """The features of the statement that does the most work."""
    loops = statement.loops
    flops = _flops(statement.store.value)
    lanes = _product(loops, "vectorized")
    vector = target.lanes(statement.store.buffer.dtype)
    serial = [place for place, loop in enumerate(loops) if loop.kind in ("serial", "parallel")]
    inner = serial[-1] if serial else 0
    accesses = _accesses(statement)
    vectors = -(-lanes // vector)
    conditions = [node for node in walk.walk(statement.store.value) if isinstance(node, Compare)]
    return {
        "trips": _log(statement.trips), "depth": len(loops), "lanes": _log(lanes),
        "vectors": _log(vectors), "ragged_lanes": vectors * vector - lanes,
        "unrolled": _log(_product(loops, "unrolled")),
        "innermost_serial": _log(loops[inner].extent if serial else 1),
        "serial": _log(math.prod(loops[place].extent for place in serial)),
        "parallel": _log(_product(loops, "parallel")),
        "flops": _log(statement.trips * flops),
        **_registers(accesses, loops, vectors, flops, target),
        **_loads(accesses, loops),
        "innermost_stride": _log(max((abs(a.strides[inner]) for a in accesses), default=0)
                                 if loops else 0),
        "outermost_stride": _log(max((abs(a.strides[0]) for a in accesses), default=0)
                                 if loops else 0),
        "guards": statement.guards + len(conditions),
        "guarded_tail": _tail(statement),
        "inner_bytes": _log(sum(a.touched(loops, inner) for a in accesses)),
        **_caches(accesses, loops, statement.trips * flops, target),
    }


def _registers(accesses: Sequence[_Access], loops: Sequence[_Loop], vectors: int, flops: int,
               target: Target) -> dict[str, float]:
    """What unrolled loops keep in registers: one for each of their turns that moves an access."""
    def count(access: _Access) -> int:
        moving = [loop.extent for loop, stride in zip(loops, access.strides)
                  if loop.kind == "unrolled" and stride]
        return vectors * math.prod(moving)

    accumulators = sum(count(access) for access in accesses if access.is_accumulator)
    operands = sum(count(access) for access in accesses if not access.is_accumulator)
    vector_loads = max(operands, 1)
    # Operands of one unrolled loop wait while the others pass by: the smallest set stays.
    held = min((count(access) for access in accesses if not access.is_accumulator), default=0) + 1
    copies = vectors * _product(loops, "unrolled")
    return {
        "accumulators": _log(accumulators), "operand_registers": _log(operands),
        "register_pressure": (accumulators + held) / target.vector_registers,
        "spilled": _log(max(0, accumulators + held - target.vector_registers)),
        "products_per_load": _log(copies * flops / vector_loads),
    }


def _loads(accesses: Sequence[_Access], loops: Sequence[_Loop]) -> dict[str, float]:
    """How the lanes of a vector find their elements."""
    kinds = {"broadcasts": 0.0, "contiguous": 0.0, "strided": 0.0}
    lane = next((p for p, loop in enumerate(loops) if loop.kind == "vectorized"), None)
    if lane is None:
        return kinds
    for access in accesses[1:]:
        stride = access.strides[lane]
        size = dtypes.size_bytes(access.buffer.dtype)
        kind = "broadcasts" if not stride else "contiguous" if stride == size else "strided"
        kinds[kind] += 1
    return kinds


def _tail(statement: _Statement) -> float:
    """The share of turns beyond what the store's buffer holds: of splits that leave a rest."""
    access = _strides(statement.store.buffer, statement.store.indices, statement.loops)
    turns = math.prod(loop.extent for loop, s in zip(statement.loops, access) if s)
    elements = math.prod(statement.store.buffer.extents())
    return 0.0 if statement.store.buffer.scope == "local" else max(0.0, 1 - elements / turns)


def _caches(accesses: Sequence[_Access], loops: Sequence[_Loop], flops: int,
            target: Target) -> dict[str, float]:
    """For each cache: the loops whose data fit, and what must be fetched as the others turn."""
    touched = [sum(access.touched(loops, first) for access in accesses)
               for first in range(len(loops) + 1)]
    features: dict[str, float] = {}
    for name, size in (("l1", target.l1_bytes), ("l2", target.l2_bytes)):
        first = next((p for p, amount in enumerate(touched) if amount <= size), len(loops))
        traffic = 0
        for access in accesses:
            turns = math.prod(loop.extent for loop in loops[:first])
            # An inner loop that fits, and does not move this access, fetches it once.
            still = first
            while still and not access.strides[still - 1]:
                still -= 1
                turns //= max(loops[still].extent, 1)
            traffic += turns * access.touched(loops, first)
        features |= {f"{name}_depth": len(loops) - first, f"{name}_bytes": _log(touched[first]),
                     f"{name}_traffic": _log(traffic)}
        if name == "l1":
            features["intensity"] = _log(flops / max(traffic, 1))
    return features
