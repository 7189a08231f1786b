"""A compiled function over arrays, called in place with them in the order of its parameters.

    f(a, b, c)
    f.time_evaluator(f.entry_name, dev, number=10, repeat=3)(a, b, c).mean

What `minitvm.build` gives, and what `load_module` gives for a library that was made of that. Such
a library is a model whose metadata say, under `function`, in which order the parameters stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import InputError
from minitvm.runtime.devices import Device
from minitvm.runtime.module import Module
from minitvm.runtime.ndarray import NDArray
from minitvm.runtime.tensor_info import TensorInfo
from minitvm.runtime.timing import BenchmarkResult, measure

Bind = Callable[[Sequence[Any]], Callable[[], None]]
"""Checks the arguments of a function once, and gives the call with them."""


class FunctionModule:
    """A function of arrays, and a library that has it alone."""

    def __init__(self, name: str, bind: Bind) -> None:
        self.entry_name = name
        self._bind = bind

    def __call__(self, *arguments: Any) -> None:
        """Runs on arrays (numpy's or `NDArray`s), writing to those that are outputs. Raises
        `InputError` for what does not fit."""
        self._bind(arguments)()

    def __getitem__(self, name: str) -> FunctionModule:
        """The function of that name, of which there is one."""
        if name != self.entry_name:
            raise InputError(f"the library has no function {name!r}; it has {self.entry_name!r}")
        return self

    get_function = __getitem__

    def time_evaluator(
        self, func_name: str = "", dev: Device | None = None, number: int = 10, repeat: int = 1,
        min_repeat_ms: float = 0,
    ) -> Callable[..., BenchmarkResult]:
        """A function that runs this one on its arguments, so often, and gives the times: each of
        `repeat` results is the mean over `number` runs."""
        function = self[func_name or self.entry_name]

        def evaluate(*arguments: Any) -> BenchmarkResult:
            return measure(function._bind(arguments), number, repeat, min_repeat_ms)

        return evaluate

    def __repr__(self) -> str:
        return f"<FunctionModule {self.entry_name}>"


def as_function(module: Module) -> FunctionModule | None:
    """The function that a loaded library holds; None where it holds a model."""
    facts = module.metadata.get("function")
    if facts is None:
        return None
    return FunctionModule(facts["name"], bind_parameters(module, facts["parameters"]))


def bind_parameters(module: Module, order: Sequence[str]) -> Bind:
    """Takes arguments in the order of parameters to the inputs and outputs of a module."""
    written = {info.name for info in module.outputs}
    infos = {info.name: info for info in (*module.inputs, *module.outputs)}

    def bind(arguments: Sequence[Any]) -> Callable[[], None]:
        check_count(module.name, order, arguments)
        arrays = {name: argument_array(infos[name], value, name in written)
                  for name, value in zip(order, arguments)}
        check_overlap(arrays, written)
        return module.bind([arrays[info.name] for info in module.inputs],
                           [arrays[info.name] for info in module.outputs])

    return bind


def check_count(name: str, order: Sequence[str], arguments: Sequence[Any]) -> None:
    """Raises `InputError` for too few arguments, or too many."""
    if len(arguments) != len(order):
        raise InputError(f"the function {name} takes {len(order)} arguments, {', '.join(order)}; "
                         f"{len(arguments)} were given")


def argument_array(info: TensorInfo, value: Any, is_written: bool) -> np.ndarray:
    """An argument as an array of this shape and dtype. One that is written to must be memory that
    can be written to as it lies; one that is only read is copied where that is needed."""
    if isinstance(value, NDArray):
        value = value.array
    if not isinstance(value, np.ndarray):
        raise InputError(f"the argument {info.name!r} is a {type(value).__name__}; give a numpy "
                         "array or a minitvm.nd.array")
    if value.dtype != dtypes.to_numpy(info.dtype) or value.shape != info.shape:
        raise InputError(f"the argument {info.name!r} is {value.dtype}{list(value.shape)}; the "
                         f"function takes {info.dtype}{list(info.shape)}")
    if not is_written:
        return np.require(value, requirements=("C", "A"))
    flags = value.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise InputError(f"the argument {info.name!r} is written to, so it must be a writeable "
                         "C-contiguous array; give np.empty(shape, dtype)")
    return value


def check_overlap(arrays: dict[str, np.ndarray], written: set[str]) -> None:
    """Raises `InputError` where memory is written that another argument has a part in."""
    for output in written & arrays.keys():
        for name, array in arrays.items():
            if name != output and np.may_share_memory(arrays[output], array):
                raise InputError(f"the arguments {output!r} and {name!r} share memory, and "
                                 f"{output!r} is written to; give it memory of its own")
