"""Measured rows -> tables and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minitvm.bench.engines import OURS, TUNED
from minitvm.report import print_table

Row = Mapping[str, Any]


def print_networks(rows: Sequence[Row]) -> None:
    """A line for each network, number of threads and engine."""
    header = ("network", "threads", "engine", "p50 ms", "p99 ms", "min ms", "ratio by round",
              "of min", "of peak", "difference", "load s", "memory MB")
    tuned = any(TUNED in row["engines"] for row in rows)
    header += ("tuned by round",) * tuned
    lines = []
    for row in rows:
        for engine in row["engines"].values():
            times, ratio = engine["milliseconds"], engine["ratio"]
            lines.append((
                row["name"], str(row["threads"]), engine["engine"],
                *(f"{times[key]:.3f}" for key in ("p50", "p99", "min")),
                f"{ratio['by_round']:.3f}", f"{ratio['min']:.3f}",
                f"{engine['share_of_peak']:.0%}", f"{engine['difference']:.1e}",
                f"{engine['load_seconds']:.2f}", f"{engine['memory_bytes'] / 1e6:.0f}",
                *([f"{engine['tuned_ratio']['by_round']:.3f}"] if tuned else [])))
    if lines:
        print()
        print_table("networks", header, lines, numbers=(1, *range(3, len(header))))
        print()
        _print_artifacts(rows)


def _print_artifacts(rows: Sequence[Row]) -> None:
    header = ("minitvm", "compile s", "kernels", "library MB", "weights MB", "workspace MB")
    lines = {}
    for row in rows:
        made = row["artifact"]
        lines[row["name"]] = (
            row["name"], f"{made['compile_seconds']:.1f}", str(made["kernels"]),
            *(f"{made[key] / 1e6:.1f}" for key in ("size_bytes", "weights_bytes",
                                                   "workspace_bytes")))
    print_table("what minitvm made", header, list(lines.values()), numbers=range(1, len(header)))


def print_operators(rows: Sequence[Row]) -> None:
    """A line for each operator: the least times, and how near minitvm is to the roofline."""
    peers = list(dict.fromkeys(name for row in rows for name in row["engines"] if name != OURS))
    header = ("operator", "threads", "minitvm us", *(f"{name} us" for name in peers),
              *(f"ratio to {name}" for name in peers), "GFLOP/s", "of roofline", "difference")
    lines = []
    for row in rows:
        engines = row["engines"]
        ours = engines[OURS]
        worst = max((engine["difference"] for engine in engines.values()), default=0.0)
        lines.append((
            row["name"], str(row["threads"]), f"{1e3 * ours['milliseconds']['min']:.1f}",
            *(_figure(engines.get(name), lambda e: f"{1e3 * e['milliseconds']['min']:.1f}")
              for name in peers),
            *(_figure(engines.get(name), lambda e: f"{e['ratio']['by_round']:.2f}")
              for name in peers),
            f"{ours['gflops']:.0f}" if row["flops"] else "", f"{roofline_share(row):.0%}",
            f"{worst:.1e}"))
    if lines:
        print()
        print_table("operators", header, lines, numbers=range(1, len(header)))


def _figure(engine: Mapping[str, Any] | None, text: Any) -> str:
    return "" if engine is None else str(text(engine))


def roofline_share(row: Row) -> float:
    """The time that the machine's limits leave no way around, by the time that minitvm took.

    The limits are those of the cores in use: their peak, and how fast one core reads as many bytes
    as the operator touches, from where they lie after the run before.
    """
    least = max(row["flops"] / (row["peak_gflops"] * row["threads"]),
                row["bytes"] / (row["gigabytes"] * row["threads"])) / 1e9
    return float(1e3 * least / row["engines"][OURS]["milliseconds"]["min"])


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Draws the ratios by round, with their middle halves; below 1 minitvm is faster."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = report["rows"]
    peers = list(dict.fromkeys(name for row in rows for name in row["engines"] if name != OURS))
    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.3 * len(rows)), layout="constrained")
    for offset, name in enumerate(peers):
        places, values, errors = [], [], []
        for place, row in enumerate(rows):
            if name in row["engines"]:
                ratio = row["engines"][name]["ratio"]
                low, high = ratio["quartiles"]
                places.append(place + 0.2 * (offset - (len(peers) - 1) / 2))
                values.append(ratio["by_round"])
                errors.append((max(ratio["by_round"] - low, 0), max(high - ratio["by_round"], 0)))
        axes.errorbar(values, places, xerr=list(zip(*errors)), fmt="o", label=f"to {name}")
    axes.axvline(1, color="grey", linewidth=1)
    axes.set_yticks(range(len(rows)), [f"{row['name']}, {row['threads']}" for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("minitvm's time by the other's, median of the rounds")
    axes.set_title(f"{report['machine']['cpu']}, {report['machine']['date']}", fontsize=10)
    if peers:
        axes.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
