"""The `minitvm` command: compile a model, run it, time it, tune it, list the operators.

    minitvm compile model.onnx -o model.so
    minitvm run model.so --input input=picture.npy --repeat 50
    minitvm bench model.onnx --against onnxruntime
    minitvm tune model.onnx --log tune.jsonl --time 10m
    minitvm ops

Results go to standard output, progress and errors to standard error. The exit status is 0, or 1 for
what minitvm refuses (one sentence, `error: ...`), 2 for a wrong command line, 130 after Ctrl-C, 143
where the process was asked to end.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import os
import re
import signal
import sys
import threading
import time
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np

import minitvm
from minitvm import autotune
from minitvm.autotune.options import TUNER_NAMES
from minitvm.bench import PEERS, ROUNDS, bench
from minitvm.errors import InputError, MinitvmError, OptionError
from minitvm.report import (
    Report,
    print_bench,
    print_compilation,
    print_profile,
    print_run,
    print_table,
    print_tuning,
    progress,
)
from minitvm.runtime import Module
from minitvm.runtime.abi import files_beside
from minitvm.runtime.tensor_info import random_arrays
from minitvm.transform import PassContext

REFUSED, INTERRUPTED, BROKEN_PIPE, TERMINATED = 1, 130, 141, 143
"""Exit statuses; a wrong command line is click's 2."""


