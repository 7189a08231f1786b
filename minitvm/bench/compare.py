"""A model, timed against other engines on the same inputs: how long, how different, how large.

    report, compiled = bench("model.onnx", against=["onnxruntime"], threads=[1])

Engines take turns, each in a process of its own: in every round each runs a few times, in an order
that goes round, because a shared machine drifts. What is compared is the ratio within a round; its
median over all rounds is `by_round`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import minitvm
from minitvm.bench.engines import OURS, TUNED, Arrays, check_peers, largest_difference
from minitvm.bench.rounds import ROUNDS, Measured, calls_for, measure, summary
from minitvm.bench.workers import PEAK, Worker, WorkerError, Workers, load_all, save_arrays
from minitvm.errors import OptionError
from minitvm.runtime.tensor_info import random_arrays

if TYPE_CHECKING:
    from minitvm.driver import CompiledModule, FindSchedule

ROUND_SECONDS = 0.02
"""How long each engine runs in a round, about."""

Progress = Callable[[str, int, int], None]


def bench(model: str | PathLike[str] | bytes, shapes: Mapping[str, Sequence[int]] | None = None, *,
          against: Sequence[str] = (), threads: Sequence[int] = (1,), rounds: int = ROUNDS,
          schedules: Mapping[str, Sequence[Any]] | FindSchedule | None = None,
          inputs: Callable[[CompiledModule], Arrays] | None = None,
          progress: Progress = lambda step, done, total: None
          ) -> tuple[dict[str, Any], CompiledModule]:
    """Compiles and times the ONNX model; gives the report as plain data, and the compiled model.

    `inputs` makes the arrays to run on; by default they are random, from a fixed seed. Each number
    of `threads` is measured by itself. With `schedules`, as `minitvm.compile` takes them, what
    those make of the model is one more engine. Raises `MinitvmError`.
    """
    check_peers(against)
    if rounds < 1 or not threads:
        raise OptionError(f"{rounds} rounds for threads {list(threads)} measure nothing; give at "
                          "least one round and one number of threads")
    with tempfile.TemporaryDirectory() as name, Workers() as workers:
        folder = Path(name)
        start = time.perf_counter()
        default: Mapping[str, Sequence[Any]] | None = None if schedules is None else {}
        compiled = minitvm.compile(model, shapes, schedules=default, progress=progress)
        libraries = {OURS: folder / "model.so"}
        compiled.export(libraries[OURS])
        artifact = _artifact(compiled, time.perf_counter() - start, libraries[OURS])
        if schedules is not None:
            tuned = minitvm.compile(model, shapes, schedules=schedules, progress=progress)
            libraries[TUNED] = folder / "tuned.so"
            tuned.export(libraries[TUNED])
        given = random_arrays(compiled.program.inputs) if inputs is None else inputs(compiled)
        files = _Files(libraries, _model_file(model, folder), folder / "inputs.npz",
                       save_arrays(folder / "inputs.npz", given), folder / "outputs.npz")
        peak = workers.start(PEAK)
        groups: list[dict[str, Any]] = []
        peaks: list[float] = []
        for count in threads:
            engines = [workers.start(engine, count) for engine in (*libraries, *against)]
            rows, found = _measured(engines, files, peak, rounds, count, progress)
            groups.append({"threads": count, "engines": rows})
            peaks += found
            workers.close(engines)
    report = {
        "model": compiled.program.name, "target": str(compiled.target), "rounds": rounds,
        "artifact": artifact, "peak_gflops": float(np.median(peaks)), "threads": groups,
    }
    return report, compiled


@dataclass(frozen=True, slots=True)
class _Files:
    """What engines read and write."""

    libraries: Mapping[str, Path]
    model: Path
    inputs: Path
    input_names: Sequence[str]
    outputs: Path


def _model_file(model: str | PathLike[str] | bytes, folder: Path) -> Path:
    """Where the model is, after writing it to the folder if it is no file."""
    if not isinstance(model, bytes):
        return Path(model)
    (folder / "model.onnx").write_bytes(model)
    return folder / "model.onnx"


def _artifact(compiled: CompiledModule, seconds: float, library: Path) -> dict[str, Any]:
    """What compiling took and gave."""
    return {"compile_seconds": seconds, "size_bytes": library.stat().st_size,
            "kernels": len(compiled.kernels), "kernels_from_cache": compiled.cache_hits,
            "workspace_bytes": compiled.program.workspace_bytes,
            "weights_bytes": compiled.program.weights.nbytes}


def _measured(engines: Sequence[Worker], files: _Files, peak: Worker, rounds: int, threads: int,
              progress: Progress) -> tuple[list[dict[str, Any]], list[float]]:
    """A row for each engine, and the peaks of the rounds; raises `WorkerError` if one fails."""
    facts, failed = load_all(engines, files.libraries, files.model, files.inputs,
                             files.input_names)
    for reason in failed.values():
        raise WorkerError(reason)
    found = measure(engines, peak, calls_for(engines, ROUND_SECONDS), rounds,
                    lambda done: progress("measuring", done, rounds))
    progress("measuring", rounds, rounds)
    return _rows(engines, found, threads, facts, files.outputs), found.peaks


def _rows(engines: Sequence[Worker], measured: Measured, threads: int,
          facts: Mapping[str, Mapping[str, Any]], file: Path) -> list[dict[str, Any]]:
    """For each engine what it took, and what it takes minitvm as a share of that."""
    figures = summary(measured, 0.0, threads)["engines"]
    expected = engines[0].outputs(str(file))
    rows = []
    for worker in engines:
        found = figures[worker.engine]
        ratios = {key: found[key] for key in ("ratio", "tuned_ratio") if key in found}
        rows.append({
            "engine": worker.name, "milliseconds": found["milliseconds"], **ratios,
            **facts[worker.engine],
            "difference": largest_difference(expected, worker.outputs(str(file))),
            "round_milliseconds": [[1e3 * second for second in row]
                                   for row in measured.times[worker.engine]],
        })
    return rows
