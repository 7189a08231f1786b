"""The thread pool of a compiled model, as LLVM IR over pthread.

    pool_enter(threads) -> owned     a run begins; it has the pool where `owned` is 1
    parallel_for(region, context, extent, limit)
    pool_leave()                     the run that has the pool ends
    pool_set_affinity(cpus, count) -> error code

A kernel calls `parallel_for` with a function `region(context, begin, end, thread)` that computes
the iterations [begin, end), on `limit` threads at most. In the run that has the pool threads share
them; in every other run, which may go on at the same time, the caller computes all of them, as
thread 0. The calling thread is number 0, the workers are 1, 2, ...

It has three parts: how threads wait (`pool_waiting`), how they share the iterations of a loop
(`pool_regions`), and who has the pool, with workers, affinity and `fork` (`pool_runs`).
"""

from __future__ import annotations

from functools import lru_cache

from minitvm.codegen import pool_regions, pool_runs, pool_waiting
from minitvm.codegen.machine import emit_object
from minitvm.runtime import abi
from minitvm.target import Target

ENTER = "minitvm.pool_enter"
LEAVE = "minitvm.pool_leave"
PARALLEL_FOR = "minitvm.parallel_for"
SET_AFFINITY = "minitvm.pool_set_affinity"
SYMBOLS = (ENTER, LEAVE, PARALLEL_FOR, SET_AFFINITY)

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def pool_to_llvm(target: Target) -> str:
    """The LLVM module of the pool."""
    declaration, pause = _PAUSE.get(target.isa, ("", ""))
    words = {
        "slots": abi.MAXIMUM_THREADS, "pause": pause, "spin": pool_waiting.SPIN_NANOSECONDS,
        "pieces": pool_regions.PIECES, "cpus": pool_runs.MAXIMUM_CPU,
        "bad_cpu": int(abi.ErrorCode.BAD_CPU),
    }
    parts = (pool_waiting, pool_regions, pool_runs)
    text = "".join([part.STATE for part in parts] + [part.FUNCTIONS for part in parts])
    for word, given in words.items():
        text = text.replace(f"@{word}@", str(given))
    return f'target triple = "{target.triple}"\n{declaration}\n{text}'


@lru_cache(maxsize=16)
def pool_object(target: Target) -> bytes:
    """The object file of the pool."""
    return emit_object(pool_to_llvm(target), target)