class _CommandLine(click.Group):
    """Turns whatever stops a command into one line on standard error and an exit status."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Parses the command line and runs the command."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # names may not fit the encoding
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # cleans up on its way
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "minitvm"
            message = error.format_message().rstrip(".")
            click.echo(f"error: {message} (see '{path} --help')", err=True)
            sys.exit(error.exit_code)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MinitvmError as error:
            _refuse("\n  ".join((str(error), *getattr(error, "__notes__", ()))))
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)
        except OSError as error:
            _refuse(f"{error.filename or 'a file'}: {error.strerror or error}")
        except MemoryError as error:
            _refuse(f"not enough memory: {error}" if str(error) else "not enough memory")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Names the closest command where there is none of that name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            ctx.fail(f"there is no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)


def _refuse(message: str) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    sys.exit(REFUSED)


@click.group(cls=_CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(minitvm.__version__, prog_name="minitvm")
def main() -> None:
    """Compiles ONNX models to native shared libraries, and runs them.

    \b
    minitvm compile model.onnx -o model.so
    minitvm run model.so --input input=picture.npy
    minitvm bench model.onnx --against onnxruntime
    """


# --- compile ------------------------------------------------------------------------------------


def parse_shapes(values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`["x=1,3,224,224"]` -> `{"x": (1, 3, 224, 224)}`; `"x="` is the shape of a scalar."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, equals, dims = value.rpartition("=")
        words = [word.strip() for word in dims.split(",")] if dims.strip() else []
        if not equals or not name or not all(re.fullmatch(r"[0-9]{1,18}", word) for word in words):
            raise OptionError(f"--shape {value!r} is not NAME=DIM,DIM,... with positive integers; "
                              "for example --shape input=1,3,224,224")
        if name in shapes:
            raise OptionError(f"--shape is given twice for the input {name!r}")
        shapes[name] = tuple(int(word) for word in words)
    return shapes


@main.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="The shared library to write, such as -o build/model.so; by default the model's "
                   "name with .so, beside the model.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=DIM,DIM,...",
              help="The shape of an input, such as --shape input=1,3,224,224; needed where the "
                   "model leaves a size open. May be repeated.")
@click.option("--target", metavar="STRING",
              help="The machine to compile for, such as --target 'llvm -mcpu=x86-64-v3' or "
                   "--target 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76'; by default this "
                   "one.")
@click.option("--opt-level", type=int, default=3, show_default=True, metavar="0..4",
              help="How much to optimise the graph, such as --opt-level 0 for not at all.")
@click.option("--name", help="The prefix of the C functions, such as --name net for net_run; by "
                             "default the output's name without its suffix.")
@click.option("--weights", type=click.Choice(["embedded", "separate"]), default="embedded",
              show_default=True,
              help="Where the weights go: into the library or, such as --weights separate says, to "
                   "a file beside it, which processes map and share.")
@click.option("--dump", type=click.Path(path_type=Path),
              help="Write the program after every pass to this folder, such as --dump passes; "
                   "then no kernel comes from the cache.")
@click.option("--schedules", metavar="LOG",
              help="Use the best schedules of a tuning log, such as --schedules tune.jsonl, or "
                   "--schedules none; by default those that come with minitvm and fit the target.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no report.")
def compile_command(model: Path, output: Path | None, shapes: tuple[str, ...], target: str | None,
                    opt_level: int, name: str | None, weights: str, dump: Path | None,
                    schedules: str | None, as_json: bool, quiet: bool) -> None:
    """Compiles the ONNX file MODEL to a shared library, with a C header and a sample beside it.

    \b
    minitvm compile model.onnx -o model.so --shape input=1,3,224,224
    """
    output = output or model.with_suffix(".so")
    if output.exists() and model.exists() and output.samefile(model):
        raise OptionError(f"the output {str(output)!r} is the model itself; name another file "
                          "by --output")
    given = parse_shapes(shapes)
    history = _history(schedules, target)
    start = time.perf_counter()
    with progress("reading the model", shown=not quiet) as moved:
        compiled = minitvm.compile(model, given, target, opt_level, history,
                                   name=name or output.stem, dump=dump, progress=moved,
                                   export=output, weights=weights)
    if quiet:
        return
    files = [output, *map(output.with_name, files_beside(compiled.program.name, weights))]
    report = {**compiled.summary(), "output": str(output), "files": [str(file) for file in files],
              "size_bytes": output.stat().st_size, "seconds": time.perf_counter() - start}
    if history is not None:
        covered = autotune.coverage(compiled.relay, history)
        report["schedules"] = {"tuned": covered.tuned, "total": covered.total,
                               "misses": [str(miss) for miss in covered.misses]}
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        print_compilation(report)


def _history(schedules: str | None, target: str | None) -> autotune.ApplyHistoryBest | None:
    """The schedules to compile with; None for the default ones."""
    if schedules == "none":
        return None
    if schedules is not None:
        return autotune.apply_history_best(schedules, target)
    known = autotune.shipped(target)
    return known if known.best else None


# --- run ----------------------------------------------------------------------------------------


@main.command("run")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy",
              help="An input, such as --input input=picture.npy; those not given are random, from "
                   "a fixed seed. May be repeated.")
@click.option("--output", "folder", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Write each output to FOLDER/NAME.npy, such as --output results.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True,
              help="Run so many times, after one run that is not counted, and report the latency; "
                   "such as --repeat 100.")
@click.option("--threads", type=int, default=1, show_default=True,
              help="Compute on so many threads, such as --threads 4.")
@click.option("--cpus", metavar="LIST",
              help="Pin worker threads to these CPUs, such as --cpus 0,1: the first is left to the "
                   "main thread, which is not pinned.")
@click.option("--weights", type=click.Path(path_type=Path), metavar="FILE",
              help="The weights of a model that was compiled to have them in a file, such as "
                   "--weights net.weights; by default the file beside it.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def run_command(model: Path, inputs: tuple[str, ...], folder: Path | None, repeat: int,
                threads: int, cpus: str | None, weights: Path | None, as_json: bool) -> None:
    """Runs the compiled model MODEL, a .so file, and says what came out and how long it took.

    \b
    minitvm run model.so --input input=picture.npy --output results
    """
    if model.suffix == ".onnx" and model.is_file():
        raise OptionError(f"{str(model)!r} is an ONNX model; compile it first, by "
                          f"minitvm compile {model}")
    module = minitvm.load(model, threads=threads, weights=weights,
                          cpus=None if cpus is None else parse_cpus(cpus))
    arrays = read_inputs(inputs, [info.name for info in module.inputs])
    random = [info for info in module.inputs if info.name not in arrays]
    arrays |= random_arrays(random)
    results, milliseconds = _measure(module, arrays, repeat)
    files = [] if folder is None else write_outputs(folder, results)
    report = {
        "model": str(model),
        "outputs": [_describe(name, value) for name, value in results.items()],
        "random_inputs": [info.name for info in random],
        "milliseconds": {"median": float(np.median(milliseconds)), "min": min(milliseconds),
                         "max": max(milliseconds)},
        "runs": repeat,
        "threads": module.threads,
        "files": [str(file) for file in files],
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        print_run(report)


def parse_cpus(text: str) -> list[int]:
    """`"0,2"` -> `[0, 2]`."""
    words = text.split(",")
    if not all(re.fullmatch(r" *[0-9]{1,4} *", word) for word in words):
        raise OptionError(f"--cpus {text!r} is not a list of CPU numbers; for example --cpus 0,1")
    return [int(word) for word in words]


def read_inputs(values: Sequence[str], known: Sequence[str]) -> dict[str, np.ndarray]:
    """`["x=x.npy"]` -> `{"x": array}`. `known` names decide where a name ends that holds `=`."""
    arrays: dict[str, np.ndarray] = {}
    for value in values:
        names = [name for name in known if value.startswith(f"{name}=")]
        name = max(names, key=len) if names else value.partition("=")[0]
        if "=" not in value or not name:
            raise OptionError(f"--input {value!r} is not NAME=FILE.npy; "
                              "for example --input input=picture.npy")
        if name in arrays:
            raise OptionError(f"--input is given twice for the input {name!r}")
        arrays[name] = _read_array(name, Path(value[len(name) + 1:]))
    return arrays


def _read_array(name: str, file: Path) -> np.ndarray:
    try:
        with file.open("rb") as stream:
            if stream.read(6) != b"\x93NUMPY":
                raise InputError(f"the input {name!r} can't be read: {str(file)!r} is not a .npy "
                                 "file; write one by numpy.save")
            stream.seek(0)
            return np.lib.format.read_array(stream, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, tokenize.TokenError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InputError(f"the input {name!r} can't be read from {str(file)!r}: {reason}") from None


def _measure(module: Module, inputs: Mapping[str, np.ndarray],
             repeat: int) -> tuple[dict[str, np.ndarray], list[float]]:
    """The outputs, and the milliseconds of each run."""
    milliseconds = []
    with progress("running", shown=repeat > 1) as moved:
        results = module.run(inputs) if repeat > 1 else {}
        for index in range(repeat):
            start = time.perf_counter()
            results = module.run(inputs)
            milliseconds.append(1e3 * (time.perf_counter() - start))
            moved("running", index + 1, repeat)
    return results, milliseconds


def _describe(name: str, value: np.ndarray) -> dict[str, Any]:
    """An output's type and range, for a report; JSON has no NaN and no infinity."""
    facts: dict[str, Any] = {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
    for key, function in (("min", np.min), ("mean", np.mean), ("max", np.max)):
        number = float(function(value.astype(np.float64))) if value.size else float("nan")
        facts[key] = number if np.isfinite(number) else None
    return facts


def write_outputs(folder: Path, results: Mapping[str, np.ndarray]) -> list[Path]:
    """Writes each output to a file named after it; a file appears whole or not at all."""
    files: dict[Path, np.ndarray] = {}
    for name, value in results.items():
        stem = re.sub(r"[^\w.+-]", "_", name)[:100]
        file = folder / f"{stem}.npy"
        while file in files:
            stem += "_"
            file = folder / f"{stem}.npy"
        files[file] = value
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, value in files.items():
            _write_whole(file, value)
    except OSError as error:
        raise InputError(f"the outputs can't be written to {str(folder)!r}: "
                         f"{error.strerror or error}") from error
    return list(files)


def _write_whole(file: Path, value: np.ndarray) -> None:
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with beside.open("wb") as stream:
            np.lib.format.write_array(stream, value, allow_pickle=False)
        os.replace(beside, file)
    finally:
        beside.unlink(missing_ok=True)


# --- bench --------------------------------------------------------------------------------------


@main.command("bench")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--shape", "shapes", multiple=True, metavar="NAME=DIM,DIM,...",
              help="The shape of an input, such as --shape input=1,3,224,224; needed where the "
                   "model leaves a size open. May be repeated.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy",
              help="An input, such as --input input=picture.npy; those not given are random, from "
                   "a fixed seed. May be repeated.")
