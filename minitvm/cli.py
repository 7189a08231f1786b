"""The `minitvm` command: compile a model, run it, list the operators.

    minitvm compile model.onnx -o model.so
    minitvm run model.so --input input=picture.npy --repeat 50
    minitvm ops
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import minitvm
from minitvm.errors import InputError, MinitvmError, OptionError

if TYPE_CHECKING:
    from rich.console import Console

FAILED = 1
"""The exit status when minitvm refuses something; click's own is 2, for wrong options."""


class _Command(click.Group):
    """Shows what minitvm refuses as one sentence on standard error."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MinitvmError as error:
            notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
            click.echo(f"error: {error}{notes}", err=True)
            sys.exit(FAILED)


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


@click.group(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(minitvm.__version__, prog_name="minitvm")
def main() -> None:
    """Compiles ONNX models to native shared libraries."""


def _shapes(values: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """`("x=1,3,224,224",)` -> `{"x": (1, 3, 224, 224)}`."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, equals, dims = value.rpartition("=")
        try:
            if not equals or not name:
                raise ValueError
            shapes[name] = tuple(int(dim) for dim in dims.split(",")) if dims.strip() else ()
        except ValueError:
            raise OptionError(
                f"--shape {value!r} is not NAME=DIM,DIM,...; for example --shape input=1,3,224,224"
            ) from None
    return shapes


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    """A progress bar; gives the callback that `minitvm.compile` takes."""
    if quiet:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())
    with Progress(*columns, console=_console(), transient=True) as progress:
        task = progress.add_task("reading the model", total=None)

        def report(step: str, done: int, total: int) -> None:
            progress.update(task, description=step, completed=done, total=total)

        yield report


@main.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help="The shared library to write; by default the model's name with .so.")
@click.option("--shape", "shape", multiple=True, metavar="NAME=DIM,DIM,...",
              help="The shape of an input; needed where the model leaves a dimension open.")
@click.option("--target", metavar="STRING",
              help="The machine to compile for, such as 'llvm -mcpu=x86-64-v3' or "
                   "'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76'; by default this one.")
@click.option("--opt-level", type=click.IntRange(0, 4), default=3, show_default=True,
              help="How much to optimise the graph.")
@click.option("--name", help="The prefix of the C functions; by default the output's stem.")
@click.option("--dump", type=click.Path(path_type=Path, file_okay=False),
              help="Write the program after every pass to this directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no report.")
def compile_command(model: Path, output: Path | None, shape: tuple[str, ...], target: str | None,
                    opt_level: int, name: str | None, dump: Path | None, as_json: bool,
                    quiet: bool) -> None:
    """Compiles an ONNX MODEL to a shared library, with a C header and a sample beside it."""
    output = output or model.with_suffix(".so")
    start = time.perf_counter()
    with _progress(quiet or as_json) as progress:
        compiled = minitvm.compile(
            model, shapes=_shapes(shape), target=target, opt_level=opt_level,
            name=name or output.stem, dump=dump, progress=progress, export=output,
        )
    report = {**compiled.summary(), "output": str(output),
              "size_bytes": output.stat().st_size, "seconds": time.perf_counter() - start}
    if as_json:
        click.echo(json.dumps(report, indent=2))
    elif not quiet:
        _print_report(report)


