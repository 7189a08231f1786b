"""Remarks: what a pass declined to do, and why.

    with collect() as remarks:
        compile(model)
    for remark in remarks:
        print(remark)          # FuseOps: the kernel would hold 65 operators, ... ("Add_7")

Nothing falls back silently: a fusion, a fold or a vectorisation that is not done is a remark.
Outside `collect` they cost next to nothing and go nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from minitvm.origin import NOWHERE, Origin


@dataclass(frozen=True, slots=True)
class Remark:
    """The pass `pass_name` declined something about `origin`, for a reason given as a sentence."""

    pass_name: str
    reason: str
    origin: Origin = NOWHERE

    def __str__(self) -> str:
        place = f" ({self.origin})" if self.origin else ""
        return f"{self.pass_name}: {self.reason}{place}"


_COLLECTORS: ContextVar[tuple[list[Remark], ...]] = ContextVar("remark_collectors", default=())


def remark(pass_name: str, reason: str, origin: Origin = NOWHERE) -> None:
    """Tells every enclosing `collect` what was declined."""
    collectors = _COLLECTORS.get()
    if collectors:
        made = Remark(pass_name, reason, origin)
        for collector in collectors:
            collector.append(made)


@contextmanager
def collect() -> Iterator[list[Remark]]:
    """The list that remarks made inside are added to; may be nested, then each list gets all."""
    remarks: list[Remark] = []
    token = _COLLECTORS.set((*_COLLECTORS.get(), remarks))
    try:
        yield remarks
    finally:
        _COLLECTORS.reset(token)