@click.option("--against", metavar="NAME,NAME,...", default="",
              help=f"Engines to compare with, such as --against onnxruntime; there are "
                   f"{', '.join(PEERS)}.")
@click.option("--threads", metavar="N,N,...", default="1", show_default=True,
              help="How many threads the engines may use, such as --threads 1,2 to measure with "
                   "one and then with two.")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, show_default=True,
              help="How often the engines take turns, such as --rounds 100.")
@click.option("--cold", is_flag=True, help="Compile everything; take no kernel from the cache.")
@click.option("--profile", "profiled", is_flag=True,
              help="Also say where the time goes, by kernel and by ONNX node, on the first of the "
                   "numbers of threads.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def bench_command(model: Path, shapes: tuple[str, ...], inputs: tuple[str, ...], against: str,
                  threads: str, rounds: int, cold: bool, profiled: bool, as_json: bool) -> None:
    """Compiles the ONNX file MODEL and times it, alone or against other engines in turn.

    \b
    minitvm bench model.onnx --against onnxruntime,openvino --profile
    """
    context = PassContext.current()
    if cold:
        context = replace(context, config={**context.config, "cache.directory": None})
    arrays: dict[str, np.ndarray] = {}

    def inputs_of(compiled: minitvm.CompiledModule) -> Mapping[str, np.ndarray]:
        infos = compiled.program.inputs
        arrays.update(random_arrays(infos))
        arrays.update(read_inputs(inputs, [info.name for info in infos]))
        return arrays

    with context, progress("reading the model") as moved:
        report, compiled = bench(model, parse_shapes(shapes), against=_words(against),
                                 threads=parse_threads(threads), rounds=rounds, inputs=inputs_of,
                                 progress=moved)
    count = parse_threads(threads)[0]
    profile = compiled.profile(arrays, threads=count) if profiled else None
    if as_json:
        extra = {} if profile is None else {"profile": profile.data()}
        click.echo(json.dumps({**report, **extra}, indent=2))
        return
    print_bench(report)
    if profile is not None:
        click.echo()
        print_profile(profile)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def parse_threads(text: str) -> list[int]:
    """`"1,2"` -> `[1, 2]`."""
    words = _words(text)
    if not words or not all(re.fullmatch(r"[1-9][0-9]{0,3}", word) for word in words):
        raise OptionError(f"--threads {text!r} is not a list of positive integers; "
                          "for example --threads 1,2")
    return [int(word) for word in words]