def _print_report(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(show_header=False, title=f"{report['output']}")
    table.add_row("target", report["target"])
    for kind in ("inputs", "outputs"):
        for tensor in report[kind]:
            shape = ", ".join(map(str, tensor["shape"]))
            table.add_row(kind[:-1], f"{tensor['name']}: {tensor['dtype']}[{shape}]")
    table.add_row("kernels", f"{report['kernel_calls']} calls of {report['kernels']} functions, "
                             f"{report['kernels_from_cache']} from the cache")
    bound = max(report["workspace_lower_bound_bytes"], 1)
    table.add_row("activations", f"{report['arena_bytes'] / 1e6:.2f} MB, "
                                 f"{report['arena_bytes'] / bound:.2f} of the lower bound")
    table.add_row("size", f"{report['size_bytes'] / 1e6:.2f} MB")
    table.add_row("time", f"{report['seconds']:.2f} s")
    console.print(table)
    times = Table("step", "seconds", "runs", title="Where the time went")
    times.columns[1].justify = times.columns[2].justify = "right"
    for step in report["steps"][:8]:
        times.add_row(step["name"], f"{step['seconds']:.3f}", str(step["runs"]))
    console.print(times)
    for text in report["remarks"]:
        console.print(f"[yellow]remark:[/] {text}", highlight=False)


def _read_input(value: str) -> tuple[str, np.ndarray]:
    name, equals, file = value.partition("=")
    if not equals:
        raise OptionError(f"--input {value!r} is not NAME=FILE.npy")
    try:
        return name, np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"the input {name!r} can't be read from {file}: {error}") from None


@main.command("run")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy",
              help="An input; those not given are random, from a fixed seed.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False),
              help="Write each output to NAME.npy in this directory.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True,
              help="Run so many times and report the latency.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def run_command(model: Path, inputs: tuple[str, ...], output: Path | None, repeat: int,
                as_json: bool) -> None:
    """Runs a compiled MODEL.so."""
    module = minitvm.load(model)
    given = dict(_read_input(value) for value in inputs)
    random = np.random.default_rng(0)
    for tensor in module.inputs:
        if tensor.name not in given:
            sample = random.random(tensor.shape) * (1 if "float" in tensor.dtype else 100)
            given[tensor.name] = sample.astype(tensor.dtype)
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        results = module.run(given)
        times.append(1e3 * (time.perf_counter() - start))
    if output is not None:
        _write_outputs(output, results)
    report = {
        "model": str(model),
        "outputs": [{"name": name, "dtype": str(value.dtype), "shape": list(value.shape),
                     "min": float(value.min()) if value.size else None,
                     "max": float(value.max()) if value.size else None,
                     "mean": float(value.mean()) if value.size else None}
                    for name, value in results.items()],
        "random_inputs": [t.name for t in module.inputs if t.name not in {v.partition("=")[0] for v in inputs}],
        "milliseconds": {"median": float(np.median(times)), "min": min(times), "max": max(times)},
        "runs": repeat,
    }
    click.echo(json.dumps(report, indent=2)) if as_json else _print_run(report)


def _write_outputs(directory: Path, results: dict[str, np.ndarray]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, value in results.items():
            np.save(directory / f"{name.replace('/', '_')}.npy", value)
    except OSError as error:
        raise InputError(f"the outputs can't be written to {directory}: {error}") from None


def _print_run(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if report["random_inputs"]:
        console.print(f"random values for: {', '.join(report['random_inputs'])}", highlight=False)
    table = Table("output", "type", "min", "mean", "max")
    for item in report["outputs"]:
        shape = ", ".join(map(str, item["shape"]))
        row = [f"{item[key]:.5g}" if item[key] is not None else "" for key in ("min", "mean", "max")]
        table.add_row(item["name"], f"{item['dtype']}[{shape}]", *row)
    console.print(table)
    times = report["milliseconds"]
    console.print(f"{report['runs']} runs: median {times['median']:.3f} ms, "
                  f"minimum {times['min']:.3f} ms, maximum {times['max']:.3f} ms", highlight=False)


@main.command("ops")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def ops_command(as_json: bool) -> None:
    """Lists the ONNX operators that can be imported, with their opsets."""
    table = minitvm.supported_onnx_operators()
    if as_json:
        click.echo(json.dumps(table, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table("operator", "opsets", title="ONNX operators")
    for name, opsets in sorted(table.items()):
        shown.add_row(name, str(opsets))
    Console().print(shown)


if __name__ == "__main__":
    main()
