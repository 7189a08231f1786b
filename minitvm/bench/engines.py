"""What each engine does with a model: it loads it, and runs it on arrays of numpy.

    engine = load_engine("onnxruntime", "model.onnx", inputs, threads=2)
    outputs = engine.run()

minitvm runs from the exported library, as it would be deployed; the others read the ONNX file. Each
gets arrays of numpy and gives new ones, and that is part of the time.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minitvm.errors import OptionError, RunError
from minitvm.runtime.loader import load

OURS, TUNED = "minitvm", "minitvm tuned"
"""With its own schedules, and with those of a tuner."""

Source = str
"""The path of an ONNX model; of a library, for minitvm."""
Arrays = Mapping[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]
"""One run on inputs that were given before; the outputs in the model's order."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Something that runs the model, ready to go; `load_seconds` is what it took to get there."""

    name: str
    run: Run
    load_seconds: float


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine to compare with."""

    load: Callable[[Source, Arrays, int], Engine]
    packages: tuple[str, ...]
    """What it needs, by the names of the packages."""
    usual: bool = True
    """Whether it is compared with where none are named."""


def _minitvm(name: str, library: Path, inputs: Arrays, threads: int) -> Engine:
    start = time.perf_counter()
    module = load(library, threads)
    module.run(inputs)
    seconds = time.perf_counter() - start
    return Engine(name, lambda: list(module.run(inputs).values()), seconds)


def _onnxruntime(model: Source, inputs: Arrays, threads: int) -> Engine:
    import onnxruntime

    start = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    given = dict(inputs)
    session.run(None, given)
    seconds = time.perf_counter() - start
    return Engine(f"onnxruntime {onnxruntime.__version__}", lambda: list(session.run(None, given)),
                  seconds)


def _openvino(model: Source, inputs: Arrays, threads: int) -> Engine:
    import openvino

    start = time.perf_counter()
    core = openvino.Core()
    read = core.read_model(model)
    read.reshape({name: list(array.shape) for name, array in inputs.items()})
    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
              "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(read, "CPU", config).create_infer_request()
    given = dict(inputs)
    request.infer(given)
    seconds = time.perf_counter() - start
    version = openvino.__version__.split("-")[0]
    return Engine(f"openvino {version}",
                  lambda: [value.copy() for value in request.infer(given).values()], seconds)


def _torch(model: Source, inputs: Arrays, threads: int) -> Engine:
    return _torch_engine("torch", model, inputs, threads, lambda network: network)


def _torch_compiled(model: Source, inputs: Arrays, threads: int) -> Engine:
    import torch

    return _torch_engine("torch.compile", model, inputs, threads, torch.compile)


def _torch_engine(name: str, model: Source, inputs: Arrays, threads: int,
                  prepare: Callable[[Any], Any]) -> Engine:
    """PyTorch on the modules that onnx2torch makes of the model's nodes; its threads are set for
    all of the process."""
    import onnx
    import onnx2torch
    import torch

    start = time.perf_counter()
    torch.set_num_threads(threads)
    read = onnx.load(model)
    weights = {item.name for item in read.graph.initializer}
    given = [inputs[value.name] for value in read.graph.input if value.name not in weights]
    network = prepare(onnx2torch.convert(read).eval())

    def run() -> list[np.ndarray]:
        with torch.inference_mode():
            found = network(*map(torch.from_numpy, given))
        results = [found] if isinstance(found, torch.Tensor) else list(found)
        return [result.numpy() for result in results]

    run()
    seconds = time.perf_counter() - start
    return Engine(f"{name} {torch.__version__.split('+')[0]}", run, seconds)


PEERS: dict[str, Peer] = {
    "onnxruntime": Peer(_onnxruntime, ("onnxruntime",)),
    "openvino": Peer(_openvino, ("openvino",)),
    "torch": Peer(_torch, ("torch", "onnx2torch")),
    "torch.compile": Peer(_torch_compiled, ("torch", "onnx2torch"), usual=False),
}
"""The engines to compare with."""


def missing_packages(name: str) -> list[str]:
    """Which packages a peer needs that are not installed."""
    return [package for package in PEERS[name].packages
            if importlib.util.find_spec(package) is None]


def installed_peers() -> list[str]:
    """Those of `PEERS` that are installed."""
    return [name for name in PEERS if not missing_packages(name)]


def check_peers(names: Sequence[str]) -> None:
    """Raises `OptionError` for unknown engines and for those that are not installed."""
    for name in names:
        if name not in PEERS:
            raise OptionError(f"there is no engine {name!r} to compare with; there are "
                              f"{', '.join(PEERS)}")
        if missing := missing_packages(name):
            raise OptionError(f"{name} is not installed; install it by: "
                              f"pip install {' '.join(missing)}")


def load_engine(name: str, source: Source, inputs: Arrays, threads: int) -> Engine:
    """An engine by its name: minitvm, which takes a library, or one of `PEERS`, which take a model.

    Raises `MinitvmError` if it is not there or can't run the model.
    """
    if name in (OURS, TUNED):
        return _minitvm(name, Path(source), inputs, threads)
    check_peers([name])
    try:
        return PEERS[name].load(source, inputs, threads)
    except Exception as error:  # of what kind it is depends on the package
        line = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise RunError(f"{name} can't run the model: {line}; leave it out of the comparison"
                       ) from error


def largest_difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """max|a - b| / max|b|, the largest of all outputs; infinite where shapes or NaNs differ."""
    if len(ours) != len(theirs):
        return math.inf
    worst = 0.0
    for a, b in zip(ours, theirs):
        if a.shape != b.shape:
            return math.inf
        if not b.size or np.array_equal(a, b, equal_nan=True):
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        error = float(np.abs(a - b).max())
        scale = float(np.abs(b).max())
        worst = max(worst, error / scale if scale and np.isfinite(error) else math.inf)
    return worst
