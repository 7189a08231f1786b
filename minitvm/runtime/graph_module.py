"""Running a model step by step, as TVM's graph executor does.

    module = GraphModule(lib["default"](dev))
    module.set_input("input", image)
    module.run()
    module.get_output(0).numpy()
    module.benchmark(dev, repeat=5, number=10).median
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minitvm.errors import InputError
from minitvm.runtime.devices import Device
from minitvm.runtime.module import Module
from minitvm.runtime.ndarray import NDArray
from minitvm.runtime.tensor_info import check_names
from minitvm.runtime.timing import BenchmarkResult, measure


class GraphModule:
    """A model, the inputs set so far, and the outputs of its last run."""

    def __init__(self, module: Module) -> None:
        if not isinstance(module, Module):
            raise InputError(f"a graph module is made of a model, such as lib['default'](dev), not "
                             f"of a {type(module).__name__}")
        self._model = module
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: list[np.ndarray] | None = None

    @property
    def module(self) -> GraphModule:
        """This one, for programs that time `module.module`."""
        return self

    # --- inputs

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Copies arrays into inputs, by name or position. Raises `InputError` for unfit ones."""
        if key is not None:
            self._set(self._name(key), value)
        for name, array in params.items():
            self._set(name, array)

    def _set(self, name: str, value: Any) -> None:
        infos = {info.name: info for info in self._model.inputs}
        if name not in infos:
            check_names([*infos, name], self._model.inputs)
        self._inputs[name] = np.array(infos[name].accept(value), order="C", copy=True)

    def _name(self, key: str | int) -> str:
        if not isinstance(key, int):
            return key
        if not 0 <= key < len(self._model.inputs):
            raise InputError(f"there is no input {key}; the model has {len(self._model.inputs)}")
        return self._model.inputs[key].name

    def get_num_inputs(self) -> int:
        """How many inputs there are."""
        return len(self._model.inputs)

    def get_input_index(self, name: str) -> int:
        """The position of an input; -1 if there is none of that name."""
        names = [info.name for info in self._model.inputs]
        return names.index(name) if name in names else -1

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """The shapes and the dtypes of the inputs by name."""
        infos = self._model.inputs
        return {i.name: i.shape for i in infos}, {i.name: i.dtype for i in infos}

    def get_input(self, index: int | str) -> NDArray:
        """An input as it was set, which a change of the array changes."""
        name = self._name(index)
        if name not in self._inputs:
            raise InputError(f"the input {name!r} was not set; call set_input first")
        return NDArray(self._inputs[name])

    # --- running

    def run(self, /, **inputs: Any) -> None:
        """Runs the model, on these inputs and those set before."""
        for name, value in inputs.items():
            self._set(name, value)
        self._outputs = list(self._model.run(self._inputs).values())

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        return len(self._model.outputs)

    def get_output(self, index: int, out: Any = None) -> NDArray:
        """An output of the last run; written into `out` where that is given."""
        if self._outputs is None:
            raise InputError("there are no outputs before the first run; call run first")
        if not 0 <= index < len(self._outputs):
            raise InputError(f"there is no output {index}; the model has {len(self._outputs)}")
        result = NDArray(self._outputs[index])
        if out is None:
            return result
        target = out if isinstance(out, NDArray) else NDArray(out)
        return target.copyfrom(result)

    # --- timing

    def benchmark(
        self, device: Device | None = None, func_name: str = "run", repeat: int = 5,
        number: int = 5, min_repeat_ms: float = 0, end_to_end: bool = False, **inputs: Any,
    ) -> BenchmarkResult:
        """The time of a run. The inputs must be set; `end_to_end` counts copying them in, too."""
        for name, value in inputs.items():
            self._set(name, value)
        if end_to_end:
            given: Mapping[str, np.ndarray] = dict(self._inputs)
            return measure(lambda: self.run(**given), number, repeat, min_repeat_ms)
        return self.time_evaluator(func_name, device, number, repeat, min_repeat_ms)()

    def time_evaluator(
        self, func_name: str = "run", dev: Device | None = None, number: int = 10, repeat: int = 1,
        min_repeat_ms: float = 0,
    ) -> Callable[[], BenchmarkResult]:
        """A function without arguments that runs the model so often and gives the times."""
        if func_name != "run":
            raise InputError(f"only 'run' is timed, not {func_name!r}")
        return lambda: measure(self.run, number, repeat, min_repeat_ms)
