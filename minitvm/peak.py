"""The peak of one core, measured: how fast it computes, and how fast it reads memory.

    peak_loop(target).gflops()              a loop of independent fused multiply-adds on vectors
    read_loop(target).gigabytes(size)       a loop that reads so many bytes, over and over

A share of the roofline is worth stating only against the peak at that moment: clocks and
neighbours change. `gflops` takes some ten milliseconds, `gigabytes` a few.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from minitvm.codegen.jit import build_kernel
from minitvm.origin import origin
from minitvm.runtime.module import aligned_bytes
from minitvm.target import Target
from minitvm.tir import ir

HERE = origin("peak")
CHAINS = 12
"""Independent accumulators: enough to hide the latency, few enough for 16 registers."""
STEPS = 100_000
LEAST_READ_BYTES = 1 << 22
"""What a measurement of reading reads at least."""
MOST_READ_BYTES = 1 << 28
"""The largest memory that reading is measured on."""


@dataclass(frozen=True, slots=True)
class PeakLoop:
    """The loop, compiled."""

    run: Callable[..., None]
    flops: float

    def gflops(self) -> float:
        """10^9 floating-point operations per second, the best of five runs."""
        data = np.zeros(64 * CHAINS, np.float32)
        best = min(self._seconds(data) for _ in range(5))
        return self.flops / best / 1e9

    def _seconds(self, data: np.ndarray) -> float:
        start = time.perf_counter()
        self.run(data)
        return time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class ReadLoop:
    """The loop that reads, compiled; a pass reads a multiple of `block` floats."""

    run: Callable[..., None]
    block: int
    found: dict[int, float] = field(default_factory=dict)

    def gigabytes(self, size: int) -> float:
        """10^9 bytes per second, the best of five runs, on memory of `size` bytes, rounded up to a
        power of two: what stays in a cache is read from there. Each size is measured once."""
        rounded = min(max(1 << (size - 1).bit_length(), 1 << 12), MOST_READ_BYTES)
        if rounded not in self.found:
            self.found[rounded] = self._measure(rounded // 4 // self.block * self.block)
        return self.found[rounded]

    def _measure(self, count: int) -> float:
        data = aligned_bytes(4 * count).view(np.float32)
        data[:] = 1
        result = np.zeros(self.block, np.float32)
        passes = -(-LEAST_READ_BYTES // (4 * count))
        best = float("inf")
        for _ in range(6):  # the first fills the caches
            start = time.perf_counter()
            self.run(count, passes, data, result)
            best = min(best, time.perf_counter() - start)
        return 4 * count * passes / best / 1e9


def peak_loop(target: Target) -> PeakLoop:
    """The loop for a target: acc[i] = acc[i] * acc[i] + acc[i] for `CHAINS` vectors."""
    lanes = target.lanes("float32")
    data = ir.buffer("data", (64 * CHAINS,))
    acc = ir.buffer("acc", (CHAINS * lanes,), scope="local")

    def at(chain: ir.Expr) -> tuple[ir.Expr]:
        return (_vector(chain * lanes, lanes),)

    load = _each(lambda c: ir.Store(acc, at(c), ir.Load(data, at(c)), HERE))
    work = _each(lambda c: ir.Store(acc, at(c), _fma(ir.Load(acc, at(c))), HERE))
    save = _each(lambda c: ir.Store(data, at(c), ir.Load(acc, at(c)), HERE))
    loop = ir.For(ir.Var("step"), ir.Const(0), ir.Const(STEPS), "serial", work, HERE)
    func = ir.PrimFunc("peak_fma", (data,), ir.Allocate(acc, ir.seq(load, loop, save), HERE))
    return PeakLoop(build_kernel(func, target), 2.0 * CHAINS * lanes * STEPS)


def read_loop(target: Target) -> ReadLoop:
    """The loop for a target: acc[i] = acc[i] + data[...] for `CHAINS` vectors, all over `data`."""
    lanes = target.lanes("float32")
    block = CHAINS * lanes
    count, passes = ir.Var("count"), ir.Var("passes")
    data, result = ir.Buffer("data", (count,)), ir.buffer("result", (block,))
    acc = ir.buffer("acc", (block,), scope="local")
    turn, part = ir.Var("turn"), ir.Var("part")

    def at(chain: ir.Expr) -> tuple[ir.Expr]:
        return (_vector(chain * lanes, lanes),)

    def read(chain: ir.Var) -> ir.Expr:
        return ir.Load(data, (_vector(part * block + chain * lanes, lanes),))

    load = _each(lambda c: ir.Store(acc, at(c), ir.Load(result, at(c)), HERE))
    work = _each(lambda c: ir.Store(acc, at(c), ir.Load(acc, at(c)) + read(c), HERE))
    save = _each(lambda c: ir.Store(result, at(c), ir.Load(acc, at(c)), HERE))
    inner = ir.For(part, ir.Const(0), count // block, "serial", work, HERE)
    outer = ir.For(turn, ir.Const(0), passes, "serial", inner, HERE)
    func = ir.PrimFunc("peak_read", (count, passes, data, result),
                       ir.Allocate(acc, ir.seq(load, outer, save), HERE))
    return ReadLoop(build_kernel(func, target), block)


def _each(body: Callable[[ir.Var], ir.Stmt]) -> ir.Stmt:
    chain = ir.Var("chain")
    return ir.For(chain, ir.Const(0), ir.Const(CHAINS), "unrolled", body(chain), HERE)


def _vector(base: ir.Expr, lanes: int) -> ir.Expr:
    return base if lanes == 1 else ir.Ramp(base, ir.Const(1), lanes)


def _fma(x: ir.Expr) -> ir.Expr:
    return x * x + x
