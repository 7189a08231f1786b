"""The inputs of a model -> the parameters of `main`, with every size an integer, and the constants
that the user fixes inputs to."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np

from minitvm.errors import ModelError
from minitvm.origin import origin
from minitvm.relay.ir import Constant, TensorType, Var
from minitvm.relay.onnx.reader import Graph
from minitvm.relay.onnx.tensors import element_dtype


def input_values(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], fixed: Mapping[str, Any]
) -> dict[str, Var | Constant]:
    """A parameter for each input, or a constant where its value is `fixed`. Raises `ModelError`
    that names every size still open, and for shapes and values that fit no input."""
    names = [value.name for value in graph.inputs]
    for name in (*shapes, *fixed):
        if name not in names:
            raise ModelError(f'the model has no input "{name}"; {_closest(name, names)}')
    open_sizes: list[str] = []
    values: dict[str, Var | Constant] = {}
    for value in graph.inputs:
        name, dtype, dims = value.name, _input_dtype(value), _dims(value)
        shape = shapes.get(name)
        if name not in fixed:
            type_ = TensorType(_shape(name, dims, shape, open_sizes), dtype)
            values[name] = Var(name, type_)
            continue
        data = _fixed(name, dtype, fixed[name])
        if data.ndim:
            _checked(name, dims, data.shape)
        else:
            data = np.full(_shape(name, dims, shape, open_sizes), data)
        values[name] = Constant(data, origin(name))
    if open_sizes:
        raise ModelError("the model leaves sizes of its inputs open:\n" + "\n".join(open_sizes))
    return values


def _fixed(name: str, dtype: str, given: Any) -> np.ndarray:
    """The value that the user fixes an input to, as its dtype; one number is for all elements."""
    try:
        data = np.asarray(given)
    except ValueError:  # a ragged list
        data = np.empty(0, object)
    if data.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            cast = data.astype(dtype)
        kept = np.isfinite(cast) == np.isfinite(data) if cast.dtype.kind == "f" else cast == data
        if kept.all():
            return cast
    raise ModelError(f'the input "{name}" holds {dtype}; it can\'t be fixed to {given!r}')


def _closest(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"its inputs are {', '.join(names) or 'none'}"


def _input_dtype(value: Any) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        found = kind or "value without a type"
        raise ModelError(f'the input "{value.name}" is a {found}, not a tensor')
    return element_dtype(value.type.tensor_type.elem_type, f'the input "{value.name}"')


def _dims(value: Any) -> list[int | str] | None:
    """The dims of an input: a size, or the name of one left open; None where the rank is open."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0
        else str(dim.dim_param) or (str(dim.dim_value) if dim.HasField("dim_value") else "?")
        for dim in tensor.shape.dim
    ]


def _shape(
    name: str,
    dims: list[int | str] | None,
    given: tuple[int, ...] | None,
    open_sizes: list[str],
) -> tuple[int, ...]:
    """The shape of an input; what is open is added to `open_sizes`, a line each."""
    if given is not None:
        return _checked(name, dims, tuple(given))
    if dims is None:
        open_sizes.append(f'  input "{name}" has no shape: give --shape "{name}=1,3,224,224"')
        return ()
    example = ",".join(str(dim if isinstance(dim, int) else 1) for dim in dims)
    for position, dim in enumerate(dims):
        if isinstance(dim, str):
            open_sizes.append(
                f'  input "{name}" has the open size {dim} in dimension {position}: '
                f'give for example --shape "{name}={example}"'
            )
    return tuple(dim if isinstance(dim, int) else 1 for dim in dims)


def _checked(
    name: str, dims: list[int | str] | None, given: tuple[int, ...]
) -> tuple[int, ...]:
    """The shape that the user gives, if it agrees with the model."""
    if any(not isinstance(size, int) or size < 1 for size in given):
        raise ModelError(f'the shape {given} for the input "{name}" must be positive integers')
    if dims is None:
        return given
    shown = f"({', '.join(map(str, dims))})"
    if len(given) != len(dims):
        raise ModelError(
            f'the shape {given} for the input "{name}" has {len(given)} dimensions; '
            f"the model's is {shown}"
        )
    sizes: dict[str, int] = {}
    for size, dim in zip(given, dims, strict=True):
        fixed = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
        repeats = isinstance(dim, int) or dim.isidentifier()
        if repeats and size != fixed:
            raise ModelError(
                f'the shape {given} for the input "{name}" does not fit the model\'s {shown}'
            )
    return given


def static_type(value: Any) -> TensorType | None:
    """The type of an ONNX value whose sizes are all known; None otherwise."""
    if value.type.WhichOneof("value") != "tensor_type":
        return None
    dims = _dims(value)
    if dims is None or any(isinstance(dim, str) for dim in dims):
        return None
    try:
        dtype = element_dtype(value.type.tensor_type.elem_type, value.name)
    except ModelError:
        return None
    return TensorType(tuple(dim for dim in dims if isinstance(dim, int)), dtype)
