"""Whether the iterations of a loop are independent, so that they may run as lanes.

Lanes run each statement together, where the loop ran the whole body for one iteration after the
other. That gives the same result unless an element that one iteration writes is read or written by
another. For two accesses with the indices s * v + r and s * v + q (v the loop's variable), they
meet in iterations v and v + d only if q - r = s * d for some 0 < |d| < extent; the variables of
loops inside differ between the two, those outside are equal and cancel.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from minitvm.tir import bounds, walk
from minitvm.tir.bounds import Interval
from minitvm.tir.canonical import Atom, Sum
from minitvm.tir.ir import Buffer, Const, Expr, For, Let, Load, Stmt, Store, Var
from minitvm.tir.simplify import Analyzer
from minitvm.tir.walk import walk_statements


@dataclass(frozen=True, slots=True)
class Access:
    """An access of a buffer in the loop's body."""

    indices: tuple[Expr, ...]
    is_store: bool


def dependent_buffer(
    loop: For, analyzer: Analyzer, aliases: Collection[Buffer] = ()
) -> Buffer | None:
    """A buffer through which iterations may depend on each other; None if they certainly don't.

    The analyzer knows the loops around and inside. `aliases` may be the same memory: those of one
    shape and dtype then start at the same place.
    """
    accesses = _joined(_accesses(loop.body), aliases)
    inner = {item.var for item in walk_statements(loop.body) if isinstance(item, For | Let)}
    for buffer, found in accesses.items():
        stores = [access for access in found if access.is_store]
        for store in stores:
            if any(not _independent(loop, store.indices, other.indices, inner, analyzer)
                   for other in found):
                return buffer
    return None


def _joined(
    accesses: dict[Buffer, set[Access]], aliases: Collection[Buffer]
) -> dict[Buffer, set[Access]]:
    """The accesses where buffers that may be the same memory count as one."""
    found: dict[Buffer, set[Access]] = {}
    kinds: dict[tuple[object, ...], Buffer] = {}
    for buffer, group in accesses.items():
        kind = (buffer.shape, buffer.dtype)
        key = kinds.setdefault(kind, buffer) if buffer in aliases else buffer
        found.setdefault(key, set()).update(group)
    return found


def _accesses(body: Stmt) -> dict[Buffer, set[Access]]:
    found: dict[Buffer, set[Access]] = {}
    for statement in walk_statements(body):
        if isinstance(statement, Store):
            found.setdefault(statement.buffer, set()).add(Access(statement.indices, True))
        for expr in walk.expressions(statement):
            for node in walk.walk(expr):
                if isinstance(node, Load):
                    found.setdefault(node.buffer, set()).add(Access(node.indices, False))
    return found


def _independent(
    loop: For, a: Sequence[Expr], b: Sequence[Expr], inner: set[Var], analyzer: Analyzer
) -> bool:
    """Whether, in one of the dimensions, two accesses never meet in different iterations."""
    return any(
        _disjoint(x, y, analyzer)
        or _apart(loop, analyzer.sum_of(x), analyzer.sum_of(y), inner, analyzer)
        for x, y in zip(a, b, strict=True)
    )


def _apart(loop: For, a: Sum, b: Sum, inner: set[Var], analyzer: Analyzer) -> bool:
    stride, difference = _take(a, loop.var), dict(b.terms)
    if stride is None or stride != _take(b, loop.var) or stride == 0:
        return False
    free: list[tuple[int, Atom]] = []
    for atom, factor in a.terms.items():
        if _uses(atom.source, inner):
            free.append((-factor, atom))
        else:
            difference[atom] = difference.get(atom, 0) - factor
    for atom, factor in b.terms.items():
        if _uses(atom.source, inner):
            free.append((factor, atom))
            difference.pop(atom, None)
    terms = [(factor, atom) for atom, factor in difference.items() if factor] + free
    assert isinstance(loop.extent, Const)
    return not _may_be_multiple(
        b.constant - a.constant, terms, stride, int(loop.extent.value), analyzer
    )


def _may_be_multiple(
    constant: int, terms: Iterable[tuple[int, Atom]], stride: int, extent: int, analyzer: Analyzer
) -> bool:
    """Whether constant + sum of factor * atom may be stride * d for some 0 < |d| < extent."""
    step, span = 0, Interval(constant, constant)
    for factor, atom in terms:
        coefficient, base = analyzer.modular(atom.expr)
        step = math.gcd(step, factor * coefficient)
        constant += factor * base
        part = bounds.multiply(analyzer.interval(atom.expr), Interval(factor, factor))
        span = bounds.add(span, part)
    for distance in range(1, extent):
        for value in (stride * distance, -stride * distance):
            meets = (value - constant) % step == 0 if step else value == constant
            if meets and span.low <= value <= span.high:
                return True
    return False


def _disjoint(a: Expr, b: Expr, analyzer: Analyzer) -> bool:
    """Whether two indices have no value in common, whatever their variables are."""
    x, y = analyzer.interval(a), analyzer.interval(b)
    return x.high < y.low or y.high < x.low


def _take(a: Sum, var: Var) -> int | None:
    """The coefficient of a variable; None if it occurs otherwise."""
    coefficient = 0
    for atom, factor in a.terms.items():
        if atom.source is var and not atom.is_split:
            coefficient = factor
        elif _uses(atom.source, {var}):
            return None
    return coefficient


def _uses(expr: Expr, variables: set[Var]) -> bool:
    return any(node in variables if isinstance(node, Var) else isinstance(node, Load)
               for node in walk.walk(expr))
