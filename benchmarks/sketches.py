"""Sketches of a user's te programs against the schedules of our own operators.

    python benchmarks/sketches.py                            default points of the sketches
    python benchmarks/sketches.py --minutes 5 --log logs     the best of five minutes a program
    python benchmarks/sketches.py --programs plain --minutes 0.9       all cases in ten minutes
    python benchmarks/sketches.py --trials 200 --cases "matmul 512"

Every case is one computation, written several ways:

- `operator`: the kernel that our operator becomes, in the layouts that the compiler chose for it;
  weights are constants, packed when the model is compiled.
- `model`: all kernels of a model of that one operator, so with what changes the layout of its input
  and output. Convolutions are direct ones: Winograd's have a row of their own, `winograd`.
- `plain`: a te program as a user writes it, in NCHW or rows and columns, weights given as they are;
  what a sketch copies or packs, it does in each call.
- `packed`: a convolution whose data and weights the user keeps in blocks of channels, as the
  operator does.

`plain` is to be compared with `model`, and `packed` with `operator`: the table at the end does. All
are timed in turns in one process on one thread, in processor time; a time is the least of all
rounds.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minitvm import autotune, relay, te
from minitvm.autotune.task import Task, kernel_tasks
from minitvm.codegen.jit import BoundCall, build_kernel, pool_threads
from minitvm.driver import optimize
from minitvm.relay.ir import Function, Module
from minitvm.runtime.module import aligned_bytes
from minitvm.target import Target
from minitvm.te.tensor import Tensor
from minitvm.testing import te_workloads
from minitvm.tir.ir import PrimFunc
from minitvm.tir.passes import lower as lower_tir
from minitvm.transform import PassContext

HOST = Target.host()
LANES = HOST.lanes("float32")
SECONDS_A_TURN = 0.01

# --- our operators ------------------------------------------------------------------------------


def _weights(*shape: int) -> relay.Constant:
    return relay.const(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def dense_operator(n: int, k: int, m: int) -> Function:
    """A product whose second factor is constant."""
    x = relay.var("x", shape=(n, k))
    return relay.Function([x], relay.nn.dense(x, _weights(m, k)))


def convolution_operator(channels: int, filters: int, size: int, kernel: int = 3,
                         stride: int = 1) -> Function:
    """A convolution, its bias and relu."""
    x = relay.var("x", shape=(1, channels, size, size))
    conv = relay.nn.conv2d(x, _weights(filters, channels, kernel, kernel),
                           strides=(stride, stride), padding=(kernel // 2, kernel // 2))
    return relay.Function([x], relay.nn.relu(relay.nn.bias_add(conv, _weights(filters))))


Programs = dict[str, tuple[Callable[..., list[Tensor]], tuple[int, ...]]]
"""te programs by how they are written, with arguments."""


@dataclass(frozen=True, slots=True)
class Case:
    """A computation: its operations, our operator, and te programs."""

    flops: int
    operator: Callable[[], Function]
    programs: Programs


def _matmul_case(*sizes: int) -> Case:
    return Case(2 * int(np.prod(sizes)), lambda: dense_operator(*sizes),
                {"plain": (te_workloads.matmul, sizes)})


def _convolution_case(channels: int, filters: int, size: int, kernel: int = 3,
                      stride: int = 1) -> Case:
    sizes = (channels, filters, size, kernel, stride)
    programs: Programs = {"plain": (te_workloads.convolution, sizes)}
    if channels % LANES == filters % LANES == 0:
        programs["packed"] = (te_workloads.packed_convolution, (LANES, *sizes))
    width = (size - 1) // stride + 1
    return Case(2 * channels * filters * kernel**2 * width**2,
                lambda: convolution_operator(*sizes), programs)


CASES: dict[str, Case] = {
    "matmul 64x64x64": _matmul_case(64, 64, 64),
    "matmul 512x512x512": _matmul_case(512, 512, 512),
    "matmul 1024x1024x1024": _matmul_case(1024, 1024, 1024),
    "matmul 128x768x3072": _matmul_case(128, 768, 3072),
    "conv2d 64 channels 56x56": _convolution_case(64, 64, 56),
    "conv2d 128 channels 28x28": _convolution_case(128, 128, 28),
    "conv2d 256 channels 14x14": _convolution_case(256, 256, 14),
    "conv2d 3 to 32 channels 224x224 by steps of 2": _convolution_case(3, 32, 224, 3, 2),
    "conv2d 1x1 128 to 256 channels 28x28": _convolution_case(128, 256, 28, 1),
}

# --- measuring ----------------------------------------------------------------------------------


def operator_kernels(case: Case, *disabled: str) -> list[Task]:
    """The kernels of a model of the operator alone."""
    with PassContext(disabled_pass=list(disabled)):
        return kernel_tasks(optimize(Module({"main": case.operator()}), HOST), HOST)


def bound(task: Task, func: PrimFunc) -> BoundCall:
    """A call with arrays of its own, where cache lines begin."""
    generator = np.random.default_rng(0)
    arrays = []
    for info in task.params:
        size = 4 * int(np.prod(info.shape))
        array = aligned_bytes(size)[:size].view(np.float32).reshape(info.shape)
        generator.random(dtype=np.float32, out=array)
        arrays.append(array)
    return build_kernel(lower_tir(func), HOST).bind(*arrays)


def timed(calls: Sequence[BoundCall], rounds: int) -> list[float]:
    """The least seconds of each, in turns."""
    least = [_seconds(call, 1) for call in calls]
    counts = [max(1, round(SECONDS_A_TURN / max(seconds, 1e-8))) for seconds in least]
    for _ in range(rounds):
        least = [min(known, _seconds(call, count))
                 for known, call, count in zip(least, calls, counts, strict=True)]
    return least


def _seconds(call: BoundCall, count: int) -> float:
    start = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - start) / count


def tuned(task: Task, options: autotune.TuneOptions, log: Path | None) -> PrimFunc:
    """The best schedule of a sketch that is found."""
    policy = autotune.SketchPolicy(task)
    if log is None:
        schedule, tensors = policy.tune(options)
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with autotune.Log.open(log) as records:
            schedule, tensors = policy.tune(options, log=records)
    assert policy.report is not None
    row = policy.report.tasks[0]
    print(f"  {task.name}{task.workload['arguments']}: {row.trials} trials, "
          f"{row.before_seconds / row.after_seconds:.2f} times as fast as its default point; "
          f"failures: {row.failures or 'none'}", flush=True)
    return te.lower(schedule, list(tensors), name="sketch")


def variants(name: str, case: Case, options: autotune.TuneOptions | None,
             folder: Path | None, chosen: Sequence[str]) -> Iterator[tuple[str, list[BoundCall]]]:
    """What is compared: a name, and the calls that it is made of."""
    tasks = operator_kernels(case, "Winograd")
    largest = max(tasks, key=lambda task: task.work.flops)
    calls = {task.key: bound(task, task.default.func) for task in tasks}
    yield "operator", [calls[largest.key]]
    yield "model", list(calls.values())
    others = operator_kernels(case)
    if len(others) != len(tasks):
        yield "winograd", [bound(task, task.default.func) for task in others]
    for kind, (program, arguments) in case.programs.items():
        if kind not in chosen:
            continue
        task = autotune.SearchTask(program, arguments)
        yield f"{kind}, default point", [bound(task, task.default.func)]
        if options is not None:
            log = folder / f"{re.sub('[^a-z0-9]+', '-', name)}-{kind}.jsonl" if folder else None
            yield f"{kind}, tuned", [bound(task, tuned(task, options, log))]


def compare(name: str, case: Case, rounds: int, options: autotune.TuneOptions | None,
            folder: Path | None, chosen: Sequence[str]) -> dict[str, float]:
    """Prints the times of all ways to compute a case; gives them in seconds."""
    print(name, flush=True)
    found = list(variants(name, case, options, folder, chosen))
    calls = {id(call): call for _, made in found for call in made}
    with pool_threads(1):
        times = dict(zip(calls, timed(list(calls.values()), rounds), strict=True))
    seconds = {kind: sum(times[id(call)] for call in made) for kind, made in found}
    print(f"  {'':24}{'ms':>8}{'GFLOP/s':>9}{'of operator':>13}{'of model':>10}")
    for kind, value in seconds.items():
        print(f"  {kind:24}{1e3 * value:8.3f}{case.flops / value / 1e9:9.1f}"
              f"{100 * seconds['operator'] / value:12.0f}%{100 * seconds['model'] / value:9.0f}%",
              flush=True)
    return seconds


OURS = {"plain": "model", "packed": "operator"}
"""What of ours each kind of program is compared with."""


def summary(results: Mapping[str, Mapping[str, float]]) -> None:
    """Prints a line for each program: its share of the speed of our operator's direct schedule,
    and of what the compiler makes of the operator, Winograd's where it chooses that."""
    print(f"\n{'percent of the speed of our own':56}{'default':>8}{'tuned':>8}"
          f"{'of Winograd':>13}")
    for name, seconds in results.items():
        for kind, ours in OURS.items():
            known = {way: seconds[f"{kind}, {way}"] for way in ("default point", "tuned")
                     if f"{kind}, {way}" in seconds}
            if not known:
                continue
            shares = [f"{100 * seconds[ours] / known[way]:.0f}" if way in known else "-"
                      for way in ("default point", "tuned")]
            fastest = (f"{100 * seconds['winograd'] / min(known.values()):.0f}"
                       if kind == "plain" and "winograd" in seconds else "-")
            print(f"{f'{name}, {kind}':56}{shares[0]:>8}{shares[1]:>8}{fastest:>13}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=[""], help="parts of the names of cases")
    parser.add_argument("--programs", nargs="*", default=list(OURS), choices=list(OURS),
                        help="how the te programs are written")
    parser.add_argument("--minutes", type=float, help="how long each program is tuned")
    parser.add_argument("--trials", type=int, help="how many measurements each program is given")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--log", type=Path, help="a folder of logs, to go on from")
    given = parser.parse_args()
    options = None
    if given.minutes is not None or given.trials is not None:
        seconds = None if given.minutes is None else 60 * given.minutes
        options = autotune.TuneOptions(
            trials=given.trials, seconds=seconds, early_stopping=10**9)
    summary({name: compare(name, case, given.rounds, options, given.log, given.programs)
             for name, case in CASES.items() if any(part in name for part in given.cases)})


if __name__ == "__main__":
    main()
