"""What threads cost and gain: waking a worker, two threads against one, two models side by side.

    python benchmarks/threads.py [--rounds 40] [--json FILE] [--part wake scaling pair neighbours]

Each configuration lives in a process of its own, which is warm and waits for its turn; rounds go
through all of them. What is reported are minima over the rounds, since a shared machine only ever
makes them slower, and for processes side by side the median of the shares within rounds.

- wake: what a parallel region costs beside its work, in the middle of a run (`hot`) and after a
  pause, when the worker sleeps.
- scaling: how much faster a network is on two threads than on one, beside how much two loops of
  fused multiply-adds at once gain over one of them, timed in the same rounds: no more can be had.
- pair: how much more two processes at one thread each do at once than one of them: what memory and
  the cache that they share leave, without any waiting of threads for each other.
- neighbours: two processes at two threads each; what share of its speed alone each keeps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minitvm
from minitvm.codegen.jit import build_kernel, pool_threads
from minitvm.peak import CHAINS, peak_loop
from minitvm.report import print_table, progress
from minitvm.runtime import load
from minitvm.target import Target
from minitvm.testing import zoo, zoo_classic
from minitvm.tir.text import parse_func

NETWORKS: dict[str, Callable[[], Any]] = {
    "mobilenet_v2": lambda: zoo.mobilenet_v2(weights=0),
    "resnet50": lambda: zoo_classic.resnet(50),
}
PARTS = ("wake", "scaling", "pair", "neighbours")
REGIONS = 500
"""Parallel regions in a call of the kernels that measure them."""
NEIGHBOURS_SECONDS = 0.3
GOALS = {"hot region, us": "<= 5", "gain of two threads": ">= 1.8, or 0.95 of two loops'",
         "share kept": ">= 40%"}


# --- in a process of its own ----------------------------------------------------------------------

def regions_text(steps: int, count: int, extent: int, kind: str) -> str:
    """`count` loops in a row over `extent` iterations, each a chain of `steps` additions."""
    return f"""
def regions(A: Buffer((64,), "float32")):
    for turn in range({count}):
        for part in {kind}({extent}):
            for step in range({steps}):
                A[part * 32] = A[part * 32] * 0.5 + 1.0
"""


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def wake_turns() -> Callable[[float], dict[str, float]]:
    """A round: the nanoseconds of regions of nothing and of some work, hot and after a pause."""
    data = np.zeros(64, np.float32)

    def kernel(steps: int, count: int, extent: int, kind: str) -> Callable[[], None]:
        return build_kernel(parse_func(regions_text(steps, count, extent, kind))).bind(data)

    nothing = kernel(0, REGIONS, 2, "parallel")
    work, half = kernel(1000, REGIONS, 2, "parallel"), kernel(1000, REGIONS, 1, "range")
    once, once_half = kernel(4000, 1, 2, "parallel"), kernel(4000, 1, 1, "range")

    def turn(seconds: float) -> dict[str, float]:
        with pool_threads(2):
            found = {"nothing": timed(nothing) / REGIONS, "work": timed(work) / REGIONS,
                     "half": timed(half) / REGIONS, "asleep": 1.0, "asleep_half": 1.0}
            for _ in range(5):
                time.sleep(2e-3)
                found["asleep"] = min(found["asleep"], timed(once))
                found["asleep_half"] = min(found["asleep_half"], timed(once_half))
        return {name: 1e9 * value for name, value in found.items()}

    return turn


def network_turns(library: str, threads: int) -> Callable[[float], dict[str, float]]:
    """A round: the least milliseconds of a run, and runs per second, for a while."""
    module = load(library, threads=threads)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(info.shape).astype(np.float32) for info in module.inputs]
    outputs = list(module.run(dict(zip((i.name for i in module.inputs), inputs))).values())
    run = module.bind(inputs, outputs)
    run()

    def turn(seconds: float) -> dict[str, float]:
        start, times = time.perf_counter(), []
        while time.perf_counter() - start < seconds:
            times.append(timed(run))
        return {"milliseconds": 1e3 * min(times), "rate": 1 / float(np.mean(times))}

    return turn


def peak_turns() -> Callable[[float], dict[str, float]]:
    """A round: the milliseconds of a loop of fused multiply-adds, the mean for a while: two loops
    at once must each go on for the time that the other does."""
    loop = peak_loop(Target.host())
    data = np.zeros(64 * CHAINS, np.float32)

    def turn(seconds: float) -> dict[str, float]:
        start, times = time.perf_counter(), []
        while time.perf_counter() - start < seconds:
            times.append(timed(lambda: loop.run(data)))
        return {"milliseconds": 1e3 * min(times), "rate": 1 / float(np.mean(times))}

    return turn


def serve(words: Sequence[str]) -> None:
    """Answers each line of standard input, a number of seconds, by a round's figures."""
    match words:
        case ["wake"]:
            turn = wake_turns()
        case ["peak"]:
            turn = peak_turns()
        case ["network", library, threads]:
            turn = network_turns(library, int(threads))
        case _:
            raise SystemExit(f"unknown configuration {words}")
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(float(line))), flush=True)


