"""A loaded model: named arrays in, named arrays out.

    module.run({"input": x})  ->  {"logits": y}

Who owns memory: the caller owns the arrays that go in and those that come out; the model owns
nothing but workspaces. Inputs, numpy arrays or whatever speaks DLPack, are read where they lie if
they are contiguous and aligned, otherwise from a copy, only during the run, and never changed.
Outputs are new arrays that nothing else refers to, or, where `outputs` names them, the caller's
own, written in place. Between runs the model refers to none of them.

Any number of threads may call `run` at once: each run takes a workspace of its own, and workspaces
are kept for later runs.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import InputError, LoadError, RunError
from minitvm.runtime.abi import ABI_VERSION, MAXIMUM_THREADS, WORKSPACE_ALIGNMENT, ErrorCode, Tensor
from minitvm.runtime.bound_report import model_sentence
from minitvm.runtime.tensor_info import TensorInfo, check_known, check_names, random_arrays
from minitvm.runtime.timing import BenchmarkResult, measure_runs

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "minitvm_abi_version": (ctypes.c_int32,),
    "minitvm_model_name": (ctypes.c_char_p,),
    "minitvm_error_text": (ctypes.c_char_p, ctypes.c_int32),
    "minitvm_check_cpu": (ctypes.c_int32,),
    "metadata": (ctypes.c_char_p,),
    "workspace_bytes": (ctypes.c_uint64,),
    "run": (ctypes.c_int32, ctypes.POINTER(Tensor), ctypes.POINTER(Tensor),
            ctypes.c_void_p, ctypes.c_int32),
    "set_affinity": (ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32),
    "load_weights": (ctypes.c_int32, ctypes.c_char_p),
}


@dataclass(frozen=True, slots=True)
class Library:
    """Finds the functions of a loaded model by their address; `keep` holds what they live in."""

    address: Callable[[str], int]
    keep: Any = None

    def function(self, name: str, kind: str | None = None) -> Callable[..., Any]:
        """A function of the interface; `kind` is its name without the model's."""
        return ctypes.CFUNCTYPE(*_SIGNATURES[kind or name])(self.address(name))


