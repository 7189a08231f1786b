"""One candidate: nested tir -> an object file, and an object file -> times.

`build` is tir, LLVM and nothing else. `run` loads the object, calls it on the task's inputs, and
looks at what it wrote: outputs lie between guards, and must be what the reference says, before any
time counts. Integers must be equal; floats must be within `TOLERANCE` of the largest value, which
small integers as inputs make far less than one term of a sum.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minitvm.autotune.measure.isolate import failure
from minitvm.codegen.jit import BoundCall, load_kernel, pool_threads
from minitvm.codegen.program import compile_kernel
from minitvm.runtime.module import aligned_bytes
from minitvm.target import Target
from minitvm.tir.passes import lower as lower_tir
from minitvm.tir.text import parse_func

TOLERANCE = 1e-4
"""The greatest difference of a float, as a share of the largest value of the reference."""
GUARD_BYTES = 4096
GUARD = 0xA5
"""Around each output, and what fills it."""
FLUSHED_BYTES = 1 << 26
"""What is read and written to have no argument in a cache."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How a kernel is timed: `repeat` means over as many calls as take `min_repeat_ms`. On one
    thread that is processor time, so that others on the machine count little. With `cache` "cold"
    each call is timed by itself, after the caches were filled with other data. A
    kernel that takes longer than `cutoff_seconds` is timed once; after `most_seconds` no further
    repetition begins."""

    repeat: int = 8
    min_repeat_ms: float = 3.0
    threads: int = 1
    cache: str = "warm"
    cutoff_seconds: float = float("inf")
    most_seconds: float = 6.0


def build(text: str, target: Target, path: Path) -> dict[str, Any]:
    """Compiles nested tir; writes the object file, gives the tir that it was made of."""
    kernel = compile_kernel(lower_tir(parse_func(text)), target)
    path.write_bytes(kernel.object)
    return {"text": kernel.text, "object": str(path)}


@dataclass(frozen=True, slots=True)
class Prepared:
    """The arrays of a task. Without `expected`, what is computed is given back instead of checked;
    `path` is where to."""

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    expected: tuple[np.ndarray, ...] | None


def prepare(request: Mapping[str, Any]) -> Prepared:
    """Reads the arrays of a task."""
    with np.load(request["arrays"], allow_pickle=False) as data:
        inputs = tuple(_aligned(data[f"input{i}"]) for i in range(request["inputs"]))
        outputs = tuple((tuple(shape), str(dtype)) for shape, dtype in request["outputs"])
        expected = None
        if request["expected"]:
            expected = tuple(data[f"output{i}"] for i in range(len(outputs)))
    return Prepared(inputs, outputs, expected)


def _aligned(array: np.ndarray) -> np.ndarray:
    copy = aligned_bytes(max(array.nbytes, 1))[:array.nbytes].view(array.dtype)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy


class Guarded:
    """An array between guards."""

    def __init__(self, shape: Sequence[int], dtype: str) -> None:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self._memory = aligned_bytes(size + 2 * GUARD_BYTES)
        self._memory[:] = GUARD
        self._end = GUARD_BYTES + size
        self.array = self._memory[GUARD_BYTES:self._end].view(dtype).reshape(shape)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was written to the guards."""
        before, after = self._memory[:GUARD_BYTES], self._memory[self._end:]
        return bool((before == GUARD).all() and (after == GUARD).all())


def run(objects: Sequence[Mapping[str, str]], prepared: Prepared, timing: Timing,
        results: str | None = None) -> dict[str, Any]:
    """Checks and times kernels; several take turns, one repetition at a time.

    Gives `seconds`, a list for each. Where `results` is a path, what the first computes is written
    there.
    """
    calls = []
    with pool_threads(timing.threads):
        for item in objects:
            kernel = load_kernel(parse_func(item["text"]), Path(item["object"]).read_bytes())
            outputs = [Guarded(shape, dtype) for shape, dtype in prepared.outputs]
            call = kernel.bind(*prepared.inputs, *(output.array for output in outputs))
            wrong = _check(call, outputs, prepared, results)
            if wrong:
                return wrong
            calls.append(call)
        return {"seconds": _time(calls, timing)}


def _check(call: BoundCall, outputs: Sequence[Guarded], prepared: Prepared,
           results: str | None) -> dict[str, Any]:
    """Calls once; a failure if the outputs are wrong, else nothing."""
    before = [array.copy() for array in prepared.inputs]
    call()
    if not all(output.is_whole for output in outputs):
        return failure("bounds", "it wrote beyond an output")
    if not all(a.tobytes() == b.tobytes() for a, b in zip(before, prepared.inputs, strict=True)):
        return failure("bounds", "it wrote to an input")
    if results is not None:
        np.savez(results, *(output.array for output in outputs))
    for index, expected in enumerate(prepared.expected or ()):
        difference = compare(outputs[index].array, expected)
        if difference:
            return failure("wrong", f"output {index}: {difference}")
    return {}


def compare(got: np.ndarray, expected: np.ndarray) -> str:
    """How an output differs; nothing where it is right."""
    got, expected = got.reshape(-1), expected.reshape(-1)
    if not np.issubdtype(expected.dtype, np.floating):
        wrong = got != expected
    else:
        with np.errstate(all="ignore"):
            finite = np.isfinite(expected)
            largest = float(np.abs(expected[finite]).max(initial=0.0))
            far = np.abs(got - expected) > TOLERANCE * largest
            same = (got == expected) | (np.isnan(got) & np.isnan(expected))
            wrong = ~same & (far | ~finite | ~np.isfinite(got))
    if not wrong.any():
        return ""
    where = int(np.argmax(wrong))
    return (f"{int(wrong.sum())} of {wrong.size} values are wrong; the first, at {where}, is "
            f"{got[where]}, not {expected[where]}")


def _time(calls: Sequence[BoundCall], timing: Timing) -> list[list[float]]:
    clock = time.thread_time if timing.threads == 1 else time.perf_counter
    flush = np.zeros(FLUSHED_BYTES // 8) if timing.cache == "cold" else None
    first = [_timed(call, 1, clock) for call in calls]
    counts = [1 if flush is not None else
              max(1, min(100_000, round(1e-3 * timing.min_repeat_ms / max(seconds, 1e-8))))
              for seconds in first]
    slow = min(first) > timing.cutoff_seconds
    seconds: list[list[float]] = [[] for _ in calls]
    end = time.monotonic() + timing.most_seconds
    for _ in range(1 if slow else timing.repeat):
        if seconds[0] and time.monotonic() > end:
            break
        for place, (call, count) in enumerate(zip(calls, counts, strict=True)):
            if flush is not None:
                flush += 1
            seconds[place].append(round(_timed(call, count, clock), 10))
    return seconds


def _timed(call: BoundCall, count: int, clock: Any) -> float:
    start = clock()
    for _ in range(count):
        call()
    return float(clock() - start) / count
