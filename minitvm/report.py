"""What a command found -> text: rich tables on a terminal, plain aligned columns in a pipe.

Nothing that is piped is cut to a width or coloured. Progress bars go to standard error, and only
where that is a terminal. Names from models are shown as they are: no markup is read in them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from minitvm.text import columns

if TYPE_CHECKING:
    from rich.console import Console

    from minitvm.profile import Profile

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
                numbers: Container[int] = ()) -> None:
    """A table on standard output. `numbers` are the columns aligned to the right; `header` may be
    empty."""
    if not _is_terminal(sys.stdout):
        click.echo(columns([header, *rows] if header else rows, numbers))
        return
    from rich.table import Table

    table = Table(title=title or None, show_header=bool(header))
    for index in range(len(rows[0]) if rows else len(header)):
        table.add_column(header[index] if header else "", overflow="fold",
                         justify="right" if index in numbers else "left")
    for row in rows:
        table.add_row(*row)
    _console(sys.stdout).print(table)


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
    if "schedules" in report:
        schedules = report["schedules"]
        shipped = schedules["source"] == "shipped"
        source = ", by the schedules that come with minitvm" if shipped else ""
        click.echo(f"{schedules['tuned']}/{schedules['total']} kernels tuned{source}")
        for text in () if shipped else schedules["misses"]:
            click.echo(f"not tuned: {text}")


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


PLOT_COLUMNS, PLOT_ROWS = 64, 10


def print_tuning(report: Mapping[str, Any]) -> None:
    """What `minitvm tune` found: a row for each kernel, the curve of the whole, the sum."""
    header = ("kernel", "uses", "before us", "after us", "gain", "GFLOP/s", "trials", "failed")
    rows = [(task["name"], str(task["weight"]), *_before_after(task), str(task["trials"]),
             str(sum(task["failures"].values()) or "")) for task in report["tasks"]]
    print_table("", header, rows, numbers=range(1, len(header)))
    for problem in dict.fromkeys(filter(None, (task["problem"] for task in report["tasks"]))):
        names = [task["name"] for task in report["tasks"] if task["problem"] == problem]
        click.echo(f"not tuned: {', '.join(names)}: {problem}")
    if len(report["curve"]) > 1:
        click.echo()
        click.echo(plot([(x, 1e3 * y) for x, y in report["curve"]], "ms", "trials"))
    before, after = report["before_seconds"], report["after_seconds"]
    gain = f", {before / after:.3f} times as fast" if after else ""
    click.echo(f"{report['trials']} trials; these kernels of a run together: {1e3 * before:.3f} ms "
               f"before, {1e3 * after:.3f} ms after{gain}")
    click.echo(f"written: {report['log']}")


def _before_after(task: Mapping[str, Any]) -> tuple[str, ...]:
    before, after = task["before_seconds"], task["after_seconds"]
    if not after:
        return "", "", "", ""
    return (f"{1e6 * before:.1f}", f"{1e6 * after:.1f}", f"{before / after:.2f}",
            f"{task['gflops']:.1f}")


def print_in_place(report: Mapping[str, Any]) -> None:
    """What was compared in the runs of a network: kernels by themselves and in place, the whole."""
    threads = sorted({count for row in report["rows"] for count in row["times"]})
    header = ["kernel", "uses", "alone us", "after"]
    for count in threads:
        header += [f"{_counted(count, 'thread')} us", "after", "gain"]
    rows = [(row["name"], str(row["weight"]), *_microseconds(row["alone"])[:2],
             *(cell for count in threads for cell in _microseconds(row["times"].get(count))),
             "kept" if row["is_kept"] else "")
            for row in report["rows"] if row["compared"]]
    click.echo()
    if rows:
        print_table("In the network", (*header, ""), rows, numbers=range(1, len(header)))
    for run in report["networks"]:
        low, high = (1 / ratio for ratio in reversed(run["quartiles"]))
        click.echo(f"the network on {_counted(run['threads'], 'thread')}: "
                   f"{1e3 * run['before_seconds']:.3f} ms before, "
                   f"{1e3 * run['after_seconds']:.3f} ms after, {1 / run['ratio']:.3f} times as "
                   f"fast (quartiles {low:.3f} and {high:.3f})"
                   f"{'' if run['is_faster'] else ', which is noise'}")
    click.echo(f"kept: other schedules for {report['kept']} of {len(report['rows'])} kernels"
               if report["kept"] else
               "no other schedule makes the network faster beyond noise: the default ones stay")
    if report["problem"]:
        click.echo(f"a failure in the network: {report['problem']}")


def _microseconds(times: Sequence[float] | None) -> tuple[str, str, str]:
    if times is None:
        return "", "", ""
    before, after = times
    return f"{1e6 * before:.1f}", f"{1e6 * after:.1f}", f"{before / after:.2f}"


def plot(points: Sequence[tuple[float, float]], unit: str, along: str) -> str:
    """A falling curve as text: each column is the last value up to there."""
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    low, high = min(y for _, y in points), max(y for _, y in points)
    heights = []
    for column in range(PLOT_COLUMNS):
        limit = first + (last - first) * column / (PLOT_COLUMNS - 1)
        value = next(y for x, y in reversed(points) if x <= limit + 1e-9)
        heights.append(round((value - low) / (high - low or 1) * (PLOT_ROWS - 1)))
    lines = []
    for row in range(PLOT_ROWS - 1, -1, -1):
        label = high if row == PLOT_ROWS - 1 else low if row == 0 else None
        name = "" if label is None else f"{label:.3f} {unit}"
        lines.append(f"{name:>12} |" + "".join("*" if h == row else " " for h in heights).rstrip())
    end = f"{last:g} {along}"
    lines.append(" " * 13 + "+" + "-" * PLOT_COLUMNS)
    lines.append(" " * 14 + f"{first:g}".ljust(PLOT_COLUMNS - len(end)) + end)
    return "\n".join(lines)


def print_profile(profile: Profile, most: int = 15) -> None:
    """Where the time of a run goes: the slowest kernels, and the slowest ONNX nodes."""
    click.echo(profile.summary())
    for title, (header, rows) in (("By kernel", profile.kernels_table(most)),
                                  ("By ONNX node", profile.nodes_table(most))):
        click.echo()
        print_table(title, header, rows, numbers=range(1, len(header)))


def print_bench(report: Mapping[str, Any]) -> None:
    """What `minitvm bench` measured: the engines, for each number of threads."""
    artifact = report["artifact"]
    click.echo(f"{report['model']}: compiled in {artifact['compile_seconds']:.2f} s, "
               f"{artifact['kernels_from_cache']} of {artifact['kernels']} kernels from the cache, "
               f"{_megabytes(artifact['size_bytes'])}")
    if tuned := report.get("schedules"):
        click.echo(f"minitvm tuned: {tuned['tuned']}/{tuned['total']} kernels by the schedules of "
                   f"{tuned['source']}")
    header = ["engine", "p50 ms", "p99 ms", "min ms", "ratio by round", "of p50", "of min",
              "difference", "load s"]
    if any("tuned_ratio" in item for group in report["threads"] for item in group["engines"]):
        header.append("tuned by round")
    for group in report["threads"]:
        rows = []
        for item in group["engines"]:
            ratio = item["ratio"]
            rows.append([item["engine"],
                         *(f"{item['milliseconds'][key]:.3f}" for key in ("p50", "p99", "min")),
                         *(f"{ratio[key]:.3f}" for key in ("by_round", "p50", "min")),
                         f"{item['difference']:.1e}", f"{item['load_seconds']:.2f}"])
            if "tuned_ratio" in item:
                rows[-1].append(f"{item['tuned_ratio']['by_round']:.3f}")
        click.echo()
        click.echo(f"{_counted(group['threads'], 'thread')}, "
                   f"{_counted(report['rounds'], 'round')}")
        print_table("", header, rows, numbers=range(1, len(header)))
    click.echo("ratio: minitvm / engine, less than 1 is faster; difference: the largest, as a "
               "share of the largest value")
    click.echo(f"peak of this core in the same rounds: {report['peak_gflops']:.0f} GFLOP/s")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