# --- in the process that compares -----------------------------------------------------------------

class Configuration:
    """A process that measures one thing, when it is told to."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", *words], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a measuring process ended with status {self.process.wait()}")
        return line

    def start(self, seconds: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def together(seconds: float, *configurations: Configuration) -> list[dict[str, float]]:
    """A round of one, or of several at once."""
    for configuration in configurations:
        configuration.start(seconds)
    return [json.loads(configuration.read()) for configuration in configurations]


def least(rows: Sequence[Mapping[str, float]], name: str = "milliseconds") -> float:
    return min(row[name] for row in rows)


def measure_wake(rounds: int, moved: Callable[[str, int, int], None]) -> dict[str, Any]:
    process = Configuration("wake")
    rows = []
    for number in range(rounds):
        moved("wake", number, rounds)
        rows += together(0, process)
    process.end()
    median = {name: float(np.median([row[name] for row in rows])) for name in rows[0]}
    lowest = {name: least(rows, name) for name in rows[0]}
    return {"median_nanoseconds": median, "least_nanoseconds": lowest, "rounds": rows}


def measure_scaling(name: str, library: str, rounds: int,
                    moved: Callable[[str, int, int], None]) -> dict[str, Any]:
    one, two = (Configuration("network", library, str(count)) for count in (1, 2))
    loops = [Configuration("peak"), Configuration("peak")]
    rows: dict[str, list[Any]] = {"one": [], "two": [], "loop": [], "loops": []}
    seconds = 0.1 if name == "mobilenet_v2" else 0.3
    for number in range(rounds):
        moved(f"scaling of {name}", number, rounds)
        rows["one"] += together(seconds, one)
        rows["loop"] += together(seconds / 2, loops[0])
        rows["two"] += together(seconds, two)
        rows["loops"].append(together(seconds / 2, *loops))
    for process in (one, two, *loops):
        process.end()
    both = min(max(least([a]), least([b])) for a, b in rows["loops"])
    gain, possible = least(rows["one"]) / least(rows["two"]), 2 * least(rows["loop"]) / both
    return {"one_ms": least(rows["one"]), "two_ms": least(rows["two"]), "gain": gain,
            "loops_gain": possible, "of_possible": gain / possible, "rounds": rows}


def measure_pair(name: str, library: str, rounds: int,
                 moved: Callable[[str, int, int], None]) -> dict[str, Any]:
    pair = [Configuration("network", library, "1") for _ in range(2)]
    rows: dict[str, list[Any]] = {"one": [], "both": []}
    seconds = 0.1 if name == "mobilenet_v2" else 0.3
    for number in range(rounds):
        moved(f"two of {name}", number, rounds)
        rows["one"] += together(seconds, pair[0])
        rows["both"].append(together(seconds, *pair))
    for process in pair:
        process.end()
    both = min(max(least([a]), least([b])) for a, b in rows["both"])
    return {"both_ms": both, "gain": 2 * least(rows["one"]) / both, "rounds": rows}


def measure_neighbours(library: str, rounds: int,
                       moved: Callable[[str, int, int], None]) -> dict[str, Any]:
    pair = [Configuration("network", library, "2") for _ in range(2)]
    shares: list[list[float]] = []
    for number in range(rounds):
        moved("neighbours", number, rounds)
        alone = [together(NEIGHBOURS_SECONDS, process)[0]["rate"] for process in pair]
        both = [row["rate"] for row in together(NEIGHBOURS_SECONDS, *pair)]
        shares.append([shared / before for shared, before in zip(both, alone)])
    for process in pair:
        process.end()
    return {"shares": np.median(shares, axis=0).tolist(), "rounds": shares}


def measure(parts: Sequence[str], rounds: int) -> dict[str, Any]:
    """Everything asked for, as plain data."""
    report: dict[str, Any] = {"target": str(Target.host()), "rounds": rounds}
    with tempfile.TemporaryDirectory() as folder, progress("compiling") as moved:
        libraries = {}
        for name in NETWORKS if set(parts) - {"wake"} else ():
            compiled = minitvm.compile(NETWORKS[name]().SerializeToString())
            libraries[name] = str(Path(folder) / f"{name}.so")
            compiled.export(libraries[name])
        if "wake" in parts:
            report["wake"] = measure_wake(rounds, moved)
        if "scaling" in parts:
            report["scaling"] = {name: measure_scaling(name, library, rounds, moved)
                                 for name, library in libraries.items()}
        if "pair" in parts:
            report["pair"] = {name: measure_pair(name, library, rounds, moved)
                              for name, library in libraries.items()}
        if "neighbours" in parts:
            report["neighbours"] = {
                name: measure_neighbours(library, max(rounds // 4, 3), moved)
                for name, library in libraries.items()}
    return report


def rows_of(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, measured, goal)."""
    rows = []
    if "wake" in report:
        for how in ("median", "least"):
            found = report["wake"][f"{how}_nanoseconds"]
            rows += [
                (f"hot region of nothing, us ({how})", f"{found['nothing'] / 1e3:.2f}",
                 GOALS["hot region, us"]),
                (f"hot region beside its work, us ({how})",
                 f"{(found['work'] - found['half']) / 1e3:.2f}", GOALS["hot region, us"]),
                (f"region with a sleeping worker beside its work, us ({how})",
                 f"{(found['asleep'] - found['asleep_half']) / 1e3:.2f}", "")]
    for name, found in report.get("scaling", {}).items():
        rows += [
            (f"{name}, one thread, ms", f"{found['one_ms']:.3f}", ""),
            (f"{name}, two threads, ms", f"{found['two_ms']:.3f}", ""),
            (f"{name}, gain of two threads", f"{found['gain']:.3f}", GOALS["gain of two threads"]),
            (f"{name}, gain of two loops at once", f"{found['loops_gain']:.3f}", ""),
            (f"{name}, the one by the other", f"{found['of_possible']:.1%}", ">= 95%")]
    for name, found in report.get("pair", {}).items():
        rows.append((f"{name}, gain of two models side by side, one thread each",
                     f"{found['gain']:.3f}", ""))
    for name, found in report.get("neighbours", {}).items():
        rows += [(f"{name}, share kept by process {number}", f"{share:.1%}", GOALS["share kept"])
                 for number, share in enumerate(found["shares"], 1)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=Path, help="also write the report, with all rounds")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    report = measure(arguments.part, arguments.rounds)
    print_table("threads", ("what", "measured", "goal"), rows_of(report), numbers=(1,))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
