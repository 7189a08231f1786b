"""The inputs of a model -> the parameters of `main`, with every size an integer."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from minitvm.errors import ModelError
from minitvm.relay.ir import TensorType, Var
from minitvm.relay.onnx.reader import Graph
from minitvm.relay.onnx.tensors import element_dtype


def parameters(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Var, ...]:
    """A parameter for each input. Raises `ModelError` that names every size still open, and for
    shapes that fit no input."""
    names = [value.name for value in graph.inputs]
    for name in shapes:
        if name not in names:
            raise ModelError(f'the model has no input "{name}"; {_closest(name, names)}')
    open_sizes: list[str] = []
    params = []
    for value in graph.inputs:
        dtype = _input_dtype(value)
        dims = _dims(value)
        shape = _shape(value.name, dims, shapes.get(value.name), open_sizes)
        params.append(Var(value.name, TensorType(shape, dtype)))
    if open_sizes:
        raise ModelError("the model leaves sizes of its inputs open:\n" + "\n".join(open_sizes))
    return tuple(params)


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
