"""A compiled program, run with a clock -> where its time goes: by kernel, and by ONNX node.

    profile = module.profile({"input": image})
    print(profile)                      the slowest kernels
    profile.nodes_table(), profile.json()

The program is compiled once more, with marks between its calls (`codegen.marks`): all of it runs
as it always does, and the times of the calls add up to the run. On one thread times are processor
time of the thread, so that others on the machine don't count; on several they are what passes, so
that waiting for each other does. Plain and marked runs take turns; of each kind the faster half is
used, and what is shown is its mean: means add up. Operations and bytes are counted from the tir
(`tir.work`).

The roofline: a kernel takes at least as long as its operations at the peak of this core, and as
its bytes at the rate at which this core reads as many bytes over and over, from the caches they fit
into. Both peaks are measured between the runs (`peak`); those of several threads are taken to be so
many times as high, as if they had cores of their own. The greater of the two times, divided by
the measured one, is the share of the roofline; it can exceed 1 where the kernel before left data in
a nearer cache, or where the machine's speed changes meanwhile.
Source: Williams, Waterman, Patterson, "Roofline", CACM 2009.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from minitvm.codegen.jit import load_program
from minitvm.codegen.marks import MarkedProgram, mark_program
from minitvm.codegen.program import Program
from minitvm.errors import OptionError
from minitvm.peak import PeakLoop, ReadLoop, peak_loop, read_loop
from minitvm.runtime.module import Module
from minitvm.runtime.tensor_info import random_arrays
from minitvm.runtime.timing import WARM_UP
from minitvm.text import columns
from minitvm.tir.work import Work, count_work

REPEAT = 50
"""How many runs of each kind, unless it is told."""
PEAK_ROUNDS = 5
"""How often the peak is measured in between."""

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""A header, and rows."""


