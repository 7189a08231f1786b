"""ONNX operators whose result is known when importing: constants, shapes, ranges."""

from __future__ import annotations

import math

import numpy as np

from minitvm import dtypes
from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import FOLD_LIMIT_BYTES, Conversion, Unsupported
from minitvm.relay.onnx.table import converter

NUMERIC_VALUES = {
    "value_float": "float32",
    "value_floats": "float32",
    "value_int": "int64",
    "value_ints": "int64",
}


@converter("Constant", 1)
def constant(c: Conversion) -> Atom:
    """One attribute holds the value."""
    given = list(c.node.attributes)
    if len(given) != 1:
        raise ModelError(f"{c.node} must have one attribute with its value, not {len(given)}")
    name, value = given[0], c.node.attributes[given[0]]
    c.ignore(name)
    if name == "value" and isinstance(value, np.ndarray):
        return c.make(value, value.dtype.name)
    if name in NUMERIC_VALUES:
        return c.make(value, NUMERIC_VALUES[name])
    raise Unsupported(f"a constant given by {name}", "give a dense tensor of numbers")


def _require_reasonable(c: Conversion, shape: tuple[int, ...], dtype: str) -> None:
    if any(extent < 0 for extent in shape):
        raise ModelError(f"{c.node} asks for a negative extent: {shape}")
    size = math.prod(shape) * dtypes.size_bytes(dtype)
    if size > FOLD_LIMIT_BYTES:
        raise ModelError(f"{c.node} asks for a constant of {size} bytes")


@converter("ConstantOfShape", 9)
def constant_of_shape(c: Conversion) -> Atom:
    """One value everywhere; float32 zero by default."""
    shape = c.constant_integers(0, "the shape")
    value = c.attribute("value", np.zeros(1, np.float32), (np.ndarray,), "a tensor")
    if value.size != 1:
        raise ModelError(f"{c.node}: value must hold one element, not {value.size}")
    _require_reasonable(c, shape, value.dtype.name)
    return c.make(np.full(shape, value.reshape(())), value.dtype.name)


@converter("Shape", 1)
def shape(c: Conversion) -> Atom:
    """The shape, all of it."""
    return c.make(c.shape(c.input(0)), "int64")


@converter("Shape", 15)
def shape_between(c: Conversion) -> Atom:
    """The extents from `start` to `end`, by the rules of slices."""
    extents = c.shape(c.input(0))
    return c.make(extents[c.integer("start", 0) : c.integer("end", len(extents))], "int64")


@converter("Size", 1)
def size(c: Conversion) -> Atom:
    """The number of elements."""
    return c.make(c.type(c.input(0)).elements(), "int64")


@converter("Range", 11)
def range_(c: Conversion) -> Atom:
    """start, start + delta, ... up to the limit, which is not reached."""
    c.ignore("stash_type")  # the precision of sums of 16-bit floats
    start, limit, delta = (
        c.constant(index, what).reshape(())
        for index, what in enumerate(("start", "limit", "delta"))
    )
    if delta == 0 or not np.isfinite([start, limit, delta]).all():
        raise ModelError(f"{c.node}: there is no range from {start} to {limit} by {delta}")
    count = max(0, math.ceil((limit.item() - start.item()) / delta.item()))
    _require_reasonable(c, (count,), start.dtype.name)
    return c.make(start + np.arange(count).astype(start.dtype) * delta, start.dtype.name)


@converter("EyeLike", 9)
def eye_like(c: Conversion) -> Atom:
    """Ones on a diagonal of a matrix as large as the input."""
    given = c.type(c.input(0))
    if given.rank != 2:
        raise ModelError(f"{c.node} takes a matrix, not {given}")
    element_type = c.attribute("dtype", None, (int,), "an integer")
    dtype = given.dtype if element_type is None else c.dtype(element_type)
    rows, columns = given.extents()
    _require_reasonable(c, (rows, columns), dtype)
    return c.make(np.eye(rows, columns, c.integer("k", 0)), dtype)
