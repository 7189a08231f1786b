"""Tunes common networks for each class of machines, and keeps the best records in the package.

    python benchmarks/record_shipped.py --time 4m                 five networks, all classes
    python benchmarks/record_shipped.py resnet50 --classes x86-64-v3 --time 20m
    python benchmarks/record_shipped.py --check                   only what the records gain

On a quiet machine: it takes so long for each network and class, and up to some minutes more for
comparing the best with the default schedules, by themselves and in runs of the network. It may be
stopped or killed: the same command goes on from the logs in `--work`, with the time that is left to
each network; with more time, all go on. The networks of a class share its log: a kernel that
another one has, too, goes on from what is known of it. After each network the file of its class is
written anew, from the log of the class, as `minitvm pick-best` does: of the kernels that networks
have, only those that make a network faster and none slower. At the end each network runs with and
without its records, in turns, on one thread and on two.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from against.cases import NETWORKS, USUAL_NETWORKS

import minitvm
from minitvm import autotune
from minitvm.autotune.options import TUNER_NAMES
from minitvm.autotune.shipped_records import CLASSES, DATA, data_file
from minitvm.cli_options import parse_duration
from minitvm.errors import MinitvmError
from minitvm.runtime.tensor_info import random_arrays
from minitvm.target import Target

PACKED_BYTES = 200_000
"""Larger files are compressed."""
ROUNDS = 40
"""In how many turns a network runs with and without its records."""


def class_target(name: str) -> Target:
    """The target that stands for a class, with the caches of this machine."""
    host = Target.host()
    return Target(f"llvm -mcpu={name} -l1-bytes={host.l1_bytes} -l2-bytes={host.l2_bytes}")


@dataclass(frozen=True, slots=True)
class Recording:
    """Where the logs are, and the files that come of them."""

    work: Path
    output: Path
    options: autotune.TuneOptions

    def model(self, network: str) -> Path:
        """The network as a file, made where there is none."""
        path = self.work / f"{network}.onnx"
        if not path.exists():
            self.work.mkdir(parents=True, exist_ok=True)
            beside = path.with_suffix(".new")
            onnx.save(NETWORKS[network](), beside)
            beside.replace(path)
        return path

    def network(self, network: str, name: str) -> autotune.Network:
        """A network and its kernels for a class."""
        return autotune.extract_network(self.model(network), target=class_target(name))

    def log(self, name: str) -> Path:
        """All measurements for a class."""
        return self.work / f"{name}.jsonl"

    # --- time that was spent --------------------------------------------------------------------

    def spent(self, network: str, name: str) -> float:
        """The seconds that a network was tuned."""
        path = self._clock(network, name)
        return float(json.loads(path.read_text())) if path.exists() else 0.0

    def spend(self, network: str, name: str, seconds: float) -> None:
        """Remembers it."""
        path = self._clock(network, name)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(round(seconds, 1)))
        beside.replace(path)

    def _clock(self, network: str, name: str) -> Path:
        return self.work / f"{name}.{network}.seconds"

    # --- tuning ---------------------------------------------------------------------------------

    def tune(self, network: str, name: str, seconds: float | None,
             measurer: autotune.LocalMeasurer) -> autotune.TuneReport | None:
        """Tunes a network for what is left of `seconds`, or all trials; None where none is."""
        before = self.spent(network, name)
        left = None if seconds is None else seconds - before
        if left is not None and left <= 0:
            return None
        start = time.monotonic()

        def watch(task: str, trials: int, estimate: float) -> None:
            self.spend(network, name, before + time.monotonic() - start)
            say(f"{name} {network}: {trials} trials, {1e3 * estimate:.3f} ms", end="\r")

        options = autotune.TuneOptions(
            self.options.trials, left, self.options.tuner, cache=self.options.cache)
        whole = self.network(network, name)
        with autotune.Log.open(self.log(name)) as log:
            report = autotune.tune_tasks(whole.tasks, measurer, log, options, watch)
        if not report.interrupted:
            self.spend(network, name, max(before + time.monotonic() - start, seconds or 0.0))
        return report

    def compare(self, network: str, name: str,
                measurer: autotune.LocalMeasurer) -> autotune.InPlaceReport:
        """Compares the best schedules in runs of the network; what the log has of that is not done
        again."""
        def watch(what: str, done: int, total: int) -> None:
            say(f"{name} {network}: {what}, {done} of {total}", end="\r")

        whole = self.network(network, name)
        with autotune.Log.open(self.log(name)) as log:
            return autotune.tune_in_place(whole, measurer, log, autotune.usual_threads(), watch)

    def keep(self, name: str, networks: Sequence[str]) -> str:
        """Writes the file of a class, of the kernels that networks have and that were compared in
        one; says what is in it."""
        known = {task.key for network in networks for task in self.network(network, name).tasks}
        records = [record for record in autotune.read_log(self.log(name)) if record.task in known]
        compared = {record.task for record in records if record.in_place}
        best = autotune.pick_best([[record for record in records if record.task in compared]])
        size = sum(len(record.to_line()) for record in best)
        path = self.output / data_file(name, size > PACKED_BYTES)
        autotune.write_records(path, best)
        (self.output / data_file(name, size <= PACKED_BYTES)).unlink(missing_ok=True)
        kernels = len({record.task for record in best})
        return f"{path}: {kernels} kernels, {path.stat().st_size / 1e3:.0f} kB"

    # --- what it gains --------------------------------------------------------------------------

    def check(self, network: str, name: str) -> str:
        """A network with and without the records of its class, in turns."""
        target = class_target(name)
        history = autotune.shipped(target, self.output)
        plain, tuned = (minitvm.compile(self.model(network), target=target, schedules=schedules)
                        for schedules in ({}, history))
        inputs = random_arrays(plain.program.inputs)
        lines = [f"{name} {network}: {autotune.coverage(tuned.relay, history)}"]
        for threads in autotune.usual_threads():
            plain.threads = tuned.threads = threads
            ratios = np.array([timed(plain, inputs) / timed(tuned, inputs) for _ in range(ROUNDS)])
            low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
            lines.append(f"on {threads} thread{'s' * (threads > 1)} {middle:.3f} times as fast as "
                         f"without (quartiles {low:.3f} and {high:.3f})")
        return ", ".join(lines)


def timed(module: minitvm.CompiledModule, inputs: dict[str, np.ndarray]) -> float:
    """The seconds of a run, the better of two after one more: of processor time on one thread."""
    clock = time.thread_time if module.threads == 1 else time.perf_counter
    module.run(inputs)
    seconds = []
    for _ in range(2):
        start = clock()
        module.run(inputs)
        seconds.append(clock() - start)
    return min(seconds)


def say(text: str, end: str = "\n") -> None:
    """A line at once; one that goes on only on a terminal."""
    if end == "\n" or sys.stdout.isatty():
        print(f"{text:<79}", end=end, flush=True)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line; ends the program where it makes no sense."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=USUAL_NETWORKS, metavar="NETWORK",
                        help=f"of {', '.join(NETWORKS)}; by default {', '.join(USUAL_NETWORKS)}")
    parser.add_argument("--classes", default=",".join(CLASSES), metavar="LIST",
                        help="of machines; by default %(default)s")
    parser.add_argument("--time", default="4m", help="for each network and class (%(default)s)")
    parser.add_argument("--trials", type=int, help="for each instead of a time")
    parser.add_argument("--tuner", choices=TUNER_NAMES, default="xgboost")
    parser.add_argument("--cold", action="store_true", help="time calls with cold caches")
    parser.add_argument("--work", type=Path, default=Path("build/shipped"), metavar="FOLDER",
                        help="of logs and models (%(default)s)")
    parser.add_argument("--output", type=Path, default=DATA, metavar="FOLDER",
                        help="of the files (%(default)s)")
    parser.add_argument("--check", action="store_true", help="tune nothing")
    found = parser.parse_args(words)
    found.classes = found.classes.split(",")
    for chosen, known in ((found.networks, NETWORKS), (found.classes, CLASSES)):
        if unknown := set(chosen) - set(known):
            parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    try:
        found.seconds = None if found.trials else parse_duration(found.time)
    except MinitvmError as error:
        parser.error(str(error))
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Tunes, writes, checks; 1 if something went wrong, 130 after Ctrl-C."""
    options = parse(words)
    cache = "cold" if options.cold else "warm"
    recording = Recording(options.work, options.output, autotune.TuneOptions(
        options.trials, tuner=options.tuner, cache=cache))
    kept = tuple(dict.fromkeys((*USUAL_NETWORKS, *options.networks)))
    ended = [record(recording, name, options, kept) for name in options.classes]
    return 130 if INTERRUPTED in ended else int(not all(ended))