@dataclass(frozen=True, slots=True)
class Row:
    """What some calls of kernels did in a run, together: time, work, and the least time that the
    roofline allows. `nodes` are the ONNX nodes they come from; `exact` as for `tir.work.Work`."""

    name: str
    kernels: tuple[str, ...]
    nodes: tuple[str, ...]
    calls: int
    seconds: float
    flops: int
    bytes_read: int
    bytes_written: int
    exact: bool
    compute_seconds: float
    memory_seconds: float
    roofline_seconds: float

    @property
    def gflops(self) -> float:
        """10^9 floating-point operations per second."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gigabytes(self) -> float:
        """10^9 bytes per second, read and written."""
        moved = self.bytes_read + self.bytes_written
        return moved / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def roofline(self) -> float:
        """The share of the roofline, from 0 to 1."""
        return self.roofline_seconds / self.seconds if self.seconds else 0.0

    @property
    def bound(self) -> str:
        """What the roofline is made of here."""
        return "compute" if self.compute_seconds >= self.memory_seconds else "memory"


@dataclass(frozen=True)
class Profile:
    """Where the time of a run goes. `calls` has a row for each call of a kernel, in order;
    `run_seconds` is the time of a run without marks (on one thread: processor time), `wall_seconds`
    the median of what passes meanwhile, which is more where the processor is shared. `peak_gflops`
    is the peak of one core."""

    name: str
    target: str
    threads: int
    repeat: int
    run_seconds: float
    wall_seconds: float
    peak_gflops: float
    calls: tuple[Row, ...]

    @property
    def kernel_seconds(self) -> float:
        """All calls together."""
        return sum(row.seconds for row in self.calls)

    @property
    def coverage(self) -> float:
        """The kernels' share of the run: 1 where they account for all of it."""
        return self.kernel_seconds / self.run_seconds

    @cached_property
    def kernels(self) -> tuple[Row, ...]:
        """A row for each kernel, the slowest first."""
        return _grouped(self.calls, lambda row: row.kernels[0])

    @cached_property
    def nodes(self) -> tuple[Row, ...]:
        """A row for each set of ONNX nodes that became one kernel, the slowest first. What is fused
        is computed at once: its time is not divided among the nodes."""
        return _grouped(self.calls, lambda row: ", ".join(row.nodes))

    def total(self) -> Row:
        """All calls as one row."""
        return _joined("all kernels", self.calls)

    def kernels_table(self, most: int | None = None) -> Table:
        """The table by kernel, of the `most` slowest."""
        return self._table("kernel", self.kernels, most)

    def nodes_table(self, most: int | None = None) -> Table:
        """The table by ONNX node, of the `most` slowest."""
        return self._table("nodes", self.nodes, most)

    def calls_table(self) -> Table:
        """The table of all calls, in order."""
        return self._table("call", self.calls, None)

    def _table(self, title: str, rows: Sequence[Row], most: int | None) -> Table:
        header = (title, "calls", "ms", "share", "GFLOP", "GFLOP/s", "MB", "GB/s", "roofline")
        shown = list(rows[:most])
        rest = rows[len(shown):]
        if rest:
            shown.append(_joined(f"{len(rest)} more", rest))
        return header, [self._cells(row) for row in (*shown, self.total())]

    def _cells(self, row: Row) -> tuple[str, ...]:
        moved = row.bytes_read + row.bytes_written
        name = row.name if len(row.name) <= 48 else row.name[:45] + "..."
        return (name, str(row.calls), f"{1e3 * row.seconds:.3f}",
                f"{row.seconds / self.kernel_seconds:.1%}" if self.kernel_seconds else "",
                f"{row.flops / 1e9:.4f}" if row.exact else f"<={row.flops / 1e9:.4f}",
                f"{row.gflops:.1f}", f"{moved / 1e6:.2f}", f"{row.gigabytes:.1f}",
                f"{row.roofline:.0%} {row.bound}")

    def summary(self) -> str:
        """The totals, in a line."""
        how = "of processor time" if self.threads == 1 else f"on {self.threads} threads"
        return (f"run {1e3 * self.run_seconds:.3f} ms {how}, {self.repeat} runs; "
                f"kernels {1e3 * self.kernel_seconds:.3f} ms, {self.coverage:.1%} of it; peak of "
                f"this core {self.peak_gflops:.0f} GFLOP/s")

    def __str__(self) -> str:
        header, rows = self.kernels_table(20)
        return f"{self.summary()}\n{columns([header, *rows], range(1, len(header)))}"

    def data(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "name": self.name, "target": self.target, "threads": self.threads,
            "repeat": self.repeat, "run_seconds": self.run_seconds,
            "wall_seconds": self.wall_seconds, "kernel_seconds": self.kernel_seconds,
            "coverage": self.coverage, "peak_gflops": self.peak_gflops,
            **{key: [_data(row) for row in rows] for key, rows in
               (("calls", self.calls), ("kernels", self.kernels), ("nodes", self.nodes))},
        }

    def json(self) -> str:
        """All of it as JSON."""
        return json.dumps(self.data(), indent=1)


def profile_program(program: Program, inputs: Mapping[str, Any] | None = None,
                    repeat: int = REPEAT, threads: int = 1) -> Profile:
    """Runs `program` on `inputs` (random ones if None) `repeat` times plain and `repeat` times with
    marks, in turn, on so many threads.

    Raises `OptionError`, `InputError`, and `TargetError` where the program can't run here.
    """
    if repeat < 1:
        raise OptionError(f"repeat is {repeat}; a profile takes at least one run: give 1 or more")
    plain = load_program(program, threads)
    marked = mark_program(program, threads)
    given = random_arrays(plain.inputs) if inputs is None else inputs
    peak, read = peak_loop(program.target), read_loop(program.target)
    times = _measure(marked, plain, given, repeat, peak)
    worked = times.plain if threads == 1 else np.array(times.wall)
    works = {kernel.name: count_work(kernel.func) for kernel in program.kernels
             if any(call.callee == kernel.name for call in marked.calls)}
    means = _faster_half(times.nanoseconds, times.nanoseconds.sum(axis=1)).mean(axis=0) / 1e9
    run = float(_faster_half(worked, worked).mean())
    gflops = float(np.median(times.gflops))
    rows = [_row(call.callee, call.origin.names, int(count), float(seconds), works[call.callee],
                 gflops, read, threads)
            for call, seconds, count in zip(marked.calls, means, times.counts, strict=True)]
    return Profile(program.name, str(program.target), threads, repeat, run,
                   float(np.median(times.wall)), gflops, tuple(row for row in rows if row.calls))


