"""The commands `minitvm tune` and `minitvm pick-best`: schedules measured, the best of them kept.

    minitvm tune model.onnx --log tune.jsonl --time 10m
    minitvm pick-best tune.jsonl -o best.jsonl
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from minitvm import autotune
from minitvm.autotune.options import TUNER_NAMES
from minitvm.cli_options import model_inputs, parse_duration, parse_fixed, parse_shapes
from minitvm.errors import OptionError
from minitvm.report import Report, print_in_place, print_tuning, progress

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


@click.command("tune")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--log", type=click.Path(path_type=Path), required=True,
              help="The file that measurements are added to, such as --log tune.jsonl; what it has "
                   "is not measured again.")
@click.option("--time", "duration", metavar="DURATION",
              help="Tune for so long, such as --time 10m, 90s or 2h.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N",
              help="Measure so many candidates, those in the log included, such as --trials 2000.")
@model_inputs
@click.option("--target", metavar="STRING",
              help="The machine to tune for, such as --target 'llvm -mcpu=x86-64-v3', whose code "
                   "must run here; by default this one.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True,
              help="Time candidates on so many threads, such as --threads 4.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Of all choices that are random, such as --seed 7.")
@click.option("--tuner", type=click.Choice(TUNER_NAMES), default="xgboost", show_default=True,
              help="How candidates are chosen, such as --tuner genetic.")
@click.option("--cold", is_flag=True,
              help="Time each call with caches that hold other data, as in a large model.")
@click.option("--in-place/--no-in-place", default=True, show_default=True,
              help="At last compare the best schedules in runs of the whole network, and keep only "
                   "those that make it faster.")
@click.option("--replay", type=click.Path(path_type=Path), metavar="LOG",
              help="Measure nothing: take times from this log, such as --replay measured.jsonl.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def tune_command(model: Path, log: Path, duration: str | None, trials: int | None,
                 shapes: tuple[str, ...], fixed: tuple[str, ...], target: str | None, threads: int,
                 seed: int, tuner: str, cold: bool, in_place: bool, replay: Path | None,
                 as_json: bool) -> None:
    """Finds faster schedules for the kernels of the ONNX file MODEL, by measuring them here.

    It can be interrupted, and goes on from its log when it is called again.

    \b
    minitvm tune model.onnx --log tune.jsonl --time 10m
    minitvm compile model.onnx --schedules tune.jsonl
    """
    if duration is None and trials is None:
        raise OptionError("how long to tune is not given; add --time 10m or --trials 1000")
    cache = "cold" if cold else "warm"
    options = autotune.TuneOptions(trials, None if duration is None else parse_duration(duration),
                                   tuner, seed, threads=threads, cache=cache)
    network = autotune.extract_network(model, parse_shapes(shapes), target,
                                       parse_fixed(fixed))
    with contextlib.ExitStack() as stack:
        records = stack.enter_context(autotune.Log.open(log))
        if replay is not None:
            measurer: Any = autotune.ReplayMeasurer(autotune.read_log(replay), threads, cache)
        else:
            timing = autotune.Timing(threads=threads, cache=cache)
            measurer = stack.enter_context(
                autotune.LocalMeasurer(autotune.MeasureOptions(timing=timing)))
        moved = stack.enter_context(progress("measuring"))
        report = autotune.tune_tasks(network.tasks, measurer, records, options,
                                     _watch(moved, options))
        compared = None
        if in_place and not report.interrupted:
            compared = autotune.tune_in_place(
                network, measurer, records, autotune.usual_threads(threads), moved)
    data = {**report.data(), "log": str(log),
            "in_place": None if compared is None else compared.data()}
    if as_json:
        click.echo(json.dumps(data, indent=2))
    else:
        print_tuning(data)
        if compared is not None:
            print_in_place(compared.data())
    if report.interrupted:
        click.echo(f"interrupted; the same command goes on from {log}", err=True)
        sys.exit(INTERRUPTED)


def _watch(moved: Report, options: autotune.TuneOptions) -> Callable[[str, int, float], None]:
    """Shows how far tuning is: in trials where they are limited, else in seconds."""
    start = time.monotonic()

    def watch(name: str, trials: int, seconds: float) -> None:
        passed = time.monotonic() - start
        share = max(trials / options.trials if options.trials else 0.0,
                    passed / options.seconds if options.seconds else 0.0, 1e-9)
        left = max(0.0, passed / min(share, 1.0) - passed)
        text = f"{name[:32]}: {1e3 * seconds:.3f} ms in all, {left:.0f} s to go"
        if options.trials is not None:
            moved(text, trials, options.trials)
        else:
            moved(text, int(passed), int(options.seconds or 0))

    return watch


@click.command("pick-best")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True,
              help="The file to write, such as -o best.jsonl; compressed if it ends in .xz.")
@click.option("--model", type=click.Path(path_type=Path),
              help="Compare the best schedules in runs of this ONNX file, such as --model m.onnx, "
                   "and keep those that make it faster.")
@model_inputs
@click.option("--target", metavar="STRING",
              help="The machine to compare for, such as --target 'llvm -mcpu=x86-64-v3', whose "
                   "code must run here; by default this one.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True,
              help="Compare on one thread and on so many, such as --threads 4; by default on one "
                   "and two.")
@click.option("--json", "as_json", is_flag=True, help="Print what was kept as JSON.")
def pick_best_command(logs: tuple[Path, ...], output: Path, model: Path | None,
                      shapes: tuple[str, ...], fixed: tuple[str, ...], target: str | None,
                      threads: int, as_json: bool) -> None:
    """Keeps of tuning LOGS only what decides: for each kernel the best record, and that of the
    default schedule which it beat.

    The file compiles as the logs do, and is small enough to be kept with a model.

    \b
    minitvm pick-best monday.jsonl tuesday.jsonl -o best.jsonl
    minitvm pick-best tune.jsonl --model model.onnx -o best.jsonl
    minitvm compile model.onnx --schedules best.jsonl
    """
    read = [autotune.read_log(log) for log in logs]
    compared = None
    if model is not None:
        network = autotune.extract_network(model, parse_shapes(shapes), target,
                                           parse_fixed(fixed))
        measured = autotune.Memory([record for log in read for record in log if record.in_place])
        with autotune.LocalMeasurer() as measurer, progress("measuring") as moved:
            compared = autotune.tune_in_place(network, measurer, measured,
                                              autotune.usual_threads(threads), moved, read)
        read = [*read, measured.records]
    best = autotune.pick_best(read)
    autotune.write_records(output, best)
    kernels = len({record.task for record in best})
    size = output.stat().st_size
    counts: dict[str, Any] = {"records": sum(map(len, read)), "kept": len(best), "kernels": kernels,
              "bytes": size, "output": str(output)}
    if compared is not None:
        counts["in_place"] = compared.data()
    if as_json:
        click.echo(json.dumps(counts, indent=2))
        return
    if compared is not None:
        print_in_place(compared.data())
    click.echo(f"{counts['kept']} of {counts['records']} records, of {kernels} kernels, "
               f"{size / 1e3:.1f} kB\nwritten: {output}")