INTERRUPTED = "interrupted"


def record(recording: Recording, name: str, options: argparse.Namespace,
           kept: Sequence[str]) -> str | bool:
    """Tunes and checks for one class: whether all went well, or `INTERRUPTED`."""
    if not class_target(name).is_host():
        say(f"{name}: this machine does not have its features")
        return False
    failed: set[str] = set()
    measuring = autotune.MeasureOptions(timing=autotune.Timing(cache=recording.options.cache))
    with autotune.LocalMeasurer(measuring) as measurer:
        for network in () if options.check else options.networks:
            try:
                improve(recording, network, name, options.seconds, measurer)
            except KeyboardInterrupt:
                return INTERRUPTED
            except MinitvmError as error:
                say(f"{name} {network}: failed: {error}")
                failed.add(network)
            finally:
                if recording.log(name).exists():
                    say(recording.keep(name, [other for other in kept if other not in failed]))
    for network in options.networks:
        if network not in failed:
            say(recording.check(network, name))
    return not failed


def improve(recording: Recording, network: str, name: str, seconds: float | None,
            measurer: autotune.LocalMeasurer) -> None:
    """Tunes a network and compares in its runs; raises `KeyboardInterrupt` where that was ended."""
    report = recording.tune(network, name, seconds, measurer)
    if report is None:
        say(f"{name} {network}: its time is used up; give more by --time")
    else:
        say(f"{name} {network}: {report.trials} trials, {1e3 * report.before_seconds:.3f} ms "
            f"before, {1e3 * report.after_seconds:.3f} ms after, kernels by themselves")
        if report.interrupted:
            raise KeyboardInterrupt
    for line in compared_lines(recording.compare(network, name, measurer)):
        say(f"{name} {network}: {line}")


def compared_lines(report: autotune.InPlaceReport) -> list[str]:
    """What came of comparing in runs of a network."""
    lines = [f"{report.kept} of {len(report.rows)} kernels kept"]
    lines += [f"on {run.threads} threads {1e3 * run.before_seconds:.3f} ms before, "
              f"{1e3 * run.after_seconds:.3f} ms after, {1 / run.ratio:.3f} times as fast"
              for run in report.networks]
    return [*lines, f"a failure: {report.problem}"] if report.problem else lines


if __name__ == "__main__":
    sys.exit(main())
