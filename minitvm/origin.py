"""Origins: which nodes of the source model a piece of the program comes from.

Every relay binding and every tir statement carries an `Origin`. A pass that replaces code gives
the new code the union of the origins of what it replaces (`merge`); the verifiers refuse code
without one. Equality and structural hashes of IR nodes ignore origins.

In the text of an IR an origin is the comment at the end of a line: `#: "Conv_0", "Clip_1"`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """A set of source names, sorted and without duplicates."""

    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names)

    def __str__(self) -> str:
        return ", ".join(json.dumps(name) for name in self.names)


NOWHERE = Origin()


def origin(*names: str) -> Origin:
    """The origin with these names."""
    return Origin(tuple(sorted(set(names))))


def merge(*origins: Origin) -> Origin:
    """The union: where code made from several pieces comes from."""
    filled = [o for o in origins if o.names]
    if not filled:
        return NOWHERE
    first = filled[0]
    if all(o is first or o.names == first.names for o in filled):
        return first
    return merge_all(filled)


def merge_all(origins: Iterable[Origin]) -> Origin:
    """`merge` for an iterable."""
    return Origin(tuple(sorted({name for o in origins for name in o.names})))


def parse_origin(text: str) -> Origin:
    """The inverse of `str(origin)`; raises `ValueError` for anything else."""
    names = json.loads(f"[{text}]")
    if not all(isinstance(name, str) for name in names):
        raise ValueError("an origin is a list of quoted names")
    return origin(*names)


_SCOPE: ContextVar[Origin] = ContextVar("origin_scope", default=NOWHERE)


@contextmanager
def origin_scope(scope: Origin) -> Iterator[None]:
    """Code built inside gets this origin from `here`."""
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)


def here(depth: int = 1) -> Origin:
    """The origin of the enclosing `origin_scope`; without one, the caller's place in a Python
    program, for code built by hand: `("script.py:12",)`."""
    if scope := _SCOPE.get():
        return scope
    frame = sys._getframe(depth)
    while frame.f_back is not None and "/minitvm/" in frame.f_code.co_filename.replace("\\", "/"):
        frame = frame.f_back
    file = frame.f_code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
    return Origin((f"{file}:{frame.f_lineno}",))
