"""The table of converters: which function imports an operator, from which opset on.

    @converter("Softmax", 1)       opsets up to 12
    @converter("Softmax", 13)      13 and later
    def softmax(c): ...

A converter takes a `Conversion` and gives the atom of its result, or a tuple of them. It holds from
its opset up to the next converter of the same operator. `supported` reads the table out, so that
what is printed can't differ from what is imported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minitvm.relay.ir import Atom
    from minitvm.relay.onnx.conversion import Conversion

    Converter = Callable[[Conversion], Atom | tuple[Atom | None, ...]]

OLDEST_OPSET = 7
"""The oldest opset that is imported; elementwise operators had no numpy broadcasting before."""

CONVERTERS: dict[str, dict[int, Converter]] = {}
"""operator -> first opset -> converter."""


LAST_OPSET = {"Upsample": 9}
"""Operators that a later opset no longer has."""


def converter(operator: str, since: int) -> Callable[[Converter], Converter]:
    """A decorator: the function imports `operator` from opset `since` on."""

    def decorate(function: Converter) -> Converter:
        CONVERTERS.setdefault(operator, {})[since] = function
        return function

    return decorate


def find_converter(operator: str, opset: int) -> Converter | None:
    """The converter for an operator at an opset; None where there is none."""
    if opset > LAST_OPSET.get(operator, opset):
        return None
    versions = CONVERTERS.get(operator, {})
    since = sorted(versions)
    position = bisect_right(since, opset)
    return versions[since[position - 1]] if position else None


def newest_opset() -> int:
    """The newest opset of the installed onnx."""
    import onnx

    return onnx.defs.onnx_opset_version()


def supported() -> dict[str, tuple[int, int]]:
    """The operators that are imported, each with its first and last opset, by name."""
    newest = newest_opset()
    return {
        operator: (max(OLDEST_OPSET, min(versions)), LAST_OPSET.get(operator, newest))
        for operator, versions in sorted(CONVERTERS.items())
        if min(versions) <= newest
    }
