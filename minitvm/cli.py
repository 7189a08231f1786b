"""The `minitvm` command: compile a model, run it, time it, tune it, list the operators.

    minitvm compile model.onnx -o model.so
    minitvm run model.so --input input=picture.npy --repeat 50
    minitvm bench model.onnx --against onnxruntime
    minitvm tune model.onnx --log tune.jsonl --time 10m
    minitvm pick-best tune.jsonl -o best.jsonl
    minitvm ops

Results go to standard output, progress and errors to standard error. The exit status is 0, or 1 for
what minitvm refuses (one sentence, `error: ...`), 2 for a wrong command line, 130 after Ctrl-C, 143
where the process was asked to end.
"""

from __future__ import annotations

import difflib
import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np

import minitvm
from minitvm import autotune
from minitvm.bench import PEERS, ROUNDS, bench
from minitvm.cli_options import (
    model_inputs,
    parse_cpus,
    parse_fixed,
    parse_shapes,
    parse_threads,
    parse_words,
    read_inputs,
    read_schedules,
)
from minitvm.cli_tune import INTERRUPTED, pick_best_command, tune_command
from minitvm.errors import InputError, MinitvmError, OptionError
from minitvm.report import (
    print_bench,
    print_compilation,
    print_profile,
    print_run,
    print_table,
    progress,
)
from minitvm.runtime import Module
from minitvm.runtime.abi import files_beside
from minitvm.runtime.tensor_info import random_arrays
from minitvm.transform import PassContext

REFUSED, BROKEN_PIPE, TERMINATED = 1, 141, 143
"""Exit statuses, beside `INTERRUPTED`; a wrong command line is click's 2."""


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


@main.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="The shared library to write, such as -o build/model.so; by default the model's "
                   "name with .so, beside the model.")
@model_inputs
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
                   "--schedules none; by default, and by --schedules shipped, those that come with "
                   "minitvm and fit the target.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no report.")
def compile_command(model: Path, output: Path | None, shapes: tuple[str, ...],
                    fixed: tuple[str, ...], target: str | None, opt_level: int, name: str | None,
                    weights: str, dump: Path | None, schedules: str | None, as_json: bool,
                    quiet: bool) -> None:
    """Compiles the ONNX file MODEL to a shared library, with a C header and a sample beside it.

    \b
    minitvm compile model.onnx -o model.so --shape input=1,3,224,224
    """
    output = output or model.with_suffix(".so")
    if output.exists() and model.exists() and output.samefile(model):
        raise OptionError(f"the output {str(output)!r} is the model itself; name another file "
                          "by --output")
    given, constants = parse_shapes(shapes), parse_fixed(fixed)
    history = _history(schedules, target)
    start = time.perf_counter()
    with progress("reading the model", shown=not quiet) as moved:
        compiled = minitvm.compile(model, given, target, opt_level, history,
                                   name=name or output.stem, dump=dump, progress=moved,
                                   export=output, weights=weights, fixed=constants)
    if quiet:
        return
    files = [output, *map(output.with_name, files_beside(compiled.program.name, weights))]
    report = {**compiled.summary(), "output": str(output), "files": [str(file) for file in files],
              "size_bytes": output.stat().st_size, "seconds": time.perf_counter() - start}
    if history is not None:
        covered = _coverage(compiled, history, schedules or "shipped")
        if schedules is not None or covered["tuned"]:
            report["schedules"] = covered
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        print_compilation(report)


def _history(schedules: str | None, target: str | None) -> autotune.ApplyHistoryBest | None:
    """The schedules to compile with; None for the default ones."""
    if schedules is not None:
        return read_schedules(schedules, target)
    known = autotune.shipped(target)
    return known if known.best else None


def _coverage(compiled: minitvm.CompiledModule, history: autotune.ApplyHistoryBest,
              source: str) -> dict[str, Any]:
    """Which kernels are tuned, for a report."""
    covered = autotune.coverage(compiled.relay, history)
    return {"source": source, "tuned": covered.tuned, "total": covered.total,
            "misses": [str(miss) for miss in covered.misses]}


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
@click.option("--schedules", metavar="LOG", default="none",
              help="Also measure what the best schedules of a tuning log make of it, such as "
                   "--schedules tune.jsonl, or those that come with minitvm, --schedules shipped.")
@click.option("--cold", is_flag=True, help="Compile everything; take no kernel from the cache.")
@click.option("--profile", "profiled", is_flag=True,
              help="Also say where the time goes, by kernel and by ONNX node, on the first of the "
                   "numbers of threads.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def bench_command(model: Path, shapes: tuple[str, ...], inputs: tuple[str, ...], against: str,
                  threads: str, rounds: int, schedules: str, cold: bool, profiled: bool,
                  as_json: bool) -> None:
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

    history = read_schedules(schedules)
    with context, progress("reading the model") as moved:
        report, compiled = bench(model, parse_shapes(shapes), against=parse_words(against),
                                 threads=parse_threads(threads), rounds=rounds, schedules=history,
                                 inputs=inputs_of, progress=moved)
    if history is not None:
        report["schedules"] = _coverage(compiled, history, schedules)
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


main.add_command(tune_command)
main.add_command(pick_best_command)

if __name__ == "__main__":
    main()
