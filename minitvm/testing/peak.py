"""The peak of one core, measured: a loop of independent fused multiply-adds on vectors.

A share of the roofline is worth stating only against the peak at that moment: clocks and
neighbours change. `peak_loop(target).gflops()` takes about two milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minitvm.codegen.jit import build_kernel
from minitvm.origin import origin
from minitvm.target import Target
from minitvm.tir import ir

CHAINS = 12
"""Independent accumulators: enough to hide the latency, few enough for 16 registers."""
STEPS = 100_000


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


def peak_loop(target: Target) -> PeakLoop:
    """The loop for a target: acc[i] = acc[i] * acc[i] + acc[i] for `CHAINS` vectors."""
    lanes = target.lanes("float32")
    data = ir.buffer("data", (64 * CHAINS,))
    acc = ir.buffer("acc", (CHAINS * lanes,), scope="local")
    here = origin("peak")

    def at(buffer: ir.Buffer, chain: ir.Expr) -> tuple[ir.Expr]:
        return (ir.Ramp(chain * lanes, ir.Const(1), lanes),)

    def each(body: Callable[[ir.Var], ir.Stmt]) -> ir.Stmt:
        chain = ir.Var("chain")
        return ir.For(chain, ir.Const(0), ir.Const(CHAINS), "unrolled", body(chain), here)

    step = ir.Var("step")
    load = each(lambda c: ir.Store(acc, at(acc, c), ir.Load(data, at(data, c)), here))
    work = each(lambda c: ir.Store(acc, at(acc, c), _fma(ir.Load(acc, at(acc, c))), here))
    save = each(lambda c: ir.Store(data, at(data, c), ir.Load(acc, at(acc, c)), here))
    loop = ir.For(step, ir.Const(0), ir.Const(STEPS), "serial", work, here)
    func = ir.PrimFunc("peak_fma", (data,), ir.Allocate(acc, ir.seq(load, loop, save), here))
    return PeakLoop(build_kernel(func, target), 2.0 * CHAINS * lanes * STEPS)


def _fma(x: ir.Expr) -> ir.Expr:
    return x * x + x