def _faster_half(values: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """The values of the runs that took least."""
    return np.asarray(values[np.argsort(totals, kind="stable")[:(len(totals) + 1) // 2]])


@dataclass(frozen=True, slots=True)
class _Times:
    """Nanoseconds of each call in each marked run, counts; processor time and time of plain runs,
    in seconds; the peak."""

    nanoseconds: np.ndarray
    counts: np.ndarray
    plain: np.ndarray
    wall: list[float]
    gflops: list[float]


def _measure(marked: MarkedProgram, plain: Module, inputs: Mapping[str, Any], repeat: int,
             peak: PeakLoop) -> _Times:
    """Plain and marked runs in turn, after some that are not counted."""
    module = load_program(marked.program, plain.threads)
    record = marked.new_record()
    outputs = list(plain.run(inputs).values())  # which checks the inputs
    arrays = [info.accept(inputs[info.name]) for info in plain.inputs]
    run, run_marked = plain.bind(arrays, outputs), module.bind(arrays, [*outputs, record])
    seconds: list[float] = []
    wall: list[float] = []
    rows: list[np.ndarray] = []
    gflops: list[float] = []
    counts = np.zeros(len(marked.calls), np.int64)
    every = max(repeat // PEAK_ROUNDS, 1)
    for index in range(-WARM_UP, repeat):
        for marks in (index % 2 == 0, index % 2 == 1):
            start, began = time.perf_counter(), time.thread_time()
            (run_marked if marks else run)()
            worked, passed = time.thread_time() - began, time.perf_counter() - start
            if marks:
                nanoseconds, counts = marked.read(record)
                record[:] = 0
                rows.append(nanoseconds)
            else:
                seconds.append(worked)
                wall.append(passed)
        if index % every == 0:
            gflops.append(peak.gflops())
            run()  # the caches hold the model again
    rows, seconds, wall = rows[WARM_UP:], seconds[WARM_UP:], wall[WARM_UP:]
    return _Times(np.array(rows), counts, np.array(seconds), wall, gflops)


def _row(kernel: str, nodes: tuple[str, ...], calls: int, seconds: float, work: Work,
         peak_gflops: float, read: ReadLoop, threads: int) -> Row:
    compute = calls * work.flops / (threads * peak_gflops) / 1e9
    moved = work.bytes_moved
    memory = calls * moved / (threads * read.gigabytes(moved)) / 1e9 if moved else 0.0
    return Row(kernel, (kernel,), nodes, calls, seconds, calls * work.flops,
               calls * work.bytes_read, calls * work.bytes_written, work.exact, compute, memory,
               max(compute, memory))


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> tuple[Row, ...]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    joined = (_joined(name, group) for name, group in groups.items())
    return tuple(sorted(joined, key=lambda row: -row.seconds))


def _joined(name: str, rows: Sequence[Row]) -> Row:
    return Row(
        name, tuple(dict.fromkeys(kernel for row in rows for kernel in row.kernels)),
        tuple(dict.fromkeys(node for row in rows for node in row.nodes)),
        sum(row.calls for row in rows), sum(row.seconds for row in rows),
        sum(row.flops for row in rows), sum(row.bytes_read for row in rows),
        sum(row.bytes_written for row in rows), all(row.exact for row in rows),
        sum(row.compute_seconds for row in rows), sum(row.memory_seconds for row in rows),
        sum(row.roofline_seconds for row in rows))


def _data(row: Row) -> dict[str, Any]:
    return {**asdict(row), "gflops_per_second": row.gflops,
            "gigabytes_per_second": row.gigabytes, "roofline": row.roofline, "bound": row.bound}
