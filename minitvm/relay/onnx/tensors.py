"""ONNX tensors -> numpy arrays, every size checked; external data is read only beside the model."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from minitvm import dtypes
from minitvm.errors import ModelError

if TYPE_CHECKING:
    from onnx import TensorProto


def element_dtype(element_type: int, what: str) -> str:
    """The dtype of an ONNX element type; raises `ModelError` for those that minitvm lacks."""
    import onnx

    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    name = names.get(element_type, str(element_type))
    dtype: str = {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())
    if dtype not in dtypes.SCALARS:
        raise ModelError(
            f"{what} has elements of type {name}, which is not supported; "
            f"supported: {', '.join(dtypes.SCALARS)}"
        )
    return dtype


def read_tensor(tensor: TensorProto, what: str, folder: str) -> np.ndarray:
    """The array of a tensor. `what` names it in errors; `folder` holds external data."""
    import onnx

    dtype = element_dtype(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise ModelError(f"{what} has a negative dimension: {shape}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _from_bytes(_external_bytes(tensor, what, folder), dtype, shape, what)
    if tensor.HasField("raw_data"):
        return _from_bytes(tensor.raw_data, dtype, shape, what)
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{what} does not hold the data of shape {shape}: {error}") from error


def _from_bytes(data: bytes, dtype: str, shape: tuple[int, ...], what: str) -> np.ndarray:
    expected = math.prod(shape) * dtypes.size_bytes(dtype)
    if len(data) != expected:
        raise ModelError(
            f"{what} holds {len(data)} bytes, but {dtype} of shape {shape} takes {expected}"
        )
    little_endian = np.dtype(dtype).newbyteorder("<")
    return np.frombuffer(data, little_endian).astype(dtype, copy=False).reshape(shape)


def _external_bytes(tensor: TensorProto, what: str, folder: str) -> bytes:
    """The bytes of a tensor stored outside of the model. A location may not leave the folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _external_path(entries.get("location", ""), what, folder)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    except ValueError as error:
        raise ModelError(f"{what} has an offset or length that is no number") from error
    dtype = element_dtype(tensor.data_type, what)
    expected = math.prod(tensor.dims) * dtypes.size_bytes(dtype)
    if offset < 0 or length not in (-1, expected):
        raise ModelError(f"{what} takes {expected} bytes, not {length} from offset {offset}")
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(expected)
    except (OSError, OverflowError) as error:
        raise ModelError(f"{what} cannot be read from {path}: {error}") from error


def _external_path(location: str, what: str, folder: str) -> Path:
    if not folder:
        raise ModelError(
            f"{what} is stored outside of the model, in {location!r}; give the model as a path"
        )
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    inside = path.startswith(root + os.sep) or root == os.sep
    if not location or os.path.isabs(location) or not inside:
        raise ModelError(f"{what} is stored in {location!r}, outside of the folder of the model")
    if not os.path.isfile(path):
        raise ModelError(f"{what} is stored in {location!r}, which does not exist in {folder}")
    return Path(path)
