"""A model, timed against other engines on the same inputs: how long, how different, how large.

    report = bench("model.onnx", against=["onnxruntime"], threads=[1])

Engines take turns: in every round each runs a few times, in an order that goes round, because a
shared machine drifts. What is compared is the ratio within a round; its median over all rounds is
`by_round`. minitvm runs from the exported library, as it would be deployed. Each engine gets
arrays of numpy and gives new ones, and that is part of the time.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import minitvm
from minitvm.errors import OptionError, RunError
from minitvm.peak import peak_loop
from minitvm.runtime.loader import load
from minitvm.runtime.tensor_info import random_arrays
from minitvm.runtime.timing import WARM_UP, BenchmarkResult

if TYPE_CHECKING:
    from minitvm.driver import CompiledModule

OURS = "minitvm"
ROUNDS = 30
ROUND_SECONDS = 0.02
"""How long each engine runs in a round, about."""
MOST_CALLS = 1000

Source = str | bytes
"""An ONNX model: its path, or what is in the file."""
Arrays = Mapping[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]
"""One run on inputs that were given before; the outputs in the model's order."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Engine:
    """Something that runs the model, ready to go; `load_seconds` is what it took to get there."""

    name: str
    run: Run
    load_seconds: float


@dataclass(frozen=True, slots=True)
class Rounds:
    """The seconds of each call, `times[engine][round]`, and the peak of each round."""

    times: Mapping[str, Sequence[Sequence[float]]]
    peak_gflops: Sequence[float]

    def result(self, name: str) -> BenchmarkResult:
        """All calls of an engine."""
        return BenchmarkResult(tuple(second for row in self.times[name] for second in row))

    def ratio_by_round(self, ours: str, theirs: str) -> float:
        """The median over the rounds of `ours` / `theirs`."""
        pairs = zip(self.times[ours], self.times[theirs], strict=True)
        return float(np.median([np.mean(mine) / np.mean(other) for mine, other in pairs]))


def measure_rounds(engines: Sequence[Engine], rounds: int, calls: int, peak: Callable[[], float],
                   progress: Progress) -> Rounds:
    """Runs the engines in turn, each `calls` times a round."""
    for engine in engines:
        for _ in range(WARM_UP):
            engine.run()
    times: dict[str, list[list[float]]] = {engine.name: [] for engine in engines}
    peaks = []
    clock = time.perf_counter
    for index in range(rounds):
        progress("measuring", index, rounds)
        first = index % len(engines)
        for engine in (*engines[first:], *engines[:first]):
            row = []
            for _ in range(calls):
                start = clock()
                engine.run()
                row.append(clock() - start)
            times[engine.name].append(row)
        peaks.append(peak())
    progress("measuring", rounds, rounds)
    return Rounds(times, peaks)


# --- engines ------------------------------------------------------------------------------------


def _minitvm(library: Path, inputs: Arrays, threads: int) -> Engine:
    start = time.perf_counter()
    module = load(library, threads)
    module.run(inputs)
    seconds = time.perf_counter() - start
    return Engine(OURS, lambda: list(module.run(inputs).values()), seconds)


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


PEERS: dict[str, Callable[[Source, Arrays, int], Engine]] = {
    "onnxruntime": _onnxruntime, "openvino": _openvino,
}
"""The engines to compare with, by the name of their package."""


def installed_peers() -> list[str]:
    """Those of `PEERS` that are installed."""
    return [name for name in PEERS if importlib.util.find_spec(name) is not None]


def check_peers(names: Sequence[str]) -> None:
    """Raises `OptionError` for unknown engines and for those that are not installed."""
    for name in names:
        if name not in PEERS:
            raise OptionError(f"there is no engine {name!r} to compare with; there are "
                              f"{', '.join(PEERS)}")
        if name not in installed_peers():
            raise OptionError(f"{name} is not installed; install it by: pip install {name}")