# --- tune ---------------------------------------------------------------------------------------


@main.command("tune")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--log", type=click.Path(path_type=Path), required=True,
              help="The file that measurements are added to, such as --log tune.jsonl; what it has "
                   "is not measured again.")
@click.option("--time", "duration", metavar="DURATION",
              help="Tune for so long, such as --time 10m, 90s or 2h.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N",
              help="Measure so many candidates, those in the log included, such as --trials 2000.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=DIM,DIM,...",
              help="The shape of an input, such as --shape input=1,3,224,224; needed where the "
                   "model leaves a size open. May be repeated.")
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
@click.option("--replay", type=click.Path(path_type=Path), metavar="LOG",
              help="Measure nothing: take times from this log, such as --replay measured.jsonl.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def tune_command(model: Path, log: Path, duration: str | None, trials: int | None,
                 shapes: tuple[str, ...], target: str | None, threads: int, seed: int, tuner: str,
                 cold: bool, replay: Path | None, as_json: bool) -> None:
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
    tasks = autotune.extract_tasks(model, parse_shapes(shapes), target)
    with contextlib.ExitStack() as stack:
        records = stack.enter_context(autotune.Log.open(log))
        if replay is not None:
            measurer: Any = autotune.ReplayMeasurer(autotune.read_log(replay), threads, cache)
        else:
            timing = autotune.Timing(threads=threads, cache=cache)
            measurer = stack.enter_context(
                autotune.LocalMeasurer(autotune.MeasureOptions(timing=timing)))
        moved = stack.enter_context(progress("measuring"))
        report = autotune.tune_tasks(tasks, measurer, records, options, _watch(moved, options))
    data = {**report.data(), "log": str(log)}
    if as_json:
        click.echo(json.dumps(data, indent=2))
    else:
        print_tuning(data)
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


def parse_duration(text: str) -> float:
    """`"10m"` -> 600.0 seconds; also s and h."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(s|m|h)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise OptionError(f"--time {text!r} is not a duration; for example --time 90s, 10m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


# --- ops ----------------------------------------------------------------------------------------


@main.command("ops")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def ops_command(as_json: bool) -> None:
    """Lists the ONNX operators that can be imported, with their opsets.

    \b
    minitvm ops | grep Pool
    """
    table = minitvm.supported_onnx_operators()
    if as_json:
        click.echo(json.dumps(table, indent=2))
    else:
        rows = [(name, f"{first}-{last}") for name, (first, last) in sorted(table.items())]
        print_table(f"{len(rows)} ONNX operators", ("operator", "opsets"), rows)


if __name__ == "__main__":
    main()
