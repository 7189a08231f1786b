"""What a model takes and gives: the name, shape and dtype of each tensor; and checks against it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import InputError


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or an output of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"

    @property
    def size_bytes(self) -> int:
        """The bytes that its elements take."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count * dtypes.size_bytes(self.dtype)

    def accept(self, value: Any) -> np.ndarray:
        """The array to compute on, the given one itself where its memory can be used as it is.

        Raises `InputError` for another dtype, rank or shape, and for what is no array.
        """
        array = _as_array(self.name, value)
        if array.dtype != dtypes.to_numpy(self.dtype):
            raise InputError(f"the input {self.name!r} has dtype {array.dtype}; the model takes "
                             f"{self.dtype}: convert it with .astype({self.dtype!r})")
        if array.ndim != len(self.shape):
            raise InputError(f"the input {self.name!r} has {array.ndim} dimensions, "
                             f"{list(array.shape)}; the model takes {len(self.shape)}, "
                             f"{list(self.shape)}")
        if array.shape != self.shape:
            raise InputError(f"the input {self.name!r} has shape {list(array.shape)}; the model "
                             f"was compiled for {list(self.shape)}")
        return np.require(array, requirements=("C", "A"))

    def accept_result(self, value: Any) -> np.ndarray:
        """The array to compute into, whose memory is that of the given one.

        Raises `InputError` where the model can't write there: for another dtype or shape, memory
        that is read-only, not contiguous or misaligned, and for what is no array.
        """
        array = _as_array(self.name, value, "output")
        wanted = f"the output {self.name!r} is {self.dtype}{list(self.shape)}"
        if array.dtype != dtypes.to_numpy(self.dtype) or array.shape != self.shape:
            raise InputError(f"{wanted}; it can't be written into an array that is "
                             f"{array.dtype}{list(array.shape)}")
        if not array.flags.writeable:
            raise InputError(f"{wanted}; the array given for it is read-only")
        if not (array.flags.c_contiguous and array.flags.aligned):
            raise InputError(f"{wanted}; the array given for it is not C-contiguous and aligned: "
                             f"give one such as np.empty({self.shape}, {self.dtype!r})")
        return array


def _as_array(name: str, value: Any, kind: str = "input") -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic) and kind == "input":
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (RuntimeError, TypeError, BufferError) as error:
            raise InputError(f"the {kind} {name!r} could not be read through DLPack: {error}"
                             ) from error
    raise InputError(f"the {kind} {name!r} is a {type(value).__name__}; give a numpy array, such "
                     "as np.asarray(value, dtype=...)")


def check_known(given: Iterable[str], infos: tuple[TensorInfo, ...], kind: str) -> None:
    """Raises `InputError` for names that no input (or output: `kind`) has."""
    known = [info.name for info in infos]
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(known)}"
            raise InputError(f"the model has no {kind} {name!r}; {hint}")


def check_names(given: Iterable[str], inputs: tuple[TensorInfo, ...]) -> None:
    """Raises `InputError` for unknown and for missing input names."""
    names = list(given)
    check_known(names, inputs, "input")
    missing = [str(info) for info in inputs if info.name not in names]
    if missing:
        raise InputError(f"the model needs another input: {', '.join(missing)}")


def random_arrays(infos: Iterable[TensorInfo], seed: int = 0) -> dict[str, np.ndarray]:
    """The same arrays each time: floats in [0, 1), integers and bools 0 or 1, which are indices
    into almost anything."""
    generator = np.random.default_rng(seed)
    return {info.name: generator.random(info.shape).astype(info.dtype) if "float" in info.dtype
            else generator.integers(0, 2, info.shape).astype(info.dtype) for info in infos}
