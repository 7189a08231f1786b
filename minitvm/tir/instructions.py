"""Instructions of a machine that `tir.Call` may name: what they take and mean, and who has them.

    x86_vpdpbusd(c, a, b)     int32xN, uint8x4N, int8x4N: each lane of c and four products

Each row's meaning is a numpy function over whole vectors, exact, which the interpreter runs. Code
generation emits the one instruction of a row's `forms` that has the lanes of the result, and
refuses a target without its features: no other code stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes


@dataclass(frozen=True, slots=True)
class Form:
    """An instruction for one count of lanes: LLVM's intrinsic of it, and sets of features of which
    a target must have one, such as `("avx512vnni,avx512vl", "avxvnni")`."""

    lanes: int
    function: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One row: elements of arguments, with how many of each go into a lane of the result."""

    name: str
    arguments: tuple[tuple[str, int], ...]
    result: str
    meaning: Callable[..., Any]
    forms: tuple[Form, ...]

    @property
    def arity(self) -> int:
        """How many arguments it takes."""
        return len(self.arguments)

    def lanes(self, first: str) -> int:
        """The lanes of the result where the first argument is of the dtype `first`."""
        return dtypes.lanes(first) // self.arguments[0][1]

    def takes(self, lanes: int) -> tuple[str, ...]:
        """The dtypes of the arguments for so many lanes."""
        return tuple(dtypes.vector(element, lanes * count) for element, count in self.arguments)

    def form(self, lanes: int) -> Form | None:
        """The form with so many lanes."""
        return next((form for form in self.forms if form.lanes == lanes), None)

    def features(self, lanes: int) -> tuple[str, ...]:
        """The sets of features of which one is needed for so many lanes; raises `KeyError`."""
        form = self.form(lanes)
        if form is None:
            raise KeyError(f"{self.name} has no form with {lanes} lanes")
        return form.features


EXAMPLES = {
    "fma": "haswell", "avx2": "haswell", "avx512bw": "skylake-avx512",
    "avx512vnni": "cascadelake", "avx512vnni,avx512vl": "cascadelake", "avxvnni": "alderlake",
    "ssse3": "nehalem", "neon": "cortex-a53", "dotprod": "cortex-a76", "i8mm": "neoverse-v1",
}  # fmt: skip
"""A CPU that has some features, for messages."""


def describe(features: tuple[str, ...]) -> str:
    """The sets of features as words: `avxvnni (such as -mcpu=alderlake) or ...`."""
    words = []
    for names in features:
        example = f" (such as -mcpu={EXAMPLES[names]})" if names in EXAMPLES else ""
        words.append(names.replace(",", " with ") + example)
    return " or ".join(words)


def _grouped(x: Any, count: int) -> Any:
    """Lanes of 64 bits, `count` to a row."""
    return np.asarray(x).astype(np.int64).reshape(-1, count)


def _sum_of_products(a: Any, b: Any, count: int) -> Any:
    return (_grouped(a, count) * _grouped(b, count)).sum(axis=1)


def _dot(count: int) -> Callable[..., Any]:
    """Adds products of neighbours to a lane; what is beyond 32 bits wraps."""
    return lambda c, a, b: np.asarray(c, np.int64) + _sum_of_products(a, b, count)


def _saturated_pairs(a: Any, b: Any) -> Any:
    return np.clip(_sum_of_products(a, b, 2), -(2**15), 2**15 - 1)


def _x86(*forms: tuple[int, str, tuple[str, ...]]) -> tuple[Form, ...]:
    return tuple(Form(lanes, f"llvm.x86.{name}", features) for lanes, name, features in forms)


def _neon(name: str, feature: str) -> tuple[Form, ...]:
    return tuple(Form(lanes, f"llvm.aarch64.neon.{name}.v{lanes}i32.v{4 * lanes}i8", (feature,))
                 for lanes in (2, 4))


TABLE: dict[str, Instruction] = {
    row.name: row
    for row in (
        # products of neighbours, of 16 bits, added in 32; wraps only for four times -2**15
        Instruction("x86_vpmaddwd", (("int16", 2), ("int16", 2)), "int32",
                    lambda a, b: _sum_of_products(a, b, 2),
                    _x86((8, "avx2.pmadd.wd", ("avx2",)),
                         (16, "avx512.pmaddw.d.512", ("avx512bw",)))),
        # products of neighbours, added in 16 bits, where they saturate
        Instruction("x86_vpmaddubsw", (("uint8", 2), ("int8", 2)), "int16", _saturated_pairs,
                    _x86((16, "avx2.pmadd.ub.sw", ("avx2",)),
                         (32, "avx512.pmaddubs.w.512", ("avx512bw",)))),
        Instruction("x86_vpdpbusd", (("int32", 1), ("uint8", 4), ("int8", 4)), "int32", _dot(4),
                    _x86((4, "avx512.vpdpbusd.128", ("avx512vnni,avx512vl", "avxvnni")),
                         (8, "avx512.vpdpbusd.256", ("avx512vnni,avx512vl", "avxvnni")),
                         (16, "avx512.vpdpbusd.512", ("avx512vnni",)))),
        Instruction("arm_sdot", (("int32", 1), ("int8", 4), ("int8", 4)), "int32", _dot(4),
                    _neon("sdot", "dotprod")),
        Instruction("arm_udot", (("uint32", 1), ("uint8", 4), ("uint8", 4)), "uint32", _dot(4),
                    _neon("udot", "dotprod")),
        Instruction("arm_usdot", (("int32", 1), ("uint8", 4), ("int8", 4)), "int32", _dot(4),
                    _neon("usdot", "i8mm")),
    )
}  # fmt: skip