def load_engine(name: str, source: str, inputs: Arrays, threads: int) -> Engine:
    """An engine by its name: minitvm, which takes a library, or one of `PEERS`, which take a model.

    Raises `MinitvmError` if it is not there or can't run the model.
    """
    if name == OURS:
        return _minitvm(Path(source), inputs, threads)
    check_peers([name])
    return _peer(name, source, inputs, threads)


def _peer(name: str, model: Source, inputs: Arrays, threads: int) -> Engine:
    try:
        return PEERS[name](model, inputs, threads)
    except Exception as error:  # of what kind it is depends on the package
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise RunError(f"{name} can't run the model: {line}; leave it out of the comparison"
                       ) from error


# --- a whole benchmark --------------------------------------------------------------------------


def bench(model: str | PathLike[str] | bytes, shapes: Mapping[str, Sequence[int]] | None = None, *,
          against: Sequence[str] = (), threads: Sequence[int] = (1,), rounds: int = ROUNDS,
          inputs: Callable[[CompiledModule], Arrays] | None = None,
          progress: Progress = lambda step, done, total: None
          ) -> tuple[dict[str, Any], CompiledModule]:
    """Compiles and times the ONNX model; gives the report as plain data, and the compiled model.

    `inputs` makes the arrays to run on; by default they are random, from a fixed seed. Each number
    of `threads` is measured by itself. Raises `MinitvmError`.
    """
    check_peers(against)
    if rounds < 1 or not threads:
        raise OptionError(f"{rounds} rounds for threads {list(threads)} measure nothing; give at "
                          "least one round and one number of threads")
    source = model if isinstance(model, bytes) else str(model)
    start = time.perf_counter()
    compiled = minitvm.compile(model, shapes, progress=progress)
    given = random_arrays(compiled.program.inputs) if inputs is None else inputs(compiled)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "model.so"
        compiled.export(library)
        seconds = time.perf_counter() - start
        size = library.stat().st_size
        peak = peak_loop(compiled.target).gflops
        groups: list[dict[str, Any]] = []
        peaks: list[float] = []
        for count in threads:
            engines = [_minitvm(library, given, count),
                       *(_peer(name, source, given, count) for name in against)]
            measured = measure_rounds(engines, rounds, _calls(engines[0]), peak, progress)
            groups.append({"threads": count, "engines": _rows(engines, measured)})
            peaks += measured.peak_gflops
    report = {
        "model": compiled.program.name, "target": str(compiled.target), "rounds": rounds,
        "artifact": {"compile_seconds": seconds, "size_bytes": size,
                     "kernels": len(compiled.kernels),
                     "kernels_from_cache": compiled.cache_hits,
                     "workspace_bytes": compiled.program.workspace_bytes,
                     "weights_bytes": compiled.program.weights.nbytes},
        "peak_gflops": float(np.median(peaks)), "threads": groups,
    }
    return report, compiled


def _calls(engine: Engine) -> int:
    """How many calls take about `ROUND_SECONDS`."""
    start = time.perf_counter()
    engine.run()
    seconds = max(time.perf_counter() - start, 1e-9)
    return min(max(math.ceil(ROUND_SECONDS / seconds), 1), MOST_CALLS)


def _rows(engines: Sequence[Engine], rounds: Rounds) -> list[dict[str, Any]]:
    """For each engine what it took, and what it takes minitvm as a share of that."""
    ours, expected = rounds.result(OURS), engines[0].run()
    rows = []
    for engine in engines:
        found = rounds.result(engine.name)
        rows.append({
            "engine": engine.name, "load_seconds": engine.load_seconds,
            "milliseconds": found.milliseconds(),
            "ratio": {"by_round": rounds.ratio_by_round(OURS, engine.name),
                      "p50": ours.p50 / found.p50, "min": ours.minimum / found.minimum},
            "difference": largest_difference(expected, engine.run()),
            "round_milliseconds": [1e3 * float(np.mean(row)) for row in rounds.times[engine.name]],
        })
    return rows


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
