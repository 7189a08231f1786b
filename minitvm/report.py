"""What a command found -> text: rich tables on a terminal, plain aligned columns in a pipe.

Nothing that is piped is cut to a width or coloured. Progress bars go to standard error, and only
where that is a terminal. Names from models are shown as they are: no markup is read in them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

Report = Callable[[str, int, int], None]
"""`report(step, done, total)`: how far a long command is; a total of 0 is unknown."""

REFRESH_SECONDS = 0.1
SLOWEST_STEPS = 8


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, markup=False, emoji=False, highlight=False)


def _is_terminal(stream: TextIO | None) -> bool:
    """A stream is None where it was closed before Python started."""
    return stream is not None and stream.isatty()


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]],
                numbers: Sequence[int] = ()) -> None:
    """A table on standard output. `numbers` are the columns aligned to the right; `header` may be
    empty."""
    if not _is_terminal(sys.stdout):
        click.echo(_columns([header, *rows] if header else rows, numbers))
        return
    from rich.table import Table

    table = Table(title=title or None, show_header=bool(header))
    for index in range(len(rows[0]) if rows else len(header)):
        table.add_column(header[index] if header else "", overflow="fold",
                         justify="right" if index in numbers else "left")
    for row in rows:
        table.add_row(*row)
    _console(sys.stdout).print(table)


def _columns(rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    """The rows as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if index in numbers else cell.ljust(width)
                 for index, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


@contextmanager
def progress(first: str, shown: bool = True) -> Iterator[Report]:
    """A progress bar that begins with the step `first`; gives the function that moves it on.

    It is drawn only when moved, never from a thread of its own, which would disturb measurements.
    """
    if not shown or not _is_terminal(sys.stderr):
        yield lambda step, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())
    with Progress(*columns, console=_console(sys.stderr), transient=True,
                  auto_refresh=False) as bar:
        task = bar.add_task(first, total=None)
        bar.refresh()
        drawn = time.monotonic()

        def report(step: str, done: int, total: int) -> None:
            nonlocal drawn
            now = time.monotonic()
            if now - drawn >= REFRESH_SECONDS or done in (0, total):
                bar.update(task, description=step, completed=done, total=total or None)
                bar.refresh()
                drawn = now

        yield report


def print_compilation(report: Mapping[str, Any]) -> None:
    """What `minitvm compile` made: a summary, the slowest steps, and what was declined."""
    bound = max(report["workspace_lower_bound_bytes"], 1)
    tensors = [(kind[:-1], f"{item['name']}: {item['dtype']}{item['shape']}")
               for kind in ("inputs", "outputs") for item in report[kind]]
    rows = [
        ("target", report["target"]),
        *tensors,
        ("kernels", f"{report['kernel_calls']} calls of {report['kernels']} functions, "
                    f"{report['kernels_from_cache']} from the cache"),
        ("weights", _megabytes(report["weights_bytes"])),
        ("activations", f"{_megabytes(report['arena_bytes'])}, "
                        f"{report['arena_bytes'] / bound:.3f} of the lower bound"),
        ("size", _megabytes(report["size_bytes"])),
        ("time", f"{report['seconds']:.2f} s"),
        ("written", ", ".join(report["files"])),
    ]
    print_table(report["output"], (), rows)
    steps = [(step["name"], f"{step['seconds']:.3f}", str(step["runs"]))
             for step in report["steps"][:SLOWEST_STEPS]]
    click.echo()
    print_table("Where the time went", ("step", "seconds", "runs"), steps, numbers=(1, 2))
    for text in report["remarks"]:
        click.echo(f"remark: {text}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def print_run(report: Mapping[str, Any]) -> None:
    """What `minitvm run` computed, and how long it took."""
    if report["random_inputs"]:
        click.echo(f"random values for: {', '.join(report['random_inputs'])}")
    rows = [(item["name"], f"{item['dtype']}{item['shape']}",
             *("" if item[key] is None else f"{item[key]:.5g}" for key in ("min", "mean", "max")))
            for item in report["outputs"]]
    print_table("", ("output", "type", "min", "mean", "max"), rows, numbers=(2, 3, 4))
    times = report["milliseconds"]
    runs = "1 run" if report["runs"] == 1 else f"{report['runs']} runs"
    threads = "" if report["threads"] == 1 else f" on {report['threads']} threads"
    click.echo(f"{runs}{threads}: median {times['median']:.3f} ms, minimum {times['min']:.3f} ms, "
               f"maximum {times['max']:.3f} ms")
    for file in report["files"]:
        click.echo(f"written: {file}")
