"""Engines that run one ONNX model, timed in turn on the same inputs.

    report, compiled = bench("model.onnx", against=["onnxruntime"], threads=[1, 2])

`engines` has what each engine does with a model, `workers` the processes that they run in, and
`serve` what those do; `rounds` lets them take turns and makes figures of their times, `compare` is
a whole benchmark of one model.
"""

from minitvm.bench.compare import bench
from minitvm.bench.engines import (
    OURS,
    PEERS,
    TUNED,
    Peer,
    check_peers,
    installed_peers,
    largest_difference,
)
from minitvm.bench.rounds import ROUNDS, Measured, calls_for, measure, summary
from minitvm.bench.workers import PEAK, Worker, WorkerError

__all__ = [
    "OURS", "PEAK", "PEERS", "ROUNDS", "TUNED", "Measured", "Peer", "Worker", "WorkerError",
    "bench", "calls_for", "check_peers", "installed_peers", "largest_difference", "measure",
    "summary",
]  # fmt: skip
