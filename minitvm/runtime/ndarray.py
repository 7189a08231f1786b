"""Arrays as TVM's users know them: `nd.array(x, device)`, `.numpy()`; a thin shell around numpy's.

    c = nd.empty((4, 4), "float32")
    f(a, b, c)
    c.numpy()

Everything that takes an `NDArray` takes a numpy array too. An `NDArray` has memory of its own,
C-contiguous, so that compiled functions can write to it in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import InputError
from minitvm.runtime.devices import Device


class NDArray:
    """A tensor; `array` is the memory as numpy sees it."""

    __slots__ = ("array", "device")

    def __init__(self, array: np.ndarray, device: Device | None = None) -> None:
        self.array = array
        self.device = device or Device()

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self.array.shape

    @property
    def dtype(self) -> str:
        """The dtype by name."""
        return dtypes.from_numpy(self.array.dtype)

    def numpy(self) -> np.ndarray:
        """A copy as a numpy array."""
        return self.array.copy()

    asnumpy = numpy

    def copyfrom(self, source: Any) -> NDArray:
        """Writes the elements of another array of this shape into this one; gives this one."""
        given = as_numpy(source)
        if given.shape != self.shape:
            raise InputError(f"an array of shape {list(given.shape)} can't be copied into one of "
                             f"shape {list(self.shape)}")
        self.array[...] = given
        return self

    def copyto(self, target: NDArray | Device) -> NDArray:
        """Writes the elements into another array and gives that; a copy where a device is given."""
        if isinstance(target, Device):
            return NDArray(self.array.copy(), target)
        return target.copyfrom(self)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = as_numpy(value)

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __len__(self) -> int:
        return len(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy or (dtype is not None and dtype != self.array.dtype):
            return self.array.astype(dtype or self.array.dtype)
        return self.array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self.array.__dlpack_device__()
        return int(kind), int(index)

    def __repr__(self) -> str:
        return f"<minitvm.nd.NDArray shape={self.shape}, {self.device}>\n{self.array!r}"


def as_numpy(value: Any) -> np.ndarray:
    """The memory of an `NDArray`; whatever numpy makes an array of, as one."""
    return value.array if isinstance(value, NDArray) else np.asarray(value)


def array(source: Any, device: Device | None = None) -> NDArray:
    """A new array with the elements of `source`: an array, a number or nested lists."""
    given = as_numpy(source)
    dtypes.from_numpy(given.dtype)
    return NDArray(np.array(given, order="C", copy=True), device)


def empty(
    shape: Sequence[int] | int, dtype: str = "float32", device: Device | None = None
) -> NDArray:
    """A new array with unspecified elements."""
    return NDArray(np.empty(shape, dtypes.to_numpy(dtype)), device)
