"""The command: options, the cases in turn, what is printed and written."""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

import minitvm
from against.cases import Build, arrays, chosen, work
from against.tables import plot, print_networks, print_operators
from minitvm import autotune
from minitvm.bench.engines import (
    OURS,
    PEERS,
    TUNED,
    check_peers,
    installed_peers,
    largest_difference,
    missing_packages,
)
from minitvm.bench.rounds import ROUNDS, Measured, calls_for, measure, summary
from minitvm.bench.workers import PEAK, Worker, Workers, load_all, save_arrays
from minitvm.cli_options import read_schedules
from minitvm.errors import MinitvmError, RunError
from minitvm.report import progress
from minitvm.transform import PassContext

QUICK_ROUNDS = 5
ROUND_SECONDS = {"networks": 0.05, "operators": 0.01}
"""How long each engine runs in a round, about."""
LARGEST_DIFFERENCE = 1e-4
"""max|a - b| / max|b| that needs no mention."""

Moved = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured of each case, and how."""

    peers: Sequence[str]
    threads: Sequence[int]
    rounds: int
    target: minitvm.Target
    history: autotune.ApplyHistoryBest | None
    """The schedules of the engine that is tuned; None: there is none."""

    def engines(self) -> list[str]:
        """In the order of the tables."""
        return [OURS, *([TUNED] if self.history is not None else []), *self.peers]


class Bench:
    """The engines, and the files that they read."""

    def __init__(self, folder: Path, plan: Plan, workers: Workers) -> None:
        self.folder, self.plan, self.workers = folder, plan, workers
        self.peak = workers.start(PEAK, target=str(plan.target))
        self.shared: dict[int, list[Worker]] = {}

    def engines(self, group: str, threads: int) -> list[Worker]:
        """A process for each engine: new ones for a network, since memory is measured; for
        operators always the same."""
        if group == "operators" and threads in self.shared:
            return self.shared[threads]
        started = [self.workers.start(name, threads) for name in self.plan.engines()]
        if group == "operators":
            self.shared[threads] = started
        return started

    def case(self, group: str, name: str, build: Build, moved: Moved) -> Iterator[dict[str, Any]]:
        """A row for each number of threads."""
        moved(f"compiling {name}", 0, 0)
        model = build()
        flops, size = work(model)
        onnx.save(model, self.folder / "model.onnx")
        names = save_arrays(self.folder / "inputs.npz", arrays(model))
        libraries, facts = self._compiled()
        for count in self.plan.threads:
            workers = self.engines(group, count)
            loaded, failed = load_all(workers, libraries, self.folder / "model.onnx",
                                      self.folder / "inputs.npz", names)
            for engine in libraries:
                if engine in failed:
                    raise RunError(failed[engine])
            alive = [worker for worker in workers if worker.engine in loaded]
            calls = calls_for(alive, ROUND_SECONDS[group])
            found = measure(alive, self.peak, calls, self.plan.rounds,
                            lambda done: moved(f"measuring {name}", done, self.plan.rounds))
            row = {"group": group, "name": name, "threads": count, "flops": flops, "bytes": size,
                   **facts, "failed": failed,
                   "gigabytes": self.peak.ask(do="gigabytes", size=int(size)),
                   **summary(found, flops, count)}
            self._describe(row, alive, loaded, found)
            if group == "networks":
                self.workers.close(workers)
            yield row
        for library in libraries.values():
            library.unlink()

    def _compiled(self) -> tuple[dict[str, Path], dict[str, Any]]:
        """A library for each engine that is minitvm, and what compiling took and gave."""
        stem = self.folder / f"model{time.monotonic_ns()}"
        libraries = {OURS: stem.with_suffix(".so")}
        compiled, artifact = self._library({}, libraries[OURS])
        facts: dict[str, Any] = {"artifact": artifact}
        if (history := self.plan.history) is not None:
            libraries[TUNED] = stem.with_suffix(".tuned.so")
            _, facts["tuned_artifact"] = self._library(history, libraries[TUNED])
            covered = autotune.coverage(compiled.relay, history)
            facts["schedules"] = {"tuned": covered.tuned, "total": covered.total}
        return libraries, facts

    def _library(self, schedules: Any, path: Path) -> tuple[minitvm.CompiledModule, dict[str, Any]]:
        start = time.perf_counter()
        with PassContext(config={"cache.directory": None}):
            compiled = minitvm.compile(self.folder / "model.onnx", target=self.plan.target,
                                       schedules=schedules)
            compiled.export(path)
        return compiled, {"compile_seconds": time.perf_counter() - start,
                          "kernels": len(compiled.kernels), "size_bytes": path.stat().st_size,
                          "workspace_bytes": compiled.program.workspace_bytes,
                          "weights_bytes": compiled.program.weights.nbytes}

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


def machine(target: minitvm.Target) -> dict[str, Any]:
    """What this was measured on, and what minitvm compiled for."""
    host = minitvm.Target.host()
    names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")] if Path("/proc/cpuinfo").exists() else []
    return {"cpu": names[0] if names else platform.processor(), "cores": host.cores,
            "target": str(target), "host": str(host), "system": platform.platform(),
            "python": platform.python_version(), "date": time.strftime("%Y-%m-%d")}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line; ends the program where it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="run.py", description="minitvm against other engines: networks and operators")
    parser.add_argument("cases", nargs="*", help="networks, operators, names or parts of names")
    usual = [name for name in installed_peers() if PEERS[name].usual]
    parser.add_argument("--against", default=",".join(usual), metavar="LIST",
                        help=f"of {','.join(PEERS)}; by default {','.join(usual) or 'none'}, which "
                             "is what is installed of the usual ones")
    parser.add_argument("--threads", default="1", metavar="LIST", help="for example 1,2")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--target", default="llvm",
                        help="what minitvm compiles for, such as 'llvm -mcpu=x86-64-v3'; by "
                             "default this machine")
    parser.add_argument("--schedules", default="none", metavar="LOG",
                        help="also measure minitvm with the best schedules of a tuning log, or "
                             "with those that come with it: --schedules shipped")
    parser.add_argument("--quick", action="store_true", help="a few cases, a few rounds")
    parser.add_argument("--json", type=Path, help="also write everything, with all times")
    parser.add_argument("--plot", type=Path, help="also draw the ratios (needs matplotlib)")
    found = parser.parse_args(words)
    found.rounds = found.rounds or (QUICK_ROUNDS if found.quick else ROUNDS)
    found.peers = [name for name in found.against.split(",") if name]
    try:
        check_peers(found.peers)
        target = minitvm.Target(found.target)
        if not target.is_host():
            parser.error(f"code for {found.target!r} can't run on this machine")
        history = read_schedules(found.schedules, str(target))
    except MinitvmError as error:
        parser.error(str(error))
    if not all(word.isdigit() and int(word) for word in found.threads.split(",")):
        parser.error(f"--threads {found.threads} is no list of numbers, such as 1,2")
    if found.rounds < 1:
        parser.error("--rounds takes at least one")
    found.plan = Plan(found.peers, [int(word) for word in found.threads.split(",")], found.rounds,
                      target, history)
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
    with tempfile.TemporaryDirectory() as folder, Workers() as workers:
        bench = Bench(Path(folder), options.plan, workers)
        with progress("starting") as moved:
            for group, name, build in options.chosen:
                try:
                    rows += bench.case(group, name, build, moved)
                except MinitvmError as error:
                    failures[name] = str(error)
    report = {"machine": machine(options.plan.target), "rounds": options.rounds,
              "schedules": options.schedules, "absent": absent_peers(options.peers),
              "failures": failures, "rows": rows}
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    if options.plot and rows:
        plot(report, options.plot)
    return 1 if failures else 0


def absent_peers(chosen: Sequence[str]) -> dict[str, list[str]]:
    """The usual engines that are not compared with since packages are missing: which."""
    return {name: missing_packages(name) for name, peer in PEERS.items()
            if peer.usual and name not in chosen and missing_packages(name)}


def show(report: Mapping[str, Any]) -> None:
    """Prints the tables, and what went wrong."""
    facts, rows = report["machine"], report["rows"]
    peaks = [row["peak_gflops"] for row in rows] or [0.0]
    print(f"{facts['cpu']}, {facts['cores']} cores, {facts['date']}; one core's peak "
          f"{min(peaks):.0f} to {max(peaks):.0f} GFLOP/s; {report['rounds']} rounds")
    if facts["target"] != facts["host"]:
        print(f"minitvm, and the peak, by code for another machine than this: {facts['target']}")
    if tuned := [row["schedules"] for row in rows if "schedules" in row]:
        print(f"minitvm tuned, by the schedules of {report['schedules']}: "
              f"{sum(each['tuned'] for each in tuned)} of "
              f"{sum(each['total'] for each in tuned)} kernels of all rows")
    for engine, packages in report["absent"].items():
        print(f"{engine} is not compared with: {', '.join(packages)} not installed")
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
