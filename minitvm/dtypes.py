"""Data types are strings: `"float32"`, `"int8"`, `"bool"`, and vectors of them, `"float32x8"`.

The scalar names are numpy's. `"handle"` is the type of an address and has no numpy equivalent.
"""

from __future__ import annotations

from functools import cache

import numpy as np

SCALARS: dict[str, int] = {
    "bool": 8,
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "uint8": 8,
    "uint16": 16,
    "uint32": 32,
    "uint64": 64,
    "float16": 16,
    "float32": 32,
    "float64": 64,
}
"""Scalar dtypes and their width in memory, in bits."""


@cache
def split(dtype: str) -> tuple[str, int]:
    """`"float32x8"` -> `("float32", 8)`; a scalar has one lane. Raises `ValueError` if unknown."""
    element, _, count = dtype.partition("x")
    if element in SCALARS and (not count or (count.isdigit() and int(count) > 1)):
        return element, int(count or 1)
    if dtype == "handle":
        return dtype, 1
    raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(SCALARS)}, and vectors of them")


def lanes(dtype: str) -> int:
    """The number of lanes; 1 for a scalar."""
    return split(dtype)[1]


def element(dtype: str) -> str:
    """The scalar dtype of one lane."""
    return split(dtype)[0]


@cache
def vector(dtype: str, count: int) -> str:
    """The dtype with `count` lanes of the element of `dtype`."""
    scalar = element(dtype)
    return scalar if count == 1 else f"{scalar}x{count}"


@cache
def bits(dtype: str) -> int:
    """The width in memory of one lane, in bits."""
    return SCALARS[element(dtype)]


@cache
def size_bytes(dtype: str) -> int:
    """The size in memory of all lanes, in bytes."""
    return bits(dtype) // 8 * lanes(dtype)


@cache
def is_float(dtype: str) -> bool:
    """Whether lanes are floating point."""
    return dtype.startswith("float")


@cache
def is_int(dtype: str) -> bool:
    """Whether lanes are integers, signed or not (bool is not)."""
    return dtype.startswith(("int", "uint"))


@cache
def is_unsigned(dtype: str) -> bool:
    """Whether lanes are unsigned integers."""
    return dtype.startswith("uint")


def is_bool(dtype: str) -> bool:
    """Whether lanes are booleans."""
    return element(dtype) == "bool"


@cache
def to_numpy(dtype: str) -> np.dtype:
    """The numpy dtype of one lane."""
    return np.dtype(element(dtype))


def from_numpy(dtype: np.dtype | type) -> str:
    """The name of a numpy dtype; raises `ValueError` if minitvm has none for it."""
    name = np.dtype(dtype).name
    if name not in SCALARS:
        raise ValueError(f"unsupported numpy dtype {name!r}; supported: {', '.join(SCALARS)}")
    return name


@cache
def integer_range(dtype: str) -> tuple[int, int]:
    """The least and greatest value of an integer or bool dtype."""
    if is_bool(dtype):
        return 0, 1
    width = bits(dtype)
    return (0, 2**width - 1) if is_unsigned(dtype) else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
