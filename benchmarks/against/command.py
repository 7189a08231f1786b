"""The command: options, the cases in turn, what is printed and written."""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import minitvm
from against.cases import Build, arrays, chosen, work
from against.measure import Measured, calls_for, measure, summary
from against.tables import plot, print_networks, print_operators
from against.workers import PEAK, Worker, WorkerError
from minitvm.bench import OURS, PEERS, installed_peers, largest_difference
from minitvm.errors import MinitvmError, RunError
from minitvm.report import progress
from minitvm.transform import PassContext

QUICK_ROUNDS, ROUNDS = 5, 30
ROUND_SECONDS = {"networks": 0.05, "operators": 0.01}
"""How long each engine runs in a round, about."""
LARGEST_DIFFERENCE = 1e-4
"""max|a - b| / max|b| that needs no mention."""

Moved = Callable[[str, int, int], None]


class Bench:
    """The engines, and the files that they read."""

    def __init__(self, folder: Path, peers: Sequence[str], rounds: int, stack: ExitStack) -> None:
        self.folder, self.peers, self.rounds, self.stack = folder, peers, rounds, stack
        self.peak = self._worker(PEAK, 1)
        self.shared: dict[int, list[Worker]] = {}

    def _worker(self, engine: str, threads: int) -> Worker:
        worker = Worker(engine, threads)
        self.stack.callback(worker.close)
        return worker

    def engines(self, group: str, threads: int) -> list[Worker]:
        """A process for each engine: new ones for a network, since memory is measured; for
        operators always the same."""
        if group == "networks":
            return [self._worker(name, threads) for name in (OURS, *self.peers)]
        if threads not in self.shared:
            self.shared[threads] = [self._worker(name, threads) for name in (OURS, *self.peers)]
        return self.shared[threads]

    def case(self, group: str, name: str, build: Build, threads: Sequence[int],
             moved: Moved) -> Iterator[dict[str, Any]]:
        """A row for each number of threads."""
        moved(f"compiling {name}", 0, 0)
        model = build()
        flops, size = work(model)
        files = {"model": self.folder / "model.onnx", "inputs": self.folder / "inputs.npz",
                 "library": self.folder / f"model{time.monotonic_ns()}.so"}
        onnx.save(model, files["model"])
        np.savez(files["inputs"], **arrays(model))
        start = time.perf_counter()
        with PassContext(config={"cache.directory": None}):
            compiled = minitvm.compile(files["model"])
            compiled.export(files["library"])
        artifact = {"compile_seconds": time.perf_counter() - start,
                    "kernels": len(compiled.kernels),
                    "size_bytes": files["library"].stat().st_size,
                    "workspace_bytes": compiled.program.workspace_bytes,
                    "weights_bytes": compiled.program.weights.nbytes}
        for count in threads:
            workers = self.engines(group, count)
            facts, failed = self._loaded(workers, files)
            alive = [worker for worker in workers if worker.engine in facts]
            calls = calls_for(alive, ROUND_SECONDS[group])
            found = measure(alive, self.peak, calls, self.rounds,
                            lambda done: moved(f"measuring {name}", done, self.rounds))
            row = {"group": group, "name": name, "threads": count, "flops": flops, "bytes": size,
                   "artifact": artifact, "failed": failed,
                   "gigabytes": self.peak.ask(do="gigabytes", size=int(size)),
                   **summary(found, flops, count)}
            self._describe(row, alive, facts, found)
            if group == "networks":
                for worker in workers:
                    worker.close()
            yield row
        files["library"].unlink()

    def _loaded(self, workers: Sequence[Worker], files: Mapping[str, Path]
                ) -> tuple[dict[str, Any], dict[str, str]]:
        """What loading took, by engine; and what failed, why."""
        facts, failed = {}, {}
        for worker in workers:
            source = files["library" if worker.engine == OURS else "model"]
            try:
                facts[worker.engine] = worker.load(str(source), str(files["inputs"]))
            except WorkerError as error:
                failed[worker.engine] = str(error)
        if OURS in failed:
            raise RunError(failed[OURS])
        return facts, failed

    def _describe(self, row: dict[str, Any], alive: Sequence[Worker],
                  facts: Mapping[str, Any], found: Measured) -> None:
        """Adds to the figures of each engine what it took to load, and how its results differ."""
        expected = alive[0].outputs(str(self.folder / "out.npz"))
        for worker in alive:
            outputs = worker.outputs(str(self.folder / "out.npz"))
            row["engines"][worker.engine] |= {
                "engine": worker.name, **facts[worker.engine],
                "difference": largest_difference(expected, outputs),
                "round_milliseconds": [[1e3 * second for second in seconds]
                                       for seconds in found.times[worker.engine]]}


