"""One network, its kernels with several choices of schedules -> the time of each kernel in a run.

`build_variant` compiles a fused graph with schedules, into a file. `time_variants` loads such files
into one process and runs them in turns, on the same inputs and in the same memory, with a clock
between the calls of kernels (`codegen.marks`). A turn is some runs, of which the least time of each
kernel counts, after one that fills the caches: so what a kernel finds there is what the network
leaves it.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from minitvm.codegen.jit import load_program
from minitvm.codegen.marks import MarkedProgram, mark_program
from minitvm.codegen.program import Program
from minitvm.driver import compile_fused
from minitvm.relay.ir import Module
from minitvm.runtime.module import aligned_bytes
from minitvm.runtime.tensor_info import random_arrays
from minitvm.target import Target
from minitvm.te.steps import Step

TURN_SECONDS = 0.02
"""How long the runs of a turn take together, if that is not more than `MOST_RUNS` runs."""
MOST_RUNS = 4
FEWEST_TURNS = 2


@dataclass(frozen=True, slots=True)
class Variant:
    """A network with schedules; without its weights, which variants share. `structures` are the
    hashes of kernels by name; `unfit` those whose schedules did not fit."""

    program: Program
    structures: Mapping[str, str]
    unfit: tuple[str, ...]


def build_variant(network: Path, schedules: Mapping[str, Sequence[Step]],
                  path: Path) -> dict[str, Any]:
    """Compiles the module and target in a file; writes the variant, and its weights beside it if
    they are not there yet."""
    module, target = read_network(network)
    made = compile_fused(module, target, dict(schedules).get)
    weights = weights_path(path, made.program)
    if not weights.exists():
        beside = weights.with_suffix(f".{path.stem}.new")
        with beside.open("wb") as stream:
            np.save(stream, made.program.weights)
        beside.replace(weights)
    program = replace(made.program, weights=np.zeros(0, np.uint8))
    path.write_bytes(pickle.dumps(Variant(program, made.structures, made.unfit)))
    return {"object": str(path)}


def write_network(module: Module, target: Target, path: Path) -> None:
    """Writes a fused module for `build_variant`."""
    path.write_bytes(pickle.dumps((module, target)))


def read_network(path: Path) -> tuple[Module, Target]:
    """What `write_network` wrote."""
    module, target = pickle.loads(path.read_bytes())
    return module, target


def weights_path(path: Path, program: Program) -> Path:
    """Where the weights of a variant are."""
    return path.parent / f"{program.weights_sha256[:32]}.npy"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A variant in this process. `places` has for each of `keys`, the structures of kernels that
    fit, the calls of these kernels."""

    marked: MarkedProgram
    record: np.ndarray
    run_marked: Callable[[], None]
    run_plain: Callable[[], None]
    keys: tuple[str, ...]
    places: tuple[np.ndarray, ...]

    def kernel_seconds(self) -> np.ndarray:
        """Runs once; what a call of each of `keys` takes, the mean of its calls."""
        self.record[:] = 0
        self.run_marked()
        nanoseconds, counts = self.marked.read(self.record)
        return np.array([1e-9 * max(nanoseconds[where].sum(), 1) / max(counts[where].sum(), 1)
                         for where in self.places])


def load_variants(paths: Sequence[Path], threads: int) -> list[Loaded]:
    """Loads variants, which then have weights, inputs, outputs and workspace in common."""
    variants: list[Variant] = [pickle.loads(path.read_bytes()) for path in paths]
    weights = _aligned(np.load(weights_path(paths[0], variants[0].program)))
    programs = [replace(variant.program, weights=weights) for variant in variants]
    inputs = random_arrays(programs[0].inputs)
    workspace = aligned_bytes(max(max(p.workspace_bytes for p in programs), 1))
    outputs: list[np.ndarray] = []
    loaded = []
    for variant, program in zip(variants, programs, strict=True):
        marked = mark_program(program, threads)
        plain, module = load_program(program, threads), load_program(marked.program, threads)
        given = [info.accept(inputs[info.name]) for info in plain.inputs]
        outputs = outputs or list(plain.run(inputs).values())
        record = marked.new_record()
        places: dict[str, list[int]] = {}
        for place, call in enumerate(marked.calls):
            key = variant.structures.get(call.callee)
            if key is not None and key not in variant.unfit:
                places.setdefault(key, []).append(place)
        loaded.append(Loaded(
            marked, record, module.bind(given, [*outputs, record], workspace),
            plain.bind(given, outputs, workspace), tuple(places),
            tuple(np.array(where) for where in places.values())))
    return loaded


def _aligned(array: np.ndarray) -> np.ndarray:
    copy = aligned_bytes(max(array.nbytes, 1))
    copy[:array.nbytes] = array
    return copy


def time_variants(paths: Sequence[Path], threads: int, turns: int, first: int, plain: bool,
                  most_seconds: float) -> dict[str, Any]:
    """Runs variants in turns, that of place `first` at first; for each variant the seconds of its
    kernels, turn by turn, by their structures, and of whole runs. These are of programs without
    clocks where `plain`. After `most_seconds` no further turn begins."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    order = [*range(first % len(paths), len(paths)), *range(first % len(paths))]
    placed = dict(zip(order, load_variants([paths[place] for place in order], threads),
                      strict=True))
    loaded = [placed[place] for place in range(len(paths))]
    once = min(_timed(variant.run_plain, clock) for variant in loaded for _ in range(2))
    count = max(1, min(MOST_RUNS, round(TURN_SECONDS / max(once, 1e-6))))
    kernels: list[list[np.ndarray]] = [[] for _ in loaded]
    runs: list[list[float]] = [[] for _ in loaded]
    end = time.monotonic() + most_seconds
    for turn in range(turns):
        if turn >= FEWEST_TURNS and time.monotonic() > end:
            break
        for step in range(len(loaded)):
            place = order[(turn + step) % len(order)]
            variant = loaded[place]
            variant.kernel_seconds()
            found, whole = [], []
            for _ in range(count):
                start = clock()
                found.append(variant.kernel_seconds())
                whole.append(clock() - start)
            kernels[place].append(np.min(found, axis=0))
            if plain:
                variant.run_plain()
                whole = [_timed(variant.run_plain, clock) for _ in range(count)]
            runs[place].append(round(min(whole), 10))
    return {"kernels": [
        {key: [round(float(turn[i]), 10) for turn in rows] for i, key in enumerate(variant.keys)}
        for variant, rows in zip(loaded, kernels, strict=True)], "runs": runs}


def _timed(run: Callable[[], None], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start