class Module:
    """A model that can run; `load` and `codegen.jit.load_program` make it."""

    def __init__(self, library: Library, threads: int | None = None,
                 cpus: Sequence[int] | None = None) -> None:
        """Checks the version and the CPU before anything of the model itself is called."""
        self.threads = 1 if threads is None else threads
        self._library = library
        version = library.function("minitvm_abi_version")()
        if version != ABI_VERSION:
            raise LoadError(f"the model has version {version} of the interface and this runtime "
                            f"version {ABI_VERSION}; compile it again with this minitvm")
        self._error_text = library.function("minitvm_error_text")
        code = library.function("minitvm_check_cpu")()
        if code:
            raise LoadError(f"the model can't run here: {self._text(code)}")
        self.name = str(library.function("minitvm_model_name")().decode())
        self.metadata: dict[str, Any] = json.loads(
            library.function(f"{self.name}_metadata", "metadata")())
        self.inputs = _tensors(self.metadata["inputs"])
        self.outputs = _tensors(self.metadata["outputs"])
        self.workspace_bytes = int(
            library.function(f"{self.name}_workspace_bytes", "workspace_bytes")())
        self._run = library.function(f"{self.name}_run", "run")
        self._set_affinity = library.function(f"{self.name}_set_affinity", "set_affinity")
        self._workspaces: deque[np.ndarray] = deque()
        if cpus is not None:
            self.set_affinity(cpus)

    @property
    def threads(self) -> int:
        """On how many threads a run computes, the caller's among them; 1 starts no thread. One run
        at a time has the threads: others that go on meanwhile compute on their caller's alone."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        valid = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not valid or not 1 <= count <= MAXIMUM_THREADS:
            raise InputError(f"threads is {count!r}; it must be an integer from 1 to "
                             f"{MAXIMUM_THREADS}")
        self._threads = int(count)

    def set_affinity(self, cpus: Sequence[int]) -> None:
        """Pins the threads that the model starts: number i to `cpus[i % len(cpus)]`, from 1 on. The
        calling thread is number 0 and stays where it is. An empty list lets them run anywhere.

        Raises `InputError` for a CPU that this process may not use.
        """
        try:
            numbers = [min(operator.index(cpu), 2**31 - 1) for cpu in cpus]
            given = (ctypes.c_int32 * max(len(numbers), 1))(*numbers)
        except TypeError:
            raise InputError(f"cpus is {cpus!r}; it must be a list of CPU numbers, such as "
                             "[0, 1]") from None
        code = self._set_affinity(given, len(numbers))
        if code:
            raise InputError(f"cpus is {cpus!r}: {self._text(code)}")

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Maps the file of weights, and checks it, unless that was done before in this process; for
        a model that holds its weights itself it does nothing. Raises `LoadError`."""
        load = self._library.function(f"{self.name}_load_weights", "load_weights")
        code = load(os.fsencode(path))
        if code:
            raise LoadError(f"the weights {os.fspath(path)!r} can't be used: {self._text(code)}")

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<Module {self.name}: ({inputs}) -> ({outputs})>"

    def _text(self, code: int) -> str:
        return str(self._error_text(code).decode())

    def run(self, inputs: Mapping[str, Any],
            outputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Computes the outputs by name: as new arrays, or in the memory of those in `outputs`.

        `outputs` holds numpy arrays, or what speaks DLPack, of the output's dtype and shape,
        C-contiguous, writable, and apart from the inputs and from each other; it may leave outputs
        out. Raises `InputError` for what does not fit.
        """
        arrays = self._inputs(inputs)
        results = self._results(outputs, arrays)
        self._call(_structures(arrays), _structures(results))
        return {info.name: result for info, result in zip(self.outputs, results)}

    def benchmark(self, inputs: Mapping[str, Any] | None = None, repeat: int | None = None,
                  seconds: float | None = None) -> BenchmarkResult:
        """The time of a run: `p50`, `p99`, `minimum`, `mean` in seconds, and the number of `runs`.

        Runs on `inputs`, or on random ones from a fixed seed, again and again: `repeat` times, or
        for so many `seconds`, whichever ends first; without either, for a second. A few runs before
        are not counted. Checking inputs and making arrays for outputs is not counted either.
        """
        arrays = self._inputs(random_arrays(self.inputs) if inputs is None else inputs)
        return measure_runs(self.bind(arrays, self._results(None, arrays)), repeat, seconds)

    def _inputs(self, inputs: Mapping[str, Any]) -> list[np.ndarray]:
        """The inputs in order, fit to be read."""
        if not isinstance(inputs, Mapping):
            names = ", ".join(info.name for info in self.inputs)
            raise InputError(f"run takes a mapping from input names to arrays, not a "
                             f"{type(inputs).__name__}; the inputs are: {names}")
        check_names(inputs, self.inputs)
        return [info.accept(inputs[info.name]) for info in self.inputs]

    def _results(self, given: Mapping[str, Any] | None,
                 inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays to compute into, in order. Kernels take it that no two tensors overlap."""
        if not given:
            return [np.empty(info.shape, dtypes.to_numpy(info.dtype)) for info in self.outputs]
        check_known(given, self.outputs, "output")
        results: list[np.ndarray] = []
        for info in self.outputs:
            if info.name not in given:
                results.append(np.empty(info.shape, dtypes.to_numpy(info.dtype)))
                continue
            array = info.accept_result(given[info.name])
            if any(np.may_share_memory(array, other) for other in (*inputs, *results)):
                raise InputError(f"the array given for the output {info.name!r} shares memory with "
                                 "an input or another output; give it memory of its own")
            results.append(array)
        return results

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray],
             workspace: np.ndarray | None = None) -> Callable[[], None]:
        """A run that reads and writes these arrays, in the order of `self.inputs` and
        `self.outputs`. They must be what those say, aligned and C-contiguous: nothing is checked.
        It computes in `workspace`, at least `workspace_bytes` of `aligned_bytes`, if that is given,
        so that several models can have the same one in turn.
        """
        given, results = _structures(list(inputs)), _structures(list(outputs))
        keep = (*inputs, *outputs)

        def run(keep: tuple[np.ndarray, ...] = keep) -> None:
            if workspace is None:
                self._call(given, results)
            else:
                self._call_in(given, results, workspace)

        return run

    def __getitem__(self, name: str) -> Callable[..., Module]:
        """`module["default"](device)` is the module: how TVM's users reach a model in a library."""
        if name not in ("default", self.name):
            raise InputError(f"the library has no model {name!r}; it has {self.name!r}, which "
                             "'default' stands for too")
        return lambda device=None: self

    def _call(self, inputs: Any, outputs: Any) -> None:
        try:
            workspace = self._workspaces.pop()
        except IndexError:
            workspace = aligned_bytes(self.workspace_bytes)
        try:
            self._call_in(inputs, outputs, workspace)
        finally:
            self._workspaces.append(workspace)

    def _call_in(self, inputs: Any, outputs: Any, workspace: np.ndarray) -> None:
        code = self._run(inputs, outputs, workspace.ctypes.data, self._threads)
        if code == ErrorCode.OUT_OF_BOUNDS:
            raise RunError(model_sentence(self.metadata, workspace))
        if code == ErrorCode.RECURSION_TOO_DEEP:
            limit = self.metadata.get("recursion_limit")
            raise RunError(f"the run of {self.name} was stopped: {self._text(code)} ({limit}); "
                           f"compile it with a greater PassContext(config="
                           f"{{'relay.recursion_limit': ...}}) or make the calls tail calls")
        if code:
            raise InputError(f"the model refused to run: {self._text(code)}")


def _tensors(rows: list[dict[str, Any]]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(row["name"], tuple(row["shape"]), row["dtype"]) for row in rows)


def _structures(arrays: list[np.ndarray]) -> Any:
    """A C array of `minitvm_tensor`; shapes were checked, so they are left null."""
    structures = (Tensor * max(len(arrays), 1))()
    for structure, array in zip(structures, arrays):
        structure.data = array.ctypes.data
    return structures


def aligned_bytes(size: int) -> np.ndarray:
    """Uninitialised memory that starts at a multiple of 64."""
    raw = np.empty(size + WORKSPACE_ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % WORKSPACE_ALIGNMENT
    return raw[start:start + size]