def machine() -> dict[str, Any]:
    """What this was measured on."""
    target = minitvm.Target.host()
    names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")] if Path("/proc/cpuinfo").exists() else []
    return {"cpu": names[0] if names else platform.processor(), "cores": target.cores,
            "target": str(target), "system": platform.platform(),
            "python": platform.python_version(), "date": time.strftime("%Y-%m-%d")}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line; ends the program where it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="run.py", description="minitvm against other engines: networks and operators")
    parser.add_argument("cases", nargs="*", help="networks, operators, names or parts of names")
    parser.add_argument("--against", default=",".join(installed_peers()), metavar="LIST",
                        help=f"of {','.join(PEERS)}; by default those that are installed")
    parser.add_argument("--threads", default="1", metavar="LIST", help="for example 1,2")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="a few cases, a few rounds")
    parser.add_argument("--json", type=Path, help="also write everything, with all times")
    parser.add_argument("--plot", type=Path, help="also draw the ratios (needs matplotlib)")
    found = parser.parse_args(words)
    found.rounds = found.rounds or (QUICK_ROUNDS if found.quick else ROUNDS)
    found.peers = [name for name in found.against.split(",") if name]
    if unknown := set(found.peers) - set(installed_peers()):
        parser.error(f"{', '.join(sorted(unknown))} is not installed, or unknown")
    if not all(word.isdigit() and int(word) for word in found.threads.split(",")):
        parser.error(f"--threads {found.threads} is no list of numbers, such as 1,2")
    if found.rounds < 1:
        parser.error("--rounds takes at least one")
    try:
        found.chosen = list(chosen(found.cases, found.quick))
    except LookupError as error:
        parser.error(str(error.args[0]))
    return found


def main(words: Sequence[str]) -> int:
    """Measures, prints, writes; 1 if minitvm failed anywhere."""
    options = parse(words)
    rows: list[dict[str, Any]] = []
    failures: dict[str, str] = {}
    threads = [int(word) for word in options.threads.split(",")]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = Bench(Path(folder), options.peers, options.rounds, stack)
        with progress("starting") as moved:
            for group, name, build in options.chosen:
                try:
                    rows += bench.case(group, name, build, threads, moved)
                except MinitvmError as error:
                    failures[name] = str(error)
    report = {"machine": machine(), "rounds": options.rounds, "failures": failures, "rows": rows}
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    if options.plot and rows:
        plot(report, options.plot)
    return 1 if failures else 0


def show(report: Mapping[str, Any]) -> None:
    """Prints the tables, and what went wrong."""
    facts, rows = report["machine"], report["rows"]
    peaks = [row["peak_gflops"] for row in rows] or [0.0]
    print(f"{facts['cpu']}, {facts['cores']} cores, {facts['date']}; one core's peak "
          f"{min(peaks):.0f} to {max(peaks):.0f} GFLOP/s; {report['rounds']} rounds")
    print_networks([row for row in rows if row["group"] == "networks"])
    print_operators([row for row in rows if row["group"] == "operators"])
    for name, reason in report["failures"].items():
        print(f"{name}: minitvm failed: {reason}")
    for row in rows:
        for engine, reason in row["failed"].items():
            print(f"{row['name']}: {engine} failed: {reason}")
        for engine in row["engines"].values():
            if not engine["difference"] <= LARGEST_DIFFERENCE:
                print(f"{row['name']}: {engine['engine']} differs by {engine['difference']:.1e}")
