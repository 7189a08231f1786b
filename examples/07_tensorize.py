"""A product of bytes by the instructions that CPUs have for it, chosen by the target.

    python examples/07_tensorize.py

uint8 times int8, added up in int32: the inner product of quantized networks. One schedule serves
all machines: `intrinsics.dot_bytes` stands for its inner loops, and the target decides whether that
is `vpdpbusd`, `usdot` or a loop. What the intrinsic may stand for is matched, not trusted.
"""

from __future__ import annotations

import time

import numpy as np

import minitvm
from minitvm import te
from minitvm.errors import ScheduleError
from minitvm.te import intrinsics
from minitvm.testing.assembly import innermost_loops
from minitvm.tir import ir

M, N, K = 240, 512, 1024
ROWS, LANES, GROUP = 6, 16, 4
MACHINES = {
    "AVX512-VNNI": "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake",
    "AVX-VNNI": "llvm -mtriple=x86_64-linux-gnu -mcpu=alderlake",
    "AVX2, a loop": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3",
    "ARM with i8mm": "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
}

A = te.placeholder((M, K), "uint8", name="A")
W = te.placeholder((N // LANES, K // GROUP, LANES * GROUP), "int8", name="W")
"""The weights, packed: for each block of columns and each group of rows, a vector's worth."""


def product() -> te.Tensor:
    """C = A x W, in plain words."""
    k = te.reduce_axis((0, K), name="k")

    def element(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        weight = W[j // LANES, k.var // GROUP, j % LANES * GROUP + k.var % GROUP]
        return te.sum(ir.cast(A[i, k], "int32") * ir.cast(weight, "int32"), axis=k)

    return te.compute((M, N), element, name="C")


def scheduled(C: te.Tensor, intrin: te.TensorIntrin | None) -> te.Schedule:
    """Tiles of ROWS x LANES sums in registers; a group of K at a time."""
    s = te.create_schedule(C)
    tile = s.cache_write(C, "local")
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, ROWS, LANES)
    s[C].reorder(jo, io, ii, ji)  # a block of columns of W stays in the cache
    s[C].vectorize(ji)
    s[tile].compute_at(s[C], io)
    (k,), (row, lane) = tile.op.reduce_axis, tile.op.axis
    outer, inner = s[tile].split(k, factor=GROUP)
    if intrin is not None:
        s[tile].reorder(outer, row, lane, inner)
        s[tile].tensorize(row, intrin)
    else:
        s[tile].reorder(outer, inner, row, lane)
        s[tile].unroll(row)
        s[tile].vectorize(lane)
    return s


def main() -> None:
    C, dot = product(), intrinsics.dot_bytes(ROWS, LANES)
    for name, target in MACHINES.items():
        code = minitvm.build(scheduled(C, dot), [A, W, C], target).get_source("asm")
        sums = [line for loop in innermost_loops(code) for line in loop.instructions
                if "vpdp" in line or "dot" in line]
        print(f"{name:15}", sums[0] if sums else "no such instruction")

    random = np.random.default_rng(0)
    a = random.integers(0, 256, A.extents()).astype("uint8")
    w = random.integers(-128, 128, W.extents()).astype("int8")
    plain = w.reshape(N // LANES, K // GROUP, LANES, GROUP).transpose(1, 3, 0, 2).reshape(K, N)
    for name, intrin in (("loops", None), ("tensorized", dot)):
        f, c = minitvm.build(scheduled(C, intrin), [A, W, C]), np.zeros((M, N), "int32")
        seconds = []
        for _ in range(20):
            start = time.perf_counter()
            f(a, w, c)
            seconds.append(time.perf_counter() - start)
        np.testing.assert_array_equal(c, a.astype("int32") @ plain.astype("int32"))
        print(f"{name} on this machine: {2 * M * N * K / min(seconds) / 1e9:.0f} Gop/s, exact")

    try:
        scheduled(C, intrinsics.dot_bytes(ROWS, LANES, "int8", "int8"))
    except ScheduleError as error:
        print("\nrefused:", str(error).splitlines()[0])


if __name__ == "__main__":
    main()
