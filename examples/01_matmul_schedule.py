"""A matrix product, from three loops to most of what the machine can do, a step at a time.

    python examples/01_matmul_schedule.py

What is computed stays the same; each step changes how. After every step the product is compiled,
compared with numpy's, and timed against the peak of one core, measured at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import minitvm
from minitvm import te
from minitvm.peak import peak_loop

SIZE = 480
ROWS, VECTORS = 6, 2
"""The register tile: 6 x 2 accumulators, 2 vectors of B and a broadcast value are 15 registers."""

TARGET = minitvm.Target.host()
LANES = TARGET.lanes("float32")
COLUMNS = VECTORS * LANES

A = te.placeholder((SIZE, SIZE), name="A")
B = te.placeholder((SIZE, SIZE), name="B")


def product(b_at) -> te.Tensor:
    """C = A B, where `b_at(k, j)` is an element of B."""
    k = te.reduce_axis((0, SIZE), "k")
    return te.compute((SIZE, SIZE), lambda i, j: te.sum(A[i, k] * b_at(k, j), axis=k), name="C")


def blocked(s: te.Schedule, out: te.Tensor, acc: te.Tensor) -> None:
    """Tiles of `out`, each computed as `acc` in registers: all of k for a tile, then a store."""
    io, jo, ii, ji = s[out].tile(*s[out].op.axis, ROWS, COLUMNS)
    s[out].reorder(jo, io, ii, ji)  # the panel of B that a column of tiles reads stays in cache
    jv, jl = s[out].split(ji, LANES)
    s[out].vectorize(jl)
    s[acc].compute_at(s[out], io)
    (i, j), (k,) = s[acc].op.axis, s[acc].op.reduce_axis
    jv, jl = s[acc].split(j, LANES)
    s[acc].reorder(k, i, jv, jl)
    s[acc].vectorize(jl)
    s[acc].unroll(jv)
    s[acc].unroll(i)


def steps() -> Iterator[tuple[str, te.Schedule, te.Tensor]]:
    """Each step by name: its schedule, and the tensor that it computes."""
    C = product(lambda k, j: B[k, j])
    yield "three loops, as written", te.create_schedule(C), C

    s = te.create_schedule(C)
    (i, j), (k,) = C.op.axis, C.op.reduce_axis
    s[C].reorder(i, k, j)
    s[C].vectorize(s[C].split(j, LANES)[1])
    yield "k outside of j, so that rows of B are read in order, by vectors", s, C

    s = te.create_schedule(C)
    blocked(s, C, s.cache_write(C, "local"))
    yield "a tile of C in registers", s, C

    panels = te.compute((SIZE // COLUMNS, SIZE, COLUMNS), lambda p, k, j: B[k, p * COLUMNS + j],
                        name="panels")
    C = product(lambda k, j: panels[j // COLUMNS, k, j % COLUMNS])
    s = te.create_schedule(C)
    s[panels].vectorize(s[panels].split(panels.op.axis[2], LANES)[1])
    blocked(s, C, s.cache_write(C, "local"))
    yield "B copied into panels that lie as they are read", s, C


def main() -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((SIZE, SIZE)).astype("float32") for _ in "ab")
    c, peak = minitvm.nd.empty((SIZE, SIZE)), peak_loop(TARGET)
    for number, (name, s, C) in enumerate(steps()):
        matmul = minitvm.build(s, [A, B, C], TARGET, name=f"matmul_{number}")
        matmul(a, b, c)
        minitvm.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
        seconds = matmul.time_evaluator(matmul.entry_name, number=2, repeat=3)(a, b, c).min
        speed, limit = 2e-9 * SIZE**3 / seconds, peak.gflops()
        print(f"{speed:7.1f} GFLOP/s, {speed / limit:4.0%} of the peak: {name}")
    print(f"\nThe last schedule, after {len(s.steps)} steps:\n\n{s.show()}")


if __name__ == "__main__":
    main()
