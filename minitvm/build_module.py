"""`relay.build` and its relatives: relay to a library, with TVM's names around `minitvm.compile`.

    mod, params = relay.frontend.from_onnx(model, {"input": (1, 3, 224, 224)})
    with minitvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](minitvm.cpu(0)))
    lib.export_library("model.so")

It stands above the driver; `minitvm.relay` gives its names to those who look for them there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from minitvm.driver import CompiledModule, compile, optimize
from minitvm.errors import OptionError
from minitvm.relay.frontend import bind_params_by_name
from minitvm.relay.interpret import run
from minitvm.relay.ir import Function, Module, TupleType
from minitvm.runtime.devices import Device
from minitvm.runtime.graph_module import GraphModule
from minitvm.runtime.module import Module as RuntimeModule
from minitvm.runtime.ndarray import NDArray, as_numpy
from minitvm.target import Target


@dataclass(frozen=True, slots=True)
class RelayLibrary:
    """What `relay.build` gives; `compiled` is all that was made."""

    compiled: CompiledModule

    def __getitem__(self, name: str) -> Callable[[Device | None], RuntimeModule]:
        """`lib["default"](dev)`: the model, loaded into this process."""
        return self.compiled.runtime[name]

    @property
    def ir_mod(self) -> Module:
        """The fused relay module."""
        return self.compiled.relay

    @property
    def target(self) -> Target:
        """The machine this is for."""
        return self.compiled.target

    def export_library(self, path: str | PathLike[str]) -> None:
        """Writes the shared library, and beside it a C header and a sample; the weights are in it.
        `minitvm.runtime.load_module` loads it."""
        self.compiled.export(Path(path))

    def get_params(self) -> dict[str, NDArray]:
        """Parameters to be set before running: none, as the weights are in the library."""
        return {}


def _target(target: Target | str | None) -> Target:
    return target if isinstance(target, Target) else Target(target) if target else Target.host()


def _module(mod: Module | Function, params: Mapping[str, Any] | None) -> Module:
    module = mod if isinstance(mod, Module) else Module.from_expr(mod)
    return module.with_function("main", bind_params_by_name(module.main, params or {}))


def build(
    mod: Module | Function, target: Target | str | None = None, *,
    params: Mapping[str, Any] | None = None, mod_name: str = "default",
) -> RelayLibrary:
    """Compiles a relay module under the current `PassContext`.

    params: the values of inputs of `main` that are constant from here on, such as weights.
    target: the machine to compile for; by default this one. mod_name: the prefix of the C
    functions, if it is not "default".
    """
    name = "" if mod_name == "default" else mod_name
    return RelayLibrary(compile(_module(mod, params), target=_target(target), name=name))


def optimize_module(
    mod: Module | Function, target: Target | str | None = None,
    params: Mapping[str, Any] | None = None,
) -> tuple[Module, dict[str, NDArray]]:
    """What the passes make of a module, fused; and no parameters, as they are constants in it."""
    return optimize(_module(mod, params), _target(target)), {}


@dataclass(frozen=True, slots=True)
class Executor:
    """A way to run a module; `evaluate()` gives its `main` as a Python function."""

    run: Callable[[dict[str, np.ndarray]], list[np.ndarray]]
    main: Function

    def evaluate(self, expr: None = None) -> Callable[..., Any]:
        """A function of the inputs by position or name; gives an `NDArray`, or a list of them."""
        names = [param.name for param in self.main.params]

        def call(*arguments: Any, **params: Any) -> NDArray | list[NDArray]:
            inputs = {name: as_numpy(value) for name, value in zip(names, arguments)}
            inputs |= {name: as_numpy(value) for name, value in params.items()}
            outputs = [NDArray(np.asarray(array)) for array in self.run(inputs)]
            return outputs if isinstance(self.main.result_type, TupleType) else outputs[0]

        return call


def create_executor(
    kind: str = "graph", mod: Module | Function | None = None, device: Device | None = None,
    target: Target | str | None = None, params: Mapping[str, Any] | None = None,
) -> Executor:
    """An executor: `graph`, `vm` and `aot` are the compiled model, `debug` the interpreter."""
    if mod is None:
        raise OptionError("an executor needs a module: give it as mod")
    module = _module(mod, params)
    if kind == "debug":
        return Executor(lambda inputs: run(module, inputs), module.main)
    if kind not in ("graph", "vm", "aot"):
        raise OptionError(f"there is no executor {kind!r}; there are graph, vm, aot and debug")
    model = GraphModule(compile(module, target=_target(target)).runtime)

    def execute(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        model.run(**inputs)
        return [model.get_output(index).numpy() for index in range(model.get_num_outputs())]

    return Executor(execute, module.main)
